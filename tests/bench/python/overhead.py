#!/usr/bin/env python3
"""What a call costs through the package normd, against generated stubs and against the C++ client.

    tests/bench/python/overhead.py [--normd=build/release/normd] [--normload=build/release/normload] [--rounds=31]

Starts a server of its own and calls LayerNorm over rows of 1024 float32. Every variant has a process of its own for
every size, because what an allocation costs depends on what else a process has allocated: glibc maps and unmaps large
blocks anew until one of that size was freed, and 1 MiB can so cost hundreds of page faults a call or none. "1 MiB after
8 MiB" is a process that called with 8 MiB before, where such blocks stay mapped. In each round the variants are timed
once each, in turn, so that all of them meet the same machine. Medians of the rounds are printed, and how many times
faster than the stubs of the same transport a variant is (over shared memory: than the stubs over TCP): the median of
the rounds' quotients. "stubs" is what a user writes with generated code: tobytes, a NormalizeRequest, frombuffer. The
C++ figures are normload's p50 with one worker, medians of three runs. Needs numpy and the package normd.
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
SIZES = {"4 KiB": 1, "64 KiB": 16, "256 KiB": 64, "1 MiB": 256, "1 MiB after 8 MiB": 256, "8 MiB": 2048}  # rows
REPEATS = {1: 50, 16: 20, 64: 10, 256: 4, 2048: 1}  # calls of one timing, by rows
LOAD_SIZES = ("4 KiB", "1 MiB", "8 MiB")  # of normload
LOAD_RUNS = 3
BASELINES = {"TCP": "stubs, TCP", "Unix": "stubs, Unix socket", "shared": "stubs, TCP"}


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
    """Seconds."""
    command = [program, f"--server={target}", "-d", "500ms", "--warmup", "200ms", "-c", "1", "--shape",
               f"{SIZES[size]}x{COLUMNS}", "--method", "layer-norm", "--transport", transport, "--json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return report["latency_ns"]["p50"] * 1e-9


VARIANTS = {
    "stubs, TCP": lambda tcp, unix: stub_call(tcp),
    "normd, TCP": lambda tcp, unix: package_call(normd.connect(tcp, shared_memory="off")),
    "stubs, Unix socket": lambda tcp, unix: stub_call(unix),
    "normd, Unix socket": lambda tcp, unix: package_call(normd.connect(unix, shared_memory="off")),
    "normd, shared": lambda tcp, unix: package_call(normd.connect(unix)),
    "normd, shared, no copy": lambda tcp, unix: without_copies(normd.connect(unix)),
}


def work(variant, size, tcp, unix):
    """The process of one variant and size: prints the seconds of a call for each line that it reads."""
    call, random, rows = VARIANTS[variant](tcp, unix), np.random.default_rng(0), SIZES[size]
    if "after" in size:
        time_call(call, random.standard_normal((2048, COLUMNS), dtype=np.float32), 5)
    x = random.standard_normal((rows, COLUMNS), dtype=np.float32)
    time_call(call, x, 10)  # connections, regions, caches
    for _ in sys.stdin:
        print(time_call(call, x, REPEATS[rows]), flush=True)


class Worker:
    def __init__(self, variant, size, server):
        command = [sys.executable, __file__, f"--work={variant}", f"--size={size}", server.tcp, f"unix:{server.socket}"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def stop(self):
        self._process.stdin.close()
        self._process.wait()


def measure_size(size, rounds, server):
    """Variant -> seconds of each round."""
    workers = {variant: Worker(variant, size, server) for variant in VARIANTS}
    times = collections.defaultdict(list)
    for worker in workers.values():
        worker.time()
    for number in range(rounds):
        order = list(workers.items())
        for variant, worker in order[number % len(order):] + order[:number % len(order)]:
            times[variant].append(worker.time())
    for worker in workers.values():
        worker.stop()
    return times


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "?")
    return (f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, grpcio "
            f"{grpc.__version__}, load {os.getloadavg()[0]:.1f}, {datetime.date.today()}")


def cell(name, times):
    """The median in us, and against the stubs."""
    own = times.get(name)
    if not own:
        return ""
    text = f"{statistics.median(own) * 1e6:,.0f}"
    stubs = times[next(stubs for key, stubs in BASELINES.items() if key in name)]
    if name.startswith("normd"):
        text += f" ({statistics.median(theirs / ours for theirs, ours in zip(stubs, own)):.2f}x)"
    return text


def print_table(table):
    print(machine())
    print("| us a call | " + " | ".join(SIZES) + " |\n|---" + "|---:" * len(SIZES) + "|")
    for name in dict.fromkeys(name for times in table.values() for name in times):
        print(f"| {name} | " + " | ".join(cell(name, table[size]) for size in SIZES) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--normd", default="build/release/normd")
    parser.add_argument("--normload", default="build/release/normload")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--work", help="the variant of a process that this program starts; with size and targets")
    parser.add_argument("--size")
    parser.add_argument("targets", nargs="*")
    options = parser.parse_args()
    if options.work:
        work(options.work, options.size, *options.targets)
        return 0
    server = Server(options.normd)
    try:
        table = {size: measure_size(size, options.rounds, server) for size in SIZES}
        transports = (("C++, TCP", server.tcp, "unary"), ("C++, Unix socket", f"unix:{server.socket}", "unary"),
                      ("C++, shared", f"unix:{server.socket}", "shared"))
        for size in LOAD_SIZES:
            for name, target, transport in transports:
                table[size][name] = [normload_p50(options.normload, target, size, transport) for _ in range(LOAD_RUNS)]
        print_table(table)
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
