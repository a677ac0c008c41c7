"""Prints the table of kernels/python/README.md: how near to the truth each framework is, from the reports of the tests."""

import collections
import json

pytest_plugins = ["pytester"]
VARIANTS = []  # lines of variants_test.py
ROWS = collections.OrderedDict()  # (framework, operator, dtype) -> {kind: facts}


def pytest_runtest_logreport(report):
    if report.when != "call":
        return
    facts = [json.loads(value) for name, value in report.user_properties if name == "normd_golden"]
    keys = [value for name, value in report.user_properties if name == "framework"]
    VARIANTS.extend(value for name, value in report.user_properties if name == "variant")
    for key, fact in zip(keys, facts):
        framework, operator, kind = json.loads(key)
        ROWS.setdefault((framework, operator, fact["dtype"]), {})[kind] = fact


def pytest_terminal_summary(terminalreporter):
    write = terminalreporter.write_line
    write("\nThe share of elements that are the nearest value of the spec:")
    for line in VARIANTS:
        write(line)
    write("\n| implementation | operator | type | nearest | worst ulp | worst on hard inputs |\n|---|---|---|---|---|---|")
    for (framework, operator, dtype), kinds in ROWS.items():
        usual = kinds.get("normal")
        hard = [(fact["max_ulp"], kind) for kind, fact in kinds.items() if kind != "normal"]
        if usual is None or not hard:
            continue
        worst, kind = max(hard)
        text = f"{worst:.3g}" if worst < 1e300 else "NaN or Inf"
        write(f"| {framework} | {operator} | {dtype} | {100 * usual['nearest']:.4g} % | {usual['max_ulp']:.3g} | "
              f"{text} ({kind}) |")  # fmt: skip
