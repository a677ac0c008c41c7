#!/usr/bin/env python3
"""What a call costs through the package normd, against generated stubs and against the C++ client.

    tests/bench/python/overhead.py [--normd=build/release/normd] [--normload=build/release/normload] [--rounds=31]

Starts a server of its own and calls LayerNorm over rows of 1024 float32. In each round every variant is timed once for
each size, in turn, so that all of them meet the same machine; medians of the rounds are printed, and how many times
faster than the stubs a variant is (the median of the rounds' quotients). "stubs" is what a user writes with generated
code: tobytes, a NormalizeRequest, frombuffer. The C++ figures are normload's p50 with one worker, one run in each of
three turns between the rounds. Needs numpy and the package normd.
"""

import argparse
import collections
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import grpc
import numpy as np

import normd
from normd._proto import norm_pb2, normalizer_pb2, tensor_pb2

COLUMNS = 1024
SIZES = {"4 KiB": 1, "64 KiB": 16, "256 KiB": 64, "1 MiB": 256, "8 MiB": 2048}  # rows
REPEATS = {"4 KiB": 50, "64 KiB": 20, "256 KiB": 10, "1 MiB": 4, "8 MiB": 1}  # calls of one timing
NORMLOAD_SIZES = ("4 KiB", "1 MiB", "8 MiB")
TURNS = 3  # of normload


class Server:
    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(prefix="normd-overhead.")
        self.socket = os.path.join(self.folder.name, "normd.sock")
        ports = os.path.join(self.folder.name, "ports")
        self.process = subprocess.Popen(
            [program, f"--listen=127.0.0.1:0,unix:{self.socket}", "--admin_listen=", "--session_store=memory",
             f"--port_file={ports}", "--log_level=error"])
        while not os.path.exists(ports):
            if self.process.poll() is not None:
                raise SystemExit(f"{program} ended with {self.process.returncode}")
            time.sleep(0.01)
        with open(ports, encoding="utf-8") as lines:
            self.tcp = next(line.split("=")[1].strip() for line in lines if "127.0.0.1" in line)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def stub_call(target):
    """What generated code does: serialisers of the messages, and the messages' bytes fields."""
    channel = grpc.insecure_channel(target, [("grpc.max_receive_message_length", -1)])
    normalize = channel.unary_unary("/normd.v1.Normalizer/Normalize", normalizer_pb2.NormalizeRequest.SerializeToString,
                                    normalizer_pb2.NormalizeResponse.FromString)

    def call(x):
        request = normalizer_pb2.NormalizeRequest(
            spec=norm_pb2.NormSpec(layer_norm=norm_pb2.LayerNorm(normalized_shape=[COLUMNS])),
            x=tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_F32, shape=x.shape, data=x.tobytes()))
        reply = normalize(request)
        return np.frombuffer(reply.outputs[0].tensor.data, dtype=np.float32).reshape(x.shape)

    return call


def package_call(client):
    return lambda x: client.layer_norm(x, COLUMNS)


def without_copies(client):
    """x and y live in shared memory."""
    kept = {}

    def call(x):
        if x.shape not in kept:
            kept[x.shape] = (client.shared_array(x), client.empty(x.shape))
        shared_x, y = kept[x.shape]
        return client.layer_norm(shared_x, COLUMNS, out=y)

    return call


def time_call(call, x, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        call(x)
    return (time.perf_counter() - start) / repeats


def normload_p50(program, target, size, transport):
    command = [program, f"--server={target}", "-d", "1s", "-c", "1", "--shape", f"{SIZES[size]}x{COLUMNS}", "--method",
               "layer-norm", "--transport", transport, "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return find_p50(report) * 1e-6


def find_p50(report):
    """p50 in microseconds, wherever the report has its latencies."""
    found = []

    def visit(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if key.startswith("p50") and isinstance(value, (int, float)):
                    found.append(value)
                visit(value)
        elif isinstance(node, list):
            for value in node:
                visit(value)

    visit(report)
    return found[0]


def measure(variants, arrays, rounds, between):
    times = collections.defaultdict(list)
    for name, call in variants.items():
        for size, x in arrays.items():
            time_call(call, x, 3)  # connections, regions, caches
    for number in range(rounds):
        for size, x in arrays.items():
            order = list(variants.items())
            for name, call in order[number % len(order):] + order[:number % len(order)]:
                times[name, size].append(time_call(call, x, REPEATS[size]))
        if number % max(1, rounds // TURNS) == 0:
            between(times)
    return times


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "?")
    load = os.getloadavg()[0]
    return (f"{model}, {os.cpu_count()} cores; Linux {platform.release()}; Python {platform.python_version()}, grpcio "
            f"{grpc.__version__}; load {load:.1f}; {datetime.date.today()}")


def print_table(times, sizes, baseline):
    print(machine())
    print(f"{'':24}" + "".join(f"{size:>20}" for size in sizes))
    for name in dict.fromkeys(name for name, _ in times):
        cells = []
        for size in sizes:
            own = times.get((name, size))
            if not own:
                cells.append("")
                continue
            cell = f"{statistics.median(own) * 1e6:,.0f} us"
            stubs = times[baseline, size]
            if name != baseline and len(own) == len(stubs):
                cell += f" ({statistics.median(s / o for s, o in zip(stubs, own)):.2f}x)"
            cells.append(cell)
        print(f"{name:24}" + "".join(f"{cell:>20}" for cell in cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--normd", default="build/release/normd")
    parser.add_argument("--normload", default="build/release/normload")
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    server = Server(options.normd)
    try:
        unix = f"unix:{server.socket}"
        variants = {
            "stubs, TCP": stub_call(server.tcp),
            "normd, TCP": package_call(normd.connect(server.tcp, shared_memory="off")),
            "stubs, Unix socket": stub_call(unix),
            "normd, Unix socket": package_call(normd.connect(unix, shared_memory="off")),
            "normd, shared": package_call(normd.connect(unix)),
            "normd, shared, no copy": without_copies(normd.connect(unix)),
        }
        random = np.random.default_rng(0)
        arrays = {size: random.standard_normal((rows, COLUMNS), dtype=np.float32) for size, rows in SIZES.items()}

        def run_normload(times):
            for size in NORMLOAD_SIZES:
                for name, target, transport in (("C++, TCP", server.tcp, "unary"), ("C++, Unix socket", unix, "unary"),
                                                ("C++, shared", unix, "shared")):
                    times[name, size].append(normload_p50(options.normload, target, size, transport))

        times = measure(variants, arrays, options.rounds, run_normload if options.normload else lambda times: None)
        print_table(times, SIZES, "stubs, TCP")
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
