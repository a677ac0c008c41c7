#!/usr/bin/env python3
"""normload as a user runs it: tests/programs/normload_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]"""

import json
import re
import signal
import subprocess
import tempfile
import time
import unittest

from harness import ENVIRONMENT, NORMCTL, NORMLOAD, PATIENCE, Server, ServerTest, TEST_ARGUMENTS, read_text, run


class NormloadTest(ServerTest):
    def test_a_signal_ends_a_load_with_its_report(self):
        sample = re.compile(r'^normd_requests_total\{[^}]*Normalize"[^}]*\} (\d+)', re.MULTILINE)

        def calls():
            return sum(int(number) for number in sample.findall(self.server.get("/metrics")[1]))

        for number, code in (signal.SIGINT, 130), (signal.SIGTERM, 143):
            before = calls()
            with subprocess.Popen([NORMLOAD, self.at, "--duration=1h", "--warmup=0"], env=ENVIRONMENT, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as load:
                deadline = time.monotonic() + PATIENCE
                while calls() < before + 20 and time.monotonic() < deadline:
                    time.sleep(0.02)
                load.send_signal(number)
                out, err = load.communicate(timeout=PATIENCE)
            self.assertEqual(load.returncode, code, err)
            self.assertIn(f"warning: ended early by {number.name}", out)
            self.assertIn("the report is of what was measured until then", err)

    def test_load_is_generated_and_counted(self):
        out = self.succeed(NORMLOAD, self.at, "--duration=1s", "--json")
        report = json.loads(out)
        self.assertGreater(report["calls"], 0)
        self.assertEqual(report["failed"], 0)
        self.assertGreaterEqual(report["latency_ns"]["p99.9"], report["latency_ns"]["p50"])
        for fact in ("date", "machine", "server_version", "client_version", "commit"):
            self.assertTrue(report["about"][fact], fact)
        self.assertEqual(report["about"]["server_pid"], self.server.process.pid)

    def test_an_open_loop_accounts_for_every_call_that_was_due(self):
        out = self.succeed(NORMLOAD, f"--server=unix:{self.server.socket}", "--rate=50", "--arrivals=constant",
                           "--duration=1s", "--warmup=0", "--shape=4x64", "--repeats=2", "--json")
        report = json.loads(out)
        self.assertEqual(len(report["runs"]), 2)
        for run_ in report["runs"]:
            self.assertEqual(run_["offered"], 50)
            self.assertEqual(run_["calls"] + run_["failed"] + run_["unsent"], 50)
            self.assertGreater(run_["lateness_ns"]["max"], 0)
        text = self.succeed(NORMLOAD, self.at, "--rate=50", "--duration=200ms", "--warmup=0", "--shape=4x64",
                            "--seed=5")
        for part in ("open loop", "arrivals: poisson", "seed: 5", "p99.9", "background CPU"):
            self.assertIn(part, text)

    def test_a_mix_is_loaded_and_reported_by_entry(self):
        self.succeed(NORMCTL, "session", "create", "batch-norm", "--channels=8", "--layout=channels-last", "--id=mixed",
                     self.at)
        path = self.path("mix.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"entries": [{"weight": 2, "method": "layer-norm", "shape": [4, 64], "dtype": "bf16"},
                                   {"shape": "4x64", "transport": "batch", "batch-items": 3}]}, out)
        report = json.loads(self.succeed(
            NORMLOAD, self.at, f"--mix={path}", "--mix=weight=2,method=rms-norm,shape=4x64,dtype=f16,transport=stream",
            "--mix=session=mixed,shape=6x8,training,steps", "--requests=200", "--duration=60s", "--warmup=0", "-c", "4",
            "--json"))
        entries = report["entries"]
        self.assertEqual(len(entries), 4)
        self.assertEqual(sum(entry["calls"] for entry in entries), 200)
        self.assertTrue(all(entry["calls"] > 0 for entry in entries), entries)
        session = json.loads(self.succeed(NORMCTL, "session", "get", "mixed", "--json", self.at))
        self.assertEqual(int(session["version"]), entries[3]["calls"] + 1)  # and the one before time is taken
        said = run(NORMLOAD, self.at, "--mix=method=rms-norm,transport=shared")
        self.assertEqual(said.returncode, 2)
        self.assertIn("it must be unix:/path", said.stderr)

    def test_a_sweep_writes_one_page_that_needs_no_other(self):
        page = self.path("report.html")
        result = run(NORMLOAD, self.at, "--sweep", "--loads=20,60", "--repeats=2", "--duration=200ms", "--warmup=50ms",
                     "--shape=4x64", "--slo=1m", "-c", "8", f"--html={page}", "--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("takes about 1.5s, at most", result.stderr)
        sweep = json.loads(result.stdout)["sweep"]
        self.assertEqual([point["percent"] for point in sweep["points"]], [20, 60])
        self.assertEqual([len(point["runs"]) for point in sweep["points"]], [2, 2])
        self.assertGreater(sweep["capacity_per_second"], 0)
        self.assertIn(sweep["knee"], (None, 0, 1))
        html = read_text(page)
        block = html.partition('<script type="application/json" id="report">')[2].partition("</script>")[0]
        self.assertEqual(json.loads(block)["sweep"], sweep)
        self.assertEqual(html.count("<script"), 2)
        for part in ("<link", "<img", "src=", "href="):
            self.assertNotIn(part, html)

    def test_load_that_makes_no_sense_is_refused_before_anything_is_sent(self):
        for flag, limit in (("--rate=0", "0.01"), ("--shape=99999x99999x99", "at most"), ("--concurrency=5000", "4096"),
                            ("--mix=weight=0", "above 0"), ("--server=192.0.2.1:1", "--allow-remote")):
            result = run(NORMLOAD, "--server=unix:/nonexistent/normd.sock", flag)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("192.0.2.1:1" if "server" in flag else flag.split("=")[0], result.stderr)
            self.assertIn(limit, result.stderr)


class LostServerTest(unittest.TestCase):
    def test_load_on_a_server_that_goes_away_or_stops_ends_in_time(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            for transport in ("unary", "stream"):
                with self.subTest(signal=number, transport=transport), tempfile.TemporaryDirectory() as folder:
                    server = Server(folder)
                    started = time.monotonic()
                    load = subprocess.Popen(
                        [NORMLOAD, f"--server={server.address}", "--duration=2s", "--warmup=0", "--deadline=2s", "-c",
                         "32", f"--transport={transport}"],
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
                    try:
                        time.sleep(1.5)
                        server.process.send_signal(number)
                        out, _ = load.communicate(timeout=PATIENCE)
                    finally:
                        load.kill()
                        server.stop(signal.SIGKILL)
                    self.assertLess(time.monotonic() - started, PATIENCE / 2)
                    self.assertEqual(load.returncode, 1)
                    self.assertRegex(out, "UNAVAILABLE|DEADLINE_EXCEEDED|CANCELLED")


if __name__ == "__main__":
    unittest.main(argv=TEST_ARGUMENTS, verbosity=2)
