"""The pytest plugin: the fixture `golden`, reports in JUnit files, and one HTML page (--golden-html=FILE).

Installed with the package; `normd_golden.testing` has the assertions and @norm_cases.
"""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

import pytest

if TYPE_CHECKING:
    from normd_golden._report import Report

_PROPERTY = "normd_golden"  # of a test, in JUnit files; one for each report, as JSON


class Golden:
    """The fixture: golden.check and the assertions of normd_golden.testing, which record their reports."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    def check(self, candidate: Any, *args: Any, **rest: Any) -> Report:
        """golden.check, recorded."""
        from normd_golden import check

        return self._recorded(check(candidate, *args, **rest), None)

    def assert_norm(self, y: Any, *args: Any, max_ulp: float = 1.0, min_nearest: float = 0.0, **rest: Any) -> Report:
        """testing.assert_norm, recorded."""
        from normd_golden import check, testing

        report = check(y, *args, **rest)
        complaint = testing.complaint_about(report, max_ulp, min_nearest)
        self._recorded(report, max_ulp)
        if complaint:
            pytest.fail(f"{complaint}\n{report}", pytrace=False)
        return report

    def batch_invariant(
        self, fn: Callable[[Any], Any], x: Any, splits: Optional[Sequence[Sequence[int]]] = None
    ) -> None:
        """testing.batch_invariant."""
        from normd_golden import testing

        testing.batch_invariant(fn, x, splits)

    def _recorded(self, report: Report, max_ulp: Optional[float]) -> Report:
        facts = {
            "spec": str(report.spec),
            "dtype": report.dtype,
            "shape": list(report.shape),
            "nearest": report.nearest,
            "max_ulp": min(report.max_ulp, 1e300),  # JSON has no infinity
            "mean_ulp": report.mean_ulp,
            "limit_ulp": max_ulp,
            "variant": report.variant if max_ulp is not None and report.max_ulp > max_ulp else "",
        }
        self._record(_PROPERTY, json.dumps(facts))
        return report


@pytest.fixture
def golden(record_property: Callable[[str, object], None]) -> Golden:
    """What a normalisation must return: golden.assert_norm(y, spec, x, weight, bias, max_ulp=, floor=)."""
    return Golden(record_property)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("normd-golden")
    group.addoption("--golden-html", metavar="FILE", help="write the reports of the fixture `golden` to an HTML page")


class _Page:
    """Collects what tests recorded, in the process that reports, and writes the page."""

    def __init__(self, path: str) -> None:
        self._path = pathlib.Path(path)
        self._rows: List[Dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        for name, value in report.user_properties:
            if name == _PROPERTY:
                self._rows.append({"test": report.nodeid, "outcome": report.outcome, **json.loads(str(value))})

    def pytest_sessionfinish(self) -> None:
        from normd_golden import _html

        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(_html.page(self._rows), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--golden-html")
    is_worker = hasattr(config, "workerinput")  # of pytest-xdist, whose controller writes the page
    if path and not is_worker:
        config.pluginmanager.register(_Page(path), "normd_golden_page")
