"""Fixtures: real servers in temporary folders, and clients of them.

The program is $NORMD_PROGRAM, else build/release/normd. Seeds are fixed, ports are free ones, and every server ends
with its test.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import numpy as np
import pytest

import normd

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = os.environ.get("NORMD_PROGRAM", str(ROOT / "build" / "release" / "normd"))
collect_ignore = ["torch"]  # needs torch: tests/e2e/real_models.sh runs it in an environment of its own
PATIENCE = 30  # seconds for a server to start or end, on a busy machine


def pytest_configure():
    if not os.access(PROGRAM, os.X_OK):
        pytest.exit(f"no server at {PROGRAM}: build it, or name another one by NORMD_PROGRAM", returncode=2)


class Server:
    """A normd with a Unix socket and a port on the loopback interface, which may be killed and started again."""

    def __init__(self, *flags):
        self.folder = tempfile.mkdtemp(prefix="normd-py.")  # a short path: that of a socket is bounded
        self.socket = f"{self.folder}/normd.sock"
        self.unix = f"unix:{self.socket}"
        self.tcp = ""
        self.admin = ""
        self._flags = flags
        self.start()

    def start(self):
        ports = f"{self.folder}/ports"
        if os.path.exists(ports):
            os.unlink(ports)
        # Started again, it takes the port that it had.
        self.process = subprocess.Popen(
            [PROGRAM, f"--listen={self.tcp or '127.0.0.1:0'},{self.unix}", "--admin_listen=127.0.0.1:0",
             f"--data_dir={self.folder}/data", "--durability=process", f"--port_file={ports}", "--log_level=error",
             *self._flags])
        end = time.monotonic() + PATIENCE
        while not os.path.exists(ports):
            assert self.process.poll() is None, f"{PROGRAM} ended with {self.process.returncode}"
            assert time.monotonic() < end, f"{PROGRAM} did not start"
            time.sleep(0.01)
        with open(ports, encoding="utf-8") as lines:
            addresses = [line.strip().split("=", 1) for line in lines]
        self.tcp = next(address for name, address in addresses if name == "grpc" and not address.startswith("unix:"))
        self.admin = next((address for name, address in addresses if name != "grpc"), "")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # until all of its threads have stopped

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="session")
def server():
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def own_server():
    """A server that the test may kill or stop."""
    made = Server()
    yield made
    made.resume()
    made.stop()


@pytest.fixture(scope="session")
def small_server():
    """A server whose messages are so small that modest arrays are beyond its limit."""
    made = Server("--max_message_bytes=256KiB", "--max_in_flight_bytes=64MiB")
    yield made
    made.stop()


@pytest.fixture
def client(server):
    with normd.connect(server.unix) as made:
        yield made


@pytest.fixture
def default_client(client):
    """`client` as the one of calls that name none."""
    normd.set_default_client(client)
    yield client
    normd.set_default_client(None)


@pytest.fixture
def name(request, client):
    """The name of a session that the test may make, and that ends with it."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.nodeid.lower())[-60:].strip("-")
    yield name
    try:
        client.session(name).delete()
    except normd.NotFound:
        pass


@pytest.fixture
def sending_client(server):
    """A client over TCP, which sends all tensors."""
    with normd.connect(server.tcp, shared_memory="off") as made:
        yield made


@pytest.fixture
def random():
    return np.random.default_rng(20240607)
