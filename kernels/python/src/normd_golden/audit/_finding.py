"""What an audit says of one expectation."""

from __future__ import annotations

import dataclasses
from typing import Any, List, Optional

import numpy as np

from normd_golden import _tensors
from normd_golden._formats import Array, Format
from normd_golden._report import Report, check, errors_of

MAX_ULP = 4.0  # of an expectation that is right, where errors of small elements count at the root mean square of y


@dataclasses.dataclass(frozen=True)
class Finding:
    """One expectation: `verdict` is "ok", "WRONG" or "not judged", and `text` says how right it is, or why it is not."""

    name: str
    verdict: str
    text: str
    max_ulp: float = 0.0
    nearest: float = 1.0

    @property
    def is_wrong(self) -> bool:
        return self.verdict == "WRONG"

    def __str__(self) -> str:
        return f"{self.verdict:<10} {self.name}: {self.text}"


def skipped(name: str, why: str) -> Finding:
    return Finding(name, "not judged", why)


def judged(name: str, max_ulp: float, expected: Any, *given: Any, **rest: Any) -> Finding:
    """The verdict on a y: the arguments after it are those of golden.check."""
    scale = _scale(_tensors.operand(expected, "expected").widened())
    report = check(expected, *given, floor=scale, worst=1, **rest)
    return _finding(name, max_ulp, report)


def judged_values(name: str, max_ulp: float, format_: Format, words: Array, exact: Array) -> Finding:
    """The same where a norm is followed by other operators: `exact` is the value of all of them in float64."""
    found = errors_of(format_, words, exact, floor=_scale(exact))
    text = str(found)
    is_wrong = found.max_ulp > max_ulp
    if is_wrong:
        at = int(found.ulp.argmax())
        index = [int(part) for part in np.unravel_index(at, found.ulp.shape)]
        expected = format_.widen(words).reshape(-1)[at]
        text += f"; {index} expects {expected!s}, and the exact value is {exact.reshape(-1)[at]!s}"
    return Finding(name, "WRONG" if is_wrong else "ok", text, found.max_ulp, found.nearest)


def _finding(name: str, max_ulp: float, report: Report) -> Finding:
    is_wrong = report.max_ulp > max_ulp
    text = report.summary()
    if is_wrong and report.worst:
        worst = report.worst[0]
        text += f"; {list(worst.index)} expects {worst.candidate!r}, and the exact value is {worst.exact!r}"
        if report.variant:
            text += f"; {report.variant}"
    return Finding(name, "WRONG" if is_wrong else "ok", text, report.max_ulp, report.nearest)


def _scale(values: Array) -> float:
    """The root mean square of the finite values: cancellation may leave small elements nothing but errors."""
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    if largest == 0:
        return 0.0
    return largest * float(np.sqrt(np.mean(np.square(finite / largest))))


def summary(findings: List[Finding], title: str, shown: Optional[int] = None) -> str:
    """One line for each finding, the wrong ones first, and a line with the counts."""
    ordered = sorted(findings, key=lambda one: (not one.is_wrong, one.verdict != "not judged"))
    lines = [str(one) for one in (ordered if shown is None else ordered[:shown])]
    wrong = sum(one.is_wrong for one in findings)
    judged_ones = sum(one.verdict != "not judged" for one in findings)
    lines.append(f"{title}: {wrong} of {judged_ones} expectations are wrong, {len(findings) - judged_ones} not judged")
    return "\n".join(lines)
