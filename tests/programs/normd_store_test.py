#!/usr/bin/env python3
"""normd and its session store: tests/programs/normd_store_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]

What outlives a server, and what a server does that cannot keep its word.
"""

import json
import math
import os
import signal
import tempfile
import unittest

from harness import FAILING_FLUSH, NORMCTL, NORMD, PATIENCE, Server, TEST_ARGUMENTS, run, write_npy


class DurabilityTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        self.servers = []

    def tearDown(self):
        for server in self.servers:
            server.stop(signal.SIGKILL)
        self.temporary.cleanup()

    def start(self, *options, **more):
        self.servers.append(Server(self.folder, *options, **more))
        return self.servers[-1]

    def normctl(self, server, *arguments):
        result = run(NORMCTL, *arguments, f"--server={server.address}")
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def train(self, server, sequence, name="bn"):
        path = os.path.join(self.folder, "x.npy")
        write_npy(path, (4, 2), [math.sin(sequence + i) for i in range(8)])
        return run(NORMCTL, "normalize", path, "--session", name, "--training", "-o", os.path.join(self.folder, "y.npy"),
                   "--step-client", "trainer", "--step-sequence", str(sequence), f"--server={server.address}")

    def create(self, server, name="bn"):
        self.normctl(server, "session", "create", "batch-norm", "--channels=2", "--layout=channels-last", f"--id={name}")

    def get(self, server, name="bn"):
        session = json.loads(self.normctl(server, "session", "get", name, "--json"))
        return {key: session[key] for key in ("uid", "version", "state")}

    def test_a_session_survives_kill_9_and_its_steps_are_known(self):
        server = self.start()
        self.create(server)
        for sequence in (1, 2, 3):
            self.assertEqual(self.train(server, sequence).returncode, 0)
        before = self.get(server)
        server.stop(signal.SIGKILL)
        server = self.start()
        self.assertEqual(self.get(server), before)
        self.assertEqual(self.train(server, 3).returncode, 0, "a replay")
        self.assertEqual(self.get(server), before, "applied twice")
        self.assertEqual(self.train(server, 4).returncode, 0)
        self.assertEqual(int(self.get(server)["version"]), 4)

    def test_level_memory_survives_nothing(self):
        server = self.start("--durability=memory")
        self.create(server)
        uid = self.get(server)["uid"]
        server.stop()
        server = self.start("--durability=memory")
        self.assertEqual(run(NORMCTL, "session", "get", "bn", f"--server={server.address}").returncode, 1)
        self.create(server)
        self.assertNotEqual(self.get(server)["uid"], uid)

    def test_a_second_server_on_the_same_folder_is_refused(self):
        self.start()
        result = run(NORMD, f"--data-dir={self.folder}/data", "--listen=127.0.0.1:0", "--admin_listen=")
        self.assertEqual(result.returncode, 1)
        self.assertIn("another server uses this session store", result.stdout + result.stderr)

    def test_a_backup_is_made_while_the_server_runs_and_serves_as_a_store(self):
        server = self.start()
        for name in ("bn", "other"):
            self.create(server, name)
        self.assertEqual(self.train(server, 1).returncode, 0)
        before = self.get(server)
        restored = os.path.join(self.folder, "data2")
        os.mkdir(restored)
        command = (NORMD, f"--backup={restored}/normd.db", f"--data_dir={self.folder}/data")
        result = run(*command)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("2 sessions", result.stdout)
        self.assertEqual(run(*command).returncode, 1, "an existing file is not overwritten")
        self.assertEqual(self.train(server, 2).returncode, 0)
        server.stop()
        server = self.start(f"--data_dir={restored}")
        self.assertEqual(self.get(server), before)
        restore = (NORMD, f"--restore={restored}/normd.db", f"--data_dir={self.folder}/data")
        server.stop()
        result = run(*restore)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("2 sessions", result.stdout)
        self.assertRegex(result.stdout, "the store before is .*/data/normd.db.before-")
        server = self.start()
        self.assertEqual(self.get(server), before)

    def test_a_failed_flush_is_never_acknowledged_and_ends_the_server(self):
        trigger = os.path.join(self.folder, "broken")
        server = self.start("--drain_settle=6s", environment={
            "LD_PRELOAD": FAILING_FLUSH, "NORMD_FAIL_FLUSH": trigger, "ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.create(server)
        self.assertEqual(self.train(server, 1).returncode, 0)
        before = self.get(server)
        open(trigger, "w", encoding="utf-8").close()
        refused = self.train(server, 2)
        self.assertNotEqual(refused.returncode, 0, server.text())
        os.remove(trigger)  # a flush that succeeds now proves nothing
        refused = self.train(server, 3)
        self.assertNotEqual(refused.returncode, 0, server.text())
        self.assertIn("flush", refused.stderr)
        self.assertEqual(self.get(server), before, "reads are served while it drains")
        self.assertNotEqual(run(NORMCTL, "health", f"--server={server.address}").returncode, 0)
        self.assertEqual(server.process.wait(timeout=PATIENCE), 1)
        text = server.text()
        self.assertIn("a flush of the session store failed", text)
        server = self.start()
        self.assertIn(int(self.get(server)["version"]), (1, 2), "the step in doubt was applied once or not at all")
        self.assertEqual(self.train(server, 2).returncode, 0)
        self.assertEqual(int(self.get(server)["version"]), 2)


if __name__ == "__main__":
    unittest.main(argv=TEST_ARGUMENTS, verbosity=2)
