"""The real number behind a result: as a pair of float64 with a bound, or as an interval.

value = golden.exact(golden.LayerNorm(768), x, w, b)
value.high + value.low   # the formula, to about 100 bits
value.interval()         # (low, high) as fractions: exactly where it lies
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any, Iterable, NamedTuple, Optional, Tuple, Union

import numpy as np

from normd_golden import _groups, _normalize, specs
from normd_golden._formats import F64, Array
from normd_golden._normalize import Arguments
from normd_golden._tensors import Operand


class Value(NamedTuple):
    """|y - (high + low)| <= bound for each element; high is the float64 nearest to y. Arrays of the shape of x."""

    high: Array
    low: Array
    bound: Array

    def interval(self, index: Union[int, Tuple[int, ...]]) -> Tuple[Fraction, Fraction]:
        """Two rational numbers between which y of the element lies. ValueError where it is not finite."""
        high, low, bound = (float(part[index]) for part in self)
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
    wide = given if given.x.format is F64 and given.residual is None else given.widened()
    found = _normalize.run(wide)
    assert found.y is not None
    high = found.y.words
    bound = half_ulp(high) * (1 if found.is_nearest else 9)
    return Value(high, np.zeros_like(high), bound)


def exact(spec: Union[str, specs.Spec], x: Any, weight: Any = None, bias: Any = None, **rest: Any) -> Value:
    """The real number that the formula gives on the inputs, to about 100 bits.

    The arguments are those of `normalize`. `low` is 0, and `bound` half an ulp of float64, for ScaleNorm, LpNorm,
    PowerNorm and a residual that is kept wide.
    """
    given = _normalize.arguments(spec, x, weight, bias, **rest)
    value = of_arguments(given)
    return refine(given, value, range(_number_of_groups(given)))


def can_refine(given: Arguments) -> bool:
    """Whether `refine` makes the bound smaller."""
    spec = given.spec
    rows = isinstance(spec, (*specs.CENTRED, specs.RMSNorm, specs.PRMSNorm)) and not spec.casts_first
    is_wide = given.residual is not None and given.residual_rounding != "round_first"
    return rows and not is_wide and given.mask is None and given.running_var is None


def refine(given: Arguments, value: Value, groups: Iterable[int]) -> Value:
    """The value with `low` and its bound, in the statistics groups of these numbers.

    With the bias replaced by bias - high the formula gives what high leaves out. That difference is a sum of two
    float64 without error, of which the first enters the formula and the second is added to its result.
    """
    if not can_refine(given):
        return value
    wide = given.widened()
    rows = _groups.group_rows(given.spec, given.x.shape)
    weight, bias = _spread_wide(given, given.weight), _spread_wide(given, given.bias)
    low, bound = value.low.copy().reshape(-1), value.bound.copy().reshape(-1)
    high, x = value.high.reshape(-1), wide.x.words.reshape(-1)
    for group in groups:
        index = rows[group]
        b = bias[index] if bias is not None else np.zeros(index.size)
        usable = np.isfinite(high[index])
        target = np.where(usable, high[index], 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            first, second = two_sum(b, -target)
        row = _row_call(wide, x[index], None if weight is None else weight[index], first)
        found = _normalize.run(row).y
        assert found is not None
        rest = found.words.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            total = rest + second
        usable &= np.isfinite(total)  # near the end of float64 the difference of bias and high has no number
        low[index[usable]] = total[usable]
        bound[index[usable]] = (half_ulp(rest) + half_ulp(total))[usable]
    shape = value.high.shape
    return Value(value.high, low.reshape(shape), bound.reshape(shape))


def groups_of(given: Arguments, elements: Array) -> Array:
    """The numbers of the groups that flat indices are in."""
    rows = _groups.group_rows(given.spec, given.x.shape)
    number = np.empty(rows.size, np.int64)
    number[rows.reshape(-1)] = np.repeat(np.arange(rows.shape[0]), rows.shape[1])
    return np.unique(number[elements])


def _number_of_groups(given: Arguments) -> int:
    return _groups.group_rows(given.spec, given.x.shape).shape[0] if can_refine(given) else 0


def _spread_wide(given: Arguments, parameter: Optional[Operand]) -> Optional[Array]:
    return None if parameter is None else _groups.spread(given, parameter.widened()).reshape(-1)


def _row_call(wide: Arguments, x: Array, weight: Optional[Array], bias: Array) -> Arguments:
    """One group as a row of LayerNorm, RMSNorm or pRMSNorm, with a weight and a bias for each element."""
    spec: Any = wide.spec
    common = {"eps": spec.eps_for(True), "eps_mode": spec.eps_mode, "weight_offset": spec.weight_offset}
    if isinstance(spec, specs.PRMSNorm):
        row: specs.Spec = dataclasses.replace(spec, cast_order=None)
    elif isinstance(spec, specs.RMSNorm):
        row = specs.RMSNorm(**common)
    else:
        row = specs.LayerNorm(x.size, **common)
    as_row = wide.x.like(F64, x.reshape(1, -1))
    as_weight = None if weight is None else wide.x.like(F64, weight)
    return Arguments(row, as_row, as_weight, wide.x.like(F64, bias), training=True)


def two_sum(a: Array, b: Array) -> Tuple[Array, Array]:
    """a + b as the nearest float64 and what it leaves out, exactly (Knuth)."""
    total: Array = a + b
    part: Array = total - a
    return total, (a - (total - part)) + (b - part)
