"""Checks deploy/capacity.py: that its figures say where they come from, that more demand never needs less, that each
engine takes over from the one before, and that the page has its table."""

import csv
import dataclasses
import importlib.util
import os
import re
import sys

from facts import ROOT, text_of

SCRIPT = os.path.join(ROOT, "deploy/capacity.py")
PAGE = "deploy/README.md"
DEFAULTS = {"requests": 1000.0, "request_bytes": 4096.0, "steps": 0.0, "sessions": 0.0, "channels": 256.0,
            "connections": 100.0, "read_share": 0.0, "cores": 2.0, "memory_gib": 2.0, "database_cores": 8.0,
            "database_connections": 500.0, "database_tib": 4.0, "gbit": 10.0, "headroom": 0.65, "in_flight_mib": 288.0,
            "available": False}


def check():
    capacity = load()
    figures = capacity.read_figures()
    yield from sources()
    yield from steady(capacity, figures)
    yield from engines(capacity, figures)
    yield from page()
    print(f"  {len(figures)} figures; the table of {PAGE} is what deploy/capacity.py --table prints")


def load():
    spec = importlib.util.spec_from_file_location("capacity", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["capacity"] = module
    spec.loader.exec_module(module)
    return module


def sources():
    with open(os.path.join(ROOT, "deploy/capacity.csv"), encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            if not re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"]) or not row["machine"]:
                yield f"capacity.csv: {row['figure']} has no date or machine"
            if not os.path.exists(os.path.join(ROOT, row["command"].split()[0])):
                yield f"capacity.csv: {row['figure']}: there is no {row['command'].split()[0]}"


def solved(capacity, figures, **asked):
    return capacity.solve(figures, capacity.Demand(**{**DEFAULTS, **asked}))


def steady(capacity, figures):
    """More of anything never needs fewer replicas; more of what a replica has never needs more."""
    base = {"requests": 2e5, "steps": 1e3, "sessions": 1e5, "connections": 3e4, "read_share": 0.1}
    before = solved(capacity, figures, **base).replicas
    for name in ("requests", "steps", "sessions", "connections", "request_bytes"):
        demand = {**DEFAULTS, **base}
        if solved(capacity, figures, **{**base, name: demand[name] * 10}).replicas < before:
            yield f"ten times the {name} need fewer replicas"
    for name in ("cores", "memory_gib", "gbit"):
        if solved(capacity, figures, **{**base, name: DEFAULTS[name] * 4}).replicas > before:
            yield f"four times the {name} need more replicas"


def engines(capacity, figures):
    expected = {"none": {}, "SQLite": {"sessions": 100.0, "steps": 10.0},
                "PostgreSQL": {"sessions": 100.0, "steps": 10.0, "available": True},
                "distributed SQL": {"sessions": 1e9, "steps": 1e6}}
    for engine, asked in expected.items():
        answer = solved(capacity, figures, **asked)
        if answer.store != engine:
            yield f"{asked} takes {answer.store}, not {engine}"
        if not answer.replicas >= max(answer.limits.values()) or not answer.binding in answer.limits:
            yield f"{asked}: {answer.replicas} replicas are fewer than its limits ask for: {answer.limits}"
    if solved(capacity, figures, available=True).replicas < 2:
        yield "one replica may not be gone"
    names = {field.name for field in dataclasses.fields(capacity.Demand)}
    if names != DEFAULTS.keys():
        yield f"tests/deploy/capacity_check.py has no defaults for {names ^ DEFAULTS.keys()}"


def page():
    with open(os.path.join(ROOT, PAGE), encoding="utf-8") as text:
        if text_of(sys.executable, SCRIPT, "--table") not in text.read():
            yield f"{PAGE} does not have the table of deploy/capacity.py --table"
