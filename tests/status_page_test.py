#!/usr/bin/env python3
"""The status page in a browser: tests/status_page_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]

Debian's chromium renders the page of a server under load, and prints what became of it.
Runs with NORMD_TEST_FULL=1 (tests/run.sh --full) only, because the browser is a large package.
"""

import html.parser
import re
import subprocess
import sys
import time
import unittest
import urllib.request

from programs import ENVIRONMENT, NORMLOAD, PATIENCE, ServerTest


class Page(html.parser.HTMLParser):
    """Texts by the id of the element that they are below, and how many elements of each name there are."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.texts, self.counts, self.attributes = [], {}, {}, {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        attributes = dict(attrs)
        if "id" in attributes:
            self.attributes[attributes["id"]] = attributes
        if tag in ("meta", "wbr"):  # has no end
            return
        self.handle_data(" ")
        self.ids.append((tag, attributes.get("id")))

    def handle_endtag(self, tag):
        while self.ids and self.ids.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for _, name in self.ids:
            if name:
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
        self.assertNotIn("hidden", page.attributes["live"])
        calls = re.search(r"calls/s\s+([0-9.]+k?)", page.texts["tiles"])
        self.assertIsNotNone(calls, page.texts["tiles"])
        self.assertNotEqual(calls[1], "0")
        self.assertRegex(page.texts["tiles"], r"p99\s+[0-9.]+ (µs|ms|s)")
        self.assertEqual(page.counts["svg"], 4)
        self.assertGreaterEqual(page.counts["polyline"], 4)
        self.assertIn("Normalizer/Normalize", page.texts["methods"])

    def test_is_readable_without_scripts(self):
        page = Page(self.read(""))
        self.assertIn("hidden", page.attributes["live"])
        for part in ("version", "Requests since the start", "Normalizer/Normalize", "Limits"):
            self.assertIn(part, page.texts["tables"])

    def test_a_look_at_it_hides_nothing_from_prometheus(self):
        def longest(path):
            return float(re.search(r"^normd_queue_callback_longest_seconds (\S+)", self.read(path), re.MULTILINE)[1])
        seen = longest("statusz/metrics")
        self.assertGreater(seen, 0)
        self.assertGreaterEqual(longest("metrics"), seen)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
