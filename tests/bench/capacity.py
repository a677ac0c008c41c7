#!/usr/bin/env python3
"""Measures what deploy/capacity.py computes with, and prints the rows of deploy/capacity.csv: memory and CPU time.

Neither waits for other programs on the machine, but CPU time still grows, up to twofold, where those take caches and
cores. The rows of one SQLite writer come from tests/bench/run.sh store.

    python3 tests/bench/capacity.py --build=build/release

Takes three minutes. Servers listen on loopback and Unix sockets of a folder of their own; PostgreSQL is a private one
(tests/support/postgres.sh).
"""

import argparse
import contextlib
import csv
import datetime
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND = "tests/bench/capacity.py"
REPEATS = 5
IDLE_CONNECTIONS = 1000
SESSIONS = 200
IN_FLIGHT = 32
CHANNELS = (256, 4096)
TICKS = os.sysconf("SC_CLK_TCK")
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
ACKNOWLEDGE = bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])


class Server:
    """A normd of this run, in a folder of its own."""

    def __init__(self, build, folder, store):
        os.makedirs(folder)
        self.build, self.folder = build, folder
        ports = f"{folder}/ports"
        self.process = subprocess.Popen(
            [f"{build}/normd", f"--listen=127.0.0.1:0,unix:{folder}/normd.sock", "--admin_listen=127.0.0.1:0",
             f"--port_file={ports}", f"--data_dir={folder}", "--max_connections_per_peer=4096"],
            stderr=subprocess.DEVNULL, env={**os.environ, "NORMD_SESSION_STORE": store})
        while not os.path.exists(ports):
            if self.process.poll() is not None:
                raise RuntimeError(f"normd ended with {self.process.returncode}")
            time.sleep(0.05)
        with open(ports, encoding="utf-8") as lines:
            found = dict(line.strip().split("=", 1) for line in lines if "unix:" not in line)
        self.address, self.admin = found["grpc"], found["admin"]

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def metric(self, name):
        """The sum over all labels."""
        with urllib.request.urlopen(f"http://{self.admin}/metrics") as page:
            values = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", page.read().decode(), re.MULTILINE)
        return sum(map(float, values))

    def client(self, program, *arguments):
        subprocess.run([f"{self.build}/{program}", *arguments, f"--server={self.address}"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def create(self, name, channels):
        self.client("normctl", "session", "create", "batch-norm", f"--channels={channels}", f"--id={name}",
                    "--layout=channels-first")

    def cost(self, *load):
        """CPU seconds of this process for a request, the median of REPEATS rounds; `load` are flags of normload."""
        def round_():
            calls = self.metric("normd_requests_total")
            cpu = self.metric("process_cpu_seconds_total")
            self.client("normload", "--duration=2s", "--warmup=200ms", "--connections=1", *load)
            return (self.metric("process_cpu_seconds_total") - cpu) / (self.metric("normd_requests_total") - calls)
        return statistics.median(round_() for _ in range(REPEATS))


@contextlib.contextmanager
def running(build, folder, store="memory"):
    server = Server(build, folder, store)
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def postgres(folder):
    os.chmod(os.path.dirname(folder), 0o711)
    script = f"{ROOT}/tests/support/postgres.sh"
    url = subprocess.run([script, "start", folder], check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield url
    finally:
        subprocess.run([script, "stop", folder], check=True, stdout=subprocess.DEVNULL)


def cpu_of_tree(pid):
    """CPU seconds of a process and its children, those that have ended included."""
    parents, total = {}, 0.0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{entry}/stat", encoding="utf-8") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            parents[int(entry)] = (int(fields[1]), sum(map(int, fields[11:13])), sum(map(int, fields[13:15])))
    for process, (parent, own, ended) in parents.items():
        if process == pid:
            total += own + ended
        elif parent == pid:
            total += own
    return total / TICKS


def backends_of(postmaster):
    """Connections of clients of a PostgreSQL."""
    children = subprocess.run(["ps", "--ppid", str(postmaster), "-o", "args="], check=True, capture_output=True,
                              text=True)
    return children.stdout.count("[local]")


def idle_connections(server):
    """Bytes of memory for a connection that has finished HTTP/2's set-up and sends nothing."""
    host, port = server.address.rsplit(":", 1)
    before = server.metric("process_resident_memory_bytes")
    connections = [socket.create_connection((host, int(port))) for _ in range(IDLE_CONNECTIONS)]
    for connection in connections:
        connection.sendall(HELLO)
    for connection in connections:
        connection.recv(4096)
        connection.sendall(ACKNOWLEDGE)
    time.sleep(1)
    assert server.metric("normd_connections") >= IDLE_CONNECTIONS
    grown = server.metric("process_resident_memory_bytes") - before
    for connection in connections:
        connection.close()
    return grown / IDLE_CONNECTIONS


def size_of(folder):
    return sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))


def session_bytes(build, folder):
    """(in memory, on disk) of a session, as fixed part and part for each channel, by two sizes of session."""
    found = {}
    for channels in CHANNELS:
        with running(build, f"{folder}/{channels}", "sqlite") as server:
            for number in range(SESSIONS):
                server.create(f"s{number}", channels)
            memory = server.metric("normd_resident_session_bytes") / SESSIONS
        found[channels] = memory, size_of(f"{folder}/{channels}") / SESSIONS
    low, high = CHANNELS
    for index in (0, 1):
        slope = (found[high][index] - found[low][index]) / (high - low)
        yield max(0.0, found[low][index] - slope * low), slope


def step_costs(server, postmaster=None):
    """CPU seconds of normd, and of the database, for a training step and for an inference on sessions of C = 256. There
    are as many sessions as calls in flight, so that a step is about a row."""
    names = [f"costs{number}" for number in range(IN_FLIGHT)]
    for name in names:
        server.create(name, 256)
    for more in (",training,steps", ""):
        entries = [f"--mix=session={name},shape=1x256x4{more}" for name in names]
        calls, before = server.metric("normd_requests_total"), cpu_of_tree(postmaster) if postmaster else 0
        normd = server.cost(f"--concurrency={IN_FLIGHT}", *entries)
        calls = server.metric("normd_requests_total") - calls
        yield normd, ((cpu_of_tree(postmaster) - before) / calls if postmaster else 0)


def measure(build, folder):
    """Yields (figure, value, unit)."""
    with running(build, f"{folder}/requests") as server:
        time.sleep(1)
        yield "process_bytes", server.metric("process_resident_memory_bytes"), "B"
        yield "connection_bytes", idle_connections(server), "B"
        small = server.cost("--method=rms-norm", "--shape=1x1024", "--concurrency=16")
        large = server.cost("--method=rms-norm", "--shape=256x1024", "--concurrency=4")
        slope = (large - small) / ((256 - 1) * 4096)
        yield "request_cpu", small - slope * 4096, "s"
        yield "request_byte_cpu", slope, "s/B"
    (memory, memory_slope), (disk, disk_slope) = session_bytes(build, folder)
    yield "session_memory", memory, "B"
    yield "session_channel_memory", memory_slope, "B"
    yield "session_disk", disk, "B"
    yield "session_channel_disk", disk_slope, "B"
    with running(build, f"{folder}/sqlite", "sqlite") as server:
        (step, _), (read, _) = step_costs(server)
        yield "sqlite_step_cpu", step, "s"
        yield "session_read_cpu", read, "s"
    with postgres(f"{folder}/postgres") as url, running(build, f"{folder}/shared", url) as server:
        with open(f"{folder}/postgres/data/postmaster.pid", encoding="utf-8") as pid:
            postmaster = int(pid.readline())
        (step, step_database), (read, read_database) = step_costs(server, postmaster)
        yield "shared_step_cpu", step, "s"
        yield "shared_read_cpu", read, "s"
        yield "database_step_cpu", step_database, "s"
        yield "database_read_cpu", read_database, "s"
        yield "database_connections", backends_of(postmaster), ""


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = re.search(r"^model name\s*: (.*)$", info.read(), re.MULTILINE)
    name = model.group(1) if model else platform.machine()
    return f"{os.cpu_count()}-core {name} VM with a load of {os.getloadavg()[2]:.0f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release", help="the folder of normd, normctl and normload")
    build = os.path.abspath(parser.parse_args().build)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["figure", "value", "unit", "date", "machine", "command"])
    today = datetime.date.today().isoformat()
    with tempfile.TemporaryDirectory(prefix="normd-capacity.", dir="/tmp") as folder:
        for figure, value, unit in measure(build, folder):
            out.writerow([figure, f"{value:.4g}", unit, today, machine(), COMMAND])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
