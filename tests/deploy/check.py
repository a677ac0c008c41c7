#!/usr/bin/env python3
"""Checks everything in deploy/ that this machine cannot start: tests/deploy/run.sh calls it.

    check.py --normd=PROGRAM --normload=PROGRAM --kubectl=PROGRAM
    check.py --write    makes the files anew that are made of others
"""

import argparse
import subprocess
import sys
import time

import capacity_check
import compose_check
import kubernetes_check
import prometheus_check
import systemd_check
from facts import Programs


def problems_of(check):
    """A program that fails is a problem, too, and does not keep the other checks from running."""
    found = []
    try:
        found.extend(check())
    except subprocess.CalledProcessError as error:
        found.append(f"{error}\n{error.stderr}")
    except (RuntimeError, KeyError, OSError) as error:
        found.append(repr(error))
    return found


def main():
    parser = argparse.ArgumentParser()
    for name in ("normd", "normload", "kubectl"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.write:
        return prometheus_check.write()
    programs = Programs(arguments.normd, arguments.normload)
    checks = {
        "systemd": lambda: systemd_check.check(programs),
        "compose": lambda: compose_check.check(programs),
        "prometheus": lambda: prometheus_check.check(programs),
        "kubernetes": lambda: kubernetes_check.check(programs, arguments.kubectl),
        "capacity": capacity_check.check,
    }
    failed = 0
    for name, check in checks.items():
        start = time.monotonic()
        problems = problems_of(check)
        print(f"{name}: {'FAILED' if problems else 'ok'} ({time.monotonic() - start:.1f} s)")
        for problem in problems:
            print(f"  {name}: {problem}")
        failed += bool(problems)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
