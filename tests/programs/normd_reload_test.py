#!/usr/bin/env python3
"""normd's file of options as an operator uses it: tests/programs/normd_reload_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]

Starts the real server with --config, changes the file and sends SIGHUP, also under load; --check_config; and what a
service manager is told.
"""

import itertools
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from harness import ENVIRONMENT, NORMCTL, NORMD, NORMLOAD, PATIENCE, Server, TEST_ARGUMENTS, run


class ReloadTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        self.config = os.path.join(self.folder, "normd.toml")
        self.server = None

    def tearDown(self):
        if self.server is not None:
            self.server.stop(signal.SIGKILL)
        self.temporary.cleanup()

    def write(self, text):
        """As editors and Kubernetes do: the file is another one from one moment to the next."""
        with open(self.config + ".new", "w", encoding="utf-8") as out:
            out.write(text)
        os.rename(self.config + ".new", self.config)

    def start(self, *options, **more):
        self.server = Server(self.folder, f"--config={self.config}", *options, **more)
        return self.server

    def wait_for(self, words, count=1):
        deadline = time.monotonic() + PATIENCE
        while self.server.text().count(words) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertGreaterEqual(self.server.text().count(words), count, self.server.text())

    def reload(self, text):
        """Returns what the server logs about it."""
        before = len(self.server.text())
        ends = sum(self.server.text().count(end) for end in ("options reloaded", "cannot reload"))
        self.write(text)
        self.server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            logged = self.server.text()
            if sum(logged.count(end) for end in ("options reloaded", "cannot reload")) > ends:
                return logged[before:]
            time.sleep(0.02)
        raise AssertionError("no end of the reload:\n" + self.server.text())

    def figures(self):
        """What /metrics says of reloads: taken, failed, and whether the newest failed."""
        page = self.server.get("/metrics")[1]
        names = ("reloads_total", "reload_failures_total", "stale")
        return tuple(int(re.search(rf"^normd_config_{name} (\d+)$", page, re.MULTILINE)[1]) for name in names)

    def create(self, name):
        return run(NORMCTL, "session", "create", "batch-norm", "--channels=2", "--layout=channels-last", f"--id={name}",
                   f"--server={self.server.address}")

    def test_a_limit_is_moved_while_the_server_runs(self):
        self.write("max_sessions = 1\n")
        self.start()
        self.assertEqual(self.create("a").returncode, 0)
        self.assertIn("--max_sessions", self.create("b").stderr)
        logged = self.reload("max_sessions = 2\n")
        self.assertIn("INFO option changed name=max_sessions from=1 to=2", logged)
        self.assertIn("options reloaded changed=1 need_restart=0", logged)
        self.assertEqual(self.create("b").returncode, 0)
        self.assertEqual(self.server.stop(), 0)

    def test_the_log_changes_its_level_and_its_form(self):
        self.write('log_level = "error"\n')
        self.start()
        self.assertEqual(self.server.text(), "")
        self.reload('log_level = "debug"\nlog_format = "json"\n')
        self.assertEqual(run(NORMCTL, "describe", f"--server={self.server.address}").returncode, 0)
        self.wait_for('"level":"DEBUG"')
        self.assertEqual(self.server.stop(), 0)

    def test_a_file_that_keeps_changing_is_taken_when_it_rests(self):
        self.write("max_sessions = 1\n")
        self.start("--session_store=memory")
        self.server.process.send_signal(signal.SIGHUP)
        number = 1
        deadline = time.monotonic() + PATIENCE
        while "which keeps changing" not in self.server.text() and time.monotonic() < deadline:
            number += 1
            self.write(f"max_sessions = {number}\n")
        # Where this process was not served for a while, the file has rested in between, and was taken before.
        taken, failed, _ = self.figures()
        self.assertEqual(failed, 1)
        self.wait_for(f" to={number}\n")
        self.assertEqual(self.figures()[1:], (1, 0))
        self.assertGreaterEqual(self.figures()[0], max(taken, 1))
        self.assertEqual(self.server.stop(), 0)

    def test_a_mistake_leaves_everything_as_it_was_and_is_told_once(self):
        self.write("max_sessions = 1\n")
        self.start("--session_store=memory", environment={"NORMD_DRAIN_TIMEOUT": "20s"})
        mistakes = {"max_sessions = 5\nmax_session = 7\n": "normd.toml:2: max_session is no option; did you mean "
                                                           "max_sessions?",
                    "max_sessions = -1\n": 'normd.toml:1: max_sessions is \\"-1\\"; it must be 0 to 100000000',
                    "max_sessions =": "normd.toml:1 is not TOML ("}
        for text, error in mistakes.items():
            logged = self.reload(text)
            self.assertEqual(logged.count(" ERROR "), 1, logged)
            self.assertIn(error, logged)
        os.remove(self.config)
        self.server.process.send_signal(signal.SIGHUP)
        self.wait_for("which cannot be read: No such file or directory")
        self.assertEqual(self.create("a").returncode, 0)
        self.assertIn("--max_sessions", self.create("b").stderr)
        self.assertEqual(self.server.stop(), 0)

    def test_metrics_tell_whether_the_file_is_in_force(self):
        self.write("max_sessions = 1\n")
        self.start("--session_store=memory")
        self.assertEqual(self.figures(), (0, 0, 0))
        self.reload("max_session = 2\n")
        self.assertEqual(self.figures(), (0, 1, 1))
        self.reload("max_sessions =")
        self.assertEqual(self.figures(), (0, 2, 1))
        self.reload("max_sessions = 2\n")
        self.assertEqual(self.figures(), (1, 2, 0))
        self.assertEqual(self.server.stop(), 0)

    def test_what_needs_a_restart_is_named_and_no_password_is_shown(self):
        self.write("queues = 1\n")
        self.start("--session_store=memory", environment={"NORMD_MAX_SESSIONS": "9"})
        logged = self.reload('queues = 2\nmax_sessions = 3\nsession_store = "postgres://me:secret@host/db"\n')
        self.assertIn("WARN a changed option needs a restart name=queues from=1 to=2", logged)
        self.assertIn("options reloaded changed=0 need_restart=1", logged, "flags and the environment win over the file")
        self.assertNotIn("secret", self.server.text())
        self.assertEqual(self.server.stop(), 0)

    def test_no_call_fails_while_options_are_reloaded(self):
        self.write("max_sessions = 100\n")
        self.start()
        self.assertEqual(self.create("bn").returncode, 0)
        load = subprocess.Popen(
            [NORMLOAD, f"--server={self.server.address}", "--duration=1s", "--warmup=0", "-c", "4", "--session=bn",
             "--training", "--steps", "--shape=8x2"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
        reloads = 0
        levels = itertools.cycle(("info", "warn"))  # the end of a reload is logged where either level shows it
        while load.poll() is None:
            reloads += 1
            self.reload("bogus = 1\n" if reloads % 5 == 0 else
                        f'max_sessions = {100 + reloads}\nlog_level = "{next(levels)}"\n')
        out, _ = load.communicate(timeout=PATIENCE)
        self.assertEqual(load.returncode, 0, out)  # 1 if a call failed
        self.assertGreater(reloads, 0)
        self.assertEqual(self.server.stop(), 0)


class CheckConfigTest(unittest.TestCase):
    def check(self, text, *options, environment=None):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "normd.toml")
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
            result = subprocess.run([NORMD, "--check_config", f"--config={path}", f"--data_dir={folder}/data", *options],
                                    capture_output=True, text=True, env={**ENVIRONMENT, **(environment or {})},
                                    timeout=PATIENCE, check=False)
            self.assertEqual(os.listdir(folder), ["normd.toml"], "something was opened")
            return result.returncode, result.stdout.replace(folder, "DIR"), result.stderr.replace(folder, "DIR")

    def test_what_is_right_is_told_with_its_source_and_without_passwords(self):
        code, out, err = self.check('# a comment\nsession_store = "postgresql://me:secret@host/db"\nqueues = 2\n',
                                    "--queues=3", environment={"NORMD_MAX_SESSIONS": "5"})
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out, "ok\nsession_store = postgresql://(not shown) (DIR/normd.toml:2)\n"
                              "data_dir = DIR/data (flag)\nmax_sessions = 5 (environment)\nqueues = 3 (flag)\n"
                              "config = DIR/normd.toml (flag)\n")

    def test_what_is_wrong_ends_with_2(self):
        self.assertEqual(self.check("max_session = 5\n"),
                         (2, "", "normd: DIR/normd.toml:1: max_session is no option; did you mean max_sessions?\n"))
        self.assertEqual(self.check("", environment={"NORMD_QUEUES": "x"}),
                         (2, "", 'normd: NORMD_QUEUES is "x", which is not a whole number; it must be 0 to 64\n'))
        code, out, err = self.check('max_isa = "avx99"\n')
        self.assertEqual((code, out), (2, ""))
        self.assertIn("max_isa", err)

    def test_files_that_options_name_are_read(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as policy:
            self.assertEqual(self.check("", f"--policy_file={policy.name}")[0], 0)
            policy.write("[[alow]]\n")
            policy.flush()
            code, out, err = self.check("", f"--policy_file={policy.name}")
            self.assertEqual((code, out), (2, ""))
            self.assertIn(f"{policy.name}, line 1", err)
        for option in ("tls_certificate", "tokens_file", "trace_ca"):
            more = {"tls_certificate": ["--tls_key=/nowhere"], "trace_ca": ["--trace_endpoint=https://a"]}.get(option, [])
            code, out, err = self.check("", f"--{option}=/nowhere", *more)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(f"--{option}", err)

    def test_the_file_that_help_prints_is_right(self):
        text = run(NORMD, "--help=toml").stdout
        code, out, err = self.check(text, "--check-config")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out, "ok\ndata_dir = DIR/data (flag)\nconfig = DIR/normd.toml (flag)\n")


class ServiceManagerTest(unittest.TestCase):
    def test_a_service_manager_is_told_of_start_reload_and_stop(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(os.path.join(folder, "notify"))
            manager.settimeout(PATIENCE)
            server = Server(folder, environment={"NOTIFY_SOCKET": os.path.join(folder, "notify")})
            self.assertEqual(manager.recv(256), b"READY=1")
            server.process.send_signal(signal.SIGHUP)
            self.assertRegex(manager.recv(256), rb"^RELOADING=1\nMONOTONIC_USEC=\d+$")
            self.assertEqual(manager.recv(256), b"READY=1")
            self.assertEqual(server.stop(), 0)
            self.assertEqual(manager.recv(256), b"STOPPING=1")


if __name__ == "__main__":
    unittest.main(argv=TEST_ARGUMENTS, verbosity=2)
