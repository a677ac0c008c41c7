"""What the tests of programs share: the programs, a server of one's own, and readers and writers of files.

A module that imports this is run as MODULE NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]. It starts the real server on
free ports and a Unix socket, asks it with the real clients, reads the admin port, and ends it with SIGTERM. Everything
lives in a temporary directory.
"""

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

NORMD, NORMCTL, NORMLOAD, FAILING_FLUSH = (os.path.abspath(path) for path in sys.argv[1:5])
TEST_ARGUMENTS = [sys.argv[0], *sys.argv[5:]]  # for unittest.main
PATIENCE = 60  # seconds; sanitizer builds on a busy machine are slow
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("NORMD_")}
SUPPORT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support")
ENVIRONMENT["LSAN_OPTIONS"] = f"suppressions={SUPPORT}/lsan.txt:print_suppressions=0"


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


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


class Server:
    """One normd of our own."""

    def __init__(self, folder, *options, environment=None):
        self.folder = folder
        port_file = os.path.join(folder, "ports")
        if os.path.exists(port_file):
            os.remove(port_file)
        self.socket = os.path.join(folder, "s.sock")
        self.log = open(os.path.join(folder, "normd.log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [NORMD, f"--listen=127.0.0.1:0,unix:{self.socket}", "--admin_listen=127.0.0.1:0",
             f"--port_file={port_file}", f"--data_dir={folder}/data", *options],
            stdout=self.log, stderr=subprocess.STDOUT, env={**ENVIRONMENT, **(environment or {})})
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

    def hang_up_until(self, words):
        """Sends SIGHUP, and waits until the log has the words."""
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE
        while words not in self.text():
            assert time.monotonic() < deadline, f"no `{words}` in\n{self.text()}"
            time.sleep(0.02)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(timeout=PATIENCE)
        self.log.close()
        return status


def run(program, *arguments, environment=None):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=PATIENCE * 5, check=False,
                          env={**ENVIRONMENT, **(environment or {})})


class ServerTest(unittest.TestCase):
    """What tests against one server share."""

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

    def refuse(self, program, *arguments):
        result = run(program, *arguments)
        self.assertEqual(result.returncode, 1, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result.stderr
