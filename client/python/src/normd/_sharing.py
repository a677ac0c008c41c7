"""Which tensors of a call lie in shared memory: chosen by itself for a server on the same host.

Ordinary arrays of COPIED_BYTES and more are copied once into a region and their results once out of it; arrays from
`Client.empty` are not copied at all. Where shared memory cannot be had, tensors are sent. After a call that ended
without the server's word the regions that it named are given up, because the server may still be writing there.
In the path: between Core.normalize and the regions of _region.py.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from normd import _arrays
from normd._arrays import Operand
from normd._region import SOCKET_SUFFIX, Arena, Block, Region
from normd._request import LIKE_X, Y, NormalizeCall, Place
from normd._wire import SharedRange
from normd.errors import Cancelled, DeadlineExceeded, Error, InvalidArgument, NotFound

# Below COPIED_BYTES it is faster to send a tensor than to copy it, below SHARED_BYTES even than to leave it where it
# lies. Median us of a LayerNorm over the Unix socket, sent, copied, and neither, on two cores of an EPYC: 64 KiB 616,
# 733 and 632; 128 KiB 668, 774 and 630; 192 KiB 684, 739 and 556; 256 KiB 623, 552 and 496.
SHARED_BYTES = 128 << 10
COPIED_BYTES = 256 << 10
REGION_BYTES = 32 << 20
MAX_TOTAL_BYTES = 1 << 30  # of each arena
MAX_COPIED_BYTES = MAX_TOTAL_BYTES // 4  # of one tensor that is copied in: x, residual, y and h must fit
PATIENCE = 1.0  # seconds that a call waits for a region, which it can do without
_FIRST_BACKOFF, _LAST_BACKOFF = 0.1, 10.0


def is_supported() -> bool:
    """Whether this system can share memory by descriptor."""
    return hasattr(os, "memfd_create")


class SharedCall:
    """Where the tensors of one call lie. End it with Sharing.end."""

    def __init__(self) -> None:
        self.place = Place()
        self.in_place = False  # y replaces x: the call must not be sent twice
        self.named: Dict[Region, Arena] = {}  # all regions that the request names
        self.blocks: List[Block] = []  # of this call alone
        self.outputs: Dict[int, np.ndarray[Any, np.dtype[Any]]] = {}  # where the server writes
        self.kept: set[int] = set()  # outputs that the caller gets as they are, without a copy
        self.certain = True  # False: the server may still be at work on the request

    def note(self, error: BaseException) -> None:
        """Takes note of how an attempt failed."""
        ended_here = not isinstance(error, Error) or isinstance(error, (DeadlineExceeded, Cancelled))
        if ended_here or not error.has_details:  # type: ignore[attr-defined]
            self.certain = False

    @staticmethod
    def is_to_be_sent(error: Error) -> bool:
        """True if the server does not know the region, or takes none: the tensors are sent then."""
        lost = isinstance(error, NotFound) and error.reason == "REGION_NOT_FOUND"
        return lost or (isinstance(error, InvalidArgument) and ".shared" in error.field)


class Sharing:
    """The regions shared with one server, by the path of its Unix socket. Safe from any thread."""

    def __init__(self, path: str) -> None:
        # Arrays of the caller's come from an arena of their own, because the other may be given up at any time.
        self.arrays = Arena(path + SOCKET_SUFFIX, REGION_BYTES, MAX_TOTAL_BYTES, PATIENCE)
        self.calls = Arena(path + SOCKET_SUFFIX, REGION_BYTES, MAX_TOTAL_BYTES, PATIENCE)
        self._next_try = 0.0
        self._backoff = _FIRST_BACKOFF

    def has(self, tensor: Operand) -> bool:
        """Whether the tensor is the caller's in shared memory."""
        return self._find(tensor) is not None

    def begin(self, call: NormalizeCall) -> Optional[SharedCall]:
        """Puts the call's tensors into shared memory; None if they are to be sent. May block to register a region."""
        if call.validate_only or call.x.size < SHARED_BYTES:
            return None
        found = self._find(call.x)
        if found is None and not COPIED_BYTES <= call.x.size <= MAX_COPIED_BYTES:
            return None
        if time.monotonic() < self._next_try:
            return None
        try:
            return self._place(call, found)
        except Error:
            self._next_try = time.monotonic() + self._backoff
            self._backoff = min(2 * self._backoff, _LAST_BACKOFF)
            return None

    def _place(self, call: NormalizeCall, found: Optional[SharedRange]) -> SharedCall:
        shared = SharedCall()
        place = shared.place
        place.x = found or self._copy_in(call.x, shared)
        if found is not None:
            self._name(shared, call.x.words)
        residual = call.residual
        if residual is not None:
            place.residual = self._find(residual)
            if place.residual is not None:
                self._name(shared, residual.words)
            elif residual.size >= COPIED_BYTES:
                place.residual = self._copy_in(residual, shared)
        for kind in call.outputs:
            if kind in LIKE_X:
                self._place_output(call, kind, found is not None, shared)
        return shared

    def _place_output(self, call: NormalizeCall, kind: int, keep: bool, shared: SharedCall) -> None:
        """The output goes to the caller's array, if that is shared, or to a new block."""
        place, words = shared.place, call.destinations.get(kind)
        where = None if words is None else self._find_words(words)
        if where is not None and words is not None:
            over_x = where == place.x and kind == Y
            others = [one for one in (place.x, place.residual, *place.outputs.values()) if one is not None]
            if over_x or not any(_overlap(where, other) for other in others):
                shared.in_place |= over_x
                place.outputs[kind], shared.outputs[kind] = where, words
                shared.kept.add(kind)
                self._name(shared, words)
                return
        keep = keep and words is None
        arena = self.arrays if keep else self.calls
        block = self._take(arena, call.x.size, shared)
        place.outputs[kind] = SharedRange(block.region.name, block.offset, block.size)
        shared.outputs[kind] = block.words(_arrays.WORDS[call.x.dtype], call.x.shape)
        if keep:
            shared.kept.add(kind)

    def _copy_in(self, tensor: Operand, shared: SharedCall) -> SharedRange:
        block = self._take(self.calls, tensor.size, shared)
        np.copyto(block.words(tensor.words.dtype, tensor.shape), tensor.words)
        shared.blocks.append(block)
        return SharedRange(block.region.name, block.offset, block.size)

    def _take(self, arena: Arena, size: int, shared: SharedCall) -> Block:
        block = arena.try_take(size) or arena.grow(size)
        shared.named[block.region] = arena
        return block

    def _find(self, tensor: Operand) -> Optional[SharedRange]:
        return self._find_words(tensor.words)

    def _find_words(self, words: np.ndarray[Any, np.dtype[Any]]) -> Optional[SharedRange]:
        if not self.arrays.mapped_bytes or not words.nbytes or not words.flags.c_contiguous:
            return None
        found = self.arrays.find(words.__array_interface__["data"][0], words.nbytes)
        if found is None:
            return None
        region, offset = found
        if not region.registered:
            self.arrays.drop(region)
            return None
        return SharedRange(region.name, offset, words.nbytes)

    def _name(self, shared: SharedCall, words: np.ndarray[Any, np.dtype[Any]]) -> None:
        found = self.arrays.find(words.__array_interface__["data"][0], words.nbytes)
        if found is not None:
            shared.named[found[0]] = self.arrays

    def end(self, shared: SharedCall) -> None:
        """Gives up the regions of a call of which it is not known whether the server is done with it."""
        if shared.certain:
            return
        for region, arena in shared.named.items():
            arena.drop(region)
        shared.named.clear()

    def empty(self, shape: Tuple[int, ...], words: "np.dtype[Any]") -> np.ndarray[Any, np.dtype[Any]]:
        """An array in a region. Raises normd.Error if there is none."""
        size = int(np.prod(shape, dtype=np.int64)) * words.itemsize
        if size == 0:
            return np.empty(shape, words)
        block = self.arrays.try_take(size) or self.arrays.grow(size)
        return block.words(words, shape)

    def close(self) -> None:
        self.arrays.close()
        self.calls.close()

    def separate(self) -> None:
        """In a forked child: the memory of parent and child is no longer the same."""
        self.arrays.separate()
        self.calls.separate()


def _overlap(one: SharedRange, other: SharedRange) -> bool:
    return (
        one.region == other.region
        and one.offset < other.offset + other.size_bytes
        and other.offset < one.offset + one.size_bytes
    )
