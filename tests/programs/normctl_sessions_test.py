#!/usr/bin/env python3
"""normctl session, and its files: tests/programs/normctl_sessions_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]"""

import json
import math
import signal
import subprocess
import unittest

from harness import ENVIRONMENT, NORMCTL, PATIENCE, ServerTest, TEST_ARGUMENTS, run, write_npy


class SessionsTest(ServerTest):
    def session(self, *arguments):
        return self.succeed(NORMCTL, "session", *arguments, self.at)

    def create(self, name, method="batch-norm", channels=2, *flags):
        self.session("create", method, f"--channels={channels}", "--layout=channels-last", f"--id={name}", *flags)

    def train(self, name, batch, rows=4, channels=2):
        path = self.path(f"{name}-x.npy")
        write_npy(path, (rows, channels), [math.sin(7.3 * batch + i) * (batch + 1) for i in range(rows * channels)])
        self.succeed(NORMCTL, "normalize", path, "--session", name, "--training", "-o", self.path(f"{name}-y.npy"),
                     self.at)

    def state(self, name):
        return json.loads(self.session("get", name, "--json"))["state"]

    def test_moments_of_two_callers_are_one_step(self):
        self.create("pool")
        self.create("whole")
        values = [1.5, -2.0, 0.25, 8.0, 3.0, 1.0, -7.5, 2.0, 4.0, 0.125, 6.0, 5.0]
        files = []
        for name, rows in (("a", values[:4]), ("b", values[4:])):
            write_npy(self.path(f"pool-{name}.npy"), (len(rows) // 2, 2), rows)
            files.append(self.path(f"pool-{name}.json"))
            self.succeed(NORMCTL, "moments", "batch-norm", self.path(f"pool-{name}.npy"), "-o", files[-1], self.at)
        step = ("commit", "pool", *files, "--step-client", "trainer", "--step-sequence", "5", "--json")
        first = json.loads(self.session(*step))["state"]
        self.assertEqual((first["version"], first["applied"], first["replayed"]), (1, True, False))
        again = json.loads(self.session(*step))["state"]
        self.assertEqual((again["version"], again["replayed"]), (1, True))
        self.assertIn("moved on to version", self.refuse(NORMCTL, "session", "commit", "pool", *files, "--expected-version", "0",
                                             self.at))
        # As if one caller had seen all rows.
        write_npy(self.path("whole.npy"), (6, 2), values)
        self.succeed(NORMCTL, "normalize", self.path("whole.npy"), "--session", "whole", "--training",
                     "-o", self.path("whole-y.npy"), self.at)
        for statistic in ("mean", "var"):
            for one, other in zip(self.state("pool")[statistic]["values"], self.state("whole")[statistic]["values"]):
                self.assertAlmostEqual(one, other, delta=1e-14)
        with open(files[0], "w", encoding="utf-8") as out:
            out.write("{\"moments\": {\"count\": 1}}")
        self.assertIn("moments.count", self.refuse(NORMCTL, "session", "commit", "pool", files[0], self.at))

    def test_exact_moments_may_come_in_any_order(self):
        values = [0.1 * i * (-1) ** i + 1e4 for i in range(24)]
        files = {}
        for name, rows in (("all", values), ("a", values[:6]), ("b", values[6:10]), ("c", values[10:])):
            write_npy(self.path(f"{name}.npy"), (len(rows) // 2, 2), rows)
            files[name] = self.path(f"{name}.json")
            self.succeed(NORMCTL, "moments", "batch-norm", self.path(f"{name}.npy"), "--exact", "-o", files[name], self.at)
        states = []
        for session, parts in (("e-all", ["all"]), ("e-abc", "abc"), ("e-cab", "cab")):
            self.create(session)
            self.session("commit", session, *(files[part] for part in parts))
            states.append(self.state(session))
        self.assertEqual(states[1], states[0])
        self.assertEqual(states[2], states[0])
        with open(files["a"], encoding="utf-8") as file:
            moments = json.load(file)
        moments["moments"]["exact"] = "!"
        with open(files["a"], "w", encoding="utf-8") as out:
            json.dump(moments, out)
        self.assertIn("moments.exact must be", self.refuse(NORMCTL, "session", "commit", "e-all", files["a"], self.at))

    def watch(self, *arguments):
        return subprocess.Popen([NORMCTL, "session", "watch", *arguments, "--interval=20ms", self.at], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)

    def test_watch_shows_the_statistics_moving(self):
        self.create("moving")
        with self.watch("moving", "--json", "--count=4") as process:
            lines = [json.loads(process.stdout.readline())]
            for batch in range(3):
                self.train("moving", batch)
                lines.append(json.loads(process.stdout.readline()))
                self.assertEqual(lines[-1]["running_mean"]["values"], self.state("moving")["mean"]["values"])
            self.assertEqual(process.wait(timeout=PATIENCE), 0)
        self.assertEqual([line["version"] for line in lines], [0, 1, 2, 3])
        self.assertIsNone(lines[0]["running_mean"]["largest_change"])
        for before, now in zip(lines, lines[1:]):
            means = [zip(before[name]["values"], now[name]["values"]) for name in ("running_mean", "running_var")]
            self.assertEqual(now["running_mean"]["largest_change"], max(abs(b - a) for a, b in means[0]))
            self.assertEqual(now["running_var"]["largest_change"], max(abs(b - a) / abs(a) for a, b in means[1]))

    def test_quiet_prints_names_alone(self):
        name = self.succeed(NORMCTL, "session", "create", "rms-norm", "-q", self.at)
        self.assertRegex(name, r"\Asessions/[^\s]+\n\Z")
        self.assertIn(name, self.succeed(NORMCTL, "session", "list", "--quiet", self.at).splitlines(keepends=True))
        copy = self.succeed(NORMCTL, "session", "fork", name.strip(), "--id=quiet-copy", "-q", self.at)
        self.assertEqual(copy, "sessions/quiet-copy\n")
        for each in name, copy:
            self.assertEqual(self.succeed(NORMCTL, "session", "delete", each.strip(), "-q", self.at), "")

    def test_a_frozen_fork_is_a_version_for_good(self):
        self.create("goes-on")
        self.train("goes-on", 1)
        shown = json.loads(self.session("fork", "goes-on", "--id=version-1", "--frozen", "--json"))
        self.assertTrue(shown["frozen"])
        self.assertRegex(self.session("get", "version-1"), r"(?m)^frozen +true$")
        refused = run(NORMCTL, "session", "reset", "version-1", self.at)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("is frozen", refused.stderr)
        self.train("goes-on", 2)
        self.assertEqual(self.state("version-1")["num_batches"], 1)
        self.assertNotRegex(self.session("get", "goes-on"), r"(?m)^frozen")
        thawed = json.loads(self.session("fork", "version-1", "--id=thawed", "--json"))
        self.assertFalse(thawed["frozen"])
        self.session("delete", "version-1")

    def test_watch_ends_with_the_session_and_with_ctrl_c(self):
        self.create("brief")
        with self.watch("brief") as process:
            self.assertIn("version", process.stdout.readline())
            self.assertIn("  0  ", process.stdout.readline())
            self.session("delete", "brief")
            self.assertEqual(process.wait(timeout=PATIENCE), 1)
            self.assertIn("sessions/brief is gone", process.stderr.read())
        self.create("endless")
        with self.watch("endless") as process:
            process.stdout.readline()
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=PATIENCE), -signal.SIGINT)

    def test_a_record_is_the_session_bit_for_bit(self):
        self.create("kept", "batch-norm", 2, "--label=a=b")
        self.train("kept", 1)
        self.session("export", "kept", "-o", self.path("kept.bin"))
        self.session("import", self.path("kept.bin"), "--id=kept-again")
        for view in ("spec", "state", "version", "labels"):
            self.assertEqual(json.loads(self.session("get", "kept", "--json"))[view],
                             json.loads(self.session("get", "kept-again", "--json"))[view])

    def test_power_norm_keeps_phi(self):
        self.session("create", "power-norm", "--channels=2", "--id=power")
        write_npy(self.path("power.npy"), (2, 3, 2), [0.5 * i for i in range(12)])
        self.succeed(NORMCTL, "normalize", self.path("power.npy"), "--session=power", "--training",
                     "-o", self.path("power-y.npy"), self.at)
        self.session("export", "power", "-o", self.path("power.record"))
        self.session("import", self.path("power.record"), "--id=power-again")
        self.assertEqual(self.state("power"), self.state("power-again"))

    def test_what_is_no_record_never_reaches_the_server(self):
        write_npy(self.path("tensor.npy"), (2,), [1.0, 2.0])
        said = run(NORMCTL, "session", "import", self.path("tensor.npy"), self.at)
        self.assertEqual(said.returncode, 2)
        self.assertIn("is a .npy tensor", said.stderr)
        self.assertNotIn("DATA_LOSS", self.server.text())


if __name__ == "__main__":
    unittest.main(argv=TEST_ARGUMENTS, verbosity=2)
