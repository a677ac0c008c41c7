#!/usr/bin/env python3
"""Sizes a deployment on paper, from the measured figures of deploy/capacity.csv:

    deploy/capacity.py --requests=50000 --request_bytes=4096
    deploy/capacity.py --requests=2000 --steps=500 --sessions=100000 --channels=256 --connections=3000

Prints how many replicas each limit asks for, which limit binds, and which store can take the writes. CPU seconds are
those of the measuring machine; a figure that was not measured is a parameter with a default, and is said to be one.
"""

import argparse
import csv
import dataclasses
import math
import os

FIGURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "capacity.csv")
MIB = 1 << 20
DESCRIPTORS = 8192  # --max_connections, by default
RESERVED = 100 * MIB  # server/README.md: what a process takes beside sessions and requests
CACHES = 1.25  # of a file or table over the rows in it: free pages and the log


@dataclasses.dataclass
class Demand:
    """What callers ask for, in a second where it is a rate, and what a machine has."""
    requests: float
    request_bytes: float
    steps: float
    sessions: float
    channels: float
    connections: float
    read_share: float
    cores: float
    memory_gib: float
    database_cores: float
    database_connections: float
    database_tib: float
    gbit: float
    headroom: float
    in_flight_mib: float
    available: bool


@dataclasses.dataclass
class Answer:
    limits: dict  # name -> replicas that it asks for
    replicas: int
    binding: str
    store: str
    store_writes: float
    store_nodes: int
    store_limits: dict  # name -> nodes that it asks for
    store_bytes: float
    resident_sessions: float


def read_figures(path=FIGURES):
    with open(path, encoding="utf-8") as rows:
        return {row["figure"]: float(row["value"]) for row in csv.DictReader(rows)}


def request_cpu(figures, demand, shared):
    """CPU seconds that callers ask of normd in a second; x comes in and y goes out."""
    plain = figures["request_cpu"] + figures["request_byte_cpu"] * demand.request_bytes
    session = figures["shared_read_cpu" if shared else "session_read_cpu"]
    of_session = max(session, plain)
    step = figures["shared_step_cpu" if shared else "sqlite_step_cpu"]
    mixed = (1 - demand.read_share) * plain + demand.read_share * of_session
    return demand.requests * mixed + demand.steps * max(step, plain)


def usable_memory(demand):
    """What a replica's memory leaves for connections and sessions, in bytes."""
    return demand.memory_gib * 1024 * MIB - RESERVED - 2 * demand.in_flight_mib * MIB


def replica_limits(figures, demand, shared):
    """How many replicas each limit asks for, as fractions."""
    usable = usable_memory(demand)
    connections = demand.connections * figures["connection_bytes"]
    if usable <= 0:
        raise ValueError("memory_gib does not hold the process and twice in_flight_mib")
    return {
        "CPU": request_cpu(figures, demand, shared) / (demand.cores * demand.headroom),
        "network": 8 * demand.request_bytes * (demand.requests + demand.steps) / (demand.gbit * 1e9 * demand.headroom),
        "connections": demand.connections / DESCRIPTORS,
        "memory of connections": connections / usable,
    }


def sqlite_writer(figures, demand):
    """The share of its time that the one writer of a SQLite store is busy, by the rows of two sizes that it wrote."""
    small, large = 1 / figures["sqlite_rows_c256"], 1 / figures["sqlite_rows_c2048"]
    seconds = small + (large - small) / (2048 - 256) * (demand.channels - 256)
    return demand.steps * max(seconds, small / 2) / demand.headroom


def database_limits(figures, demand, replicas):
    """How many machines each limit of the database asks for. A step is a row written; an inference on a session asks
    for the version; every replica keeps its connections, because poolers must not share them."""
    cpu = (demand.steps * figures["database_step_cpu"] +
           demand.requests * demand.read_share * figures["database_read_cpu"])
    return {
        "CPU": cpu / (demand.database_cores * demand.headroom),
        "connections": replicas * figures["database_connections"] / demand.database_connections,
        "disk": stored_bytes(figures, demand) / (demand.database_tib * (1 << 40)),
    }


def stored_bytes(figures, demand):
    return CACHES * demand.sessions * session_size(figures, demand, "disk")


def session_size(figures, demand, kind):
    return figures[f"session_{kind}"] + figures[f"session_channel_{kind}"] * demand.channels


def solve(figures, demand):
    has_store = bool(demand.steps or demand.sessions)
    limits = replica_limits(figures, demand, shared=False)
    if has_store:
        limits["writer of SQLite"] = sqlite_writer(figures, demand)
    alone = max(limits.values()) <= 1 and not demand.available
    if has_store and not alone:
        limits = replica_limits(figures, demand, shared=True)
    binding = max(limits, key=limits.get)
    replicas = max(math.ceil(limits[binding]), 2 if demand.available else 1)
    store, store_limits = "none", {}
    if has_store:
        store_limits = {} if alone else database_limits(figures, demand, replicas)
        store = "SQLite" if alone else "PostgreSQL" if max(store_limits.values()) <= 1 else "distributed SQL"
    memory = usable_memory(demand) - demand.connections / replicas * figures["connection_bytes"]
    return Answer(limits=limits, replicas=replicas, binding=binding, store=store, store_writes=demand.steps,
                  store_nodes=math.ceil(max(store_limits.values(), default=int(has_store))), store_limits=store_limits,
                  store_bytes=stored_bytes(figures, demand),
                  resident_sessions=min(demand.sessions, memory / session_size(figures, demand, "memory")))


def report(demand, answer):
    yield f"replicas        {answer.replicas} of {demand.cores:g} cores and {demand.memory_gib:g} GiB"
    yield from limit_lines(answer.limits)
    nodes = f", {answer.store_nodes} machines of {demand.database_cores:g} cores" if answer.store_nodes > 1 else ""
    yield f"store           {answer.store}{nodes}"
    yield from limit_lines(answer.store_limits)
    if answer.store != "none":
        yield f"  writes          {answer.store_writes:g}/s at most, fewer where steps of one session meet"
        yield f"  on disk         {answer.store_bytes / (1 << 30):.3g} GiB"
        yield f"  in memory       {answer.resident_sessions:.3g} of {demand.sessions:g} sessions in each replica"
    if answer.store == "distributed SQL":
        yield "  its machines are taken to do what a PostgreSQL of as many cores does: none was measured"


def limit_lines(limits):
    for name, needed in sorted(limits.items(), key=lambda item: -item[1]):
        yield f"  {name:<22}{needed:.3g}{'  <- binds' if needed == max(limits.values()) else ''}"


# From one core to ten thousand replicas: what changes, and from where on.
SIZES = (
    ("one core", {"cores": 1, "requests": 5e3, "sessions": 1e3, "steps": 100, "connections": 50}),
    ("one server", {"cores": 8, "memory_gib": 8, "requests": 5e4, "sessions": 1e5, "steps": 2e3, "connections": 1e3}),
    ("a few", {"cores": 8, "memory_gib": 8, "requests": 4e5, "sessions": 1e6, "steps": 5e3, "connections": 1e4,
               "read_share": 0.05}),
    ("tens", {"cores": 8, "memory_gib": 8, "requests": 2e6, "sessions": 1e7, "steps": 2e4, "connections": 1e5,
              "read_share": 0.05, "database_cores": 32}),
    ("a thousand", {"cores": 8, "memory_gib": 8, "requests": 1e8, "sessions": 1e8, "steps": 1e5, "connections": 1e6,
                    "read_share": 0.05, "database_cores": 32}),
    ("ten thousand", {"cores": 8, "memory_gib": 8, "requests": 1e9, "sessions": 1e9, "steps": 1e6, "connections": 1e7,
                      "read_share": 0.05, "database_cores": 32}),
)


def table(figures, defaults):
    yield "| size | calls/s | steps/s | sessions | replicas | which limit | store | its machines | which limit |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, asked in SIZES:
        demand = Demand(**{**defaults, **asked})
        answer = solve(figures, demand)
        limit = max(answer.store_limits, key=answer.store_limits.get) if answer.store_limits else ""
        cells = (name, f"{demand.requests:,.0f}", f"{demand.steps:,.0f}", f"{demand.sessions:,.0f}",
                 f"{answer.replicas:,} x {demand.cores:g} cores", answer.binding, answer.store,
                 f"{answer.store_nodes:,}", limit)
        yield f"| {' | '.join(cells)} |"


def measured(figures):
    """What the table is computed with, in the words of the page."""
    session = {kind: figures[f"session_{kind}"] + 256 * figures[f"session_channel_{kind}"]
               for kind in ("memory", "disk")}
    rows = {
        "normd's CPU for a call of 4 KiB": us(figures["request_cpu"] + 4096 * figures["request_byte_cpu"]),
        "normd's CPU for a call of 1 MiB": us(figures["request_cpu"] + MIB * figures["request_byte_cpu"]),
        "memory of normd without work": f"{figures['process_bytes'] / 1e6:.0f} MB",
        "memory of an idle connection": f"{figures['connection_bytes'] / 1e3:.0f} kB",
        "memory of a session of C = 256": f"{session['memory'] / 1e3:.1f} kB, {1e9 / session['memory']:,.0f} in a GB",
        "disk of a session of C = 256": f"{session['disk'] / 1e3:.1f} kB",
        "rows that one SQLite writes": f"{figures['sqlite_rows_c256']:,.0f}/s at C = 256, "
                                       f"{figures['sqlite_rows_c2048']:,.0f}/s at C = 2048",
        "normd's CPU for a training step, SQLite": us(figures["sqlite_step_cpu"]),
        "normd's CPU for a training step, PostgreSQL": us(figures["shared_step_cpu"]),
        "PostgreSQL's CPU for a training step": us(figures["database_step_cpu"]),
        "PostgreSQL's CPU for a call on a session": us(figures["database_read_cpu"]),
        "connections to PostgreSQL of a replica": f"{figures['database_connections']:.0f}",
    }
    yield "| measured | is |"
    yield "|---|---|"
    yield from (f"| {name} | {value} |" for name, value in rows.items())


def us(seconds):
    return f"{1e6 * seconds:,.0f} us"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, meaning in (
            ("requests", 1000, "normalise calls a second"),
            ("request_bytes", 4096, "bytes of x in a call; y is as large"),
            ("steps", 0, "training steps a second, on sessions"),
            ("sessions", 0, "sessions in the store"),
            ("channels", 256, "channels of a session"),
            ("connections", 100, "open connections in all"),
            ("read_share", 0, "share of the calls that name a session"),
            ("cores", 2, "cores of a replica"),
            ("memory_gib", 2, "memory of a replica"),
            ("database_cores", 8, "cores of the database's machine"),
            ("database_connections", 500, "connections that one machine of the database takes"),
            ("database_tib", 4, "disk of the database's machine"),
            ("gbit", 10, "Gbit/s of a replica's network, each way"),
            ("headroom", 0.65, "share of CPU and network that is planned to be used"),
            ("in_flight_mib", 288, "--max_in_flight_bytes")):
        parser.add_argument(f"--{name}", type=float, default=default, help=f"{meaning} (default {default})")
    parser.add_argument("--available", action="store_true", help="one replica may be gone: at least two, shared store")
    parser.add_argument("--figures", default=FIGURES, help="the measured figures (default deploy/capacity.csv)")
    parser.add_argument("--table", action="store_true", help="one core to ten thousand replicas, as Markdown")
    arguments = vars(parser.parse_args())
    figures, as_table = read_figures(arguments.pop("figures")), arguments.pop("table")
    demand = Demand(**arguments)
    tables = [*table(figures, arguments), "", *measured(figures)]
    print("\n".join(tables if as_table else report(demand, solve(figures, demand))))


if __name__ == "__main__":
    main()
