"""CRC-32C (Castagnoli), which chunks of tensors carry.

numpy and zlib do not have it, and google-crc32c would be a dependency for tensors beyond the message limit alone. The
sum without its initial value is linear over GF(2), and zeros in front do not change it. So the data is cut into lanes,
numpy takes all lanes one word further at a time, and neighbouring lanes are joined in pairs by the linear operator that
appends zero bytes. About 1 GB/s.
"""

from __future__ import annotations

import functools
from typing import Any, Tuple

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected
_ALL_ONES = 0xFFFFFFFF
_LANE_WORDS = 64  # 32-bit words of a lane

Table = np.ndarray[Any, np.dtype[np.uint32]]


def _append_zero_bytes(values: Table, count: int) -> Table:
    """The sums of messages, after `count` zero bytes more: a bit at a time, for the tables alone."""
    for _ in range(8 * count):
        values = (values >> np.uint32(1)) ^ np.where(values & 1, np.uint32(_POLYNOMIAL), np.uint32(0)).astype(np.uint32)
    return values


@functools.lru_cache(maxsize=None)
def _word_tables() -> Tuple[Table, Table]:
    """What the lower and the upper half of a word become after the word's four bytes."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    return _append_zero_bytes(halves, 4), _append_zero_bytes(halves << np.uint32(16), 4)


def _apply(operator: Tuple[Table, ...], values: Table) -> Table:
    first, second, third, fourth = operator
    mask = np.uint32(0xFF)
    low = first[values & mask] ^ second[(values >> np.uint32(8)) & mask]
    high: Table = third[(values >> np.uint32(16)) & mask] ^ fourth[values >> np.uint32(24)]
    return low ^ high


@functools.lru_cache(maxsize=64)
def _appending(log2_words: int) -> Tuple[Table, ...]:
    """The operator that appends 2^log2_words words of zeros, as a table for each byte of a sum."""
    bytes_ = np.arange(256, dtype=np.uint32)
    at_places = [bytes_ << np.uint32(8 * place) for place in range(4)]
    if log2_words == 0:
        return tuple(_append_zero_bytes(values, 4) for values in at_places)
    half = _appending(log2_words - 1)
    return tuple(_apply(half, _apply(half, values)) for values in at_places)


@functools.lru_cache(maxsize=256)
def _initial(byte_count: int) -> int:
    """What the initial value contributes to the sum of a message of this length."""
    value = np.array([_ALL_ONES], np.uint32)
    words, rest = divmod(byte_count, 4)
    for bit in range(words.bit_length()):
        if words >> bit & 1:
            value = _apply(_appending(bit), value)
    return int(_append_zero_bytes(value, rest)[0])


def _linear_part(data: np.ndarray[Any, np.dtype[np.uint8]]) -> int:
    lanes = 1
    while lanes * _LANE_WORDS * 4 < len(data):
        lanes *= 2
    padded = lanes * _LANE_WORDS * 4
    if padded != len(data):
        whole = np.zeros(padded, np.uint8)
        whole[padded - len(data) :] = data
        data = whole
    # One row for each step, so that each step reads contiguous words.
    words = np.ascontiguousarray(data.view("<u4").reshape(lanes, _LANE_WORDS).T)
    lower, upper = _word_tables()
    sums = np.zeros(lanes, np.uint32)
    for row in words:
        sums ^= row
        sums = lower[sums & np.uint32(0xFFFF)] ^ upper[sums >> np.uint32(16)]
    step = _LANE_WORDS.bit_length() - 1
    while len(sums) > 1:
        sums = _apply(_appending(step), sums[0::2]) ^ sums[1::2]
        step += 1
    return int(sums[0])


def crc32c(data: np.ndarray[Any, np.dtype[np.uint8]]) -> int:
    """The CRC-32C of contiguous bytes."""
    return _linear_part(data) ^ _initial(len(data)) ^ _ALL_ONES
