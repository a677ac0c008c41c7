#!/usr/bin/env python3
"""The three programs as a user runs them: tests/programs.py NORMD NORMCTL NORMLOAD [TEST...]

Starts the real server on free ports and a Unix socket, asks it with the real clients, reads the admin port, and ends it
with SIGTERM. Everything lives in a temporary directory.
"""

import json
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

NORMD, NORMCTL, NORMLOAD = (os.path.abspath(path) for path in sys.argv[1:4])
PATIENCE = 60  # seconds; sanitizer builds on a busy machine are slow
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("NORMD_")}


def write_npy(path, shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin1"))
        out.write(struct.pack(f"<{len(values)}f", *values))


def read_npy(path):
    with open(path, "rb") as source:
        data = source.read()
    assert data[:6] == b"\x93NUMPY", data[:16]
    size = struct.unpack("<H", data[8:10])[0]
    header = data[10:10 + size].decode("latin1")
    assert "'<f4'" in header, header
    body = data[10 + size:]
    return header, struct.unpack(f"<{len(body) // 4}f", body)


def read_text(path):
    with open(path, encoding="utf-8") as source:
        return source.read()


class Server:
    """One normd of our own."""

    def __init__(self, folder, *options):
        self.folder = folder
        port_file = os.path.join(folder, "ports")
        self.socket = os.path.join(folder, "s.sock")
        self.log = open(os.path.join(folder, "normd.log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [NORMD, f"--listen=127.0.0.1:0,unix:{self.socket}", "--admin_listen=127.0.0.1:0",
             f"--port_file={port_file}", *options],
            stdout=self.log, stderr=subprocess.STDOUT, env=ENVIRONMENT)
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(port_file):  # renamed into place once everything serves
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("normd did not come up:\n" + self.text())
            time.sleep(0.05)
        listeners = [line.split("=", 1) for line in read_text(port_file).splitlines()]
        self.address = next(at for kind, at in listeners if kind == "grpc")
        self.admin = next(at for kind, at in listeners if kind == "admin")

    def text(self):
        self.log.flush()
        return read_text(self.log.name)

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=PATIENCE) as reply:
            return reply.status, reply.read().decode()

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(timeout=PATIENCE)
        self.log.close()
        return status


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE * 5,
                          check=False)


class ProgramsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.server = Server(cls.scratch.name)
        cls.at = f"--server={cls.server.address}"

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        cls.scratch.cleanup()
        assert status == 0, f"normd ended with {status} after SIGTERM"

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def succeed(self, program, *arguments):
        result = run(program, *arguments)
        self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stdout}\n{result.stderr}\n{self.server.text()}")
        return result.stdout

    def test_health_over_both_listeners(self):
        self.succeed(NORMCTL, "health", self.at)
        self.succeed(NORMCTL, "health", f"--server=unix:{self.server.socket}")

    def test_the_demo_holds(self):
        out = self.succeed(NORMCTL, "demo", self.at)
        for part in ("5.8433", "3.0573", "3.7580", "1.1993"):
            self.assertIn(part, out)

    def test_a_file_is_normalised_to_a_file(self):
        values = [float((7 * i * i + 3) % 23) for i in range(24)]
        write_npy(self.path("in.npy"), (4, 6), values)
        self.succeed(NORMCTL, "layer-norm", self.path("in.npy"), "-o", self.path("out.npy"), "--eps", "1e-6", self.at)
        header, y = read_npy(self.path("out.npy"))
        self.assertIn("(4, 6)", header)
        for row in range(4):
            x = values[6 * row:6 * row + 6]
            mean = math.fsum(x) / 6
            divisor = math.sqrt(math.fsum((v - mean) ** 2 for v in x) / 6 + 1e-6)
            for i, v in enumerate(x):
                self.assertAlmostEqual(y[6 * row + i], (v - mean) / divisor, delta=2e-7)

    def test_json_for_programs(self):
        described = json.loads(self.succeed(NORMCTL, "describe", "--json", self.at))
        self.assertTrue(described)

    def test_a_bad_request_names_the_field_and_the_next_one_is_served(self):
        write_npy(self.path("bad.npy"), (2, 3), [1.0] * 6)
        result = run(NORMCTL, "layer-norm", self.path("bad.npy"), "-o", self.path("bad-out.npy"), "--eps", "-1", self.at)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("eps", result.stderr + result.stdout)
        self.succeed(NORMCTL, "health", self.at)

    def test_metrics_count_and_the_admin_port_answers(self):
        self.succeed(NORMCTL, "describe", self.at)
        for path in ("/healthz", "/readyz", "/"):
            self.assertEqual(self.server.get(path)[0], 200)
        _, metrics = self.server.get("/metrics")
        counts = [float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines()
                  if line.startswith("normd_requests_total{") and "Describe" in line]
        self.assertGreaterEqual(sum(counts), 1, metrics)

    def test_load_is_generated_and_counted(self):
        out = self.succeed(NORMLOAD, self.at, "--duration=1s", "--json")
        self.assertTrue(json.loads(out))


class LifecycleTest(unittest.TestCase):
    def test_sigterm_under_load_drains_and_exits_with_0(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder)
            load = subprocess.Popen([NORMLOAD, f"--server={server.address}", "--duration=3s"],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
            time.sleep(1)
            self.assertEqual(server.stop(), 0)
            load.wait(timeout=PATIENCE)
            self.assertFalse(os.path.exists(server.socket), "the Unix socket's file is left behind")

    def test_a_reachable_listener_needs_plaintext(self):
        result = run(NORMD, "--listen=0.0.0.0:0", "--admin_listen=127.0.0.1:0")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("plaintext", result.stdout + result.stderr)

    def test_a_wrong_option_is_named(self):
        result = run(NORMD, "--max_sessions=many")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("max_sessions", result.stdout + result.stderr)

    def test_a_server_that_is_not_there_is_said_to_be_unavailable(self):
        result = run(NORMCTL, "health", "--server=unix:/nonexistent/normd.sock")
        self.assertNotEqual(result.returncode, 0)
        self.assertTrue(result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
