#!/usr/bin/env python3
"""Two replicas over one PostgreSQL are restarted one after the other while normload trains: no call fails, no step is
lost.

    tests/e2e/rolling_restart.py NORMD NORMCTL NORMLOAD [--full]

Three rounds: behind a client that balances and honours health (normload --balance); behind HAProxy with the very file
deploy/haproxy/normd.cfg, its addresses apart; and kill -9 of either replica behind HAProxy. Each round prints its
figures; normload sends no call twice but in the last round. The steps that were acknowledged are compared with each
session's version and num_batches. --full restarts each replica 10 times in each round instead of once.
NORMD_TEST_POSTGRES names a PostgreSQL; without it one is started.
"""

import atexit
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NORMD, NORMCTL, NORMLOAD = (os.path.abspath(path) for path in sys.argv[1:4])
TIMES = 10 if "--full" in sys.argv[4:] else 1
PATIENCE = 60  # seconds; on a busy machine
SETTLE = "2s"  # longer than HAProxy takes to notice: 500 ms and the time of a check
READY = 3  # seconds that a replica serves before the next one is restarted: clients look for it every 1.2 s
CALLS = 200  # of one run of normload
SESSIONS = ("left", "right")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("NORMD_")}


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def wait(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        check(time.monotonic() < deadline, f"in {PATIENCE} s: not {what}")
        time.sleep(0.02)


def free_port():
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Replica:
    """A normd that comes back at the same addresses."""

    def __init__(self, folder, number, store):
        self.grpc, self.admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.ports = os.path.join(folder, f"ports{number}")
        self.log = os.path.join(folder, f"normd{number}.log")
        self.command = [NORMD, f"--listen={self.grpc}", f"--admin_listen={self.admin}", f"--port_file={self.ports}",
                        f"--session_store={store}", "--durability=process", f"--drain_settle={SETTLE}",
                        "--log_level=debug"]
        self.process = None

    def start(self):
        if os.path.exists(self.ports):
            os.remove(self.ports)
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=ENVIRONMENT)
        atexit.register(self.process.kill)
        wait(lambda: os.path.exists(self.ports) or self.process.poll() is not None, "serving")
        check(self.process.poll() is None, self.text())

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(timeout=PATIENCE) == 0, self.text())

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=PATIENCE)

    def text(self):
        with open(self.log, encoding="utf-8") as source:
            return source.read()

    def served(self):
        """Whether calls of the load have come since the start."""
        try:
            with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=PATIENCE) as reply:
                page = reply.read().decode()
        except (urllib.error.URLError, ConnectionError):
            return False
        return bool(re.search(r'^normd_requests_total\{.*Normaliz.*\} [1-9]', page, re.MULTILINE))


class Load(threading.Thread):
    """Runs of normload on one session, one after the other, until it is told to stop; the last one is finished."""

    def __init__(self, server, session, *options):
        super().__init__()
        self.command = [NORMLOAD, f"--server={server}", "--allow-remote", "--json", "--warmup=0", "--duration=10m", "-c",
                        "4", f"--requests={CALLS}", f"--mix=weight=2,session={session},training,steps,shape=8x4",
                        "--mix=method=layer-norm,shape=4x64", *options]
        self.session = session
        self.stopping = threading.Event()
        self.calls = self.failed = self.steps = 0
        self.errors = []

    def run(self):
        while not self.stopping.is_set():
            done = subprocess.run(self.command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
            try:
                report = json.loads(done.stdout)
                steps = report["entries"][0]
            except (ValueError, KeyError):
                self.errors.append(done.stdout + done.stderr)
                return
            # normload makes one call of each kind before it measures.
            self.calls += report["calls"] + report["failed"] + len(report["entries"])
            self.failed += report["failed"]
            self.steps += steps["calls"] + 1
            if report["failed"] > 0:
                self.errors.append(f"{report['errors']}: {report['first_error']}")


class Postgres:
    """A schema of its own on the PostgreSQL of the tests, or on one that is started for it."""

    def __init__(self, folder):
        self.script = os.path.join(ROOT, "tests/support/postgres.sh")
        self.cluster = None
        self.url = os.environ.get("NORMD_TEST_POSTGRES")
        if not self.url:
            self.cluster = os.path.join(folder, "postgres")
            self.url = subprocess.run([self.script, "start", self.cluster], check=True, capture_output=True,
                                      text=True).stdout.strip()
        self.schema = f"normd_rolling_{os.getpid()}"
        self.sql(f"CREATE SCHEMA {self.schema}")
        self.store = f"{self.url}{'&' if '?' in self.url else '?'}options=-csearch_path%3D{self.schema}"

    def sql(self, command):
        subprocess.run(["psql", "--quiet", "--no-psqlrc", f"--dbname={self.url}", "--command",
                        f"SET client_min_messages = error; {command}"], check=True, env=ENVIRONMENT, timeout=PATIENCE)

    def stop(self):
        if self.cluster is None:
            self.sql(f"DROP SCHEMA {self.schema} CASCADE")
        else:
            subprocess.run([self.script, "stop", self.cluster], check=True)


def normctl(replica, *arguments):
    done = subprocess.run([NORMCTL, *arguments, f"--server={replica.grpc}"], capture_output=True, text=True,
                          env=ENVIRONMENT, timeout=PATIENCE, check=False)
    check(done.returncode == 0, done.stderr)
    return done.stdout


def start_haproxy(folder, replicas):
    """HAProxy with the documented file; only addresses are others. Returns its process and where it serves."""
    with open(os.path.join(ROOT, "deploy/haproxy/normd.cfg"), encoding="utf-8") as source:
        text = source.read()
    address = f"127.0.0.1:{free_port()}"
    changes = {"bind :8000 ": f"bind {address} "}
    for number, replica in enumerate(replicas, 1):
        changes[f"server normd-{number} normd-{number}:8001\n"] = (
            f"server normd-{number} {replica.grpc} port {replica.admin.rsplit(':', 1)[1]}\n")
    for old, new in changes.items():
        check(text.count(old) == 1, f"deploy/haproxy/normd.cfg does not have once: {old}")
        text = text.replace(old, new)
    path = os.path.join(folder, "haproxy.cfg")
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    with open(os.path.join(folder, "haproxy.log"), "a", encoding="utf-8") as log:
        process = subprocess.Popen(["haproxy", "-db", "-f", path], stdout=log, stderr=log)
    atexit.register(process.kill)
    health = [NORMCTL, "health", "-s", address]
    wait(lambda: subprocess.run(health, capture_output=True, env=ENVIRONMENT, check=False).returncode == 0,
         "healthy behind HAProxy")
    return process, address


class Round:
    def __init__(self, name, server, replicas, *options):
        self.name, self.replicas = name, replicas
        self.before = {session: self.counts(session) for session in SESSIONS}
        self.logged = [len(replica.text()) for replica in replicas]
        self.loads = [Load(server, session, *options) for session in SESSIONS]
        for load in self.loads:
            load.start()
        for replica in replicas:
            self.wait_for_calls(replica)

    def counts(self, session):
        found = json.loads(normctl(self.replicas[0], "session", "get", session, "--json"))
        return int(found["version"]), int(found["state"]["num_batches"])

    def wait_for_calls(self, replica):
        wait(lambda: replica.served() or any(load.errors for load in self.loads), "called again")

    def end(self, restarts, may_refuse):
        """Prints the figures and compares steps; returns whether all is well."""
        for load in self.loads:
            load.stopping.set()
        for load in self.loads:
            load.join()
        refusals = [line for replica, at in zip(self.replicas, self.logged)
                    for line in replica.text()[at:].splitlines() if re.search("rpc=Normalizer/.* code=UNAVAILABLE", line)]
        refused = len(refusals)
        calls, failed = sum(load.calls for load in self.loads), sum(load.failed for load in self.loads)
        print(f"{self.name}: {calls} calls, {failed} failed; {restarts}; {refused} answered UNAVAILABLE by a replica",
              flush=True)
        well = failed == 0 and not any(load.errors for load in self.loads) and (may_refuse or refused == 0)
        for line in refusals[:5]:
            print(f"  {line}", flush=True)
        for load in self.loads:
            after = self.counts(load.session)
            version, batches = (after[i] - self.before[load.session][i] for i in (0, 1))
            print(f"  session {load.session}: {load.steps} steps acknowledged, version +{version}, num_batches +{batches}",
                  flush=True)
            well = well and version == batches == load.steps
            for error in load.errors:
                print(f"  {error}", flush=True)
        return well


def rolling_restart(name, server, replicas, *options):
    this = Round(name, server, replicas, *options)
    for number, replica in enumerate(replicas * TIMES):
        time.sleep(READY if number > 0 else 0)
        replica.stop()
        replica.start()
        this.wait_for_calls(replica)
    return this.end(f"{2 * TIMES} restarts", may_refuse=False)


def kills(name, server, replicas, *options):
    this = Round(name, server, replicas, *options)
    for replica in replicas * TIMES:
        replica.kill()
        replica.start()
        this.wait_for_calls(replica)
    return this.end(f"{2 * TIMES} kills", may_refuse=True)


def main():
    folder = tempfile.mkdtemp(prefix="normd-rolling.")
    os.chmod(folder, 0o711)  # PostgreSQL runs as another user
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    postgres = Postgres(folder)
    try:
        replicas = [Replica(folder, number, postgres.store) for number in (1, 2)]
        for replica in replicas:
            replica.start()
        for session in SESSIONS:
            normctl(replicas[0], "session", "create", "batch-norm", "--channels=4", "--layout=channels-last",
                    f"--id={session}")
        both = "ipv4:" + ",".join(replica.grpc for replica in replicas)
        well = rolling_restart("a client that honours health", both, replicas, "--balance")
        haproxy, address = start_haproxy(folder, replicas)
        well = rolling_restart("haproxy", address, replicas) and well
        well = kills("haproxy, kill -9, calls sent again", address, replicas, "--retry") and well
        haproxy.terminate()
        haproxy.wait(timeout=PATIENCE)
        for replica in replicas:
            replica.stop()
    finally:
        postgres.stop()
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
