"""The real number behind a result: as a pair of float64 with a bound, or as an interval.

value = golden.exact(golden.LayerNorm(768), x, w, b)
value.high + value.low   # the formula, to about 100 bits
value.interval()         # (low, high) as fractions: exactly where it lies
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple, Optional, Tuple, Union

import numpy as np

from normd_golden import _library, _normalize, specs
from normd_golden._formats import F64, Array
from normd_golden._normalize import Arguments


class Value(NamedTuple):
    """|y - (high + low)| <= bound for each element; high is the float64 nearest to y. Arrays of the shape of x."""

    high: Array
    low: Array
    bound: Array

    def interval(self, index: Union[int, Tuple[int, ...]]) -> Tuple[Fraction, Fraction]:
        """Two rational numbers between which y of the element lies. ValueError where there is none that is finite."""
        try:
            high, low, bound = (float(part[index]) for part in self)
        except (IndexError, TypeError):
            must = f"it must name one element of shape {list(self.high.shape)}"
            raise ValueError(f"index is {index!r}; {must}") from None
        if not np.isfinite(high):
            raise ValueError(f"y[{index}] is {high}; an interval needs a finite number")
        middle = Fraction(high) + Fraction(low)
        return middle - Fraction(bound), middle + Fraction(bound)


def half_ulp(values: Array) -> Array:
    """The largest error of rounding to these float64; 0 where they are not finite."""
    least = 2.0**-1074  # half of it is no float64
    return np.where(np.isfinite(values), np.maximum(F64.ulp(values) / 2, least), 0.0)


def of_arguments(given: Arguments) -> Value:
    """The formula to the nearest float64; with `cast_then_affine` what that order gives, which has no error."""
    if given.spec.casts_first:
        y = _normalize.run(given).y
        assert y is not None
        high = y.widened()
        return Value(high, np.zeros_like(high), np.zeros_like(high))
    found = _normalize.run(given.widened())
    assert found.y is not None
    high = found.y.words
    bound = half_ulp(high) * (1 if found.is_nearest else 9)
    return Value(high, np.zeros_like(high), bound)


def exact(spec: Union[str, specs.Spec], x: Any, weight: Any = None, bias: Any = None, **rest: Any) -> Value:
    """The real number that the formula gives on the inputs, to about 100 bits.

    The arguments are those of `normalize`. `low` is 0, and `bound` half an ulp of float64 (with Result.rounding BOUNDED
    4.5 of them), for LpNorm of a p other than 1, 2 and infinity: such a root has no exact bias to subtract `high` by.
    """
    given = _normalize.arguments(spec, x, weight, bias, **rest)
    return refine(given, of_arguments(given))


def refine(given: Arguments, value: Value, elements: Optional[Array] = None) -> Value:
    """The value with `low` and its bound, of all elements or of those with these flat indices."""
    if given.spec.casts_first or not value.high.size:
        return value
    wide = given.widened()
    high, low, bound = (np.array(part, order="C") for part in value)
    values = _library.ExactValues(low=low.ctypes.data, bound=bound.ctypes.data)
    if elements is not None:
        wanted = np.ascontiguousarray(elements, np.int64)
        values.elements, values.count = wanted.ctypes.data, wanted.size
    call = wide.call()
    call.y = high.ctypes.data
    _library.exact(call, values)
    return Value(high, low, bound)


def two_sum(a: Array, b: Array) -> Tuple[Array, Array]:
    """a + b as the nearest float64 and what it leaves out, exactly (Knuth)."""
    total: Array = a + b
    part: Array = total - a
    return total, (a - (total - part)) + (b - part)
