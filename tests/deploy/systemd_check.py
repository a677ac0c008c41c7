"""Checks deploy/systemd: the unit's syntax, how open it is, its options, and that normd works under its filter."""

import os
import re
import shutil
import subprocess
import tempfile

import sandbox
from facts import ROOT, fetch, number, running, text_of
from unit import settings

FOLDER = os.path.join(ROOT, "deploy/systemd")
UNIT = os.path.join(FOLDER, "normd.service")
MOST_EXPOSURE = 1.5  # of systemd-analyze security, 0 to 10


def check(programs):
    """Yields what is wrong; prints the score."""
    with tempfile.TemporaryDirectory(prefix="normd-unit.") as root:
        lay_out(root)
        yield from verify(root)
        yield from exposure(root, "")
        add_drop_in(root)
        yield from verify(root)
        yield from exposure(root, " with gpu.conf")
    yield from options(programs)
    text_of("systemd-sysusers", "--dry-run", os.path.join(FOLDER, "normd.sysusers"))
    yield from under_the_filter(programs)


def lay_out(root):
    """A root with the unit, the units that it refers to, and the programs that it starts."""
    shutil.copytree("/usr/lib/systemd/system", f"{root}/usr/lib/systemd/system", symlinks=True)
    os.makedirs(f"{root}/etc/systemd/system")
    shutil.copy(UNIT, f"{root}/etc/systemd/system")
    for program in ("/usr/bin/normd", "/bin/kill"):
        os.makedirs(os.path.dirname(root + program), exist_ok=True)
        os.close(os.open(root + program, os.O_CREAT | os.O_WRONLY, 0o755))


def add_drop_in(root):
    os.makedirs(f"{root}/etc/systemd/system/normd.service.d")
    shutil.copy(f"{FOLDER}/gpu.conf", f"{root}/etc/systemd/system/normd.service.d")


def verify(root):
    result = subprocess.run(["systemd-analyze", "verify", f"--root={root}", "--man=no", "normd.service"], check=False,
                            capture_output=True, text=True)
    lines = [line for line in result.stderr.splitlines() if "normd" in line or "gpu.conf" in line]
    if result.returncode or lines:
        yield f"systemd-analyze verify: {result.stderr.strip()}"


def exposure(root, what):
    report = text_of("systemd-analyze", "security", "--offline=true", "--no-pager", f"--root={root}", "normd.service")
    score = float(re.search(r"exposure level for normd\.service: ([\d.]+)", report).group(1))
    print(f"  systemd-analyze security: {score}{what} (at most {MOST_EXPOSURE})")
    if score > MOST_EXPOSURE:
        yield f"normd.service{what} has an exposure of {score}, over {MOST_EXPOSURE}:\n{report}"


def options(programs):
    words = " ".join(settings(UNIT, "Service", "Environment")).split()
    environment = dict(word.split("=", 1) for word in words)
    yield from programs.environment_problems(environment)
    command = settings(UNIT, "Service", "ExecStart")[0]
    for name, value in re.findall(r"--(\w+)=(\S+)", command):
        yield from filter(None, [programs.option_problem(name, value)])
    with open(f"{FOLDER}/normd.toml", encoding="utf-8") as lines:
        for name, value in re.findall(r'^(?:# )?(\w+) = "([^"]*)"', lines.read(), re.MULTILINE):
            yield from filter(None, [programs.option_problem(name, value)])
    stop = number(settings(UNIT, "Service", "TimeoutStopSec")[0])
    if stop <= programs.stopping_seconds(environment):
        yield f"TimeoutStopSec={stop} is no more than a stop takes ({programs.stopping_seconds(environment)} s)"


def under_the_filter(programs):
    """normd starts, serves and stops with the calls that the unit leaves it."""
    # Descriptors are raised at the start, which is a system call of its own.
    with running(programs, {"NORMD_THREADS": "2"}, prepare=lambda: sandbox.load_filter(UNIT)) as admin:
        if "normd_build_info" not in fetch(admin, "/metrics"):
            yield "normd under the unit's system call filter serves no metrics"
