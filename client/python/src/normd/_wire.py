"""Requests and replies as bytes, written and read by hand.

A generated message costs two copies of a tensor on its way out (into the message, and out of it when it is
serialised) and two on its way in. Here a request is the bytes of its small fields and the caller's array, joined once,
and a reply is read in place: the tensor is a view of the received bytes. The channel's serialisers are therefore
None, which means bytes. What a reply seldom holds is left to protobuf. Pure functions; no gRPC.
"""

from __future__ import annotations

import functools
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from normd._proto import normalizer_pb2

Buffer = Union[bytes, memoryview, "np.ndarray[Any, np.dtype[Any]]"]

# Tags of one byte: field number * 8 + wire type (0: varint, 2: length).
_VARINT, _LENGTH = 0, 2
TENSOR_DTYPE, TENSOR_SHAPE, TENSOR_SHARED, TENSOR_CHUNKED, TENSOR_DATA = 0x08, 0x12, 0x1A, 0x22, 0x7A
OUTPUT_KIND, OUTPUT_MOMENTS, OUTPUT_TENSOR = 0x08, 0x12, 0x7A
RESPONSE_APPLIED, RESPONSE_STATE, RESPONSE_TIMINGS, RESPONSE_OUTPUTS = 0x0A, 0x12, 0x1A, 0x7A


def varint(value: int) -> bytes:
    """A non-negative number as a varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def key(field: int, wire_type: int = _LENGTH) -> bytes:
    return varint(field << 3 | wire_type)


def read_varint(data: bytes, at: int) -> Tuple[int, int]:
    """The number at `at` and where it ends."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


class SharedRange(NamedTuple):
    """Where in a registered region a tensor lies."""

    region: str
    offset: int
    size_bytes: int

    def encode(self) -> bytes:
        name = self.region.encode()
        return b"\x0a%b%b\x10%b\x18%b" % (varint(len(name)), name, varint(self.offset), varint(self.size_bytes))


@functools.lru_cache(maxsize=1024)
def _tensor_head(dtype: int, shape: Tuple[int, ...]) -> bytes:
    """The fields dtype and shape of a Tensor."""
    extents = b"".join(map(varint, shape))
    head = b"\x08" + varint(dtype) if dtype else b""
    return head + (b"\x12" + varint(len(extents)) + extents if shape else b"")


class Piece(NamedTuple):
    """A length-delimited field that is being written: its parts, and how many bytes they have."""

    parts: Tuple[Buffer, ...]
    size: int


def piece(*parts: bytes) -> Piece:
    return Piece(parts, sum(map(len, parts)))


def wrap(field: int, content: Piece) -> Piece:
    """`content` as the field `field` of the message around it."""
    head = key(field) + varint(content.size)
    return Piece((head, *content.parts), len(head) + content.size)


def concatenate(pieces: Sequence[Piece]) -> Piece:
    return Piece(tuple(part for one in pieces for part in one.parts), sum(one.size for one in pieces))


def inline_tensor(dtype: int, shape: Tuple[int, ...], data: Buffer, size: int) -> Piece:
    """A Tensor whose elements are sent with it."""
    head = _tensor_head(dtype, shape) + b"\x7a" + varint(size)
    return Piece((head, data) if size else (head,), len(head) + size)


def shared_tensor(dtype: int, shape: Tuple[int, ...], where: SharedRange) -> Piece:
    place = where.encode()
    return piece(_tensor_head(dtype, shape) + b"\x1a" + varint(len(place)) + place)


def chunked_tensor(dtype: int, shape: Tuple[int, ...], size: int) -> Piece:
    content = b"\x08" + varint(size) if size else b""
    return piece(_tensor_head(dtype, shape) + b"\x22" + varint(len(content)) + content)


def output_request(kind: int, where: Optional[SharedRange]) -> Piece:
    content = b"\x08" + varint(kind)
    if where is not None:
        place = where.encode()
        content += b"\x12" + varint(len(place)) + place
    return piece(content)


def join(pieces: Sequence[Piece]) -> bytes:
    """All of it in one string: the one copy of a tensor that this package makes on its way out."""
    return b"".join(part for one in pieces for part in one.parts)  # type: ignore[misc]  # ndarray is a buffer


# ---- Replies


class OutputTensor(NamedTuple):
    """One output of a reply: where its elements lie in the reply's bytes."""

    kind: int
    dtype: int
    shape: Tuple[int, ...]
    offset: int  # of the elements in the reply; -1 if they are elsewhere (shared, chunked)
    size: int
    chunked: bool


class Reply(NamedTuple):
    """A NormalizeResponse, not parsed where nobody may ask: applied, state and timings are ranges of `data`."""

    data: bytes
    outputs: List[OutputTensor]
    applied: Tuple[int, int]
    state: Optional[Tuple[int, int]]
    timings: Tuple[int, int]
    moments: Optional[normalizer_pb2.Moments]

    def read_applied(self) -> normalizer_pb2.Applied:
        return normalizer_pb2.Applied.FromString(self.data[slice(*self.applied)])

    def read_timings(self) -> normalizer_pb2.Timings:
        return normalizer_pb2.Timings.FromString(self.data[slice(*self.timings)])

    def read_state(self) -> Optional[normalizer_pb2.StateResult]:
        return None if self.state is None else normalizer_pb2.StateResult.FromString(self.data[slice(*self.state)])


class _Odd(Exception):
    """A field that this reader does not know."""


def read_reply(data: bytes, at: int = 0, end: int = -1) -> Reply:
    """Reads the NormalizeResponse in data[at:end]. DecodeError if it is none."""
    end = len(data) if end < 0 else end
    try:
        return _read_reply(data, at, end)
    except (_Odd, IndexError):
        # A newer server's field, or a writer that lays messages out in another way: protobuf reads all of it, and its
        # own serialisation is one that the reader above knows.
        message = normalizer_pb2.NormalizeResponse.FromString(data[at:end])
        message.DiscardUnknownFields()
        known = message.SerializeToString(deterministic=True)
        return _read_reply(known, 0, len(known))


def _read_reply(data: bytes, at: int, end: int) -> Reply:
    outputs: List[OutputTensor] = []
    applied, timings = (0, 0), (0, 0)
    state: Optional[Tuple[int, int]] = None
    moments: Optional[normalizer_pb2.Moments] = None
    while at < end:
        tag = data[at]
        size, at = read_varint(data, at + 1)
        if tag == RESPONSE_OUTPUTS:
            output = _read_output(data, at, at + size)
            if isinstance(output, OutputTensor):
                outputs.append(output)
            else:
                moments = output
        elif tag == RESPONSE_APPLIED:
            applied = (at, at + size)
        elif tag == RESPONSE_STATE:
            state = (at, at + size)
        elif tag == RESPONSE_TIMINGS:
            timings = (at, at + size)
        else:
            raise _Odd
        at += size
    if at != end:
        raise _Odd
    return Reply(data, outputs, applied, state, timings, moments)


def _read_output(data: bytes, at: int, end: int) -> Union[OutputTensor, normalizer_pb2.Moments]:
    kind = 0
    start = at
    while at < end:
        tag = data[at]
        value, at = read_varint(data, at + 1)
        if tag == OUTPUT_KIND:
            kind = value
        elif tag == OUTPUT_TENSOR:
            if at + value != end:
                raise _Odd
            return _read_tensor(data, at, end, kind)
        elif tag == OUTPUT_MOMENTS:
            return normalizer_pb2.Output.FromString(data[start:end]).moments
        else:
            raise _Odd
    raise _Odd


def _read_tensor(data: bytes, at: int, end: int, kind: int) -> OutputTensor:
    dtype, shape, offset, size, chunked = 0, [], -1, 0, False
    while at < end:
        tag = data[at]
        value, at = read_varint(data, at + 1)
        if tag == TENSOR_DTYPE:
            dtype = value
            continue
        if tag == TENSOR_SHAPE:
            stop = at + value
            while at < stop:
                extent, at = read_varint(data, at)
                shape.append(extent)
            continue
        if tag == TENSOR_DATA:
            offset, size = at, value
        elif tag == TENSOR_CHUNKED:
            chunked = True
        elif tag != TENSOR_SHARED:
            raise _Odd
        at += value
    if at != end:
        raise _Odd
    return OutputTensor(kind, dtype, tuple(shape), offset, size, chunked)


def read_batch(data: bytes) -> List[Tuple[bytes, Optional[Tuple[int, int]]]]:
    """The items of a BatchNormalizeResponse: the bytes of a failed item's status, and where the response lies."""
    items: List[Tuple[bytes, Optional[Tuple[int, int]]]] = []
    at = 0
    while at < len(data):
        if data[at] != 0x0A:
            raise ValueError("no BatchNormalizeResponse")
        size, at = read_varint(data, at + 1)
        end = at + size
        status, response = b"", None
        while at < end:
            tag = data[at]
            size, at = read_varint(data, at + 1)
            if tag == 0x0A:
                status = data[at : at + size]
            elif tag == 0x7A:
                response = (at, at + size)
            at += size
        items.append((status, response))
    return items
