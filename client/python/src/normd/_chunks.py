"""Tensors that do not fit in one message: in pieces, where rows do not depend on one another, or as chunks of a stream.

A method whose statistics never cross axis 0 (LayerNorm over the last axes, for example) gives the same bytes when it
is called for a few rows at a time, and so takes arrays of any size. Other tensors are sent as chunks on a
NormalizeStream, up to the server's max_tensor_bytes. In the path: beside the unary call of Core.normalize.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator, List, Optional

import numpy as np

from normd import _arrays, _wire, specs
from normd._crc32c import crc32c
from normd._proto import normalizer_pb2, tensor_pb2
from normd._request import LIKE_X, NormalizeCall, Place
from normd.errors import DataLoss, from_status

SEQUENCE = 1
CHUNK_BYTES = 1 << 20  # what servers send; larger ones gain nothing
OTHER_BYTES = 256  # the other fields of a chunk's message
SMALLEST_CHUNK_BYTES = 256

_SEQUENCE_FIELD = b"\x08\x01"


def chunk_bytes(limits: normalizer_pb2.Limits) -> int:
    size = CHUNK_BYTES
    if limits.max_chunk_bytes > 0:
        size = min(size, limits.max_chunk_bytes)
    if limits.max_message_bytes > 0:
        size = min(size, limits.max_message_bytes - OTHER_BYTES)
    return max(size, SMALLEST_CHUNK_BYTES)


def messages(call: NormalizeCall, size: int) -> Iterator[bytes]:
    """The StreamRequests of a call: the call itself, then the chunks of its residual and of x."""
    request = _wire.concatenate(call.encode(Place(chunked=True)))
    yield _wire.join([_wire.piece(_SEQUENCE_FIELD), _wire.wrap(15, request)])
    for tensor in (call.residual, call.x):
        if tensor is not None:
            yield from _cut(np.ascontiguousarray(tensor.words).reshape(-1).view(np.uint8), size)


def _cut(data: np.ndarray[Any, np.dtype[np.uint8]], size: int) -> Iterator[bytes]:
    for offset in range(0, max(len(data), 1), size):
        part = data[offset : offset + size]
        last = offset + len(part) == len(data)
        head = (b"\x08" + _wire.varint(offset) if offset else b"") + b"\x12" + _wire.varint(len(part))
        tail = (b"\x18\x01" if last else b"") + b"\x25" + crc32c(part).to_bytes(4, "little")
        chunk = _wire.Piece((head, part, tail), len(head) + len(part) + len(tail))
        yield _wire.join([_wire.piece(_SEQUENCE_FIELD), _wire.wrap(3, chunk)])


class Joiner:
    """Joins the reply to a call in chunks."""

    def __init__(self, call: NormalizeCall) -> None:
        self._call = call
        self.reply: Optional[_wire.Reply] = None
        self.outputs: dict[int, np.ndarray[Any, np.dtype[Any]]] = {}
        self._waiting: List[_wire.OutputTensor] = []
        self._filled = 0

    @property
    def complete(self) -> bool:
        return self.reply is not None and not self._waiting

    def take(self, data: bytes) -> None:
        """Takes one StreamResponse. Raises the server's error, or DataLoss."""
        message = normalizer_pb2.StreamResponse.FromString(data)
        if message.HasField("error"):
            # Fields are named from the stream's message; the caller made a call.
            message.error.message = message.error.message.removeprefix("call.")
            error = from_status(message.error)
            error.field = error.field.removeprefix("call.")
            raise error
        if message.sequence != SEQUENCE or self.complete:
            raise DataLoss("reply in chunks: a message that belongs to no call")
        if message.HasField("reply"):
            self._take_reply(message.reply.SerializeToString())
        else:
            self._take_chunk(message.chunk)

    def _take_reply(self, data: bytes) -> None:
        self.reply = _wire.read_reply(data)
        for output in self.reply.outputs:
            if output.chunked:
                words = self._call.destinations.get(output.kind)
                if words is None or not words.flags.c_contiguous or self._is_input(words):
                    words = np.empty(output.shape, _arrays.WORDS[output.dtype])
                self.outputs[output.kind] = words
                self._waiting.append(output)

    def _is_input(self, words: np.ndarray[Any, np.dtype[Any]]) -> bool:
        """Whether chunks written there would change what another attempt sends."""
        tensors = (self._call.x, self._call.residual)
        return any(one is not None and np.may_share_memory(words, one.words) for one in tensors)

    def _take_chunk(self, chunk: tensor_pb2.Chunk) -> None:
        if self.reply is None:
            raise DataLoss("reply in chunks: chunks came first")
        whole = self.outputs[self._waiting[0].kind].reshape(-1).view(np.uint8)
        part = np.frombuffer(chunk.data, np.uint8)
        end = self._filled + len(part)
        if chunk.offset != self._filled or end > len(whole) or chunk.last != (end == len(whole)):
            raise DataLoss(f"reply in chunks: {len(part)} bytes at {chunk.offset} where {self._filled} were expected")
        if crc32c(part) != chunk.crc32c:
            raise DataLoss(f"reply in chunks: the checksum of the chunk at {chunk.offset} is wrong")
        whole[self._filled : end] = part
        self._filled = end
        if chunk.last:
            self._waiting.pop(0)
            self._filled = 0


def rows_are_independent(spec: Optional[specs.Spec], rank: int) -> bool:
    """Whether y of rows [i:j] of axis 0 depends on these rows alone."""
    if rank < 2 or spec is None:
        return False
    if isinstance(spec, (specs.LayerNorm, specs.RMSNorm)):
        if spec.axes is not None:
            return all(axis % rank != 0 for axis in spec.axes)
        shape = spec.normalized_shape
        return len(shape) < rank if isinstance(shape, tuple) else True  # None: the last axis
    if isinstance(spec, specs.LpNorm):
        axes = (-1,) if spec.dim is None else (spec.dim,) if isinstance(spec.dim, int) else tuple(spec.dim)
        return all(axis % rank != 0 for axis in axes)
    if isinstance(spec, (specs.GroupNorm, specs.InstanceNorm)):
        return True
    return isinstance(spec, (specs.PRMSNorm, specs.ScaleNorm))


def can_be_cut(call: NormalizeCall) -> bool:
    """Whether the call may be made for a few rows at a time. Statistics as outputs would have to be joined."""
    spec, rank = call.target.spec, len(call.x.shape)
    given = isinstance(spec, (specs.BatchNorm, specs.PowerNorm)) and not call.training and rank >= 2
    independent = (given or rows_are_independent(spec, rank)) and call.mask is None and not call.validate_only
    return independent and all(kind in LIKE_X for kind in call.outputs) and not _writes_into_later_rows(call)


def _writes_into_later_rows(call: NormalizeCall) -> bool:
    """Whether the results of a piece may change rows that a later piece sends. x itself as `out` is no such case."""

    def layout(words: np.ndarray[Any, np.dtype[Any]]) -> Any:
        return words.__array_interface__["data"][0], words.strides

    inputs = [one.words for one in (call.x, call.residual) if one is not None]
    return any(
        np.may_share_memory(words, given) and layout(words) != layout(given)
        for words in call.destinations.values()
        for given in inputs
    )


def message_bytes(call: NormalizeCall) -> int:
    """About how large the call's message is, or its reply, whichever is larger."""
    request = call.x.size + sum(one.size for one in call.parameters if one is not None)
    if call.residual is not None:
        request += call.residual.size
    reply = call.x.size * sum(kind in LIKE_X for kind in call.outputs)
    return max(request, reply) + 4096


def rows_per_piece(call: NormalizeCall, max_bytes: int) -> int:
    """How many rows of axis 0 go into one message of at most about `max_bytes`: at least one."""
    fixed = sum(one.size for one in call.parameters if one is not None)
    row_bytes = max(1, (message_bytes(call) - fixed) // max(call.x.shape[0], 1))
    return max(1, (max_bytes - fixed) // row_bytes)


def prepare_destinations(call: NormalizeCall) -> None:
    """Gives every output memory of its own, for pieces to be written into."""
    for kind in call.outputs:
        if kind not in call.destinations:
            words = np.empty(call.x.shape, _arrays.WORDS[call.x.dtype])
            call.destinations[kind], call.returned[kind] = words, call.x.restore(words)


def cut(call: NormalizeCall, start: int, stop: int) -> NormalizeCall:
    """The call for the rows [start:stop], which writes into the same destinations."""

    def rows(tensor: _arrays.Operand) -> _arrays.Operand:
        return tensor._replace(shape=(stop - start, *tensor.shape[1:]), words=tensor.words[start:stop])

    destinations = {kind: words[start:stop] for kind, words in call.destinations.items()}
    return dataclasses.replace(
        call,
        x=rows(call.x),
        residual=None if call.residual is None else rows(call.residual),
        destinations=destinations,
        returned=dict(destinations),
        progress=None,
    )
