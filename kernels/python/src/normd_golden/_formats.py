"""The four element types as sets of numbers: widths, ulps, neighbours, and rounding from float64.

Arrays of a type are kept as words: float32, float16 and float64 arrays, and uint16 for bfloat16, which numpy lacks.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True)
class Format:
    """A binary floating-point type."""

    name: str
    code: int  # of golden.h
    digits: int  # bits of the significand, the leading one included
    least_exponent: int  # of a normal number
    words: "np.dtype[Any]"
    integers: "np.dtype[Any]"  # signed, of the same width

    @property
    def is_bfloat16(self) -> bool:
        return self.digits == 8

    def widen(self, words: Array) -> Array:
        """The values as float64, which holds all of them."""
        if self.is_bfloat16:
            words = (words.astype(np.uint32) << np.uint32(16)).view(np.float32)
        with np.errstate(invalid="ignore"):  # of signalling NaNs
            return words.astype(np.float64)

    def round(self, values: Array) -> Array:
        """The words nearest to float64 values, ties to even."""
        values = np.asarray(values, np.float64)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            return _round_to_bfloat16(values) if self.is_bfloat16 else values.astype(self.words)

    def ulp(self, values: Array) -> Array:
        """The distance between adjacent numbers of this type at the magnitude of float64 values."""
        exponent = np.frexp(np.where(np.isfinite(values), values, 0))[1].astype(np.int32) - 1
        exponent = np.where(values == 0, self.least_exponent, np.maximum(exponent, self.least_exponent))
        return np.ldexp(1.0, exponent - (self.digits - 1))

    def index(self, words: Array) -> Array:
        """Whole numbers in the order of the values, adjacent for adjacent numbers; 0 for both zeros."""
        bits = np.ascontiguousarray(words).view(self.integers).astype(np.int64)
        magnitude = bits & np.int64(np.iinfo(self.integers).max)
        return np.where(bits < 0, -magnitude, magnitude)

    def at_index(self, index: Array) -> Array:
        """The words of indices, +0 for 0."""
        bits = np.where(index < 0, -index | np.int64(np.iinfo(self.integers).min), index)
        return bits.astype(np.int64).astype(self.integers).view(self.words)


def _round_to_bfloat16(values: Array) -> Array:
    """By way of float32, rounded to odd, so that the second rounding sees what the first one left out."""
    narrow = values.astype(np.float32)
    bits = narrow.view(np.uint32).copy()
    too_large = np.abs(narrow.astype(np.float64)) > np.abs(values)
    bits[too_large] -= 1
    bits[(narrow != values) & np.isfinite(values)] |= 1
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + even) >> np.uint64(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def steps(format_: Format, a: Array, b: Array) -> Array:
    """How many numbers of the type a lies above b, as float64 (exact up to 2^53)."""
    left, right = format_.index(a), format_.index(b)
    same_side = (left >= 0) == (right >= 0)
    with np.errstate(over="ignore"):
        return np.where(same_side, (left - right).astype(np.float64), left.astype(np.float64) - right)


F32 = Format("float32", 1, 24, -126, np.dtype("f4"), np.dtype("i4"))
F16 = Format("float16", 2, 11, -14, np.dtype("f2"), np.dtype("i2"))
BF16 = Format("bfloat16", 3, 8, -126, np.dtype("u2"), np.dtype("i2"))
F64 = Format("float64", 4, 53, -1022, np.dtype("f8"), np.dtype("i8"))
FORMATS = (F32, F16, BF16, F64)
BY_NAME: Dict[str, Format] = {one.name: one for one in FORMATS}
BY_CODE: Dict[int, Format] = {one.code: one for one in FORMATS}
