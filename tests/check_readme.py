#!/usr/bin/env python3
"""Keeps the README true: the tables between markers are what `normd` itself prints, and the paths it names exist.

    tests/check_readme.py NORMD [--write]     compares, or with --write puts the tables into the README
    tests/check_readme.py --self-test         plants a stale table and a dead path and fails unless both are reported

A marked table is everything between `<!-- BEGIN options -->` and `<!-- END options -->`.
"""

import os
import re
import subprocess
import sys

TABLES = {"options": "--help=markdown", "metrics": "--help=metrics"}
# `server/main.cc`, `kernels/`: inline code that starts with one of our folders is a path from the root.
PATH = re.compile(r"`((?:client|deploy|kernels|proto|server|tests)/[\w./+-]*)`")


def region(name):
    return re.compile(rf"(<!-- BEGIN {name} -->\n)(.*?)(\n?<!-- END {name} -->)", re.DOTALL)


def check(text, tables, exists):
    """Problems of a README's text, given the tables by name and whether a path exists."""
    problems = []
    for name, table in tables.items():
        found = region(name).search(text)
        if not found:
            problems.append(f"no table between the markers of {name}")
        elif found.group(2).strip() != table.strip():
            problems.append(f"the table of {name} is not what the server prints: run tests/check_readme.py NORMD --write")
    problems += [f"no such path: {path}" for path in sorted(set(PATH.findall(text))) if not exists(path)]
    return problems


def self_test():
    good = "<!-- BEGIN options -->\n| a |\n<!-- END options -->\nsee `server/main.cc`\n"
    failures = []
    if check(good, {"options": "| a |\n"}, lambda path: True):
        failures.append("a true README was refused")
    if not any("not what the server prints" in p for p in check(good, {"options": "| b |\n"}, lambda path: True)):
        failures.append("a stale table was not reported")
    if not any("no table" in p for p in check(good, {"metrics": "| a |\n"}, lambda path: True)):
        failures.append("a missing table was not reported")
    if check(good, {"options": "| a |"}, lambda path: False) != ["no such path: server/main.cc"]:
        failures.append("a dead path was not reported")
    print("\n".join(failures) or "self-test: 4 checks, 0 wrong")
    return 1 if failures else 0


def main():
    if "--self-test" in sys.argv[1:]:
        return self_test()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    readme = os.path.join(root, "README.md")
    with open(readme, encoding="utf-8") as source:
        text = source.read()
    tables = {}
    for name, flag in TABLES.items():
        # Without NORMD_* variables, which would be taken for options.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NORMD_")}
        tables[name] = subprocess.run([sys.argv[1], flag], check=True, capture_output=True, text=True,
                                      env=environment, timeout=30).stdout
    if "--write" in sys.argv[2:]:
        for name, table in tables.items():
            text = region(name).sub(lambda m, t=table: m.group(1) + t.strip() + "\n" + m.group(3).lstrip("\n"), text)
        with open(readme, "w", encoding="utf-8") as out:
            out.write(text)
    problems = check(text, tables, lambda path: os.path.exists(os.path.join(root, path)))
    for problem in problems:
        print("README.md:", problem)
    print(f"readme: {len(TABLES)} tables, {len(set(PATH.findall(text)))} paths, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
