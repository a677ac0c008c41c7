"""Which variant of a method a result is: where eps stands, when values are rounded, what is subtracted, which axes.

Every variant is computed in a wider type for a sample of elements and rounded to the type of x, and the one whose
values are the nearest to the candidate's fits. A kernel that rounds on its way still fits the variant that it is,
because variants differ by more than its roundings where the data can tell them apart; where the data cannot, the
verdict says so.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from normd_golden import _formats, _groups, _normalize, specs
from normd_golden._formats import F16, F64, Array, Format, steps
from normd_golden._normalize import Arguments

USUAL_EPS = (0.0, 2.0**-52, 1e-12, 1e-8, 1e-7, 2.0**-23, 1e-6, 1e-5, 1e-4, 1e-3)
_SAMPLE = 1 << 14  # elements
# A distance is the mean over the sample of log2(1 + the numbers of the type between the two values). The data cannot
# tell two variants apart whose distances differ by less than all of: this, twice the smaller one, which is the noise of
# the kernel, and some single elements.
_SAME_FIT, _NOISE, _SINGLE_ELEMENTS = 0.02, 2.0, 3
# A kernel of a 16-bit type that calculates in float32 gives at least this share of the nearest values.
_WIDE_ARITHMETIC = 0.95
# No variant fits if the best one's distance is more than this (7 numbers of the type) and it has few nearest values, or
# next to none.
_FAR, _FEW, _NEXT_TO_NONE = 3.0, 0.25, 0.02
_MOST_APART = 2.0**40  # numbers of the type between two values; more, and NaN beside a number, count as this
_MODES = ("inside_sqrt", "add_to_root", "clamp_root")
_MODE_WORDS = {
    "inside_sqrt": "under the root",
    "add_to_root": "added after the root",
    "clamp_root": "as the least root",
}
_ROW_METHODS = (specs.LayerNorm, specs.RMSNorm)


@dataclasses.dataclass(frozen=True)
class Variant:
    """What may differ between implementations of one method."""

    statistic: str  # "variance", "unbiased variance", "mean square", "sum of squares", "squares in float16"
    eps_mode: str
    eps: float
    cast_order: str
    weight_offset: float
    rounds_weight: bool  # 1 + weight is rounded to the type of x before the product
    residual_rounding: str
    axes: Optional[Tuple[int, ...]]  # None: those of the spec

    def differences(self, specified: Variant) -> Tuple[str, ...]:
        """What is different from the specified variant, in words."""
        words = []
        if self.statistic != specified.statistic:
            words.append(_STATISTIC_WORDS[self.statistic])
        if self.cast_order != specified.cast_order:
            words.append(self.cast_order.upper())
        if (self.eps_mode, self.eps) != (specified.eps_mode, specified.eps):
            words.append(f"eps {self.eps:g} {_MODE_WORDS[self.eps_mode]}")
        if self.weight_offset != specified.weight_offset:
            words.append("1 added to the weight" if self.weight_offset else "nothing added to the weight")
        if self.rounds_weight:
            words.append("1 + weight rounded before the product")
        if self.residual_rounding != specified.residual_rounding:
            words.append(
                f"the residual sum {'kept wide' if self.residual_rounding == 'keep_wide' else 'rounded first'}"
            )
        if self.axes is not None:
            words.append(
                f"statistics over {'axis' if len(self.axes) == 1 else 'axes'} {', '.join(map(str, self.axes))}"
            )
        return tuple(words)


_STATISTIC_WORDS = {
    "variance": "a mean subtracted, biased variance",
    "unbiased variance": "an unbiased variance (n - 1)",
    "mean square": "no mean subtracted",
    "squares in float16": "squares in float16, which overflow from 256 on",
    "sum of squares": "the sum of squares instead of their mean",
}


class Fit(NamedTuple):
    """How well a variant fits."""

    variant: Variant
    differences: Tuple[str, ...]  # from the spec; empty: as specified
    nearest: float  # the share of sampled elements that are the variant's nearest value
    distance: float  # the mean of log2(1 + numbers of the type between): smaller fits better
    is_alike: bool  # whether this data cannot tell it from the variant of the smallest distance


def fit(given: Arguments, candidate: Array, nearest: Array) -> List[Fit]:
    """The fits of all variants of the spec's method, the best first, and of equal ones the most like the spec.

    `nearest`: the words of the golden result, which is the variant as specified. Empty where the method has
    no variants: LpNorm, PowerNorm, masks and given statistics.
    """
    specified = _specified(given)
    if specified is None or candidate.size == 0:
        return []
    sample = np.unique(np.linspace(0, candidate.size - 1, min(candidate.size, _SAMPLE)).astype(np.int64))
    got = candidate.reshape(-1)[sample]
    format_ = given.x.format
    fits = []
    for variant, y in _Search(given, specified, sample).results():
        differences = variant.differences(specified)
        apart = _apart(format_, y if differences else nearest.reshape(-1)[sample], got)
        fits.append(Fit(variant, differences, float((apart == 0).mean()), float(np.log2(1 + apart).mean()), False))
    best = min(one.distance for one in fits)
    most = best + min(_SAME_FIT, max(_NOISE * best, _SINGLE_ELEMENTS / sample.size))
    return sorted((one._replace(is_alike=one.distance <= most) for one in fits), key=_rank)


def _rank(one: Fit) -> Tuple[bool, float, float]:
    """Among variants that cannot be told apart the one with the fewest differences, else the distance."""
    return not one.is_alike, float(len(one.differences)) if one.is_alike else one.distance, one.distance


def verdict(fits: Sequence[Fit], dtype: str) -> str:
    """The best fit in a sentence; "" where there is none."""
    if not fits:
        return ""
    best = fits[0]
    share = f"{100 * best.nearest:.4g} %"
    if not _fits(best):
        nearest_one = " with ".join(best.differences) or "the specified one"
        return (
            f"variant: none fits; the nearest is {nearest_one}, {share} of whose values the sample has, "
            f"and the others are {_away(best)} numbers of {dtype} away"
        )
    if not best.differences:
        return f"variant: as specified ({share} of the sample nearest{_of_the_rest(best, dtype)}){_alike(fits)}"
    as_specified = "".join(f", {100 * one.nearest:.4g} % as specified" for one in fits if not one.differences)
    text = f"variant: {' with '.join(best.differences)} fits: {share} of the sample nearest{as_specified}"
    return text + _of_the_rest(best, dtype) + _alike(fits)


def _fits(one: Fit) -> bool:
    """Many of its values are the candidate's, or some are and the others are near."""
    return one.nearest >= _FEW or (one.distance <= _FAR and one.nearest >= _NEXT_TO_NONE)


def _away(one: Fit) -> str:
    """How far the elements are that are not the variant's, in words."""
    apart = 2.0 ** (one.distance / (1 - one.nearest)) - 1
    return "more than 1e+11" if apart > _MOST_APART / 2 else f"about {apart:.2g}"


def _of_the_rest(best: Fit, dtype: str) -> str:
    """What is said of a kernel of a narrow type with too few of its variant's values."""
    if _formats.BY_NAME[dtype].digits >= 24 or best.nearest >= _WIDE_ARITHMETIC:
        return ""
    if best.distance > _FAR:
        return f"; the others are {_away(best)} numbers of {dtype} away"
    return f"; arithmetic in float32 reaches 99 %, so this rounds to {dtype} on the way"


def _alike(fits: Sequence[Fit]) -> str:
    """How many other variants fit as well, of those with as few differences from the spec, and the first of them."""
    count = max(len(fits[0].differences), 1)
    others = [one for one in fits[1:] if one.is_alike and len(one.differences) == count]
    if not others:
        return ""
    example = " with ".join(others[0].differences)
    which = "another fits as well" if len(others) == 1 else f"{len(others)} others fit as well"
    return f"; {which}, which this data cannot tell apart{':' if len(others) == 1 else ', such as'} {example}"


def _specified(given: Arguments) -> Optional[Variant]:
    spec = given.spec
    if given.mask is not None or given.running_var is not None:
        return None
    if isinstance(spec, specs.CENTRED):
        statistic = "variance"
    elif isinstance(spec, (specs.RMSNorm, specs.PRMSNorm)):
        statistic = "mean square"
    elif isinstance(spec, specs.ScaleNorm):
        statistic = "sum of squares"
    else:
        return None
    default_mode = "add_to_root" if isinstance(spec, specs.ScaleNorm) else "inside_sqrt"
    return Variant(
        statistic=statistic,
        eps_mode=getattr(spec, "eps_mode") or default_mode,
        eps=spec.eps_for(given.x.format.digits == 53),
        cast_order=getattr(spec, "cast_order") or "affine_then_cast",
        weight_offset=getattr(spec, "weight_offset"),
        rounds_weight=False,
        residual_rounding=given.residual_rounding,
        axes=None,
    )


class _Statistics(NamedTuple):
    """Of the group of each sampled element; h is the element."""

    h: Array
    mean: Array
    variance: Array
    mean_square: Array
    narrow_mean_square: Array  # of squares in float16
    n: int


class _Search:
    """All variants of one call, at the sampled elements."""

    def __init__(self, given: Arguments, specified: Variant, sample: Array) -> None:
        self._given, self._specified, self._sample = given, specified, sample
        self._wide = _wide_type(given.x.format)
        weight, self._bias = (
            None if one is None else _groups.spread(given, one.widened()).reshape(-1)[sample].astype(self._wide)
            for one in (given.weight, given.bias)
        )
        # By what is added to the weight, and whether the sum is rounded.
        self._weights: Dict[Tuple[float, bool], Optional[Array]] = {(specified.weight_offset, False): None}
        if weight is not None:
            sums = {offset: weight + offset for offset in (0.0, 1.0)}
            self._weights = {(0.0, False): sums[0], (1.0, False): sums[1], (1.0, True): self._rounded(sums[1])}

    def results(self) -> Iterator[Tuple[Variant, Array]]:
        """Each variant with its y."""
        for rounding, axes in itertools.product(self._residual_roundings(), self._axes()):
            found = self._statistics(rounding, axes)
            choices = itertools.product(self._statistic_names(), _MODES, self._eps())
            for statistic, mode, eps in choices:
                if eps == 0 and mode != "inside_sqrt" and self._specified.eps_mode != mode:
                    continue  # the same as inside_sqrt
                n = _normalised(found, statistic, mode, eps)
                for order, ((offset, rounds), weight) in itertools.product(self._orders(), self._weights.items()):
                    variant = Variant(statistic, mode, eps, order, offset, rounds, rounding, axes)
                    yield variant, self._apply(n, weight, order == "cast_then_affine")

    def _eps(self) -> Tuple[float, ...]:
        return tuple(dict.fromkeys((self._specified.eps, *USUAL_EPS)))

    def _orders(self) -> Tuple[str, ...]:
        if self._given.weight is None and self._given.bias is None:
            return (self._specified.cast_order,)
        return ("affine_then_cast", "cast_then_affine")

    def _residual_roundings(self) -> Tuple[str, ...]:
        return (self._specified.residual_rounding,) if self._given.residual is None else ("round_first", "keep_wide")

    def _statistic_names(self) -> Tuple[str, ...]:
        spec = self._given.spec
        names = [self._specified.statistic]
        if isinstance(spec, specs.CENTRED):
            names.append("unbiased variance")
        if isinstance(spec, _ROW_METHODS):
            names += ["mean square", "variance"]
        if isinstance(spec, specs.ScaleNorm):
            names.append("mean square")
        if self._given.x.format is F16 and not isinstance(spec, specs.CENTRED):
            names.append("squares in float16")
        return tuple(dict.fromkeys(names))

    def _axes(self) -> List[Optional[Tuple[int, ...]]]:
        """The spec's axes, every other single axis, and every other run of trailing axes."""
        found: List[Optional[Tuple[int, ...]]] = [None]
        spec, rank = self._given.spec, len(self._given.x.shape)
        if isinstance(spec, _ROW_METHODS) and rank > 1:
            own = tuple(sorted(_groups.listed_axes(spec, rank)))
            others = [(axis,) for axis in range(rank)] + [tuple(range(first, rank)) for first in range(rank - 1)]
            found += [axes for axes in dict.fromkeys(others) if axes != own]
        return found

    def _statistics(self, rounding: str, axes: Optional[Tuple[int, ...]]) -> _Statistics:
        given, sample = self._given, self._sample
        h = _wide_sum(given, rounding, self._wide)
        rows = _groups.group_rows(given.spec, h.shape, axes)
        group = np.empty(rows.size, np.int64)
        group[rows.reshape(-1)] = np.repeat(np.arange(rows.shape[0]), rows.shape[1])
        needed, place = np.unique(group[sample], return_inverse=True)
        values = h.reshape(-1)[rows[needed]]
        counted = values[:, : _normalize.partial_length(given)] if isinstance(given.spec, specs.PRMSNorm) else values
        with np.errstate(all="ignore"):
            mean = counted.mean(axis=1)
            variance = np.square(counted - mean[:, None]).mean(axis=1)
            mean_square = np.square(counted).mean(axis=1)
            narrow = np.square(counted.astype(np.float16)).astype(self._wide).mean(axis=1)
        return _Statistics(
            h.reshape(-1)[sample], mean[place], variance[place], mean_square[place], narrow[place], counted.shape[1]
        )

    def _apply(self, n: Array, weight: Optional[Array], casts: bool) -> Array:
        """The words of n * weight + bias, rounded after each step if it `casts`."""
        with np.errstate(all="ignore"):
            y = self._rounded(n) if casts else n
            if weight is not None:
                y = self._rounded(y * weight) if casts else y * weight
            if self._bias is not None:
                y = y + self._bias
        return self._given.x.format.round(y)

    def _rounded(self, values: Array) -> Array:
        """The values as numbers of the type of x, in float64."""
        format_ = self._given.x.format
        return format_.widen(format_.round(values))


def _normalised(found: _Statistics, statistic: str, mode: str, eps: float) -> Array:
    """The elements over their divisor."""
    square, mean = found.mean_square, np.zeros(())
    with np.errstate(all="ignore"):
        if statistic in ("variance", "unbiased variance"):
            square, mean = found.variance, found.mean
            if statistic != "variance":
                square = square * found.n / max(found.n - 1, 1)
        elif statistic == "squares in float16":
            square = found.narrow_mean_square
        elif statistic == "sum of squares":
            square = square * found.n
        root = np.sqrt(square + eps if mode == "inside_sqrt" else square)
        divisor = root + eps if mode == "add_to_root" else np.maximum(root, eps) if mode == "clamp_root" else root
        return (found.h - mean) / divisor


def _wide_type(format_: Format) -> Any:
    """A type whose roundings are far below those of the format: for float64 one of 64 bits or more."""
    return np.longdouble if format_ is F64 else np.float64


def _wide_sum(given: Arguments, rounding: str, wide: Any) -> Array:
    """x, or x + residual_scale * residual: the nearest number of the type of x, or wide."""
    if given.residual is None:
        return given.x.widened().astype(wide)
    if rounding == "round_first":
        h = _normalize.run(dataclasses.replace(given, residual_rounding=rounding), ("h",)).h
        assert h is not None
        return h.widened().astype(wide)
    total: Array = given.x.widened().astype(wide) + wide(given.residual_scale) * given.residual.widened().astype(wide)
    return total


def _apart(format_: Format, a: Array, b: Array) -> Array:
    """How many numbers of the type lie between, at most _MOST_APART; that where one of them alone is NaN."""
    left, right = np.isnan(format_.widen(a)), np.isnan(format_.widen(b))
    apart = np.minimum(np.abs(steps(format_, a, b)), _MOST_APART)
    return np.where(left | right, np.where(left & right, 0.0, _MOST_APART), apart)
