"""The judgement of a result: how far it is from the truth, and which of two results is nearer to it.

report = golden.check(y, golden.RMSNorm(eps=1e-6), x, weight, reference=torch_y)
print(report)                # a page of text
report.max_ulp, report.nearest, report.against.nearer_candidate, report.variant
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np

from normd_golden import _exact, _groups, _normalize, _tensors, _variants, specs
from normd_golden._formats import Array, Format
from normd_golden._normalize import Arguments
from normd_golden._exact import Value

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_EDGES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1024.0)  # ulp, of the histogram


class Errors(NamedTuple):
    """How far the elements of a result are from the exact values."""

    ulp: Array  # of each element, infinite where one of the two is finite and the other is not
    is_nearest: Array  # whether an element is the nearest value

    @property
    def nearest(self) -> float:
        """The share of elements that are the nearest value; 1.0 for an empty tensor."""
        return float(self.is_nearest.mean()) if self.ulp.size else 1.0

    @property
    def max_ulp(self) -> float:
        return float(self.ulp.max()) if self.ulp.size else 0.0

    @property
    def mean_ulp(self) -> float:
        """Of the errors that are finite."""
        finite = self.ulp[np.isfinite(self.ulp)]
        return float(finite.mean()) if finite.size else 0.0

    def __str__(self) -> str:
        return _text(self)


def _text(of: Union[Errors, Report]) -> str:
    return f"{100 * of.nearest:.6g} % nearest, max {of.max_ulp:.4g} ulp, mean {of.mean_ulp:.3g} ulp"


def errors_of(
    format_: Format, words: Array, exact: Array, nearest: Optional[Array] = None, floor: float = 0.0
) -> Errors:
    """The errors of `words` of a type beside exact values in float64.

    `nearest`: the words that are right; where it is None, those nearest to `exact`. `floor`: as for `check`.
    """
    right = format_.round(exact) if nearest is None else nearest
    candidate = format_.widen(words)
    with np.errstate(invalid="ignore", over="ignore"):
        ulp = np.abs(candidate - exact) / format_.ulp(np.maximum(np.abs(exact), floor))
    is_nearest = _same(format_, words, right)
    # Where one of them is not finite: right if the golden result is the same (the exact value may overflow).
    special = ~(np.isfinite(candidate) & np.isfinite(exact))
    return Errors(np.where(special, np.where(is_nearest, 0.0, np.inf), ulp), is_nearest)


@dataclasses.dataclass(frozen=True)
class Element:
    """One element of a result."""

    index: Tuple[int, ...]
    candidate: float
    exact: float  # of the formula, as float64
    below: float  # the numbers of the type that the exact value lies between
    above: float
    ulp: float  # the error
    x: float
    weight: float
    bias: float

    def __str__(self) -> str:
        return (
            f"{list(self.index)}: {self.candidate!r} is {self.ulp:.3g} ulp from {self.exact!r}, which lies between "
            f"{self.below!r} and {self.above!r} (x {self.x!r}, weight {self.weight!r}, bias {self.bias!r})"
        )


@dataclasses.dataclass(frozen=True)
class Against:
    """The candidate beside a reference: how many elements of which are nearer to the exact value."""

    reference: Report
    nearer: Array  # for each element 1: the candidate, -1: the reference, 0: equal, or as far
    undecided: int  # of those 0: where 53 bits do not tell, and more were not asked for

    @property
    def nearer_candidate(self) -> int:
        return int((self.nearer > 0).sum())

    @property
    def nearer_reference(self) -> int:
        return int((self.nearer < 0).sum())

    def __str__(self) -> str:
        candidate, reference, n = self.nearer_candidate, self.nearer_reference, self.nearer.size
        which = "the candidate" if candidate > reference else "the reference" if reference > candidate else "neither"
        return (
            f"nearer to the truth: {which} (candidate {candidate}, reference {reference}, "
            f"equal {n - candidate - reference} of {n}); the reference: {self.reference.summary()}"
        )


@dataclasses.dataclass(frozen=True)
class Report:
    """How far a result is from the nearest values. Errors are in ulp of its type at max(|exact value|, floor)."""

    spec: specs.Spec
    dtype: str
    shape: Tuple[int, ...]
    nearest: float  # the share of elements that are the nearest value; 1.0 for an empty tensor
    max_ulp: float
    mean_ulp: float
    percentiles: Dict[float, float]
    histogram: Dict[str, int]
    errors: Array  # of each element in ulp, infinite where one is finite and the other is not
    zero_signs: int  # elements that are a zero of the other sign; they count as nearest
    worst: List[Element]
    rounding: str  # "NEAREST", or "BOUNDED" where the golden value itself may be 1 ulp off
    against: Optional[Against] = None
    _given: Optional[Arguments] = dataclasses.field(default=None, repr=False)
    _candidate: Optional[Array] = dataclasses.field(default=None, repr=False)
    _nearest: Optional[Array] = dataclasses.field(default=None, repr=False)

    @functools.cached_property
    def variants(self) -> List[_variants.Fit]:
        """The variants of the method that fit the candidate best, the best first."""
        if self._given is None or self._candidate is None or self._nearest is None:
            return []
        return _variants.fit(self._given, self._candidate, self._nearest)

    @property
    def variant(self) -> str:
        """Which variant the candidate is, in a sentence."""
        return _variants.verdict(self.variants, self.dtype)

    def summary(self) -> str:
        bounded = "" if self.rounding == "NEAREST" else ", the golden value is BOUNDED"
        return f"{_text(self)}{bounded}"

    def __str__(self) -> str:
        lines = [f"{self.spec} {self.dtype} {list(self.shape)}: {self.summary()}"]
        lines.append("ulp     " + "  ".join(f"{name}: {count}" for name, count in self.histogram.items() if count))
        lines.append("percent " + "  ".join(f"{at:g}: {ulp:.3g} ulp" for at, ulp in self.percentiles.items()))
        if self.zero_signs:
            lines.append(f"{self.zero_signs} zeros have the other sign")
        if self.against is not None:
            lines.append(str(self.against))
        if self.nearest < 1:
            lines.append(self.variant)
            lines.extend(f"worst {one}" for one in self.worst)
        return "\n".join(line for line in lines if line)


def check(
    candidate: Any,
    spec: Union[str, specs.Spec],
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    reference: Any = None,
    floor: float = 0.0,
    worst: int = 5,
    **rest: Any,
) -> Report:
    """Judges `candidate`, a y of the shape and dtype of x, beside the exact value of the formula.

    With `reference`, another y, Report.against says for each element which of the two is nearer to the truth. `floor`:
    errors of elements that are smaller than it are counted in ulp at floor. `worst`: how many elements are listed.
    rest: as for `normalize`. ValueError or TypeError where something does not fit.
    """
    given = _normalize.arguments(spec, x, weight, bias, **rest)
    if not 0 <= specs.number(floor, "floor") < float("inf"):
        raise ValueError(f"floor is {floor}; it must be finite and at least 0")
    if specs.whole(worst, "worst") < 0:
        raise ValueError(f"worst is {worst}; it must be at least 0")
    words = _like(candidate, "candidate", given)
    other = None if reference is None else _like(reference, "reference", given)
    found = _normalize.run(given)
    assert found.y is not None
    truth = _Truth(given, found.y.words, found.is_nearest, _exact.of_arguments(given))
    report = _report(truth, words, floor, worst)
    if other is None:
        return report
    nearer, undecided = _nearer(truth, words, other)
    return dataclasses.replace(report, against=Against(_report(truth, other, floor, worst), nearer, undecided))


@dataclasses.dataclass(frozen=True)
class _Truth:
    given: Arguments
    nearest: Array  # words
    is_nearest: bool
    value: Value

    @property
    def format(self) -> Format:
        return self.given.x.format


def _like(y: Any, name: str, given: Arguments) -> Array:
    found = _tensors.operand(y, name)
    if found.format is not given.x.format:
        raise TypeError(f"{name} has dtype {found.format.name}; it must have that of x, {given.x.format.name}")
    if found.shape != given.x.shape:
        raise ValueError(f"{name} has shape {list(found.shape)}; it must have that of x, {list(given.x.shape)}")
    return found.words


def _report(truth: _Truth, words: Array, floor: float, worst: int) -> Report:
    format_, given = truth.format, truth.given
    errors = errors_of(format_, words, truth.value.high, truth.nearest, floor)
    return Report(
        spec=given.spec,
        dtype=format_.name,
        shape=given.x.shape,
        nearest=errors.nearest,
        max_ulp=errors.max_ulp,
        mean_ulp=errors.mean_ulp,
        percentiles=dict(zip(PERCENTILES, _percentiles(errors.ulp))),
        histogram=_histogram(errors),
        errors=errors.ulp,
        zero_signs=int((errors.is_nearest & (words.view(format_.integers) != truth.nearest.view(format_.integers))
                        & (format_.index(words) == 0)).sum()),
        worst=_worst(truth, words, errors.ulp, worst),
        rounding="NEAREST" if truth.is_nearest else "BOUNDED",
        _given=given,
        _candidate=words,
        _nearest=truth.nearest,
    )  # fmt: skip


def _same(format_: Format, a: Array, b: Array) -> Array:
    """Equal as numbers; NaN is equal to NaN."""
    if format_.is_bfloat16:
        return (format_.index(a) == format_.index(b)) | (np.isnan(format_.widen(a)) & np.isnan(format_.widen(b)))
    return (a == b) | (np.isnan(a) & np.isnan(b))


def _percentiles(errors: Array) -> List[float]:
    if not errors.size:
        return [0.0] * len(PERCENTILES)
    flat = errors.reshape(-1)
    at = [min(int(flat.size * percent / 100), flat.size - 1) for percent in PERCENTILES]
    parted = np.partition(flat, sorted(set(at)))
    return [float(parted[place]) for place in at]


def _histogram(errors: Errors) -> Dict[str, int]:
    counts = {"nearest": int(errors.is_nearest.sum())}
    rest = errors.ulp[~errors.is_nearest]
    last = 0.0
    for edge in _EDGES:
        counts[f"to {edge:g}"] = int(((rest > last) & (rest <= edge)).sum()) + (
            int((rest == 0).sum()) if last == 0 else 0
        )
        last = edge
    counts[f"above {last:g}"] = int((rest > last).sum())
    return counts


def _worst(truth: _Truth, words: Array, errors: Array, count: int) -> List[Element]:
    count = min(count, errors.size)
    if count <= 0:
        return []
    flat = errors.reshape(-1)
    largest = np.argpartition(flat, flat.size - count)[flat.size - count :]
    ordered = largest[np.argsort(-flat[largest], kind="stable")]
    ordered = ordered[flat[ordered] > 0]
    return [_element(truth, words, errors, int(at)) for at in ordered]


def _element(truth: _Truth, words: Array, errors: Array, at: int) -> Element:
    given, format_ = truth.given, truth.format
    index = tuple(int(i) for i in np.unravel_index(at, given.x.shape))
    below, above = _neighbours(format_, truth.nearest.reshape(-1)[at : at + 1], float(truth.value.high.reshape(-1)[at]))

    def parameter(operand: Optional[_tensors.Operand], default: float) -> float:
        return default if operand is None else float(_groups.spread(given, operand.widened())[index])

    return Element(
        index=index,
        candidate=float(format_.widen(words)[index]),
        exact=float(truth.value.high[index]),
        below=below,
        above=above,
        ulp=float(errors[index]),
        x=float(given.x.widened()[index]),
        weight=parameter(given.weight, 1.0),
        bias=parameter(given.bias, 0.0),
    )


def _neighbours(format_: Format, nearest: Array, high: float) -> Tuple[float, float]:
    """The numbers of the type on both sides of a value whose nearest one is known; both are it where it is exact."""
    value = float(format_.widen(nearest)[0])
    if value == high or not np.isfinite(high) or not np.isfinite(value):
        return value, value
    other = format_.at_index(format_.index(nearest) + (1 if high > value else -1))
    next_to_it = float(format_.widen(other)[0])
    return min(value, next_to_it), max(value, next_to_it)


def _nearer(truth: _Truth, candidate: Array, reference: Array) -> Tuple[Array, int]:
    """For each element 1, -1 or 0, and how many 0 are not certain."""
    format_ = truth.format
    a, b = format_.widen(candidate), format_.widen(reference)
    sign = np.zeros(a.shape, np.int8)
    open_ = ~_same(format_, candidate, reference)
    special = open_ & ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(truth.value.high))
    if special.any():
        right = _same(format_, candidate, truth.nearest).astype(np.int8)
        sign[special] = (right - _same(format_, reference, truth.nearest).astype(np.int8))[special]
    open_ &= ~special
    sign[open_], certain = _side(a[open_], b[open_], Value(*(part[open_] for part in truth.value)))
    unsure = np.flatnonzero(open_)[~certain]
    if unsure.size:
        finer = _exact.refine(truth.given, truth.value, unsure)
        flat = (part.reshape(-1)[unsure] for part in finer)
        again, certain = _side(a.reshape(-1)[unsure], b.reshape(-1)[unsure], Value(*flat))
        sign.reshape(-1)[unsure] = again
        unsure = unsure[~certain]
    return sign, int(unsure.size)


def _side(a: Array, b: Array, value: Value) -> Tuple[Array, Array]:
    """1 where a is nearer to the value than b, -1 where b is, 0 where the bound does not tell; and where it does.

    The value lies on a's side of the middle between a and b, whose double is a sum of two float64 without error.
    """
    half, rest = _exact.two_sum(a / 2, b / 2)
    distance = (value.high - half) + (value.low - rest)
    # A value may lie far from the middle: then the rounding of the difference is far below the distance.
    certain = np.abs(distance) > 2 * value.bound
    toward = np.where(distance > 0, 1, -1) * np.where(a > b, 1, -1)
    return np.where(certain, toward, 0).astype(np.int8), certain | ((distance == 0) & (value.bound == 0))
