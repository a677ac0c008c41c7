"""Assertions about kernels, with or without pytest.

    @norm_cases("rms_norm", dtypes=("float32", "float16"), shapes=((4, 1024), (3, 127)))
    def test_my_rms_norm(case, golden):
        golden.assert_norm(my_rms_norm(case.x, case.weight), *case.args, max_ulp=1)

The fixture `golden` has these functions, too, and puts every report into pytest's JUnit file and HTML page.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np

from normd_golden import _tensors, cases, specs
from normd_golden._report import Report, check
from normd_golden.cases import Case

__all__ = ["Case", "assert_norm", "batch_invariant", "norm_cases"]


def norm_cases(
    spec: Union[str, specs.Spec],
    dtypes: Sequence[str] = ("float32",),
    shapes: Sequence[Tuple[int, ...]] = ((4, 1024),),
    hard: bool = True,
    bias: bool = False,
) -> Any:
    """A decorator that calls a test with every `case` of a method: a method's name, or a spec with its attributes."""
    import pytest

    found = cases.make_cases(spec, dtypes, shapes, hard, bias)
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in found])


def assert_norm(
    y: Any,
    spec: Union[str, specs.Spec],
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    max_ulp: float = 1.0,
    min_nearest: float = 0.0,
    **rest: Any,
) -> Report:
    """AssertionError with the report if an element of y is off by more than `max_ulp`, or too few are the nearest.

    rest: `floor`, `reference` and the other arguments of golden.check.
    """
    report = check(y, spec, x, weight, bias, **rest)
    complaint = complaint_about(report, max_ulp, min_nearest)
    if complaint:
        raise AssertionError(f"{complaint}\n{report}")
    return report


def complaint_about(report: Report, max_ulp: float, min_nearest: float) -> str:
    """What is wrong with a result, or ""."""
    if not specs.number(max_ulp, "max_ulp") >= 0:
        raise ValueError(f"max_ulp is {max_ulp}; it must be at least 0")
    if not 0 <= specs.number(min_nearest, "min_nearest") <= 1:
        raise ValueError(f"min_nearest is {min_nearest}; it must be a share, between 0 and 1")
    if report.max_ulp > max_ulp:
        count = int((report.errors > max_ulp).sum())
        of_all = f"{count} of {report.errors.size} elements"
        return f"{of_all} are off by more than {max_ulp:g} ulp, at most {report.max_ulp:.4g}"
    if report.nearest < min_nearest:
        return f"{report.nearest:.6g} of the elements are the nearest value; at least {min_nearest:g} must be"
    return ""


def batch_invariant(fn: Callable[[Any], Any], x: Any, splits: Optional[Sequence[Sequence[int]]] = None) -> None:
    """AssertionError if the bits of fn(x) depend on how the rows of x (its first axis) are batched.

    `splits`: lists of row numbers at which x is cut. Without it: every row by itself, halves, and one row and the rest.
    Rows in reverse order must give the same bits, too.
    """
    if not np.ndim(x):
        raise TypeError(f"x is a {type(x).__name__} without axes; it must have rows to be cut")
    rows = len(x)
    if rows < 2:
        raise ValueError(f"x has {rows} rows; it must have at least 2 on its first axis to be cut")
    chosen = _usual_splits(rows) if splits is None else [_checked(cuts, i, rows) for i, cuts in enumerate(splits)]
    whole = _words(fn(x))
    for cuts in chosen:
        edges = [0, *cuts, rows]
        parts = [_words(fn(x[begin:end])) for begin, end in zip(edges, edges[1:])]
        _same_bits(whole, np.concatenate(parts), f"cut at rows {list(cuts)}")
    _same_bits(whole, _words(fn(_reversed(x)))[::-1], "with its rows in reverse order")


def _usual_splits(rows: int) -> List[List[int]]:
    return [list(range(1, rows)), [rows // 2], [1]]


def _checked(cuts: Sequence[int], number: int, rows: int) -> List[int]:
    """Cuts that make at least two parts, none of them empty: others would test nothing, or blame the kernel."""
    field = f"splits[{number}]"
    if not hasattr(cuts, "__iter__"):
        raise TypeError(f"{field} is {cuts!r}; it must be a list of row numbers")
    found = [specs.whole(cut, field) for cut in cuts]
    edges = [0, *found, rows]
    if not found or any(begin >= end for begin, end in zip(edges, edges[1:])):
        raise ValueError(f"{field} is {found}; it must be rising row numbers between 1 and {rows - 1}")
    return found


def _reversed(x: Any) -> Any:
    """The rows in reverse order in memory of their own: neither torch nor kernels know steps of -1."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return x.flip(0)
    return np.ascontiguousarray(x[::-1]) if isinstance(x, np.ndarray) else x[::-1]


def _words(y: Any) -> Any:
    found = _tensors.operand(y, "fn(x)")
    return np.ascontiguousarray(found.words).view(found.format.integers)


def _same_bits(whole: Any, other: Any, how: str) -> None:
    if whole.shape != other.shape:
        raise AssertionError(f"fn(x) has shape {list(other.shape)} {how} and {list(whole.shape)} as a whole")
    different = np.argwhere(whole != other)
    if len(different):
        first = [int(i) for i in different[0]]
        raise AssertionError(f"{len(different)} of {whole.size} elements have other bits {how}; the first is {first}")
