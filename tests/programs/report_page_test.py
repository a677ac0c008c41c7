#!/usr/bin/env python3
"""normload's report in a browser: tests/programs/report_page_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]

Runs with NORMD_TEST_FULL=1 (tests/run.sh --full) only, as status_page_test.py does, whose browser it uses.
"""

import json
import pathlib
import unittest

from harness import NORMLOAD, ServerTest, TEST_ARGUMENTS, run
from status_page_test import browse


class ReportPageTest(ServerTest):
    def report(self, *arguments, name="report.html"):
        """The report as JSON, and its page, a file of that name, as the browser shows it."""
        page = self.path(name)
        result = run(NORMLOAD, self.at, "--shape=4x64", "--warmup=50ms", f"--html={page}", "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        shown, console = browse(pathlib.Path(page).as_uri())
        self.assertEqual(console, [])
        return json.loads(result.stdout), shown

    def test_a_sweep_has_two_charts_and_all_tables(self):
        report, page = self.report("--sweep", "--loads=20,60", "--repeats=2", "--duration=200ms", "--slo=1m", "-c", "8")
        self.assertEqual((page.counts["svg"], page.counts["polyline"], page.counts["circle"]), (2, 5, 10))
        for part in ("Latency over load", "Goodput over load", "SLO: 1m", "capacity, closed loop", "GB/s, both ways",
                     "latency over load: medians of the repeats", "background CPU", report["about"]["command"],
                     *report["warnings"]):
            self.assertIn(part, page.texts["page"])

    def test_a_run_has_its_latency_by_percentile_and_its_errors(self):
        report, page = self.report("--requests=200", "--repeats=1")
        self.assertEqual((page.counts["svg"], page.counts["polyline"]), (1, 1))
        for part in ("Latency by percentile", "90 %", "SLO: ", f"{report['calls_per_second']:.1f}", "layer-norm 4x64"):
            self.assertIn(part, page.texts["page"])

    def test_a_value_is_never_markup(self):
        name = "<b id='evil'>&lt;<!--<script>.html"  # the command, which is part of the report, has it
        report, page = self.report("--requests=20", "--repeats=1", name=name)
        self.assertNotIn("evil", page.attributes)
        self.assertEqual((page.counts["script"], page.counts.get("b")), (2, 5))  # the tiles' figures
        self.assertIn(report["about"]["command"], page.texts["page"])


if __name__ == "__main__":
    unittest.main(argv=TEST_ARGUMENTS)
