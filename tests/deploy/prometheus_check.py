"""Checks deploy/prometheus and deploy/grafana: promtool's checks and unit tests, every query, and what is generated."""

import os
import re
import subprocess
import sys

import yaml

from facts import ROOT, fetch, number, running, text_of
from queries import GROUPING, Queries, buckets_of

FOLDER = os.path.join(ROOT, "deploy/prometheus")
RULE_RESOURCE = "deploy/kubernetes/components/monitoring/prometheus-rule.yaml"
DASHBOARD = "deploy/grafana/normd.json"


def load(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as text:
        return yaml.safe_load(text)


def check(programs):
    yield from promtool("check", "rules", "rules.yml")
    yield from promtool("test", "rules", "rules_test.yml")
    yield from promtool("check", "config", "prometheus.yml")
    rules = [rule for group in load("deploy/prometheus/rules.yml")["groups"] for rule in group["rules"]]
    yield from tested(rules)
    queries = queries_of(programs, rules)
    asked = [(rule.get("alert") or rule["record"], rule["expr"]) for rule in rules] + list(dashboard_queries())
    for where, query in asked:
        yield from (f"{where}: {problem}" for problem in queries.problems(query))
    print(f"  {len(rules)} rules and {len(asked) - len(rules)} queries of the dashboard name metrics that there are")
    yield from defaults(programs, rules)
    yield from (f"{path} is not what {command} makes: tests/deploy/run.sh --write" for path, text, command in generated()
                if not is_current(path, text))
    yield from panels(load(DASHBOARD)["panels"])


def promtool(*arguments):
    result = subprocess.run(["promtool", *arguments], cwd=FOLDER, check=False, capture_output=True, text=True)
    if result.returncode:
        yield f"promtool {' '.join(arguments)}: {result.stdout}{result.stderr}"


def queries_of(programs, rules):
    recorded = {}
    for rule in rules:
        if "record" in rule:
            recorded[rule["record"]] = {label.strip() for group in GROUPING.findall(rule["expr"])
                                        for label in group.split(",")}
    with running(programs, {}) as admin:
        page = fetch(admin, "/metrics")
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, check=False, capture_output=True, text=True)
    print(f"  promtool check metrics: {checked.stderr.strip() or 'nothing to say'}")
    return Queries(programs.metrics, recorded, buckets_of(page))


def tested(rules):
    """Each alert has a test in which it fires."""
    with open(os.path.join(FOLDER, "rules_test.yml"), encoding="utf-8") as text:
        tests = text.read()
    for rule in rules:
        if "alert" in rule and not re.search(rf"alertname(: |=\"){rule['alert']}\b", tests):
            yield f"rules_test.yml has no test of {rule['alert']}"
        if "alert" in rule and not {"summary", "action"} <= rule["annotations"].keys():
            yield f"{rule['alert']} lacks a summary or an action"


def defaults(programs, rules):
    """Limits that stand in a query are the defaults of their options."""
    limits = {"NormdBytesNearBudget": "max_in_flight_bytes", "NormdSessionsNearLimit": "max_sessions"}
    for rule in rules:
        option = limits.get(rule.get("alert"))
        if option and str(number(programs.options[option])) not in rule["expr"]:
            yield f"{rule['alert']} does not compare with the default of --{option}, {programs.options[option]}"


def dashboard_queries():
    dashboard = load(DASHBOARD)
    for panel in dashboard["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", []))
    for variable in dashboard["templating"]["list"]:
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", str(variable["query"]))
        if found:
            yield variable["name"], f"sum by ({found.group(2)}) ({found.group(1)})"
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def panels(found):
    """No two in one place, and a number for each."""
    if len({panel["id"] for panel in found}) != len(found):
        yield "two panels of the dashboard have one id"
    taken = set()
    for panel in found:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        if taken & cells or at["x"] + at["w"] > 24:
            yield f"the panel {panel['title']} lies over another one, or outside"
        taken |= cells


def generated():
    """(path, text, by what) of the files that are made of others."""
    script = "deploy/grafana/make_dashboard.py"
    yield DASHBOARD, text_of(sys.executable, os.path.join(ROOT, script)), script
    resource = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
                "metadata": {"name": "normd", "namespace": "normd", "labels": {"app.kubernetes.io/name": "normd"}},
                "spec": load("deploy/prometheus/rules.yml")}
    text = yaml.safe_dump(resource, sort_keys=False, width=120, allow_unicode=True)
    yield RULE_RESOURCE, "# Made of deploy/prometheus/rules.yml by tests/deploy/run.sh --write.\n" + text, "rules.yml"


def is_current(path, text):
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as there:
            return there.read() == text
    except FileNotFoundError:
        return False


def write():
    for path, text, _ in generated():
        with open(os.path.join(ROOT, path), "w", encoding="utf-8") as out:
            out.write(text)
        print(f"wrote {path}")


