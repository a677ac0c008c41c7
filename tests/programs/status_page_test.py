#!/usr/bin/env python3
"""The status page in a browser: tests/programs/status_page_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]

Debian's chromium renders the page of a server under load, and prints what became of it.
Runs with NORMD_TEST_FULL=1 (tests/run.sh --full) only, because the browser is a large package.
"""

import collections
import html.parser
import re
import subprocess
import time
import unittest
import urllib.request

from harness import ENVIRONMENT, NORMLOAD, PATIENCE, ServerTest, TEST_ARGUMENTS


class Page(html.parser.HTMLParser):
    """Texts by the id of the element that they are below, or by its name; how many elements have each name; the values
    of attributes; and the points of lines."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.lines = [], {}, []
        self.counts, self.attributes = collections.Counter(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.counts[tag] += 1
        self.attributes.update(attributes.values())
        if tag == "polyline":
            self.lines.append(attributes.get("points", ""))
        if tag in ("meta", "wbr"):  # has no end
            return
        self.handle_data(" ")
        self.open.append((tag, attributes.get("id", tag)))

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for _, name in self.open:
            self.texts[name] = self.texts.get(name, "") + data


def browse(url):
    """The page after nine seconds of its own time, and what it wrote to the console."""
    result = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         "--virtual-time-budget=9000", "--dump-dom", url],
        capture_output=True, text=True, timeout=2 * PATIENCE, check=True)
    console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    return Page(result.stdout), console


class StatusPageTest(ServerTest):
    def setUp(self):
        self.url = f"http://{self.server.admin}/"
        self.load = subprocess.Popen([NORMLOAD, "--duration=60s", "--shape=4x64", self.at], env=ENVIRONMENT,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        while not re.search(r"Normalizer/Normalize  +[1-9]", self.read("statusz")):
            self.assertLess(time.monotonic(), until, "no traffic")
            time.sleep(0.05)

    def read(self, path):
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as reply:
            return reply.read().decode()

    def tearDown(self):
        self.load.kill()
        self.load.wait()

    def test_shows_live_figures_and_breaks_none_of_its_own_rules(self):
        page, console = browse(self.url)
        self.assertEqual(console, [])
        self.assertEqual(page.texts["state"].strip(), "serving")
        self.assertRegex(page.texts["main"], r"calls/s\s+[0-9]*[1-9]")
        self.assertRegex(page.texts["main"], r"p99\s+[0-9.]+ (us|ms|s)\s+peak [0-9.]+ (us|ms|s)")
        self.assertGreaterEqual(len(page.lines), 13)
        for line in page.lines:
            self.assertGreaterEqual(len(line.split()), 3, "points of a line")

    def test_is_readable_without_scripts(self):
        page = Page(self.read(""))
        self.assertEqual(page.texts["state"].strip(), "serving")
        for part in ("version", "calls/s", "Requests over", "Requests since the start", "Normalizer/Normalize",
                     "Limits"):
            self.assertIn(part, page.texts["main"])

    def test_a_look_at_it_hides_nothing_from_prometheus(self):
        def longest():
            metrics = self.read("metrics")
            return float(re.search(r"^normd_queue_callback_longest_seconds (\S+)", metrics, re.MULTILINE)[1])
        self.tearDown()
        self.read("")
        of_the_load = longest()
        self.assertGreater(of_the_load, longest(), "only the load's callbacks took long")


if __name__ == "__main__":
    unittest.main(argv=TEST_ARGUMENTS)
