"""What the programs say of themselves: options, metrics, flags, and what a running server serves."""

import contextlib
import functools
import os
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Options that name files of a deployment, which are not here: a server that a check starts goes without them.
FILES = {"config", "policy_file", "tls_certificate", "tls_client_ca", "tls_key", "tokens_file"}
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
         "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "s": 1, "min": 60, "h": 3600}


def text_of(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def number(text):
    """Of bytes (1GiB, 2Gi, 2g) or seconds (30s, 5min)."""
    digits, unit = re.fullmatch(r"(\d+)([A-Za-z]*)", str(text)).groups()
    return int(digits) * UNITS[unit]


def table(text):
    """The cells of a Markdown table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


class Programs:
    """normd and normload as they were built."""

    def __init__(self, normd, normload):
        self.normd = os.path.abspath(normd)
        self.options = {row[0].strip("`-"): row[1].strip("`") for row in table(text_of(normd, "--help=markdown"))}
        self.metrics = {row[0].strip("`"): (row[1], {label.strip() for label in row[2].split(",") if label.strip()})
                        for row in table(text_of(normd, "--help=metrics"))}
        self.flags = set(re.findall(r"--([a-z-]+)", text_of(normload, "--help")))

    @functools.lru_cache(maxsize=None)
    def option_problem(self, name, value=None):
        """Why normd would not take an option, or an empty text."""
        if name not in self.options:
            return f"normd has no option --{name}"
        if value is None:
            return ""
        result = subprocess.run([self.normd, f"--{name}={value}", "--version"], capture_output=True, text=True,
                                check=False)
        return result.stderr.strip()

    def environment_problems(self, environment):
        """Of NORMD_NAME=value as a container gets it; None stands for a value that is not known here."""
        found = (self.option_problem(name.removeprefix("NORMD_").lower(), value)
                 for name, value in environment.items() if name.startswith("NORMD_"))
        return [problem for problem in found if problem]

    def memory_rule(self, environment):
        """server/README.md: the bytes to give a process with these options."""
        def option(name):
            return number(environment.get(f"NORMD_{name.upper()}", self.options[name]))
        return 100 * (1 << 20) + option("max_resident_bytes") + 2 * option("max_in_flight_bytes")

    def stopping_seconds(self, environment):
        """Settling, draining, and 5 s to write what is queued."""
        return sum(number(environment.get(f"NORMD_{name.upper()}", self.options[name]))
                   for name in ("drain_settle", "drain_timeout")) + 5


@contextlib.contextmanager
def running(programs, environment, prepare=None):
    """A server with these options, but at free ports of loopback and in memory; gives the admin port's address."""
    with tempfile.TemporaryDirectory(prefix="normd-deploy.") as folder:
        here = {"NORMD_LISTEN": f"127.0.0.1:0,unix:{folder}/normd.sock", "NORMD_ADMIN_LISTEN": "127.0.0.1:0",
                "NORMD_PORT_FILE": f"{folder}/ports", "NORMD_SESSION_STORE": "memory", "NORMD_DRAIN_SETTLE": "0s"}
        known = {name: value for name, value in {**environment, **here}.items()
                 if value is not None and name.removeprefix("NORMD_").lower() not in FILES}
        with open(f"{folder}/log", "wb") as log:
            server = subprocess.Popen([programs.normd], env={**os.environ, **known}, stderr=log, preexec_fn=prepare)
        try:
            yield wait_for_admin(server, folder)
        finally:
            server.terminate()
            server.wait()


def wait_for_admin(server, folder):
    while not os.path.exists(f"{folder}/ports"):
        if server.poll() is not None:
            with open(f"{folder}/log", encoding="utf-8") as log:
                raise RuntimeError(f"normd ended with {server.returncode}: {log.read()}")
        time.sleep(0.02)
    with open(f"{folder}/ports", encoding="utf-8") as ports:
        return next(line.strip().removeprefix("admin=") for line in ports if line.startswith("admin="))


def fetch(address, path):
    """The body, or an error's status as text."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as reply:
            return reply.read().decode()
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{path}: {error}") from error
