"""One normd of our own, and what can be seen of it from outside: memory, CPU time, metrics, log."""

import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request

PATIENCE = 60  # seconds; sanitizer builds on a busy machine are slow
# What the log of a server that was only treated badly never has.
ALARMS = re.compile(r"\bINTERNAL\b|AddressSanitizer|LeakSanitizer|runtime error:|Check failed|terminate called")
EXPOSITION = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_]\w*="([^"\\\n]|\\.)*",?)*\})? [-+0-9.eEInfNa]+$')


def has_address_sanitizer(program):
    with open(program, "rb") as file:
        return b"__asan_init" in file.read()


class NormdServer:
    """With a memory store, on 127.0.0.1, a Unix socket, and an admin port; in a process group of its own."""

    def __init__(self, program, folder, options=()):
        os.makedirs(folder)
        port_file = os.path.join(folder, "ports")
        self.socket_path = os.path.join(folder, "s.sock")
        self.log_path = os.path.join(folder, "log")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NORMD_")}
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [program, f"--listen=127.0.0.1:0,unix:{self.socket_path}", "--admin_listen=127.0.0.1:0",
                 f"--port_file={port_file}", "--session_store=memory", "--cuda=off", *options],
                stdout=log, stderr=log, env=environment, start_new_session=True)
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(port_file):  # renamed into place once everything serves
            if not self.is_alive() or time.monotonic() > deadline:
                self.kill()
                raise AssertionError("normd did not come up:\n" + self.log())
            time.sleep(0.01)
        with open(port_file, encoding="utf-8") as file:
            listeners = [line.split("=", 1) for line in file.read().splitlines()]
        self.port = next(int(at.rsplit(":", 1)[1]) for kind, at in listeners if (kind, at[:4]) == ("grpc", "127."))
        self.admin_port = next(int(at.rsplit(":", 1)[1]) for kind, at in listeners if kind == "admin")

    def is_alive(self):
        return self.process.poll() is None

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def alarms(self):
        return [line for line in self.log().splitlines() if ALARMS.search(line)]

    def resident_mib(self):
        try:
            with open(f"/proc/{self.process.pid}/status", encoding="ascii", errors="replace") as file:
                return int(re.search(r"^VmRSS:\s+(\d+) kB", file.read(), re.MULTILINE)[1]) / 1024
        except (OSError, TypeError):
            return 0.0

    def cpu_seconds(self):
        try:
            with open(f"/proc/{self.process.pid}/stat", encoding="ascii", errors="replace") as file:
                words = file.read().rsplit(")", 1)[1].split()
            return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            return 0.0

    def get(self, path, timeout=PATIENCE):
        """(status, text) of the admin port."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=timeout) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    def metrics(self):
        """series -> value; raises where a line is no exposition."""
        found = {}
        for line in self.get("/metrics")[1].splitlines():
            if line and not line.startswith("#"):
                if not EXPOSITION.match(line):
                    raise AssertionError(f"/metrics has a line that is none: {line!r}")
                series, value = line.rsplit(" ", 1)
                found[series] = float(value)
        return found

    def stop(self):
        """The exit status after SIGTERM, or what kept it from ending."""
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"not ended {PATIENCE} s after SIGTERM"

    def kill(self):
        if self.is_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
