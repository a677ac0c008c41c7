"""Calls that were made before: their bytes but for the arrays.

A small call spends most of this package's time on what is the same each time: checking arguments, encoding the spec,
reading the reply's metadata. A Template is the request of a call with holes for its arrays, and how the reply began
the last time. A call whose arguments, dtypes and shapes were seen before fills the holes, and a reply that begins as
the last one did is not parsed. (The server does the same on its side.) In the path: in Core.operate, before a
NormalizeCall is made. Threads: a dict's own guarantees are enough.
"""

from __future__ import annotations

from typing import Any, Dict, Hashable, List, Optional, Tuple

import numpy as np

from normd import _arrays, _wire
from normd._request import NormalizeCall, Y

Array = np.ndarray[Any, np.dtype[Any]]

# A program that calls with ever new shapes must not fill the memory.
MAX_TEMPLATES = 1024


class Template:
    """The request and the reply of one kind of call."""

    __slots__ = ("_parts", "_holes", "_words", "_dtype", "_shape", "_reply_head", "_reply_size")

    def __init__(self, call: NormalizeCall, x: Array, parameters: Tuple[Optional[Array], ...]) -> None:
        # Arrays are told apart by their order, not by identity: one array may be given twice (ones as weight and variance).
        given = [index for index, one in enumerate(parameters, 1) if one is not None and one.size]
        order = iter([*given, 0])  # x is the last field of a request
        self._parts: List[Any] = []
        self._holes: List[Tuple[int, int]] = []  # where in _parts, and which array: 0 is x
        for part in (part for piece in call.encode() for part in piece.parts):
            if isinstance(part, bytes):
                if self._parts and isinstance(self._parts[-1], bytes):
                    self._parts[-1] += part
                else:
                    self._parts.append(part)
                continue
            self._holes.append((len(self._parts), next(order)))
            self._parts.append(None)
        self._words = _arrays.WORDS[_arrays.BF16] if call.x.dtype == _arrays.BF16 else None
        self._dtype, self._shape = x.dtype, x.shape
        self._reply_head, self._reply_size = b"", -1

    def encode(self, x: Array, parameters: Tuple[Optional[Array], ...]) -> bytes:
        if self._words is not None:
            x = x.view(self._words)
        parts = self._parts.copy()
        for at, which in self._holes:
            parts[at] = parameters[which - 1] if which else x
        return b"".join(parts)

    def learn(self, reply: _wire.Reply) -> None:
        """Remembers how a reply with y alone begins."""
        if len(reply.outputs) == 1 and reply.moments is None and reply.outputs[0].kind == Y:
            y = reply.outputs[0]
            if y.shape == self._shape and y.offset >= 0 and y.offset + y.size == len(reply.data):
                self._reply_head, self._reply_size = reply.data[: y.offset], len(reply.data)

    def decode(self, data: bytes, out: Optional[Array]) -> Optional[Array]:
        """y, in `out` if that is given; None if the reply does not begin as the last one did."""
        if len(data) != self._reply_size or not data.startswith(self._reply_head):
            return None
        y = np.ndarray(self._shape, self._dtype, data, len(self._reply_head))
        if out is None:
            return y.copy()
        np.copyto(out, y)
        return out


class Templates:
    """The templates of one client."""

    def __init__(self) -> None:
        self._by_key: Dict[Hashable, Template] = {}

    @staticmethod
    def is_like(out: Any, x: Any) -> bool:
        """Whether y may be written into `out` without a further look."""
        if type(out) is not np.ndarray or type(x) is not np.ndarray:
            return False
        return out.dtype == x.dtype and out.shape == x.shape and out.flags.writeable

    @staticmethod
    def key(make: Any, x: Any, parameters: Tuple[Any, ...], attributes: Hashable) -> Optional[Hashable]:
        """What a call is known by; None for a call that has no template."""
        if type(x) is not np.ndarray or not x.flags.c_contiguous or not x.dtype.isnative or not x.size:
            return None
        key: List[Hashable] = [make, attributes, x.dtype, x.shape]
        for one in parameters:
            if one is None:
                key.append(None)
                continue
            # kind "f": bf16 cannot be joined as it is, and parameters of that type take the long way.
            if type(one) is not np.ndarray or one.dtype.kind != "f" or not one.dtype.isnative or not one.shape:
                return None
            if not one.flags.c_contiguous:
                return None
            key.append((one.dtype, one.shape))
        made = tuple(key)
        try:
            hash(made)
        except TypeError:
            return None  # a list as normalized_shape: the spec makes a tuple of it
        return made

    def get(self, key: Hashable) -> Optional[Template]:
        return self._by_key.get(key)

    def add(self, key: Hashable, template: Template) -> None:
        if len(self._by_key) >= MAX_TEMPLATES:
            self._by_key.clear()
        self._by_key[key] = template
