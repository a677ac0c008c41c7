#!/usr/bin/env python3
"""Records what the figures of the bench reached, for tests/bench/run.sh --check R --reached FILE.

    tests/bench/record.py FILE RUN.json...

Each RUN is what a suite wrote with --json; FILE keeps, for the suite and instruction set of the runs, the least that
each figure with a floor had in any of them, and the most of each with a ceiling. A record that FILE had of that suite
and instruction set is replaced; of fewer than three runs none is made, because one quiet moment proves nothing.
"""

import json
import pathlib
import re
import sys

LEAST_RUNS = 3


def key_of(run):
    kind = run["notes"].get("instruction set")
    return f"{run['suite']} {kind}" if kind else run["suite"]


def main(arguments):
    if len(arguments) < 1 + LEAST_RUNS:
        print(__doc__, file=sys.stderr)
        return 2
    path = pathlib.Path(arguments[0])
    runs = [json.loads(pathlib.Path(name).read_text(encoding="utf-8")) for name in arguments[1:]]
    if len({key_of(run) for run in runs}) != 1:
        print("the runs are of several suites or instruction sets", file=sys.stderr)
        return 2
    figures = {}
    for run in runs:
        for figure in run["figures"]:
            if "floor" not in figure and "ceiling" not in figure:
                continue
            name = re.sub(r" \(.*\)", "", figure["name"])
            choose = min if "floor" in figure else max
            figures[name] = choose(figures.get(name, figure["value"]), figure["value"])
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    notes = runs[-1]["notes"]
    record[key_of(runs[0])] = {
        "machine": notes["machine"],
        "date": notes["date"],
        "commit": notes["commit"],
        "runs": len(runs),
        "figures": {name: float(f"{value:.3g}") for name, value in sorted(figures.items())},
    }
    path.write_text(json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
