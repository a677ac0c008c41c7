#!/usr/bin/env python3
"""From which size on a normalisation by normd takes no longer than one in this process, on one machine.

    tests/bench/python/break_even.py [--normd=build/release/normd] [--rounds=9] [--seconds=10] [--torch-threads=1]
                                     [--most-bytes=67108864] [--markdown]

Starts a server of its own and normalises float32 tensors of 1 KiB to 64 MiB: LayerNorm over rows of 256 with weight and
bias, and BatchNorm inference of 64 channels. Each is done by numpy, by torch on the CPU where that can be imported, and
by normd: sent over TCP on the loopback interface and over a Unix socket, in shared memory with copies (ordinary
arrays), and in shared memory without (x and y are arrays of client.empty).

In each round every way is called twice, in turn, so that all of them meet the same machine; the second call is timed.
Each size has --rounds rounds, and as many more as --seconds allow. Printed are the medians of the rounds and, because
other programs on the machine make calls slower and never faster, the times that one round in ten stays below. torch has
one thread, as numpy has: threads that wait for each other would measure those other programs. The break-even size of
two ways is where the lines through their times cross for the last time, on logarithmic axes. The loopback interface is
no network: add bytes / bandwidth and a round trip for one. Needs numpy and the package normd.
"""

import argparse
import importlib.util
import math
import sys
import time

import numpy as np

import normd
from overhead import Server, machine

KIB = 1 << 10
SIZES = [KIB * 4**power for power in range(9)]  # 1 KiB to 64 MiB
COLUMNS, CHANNELS = 256, 64
EPS = 1e-5
MOST_ROUNDS = 1001


def tensor(shape):
    """Numbers of both signs, the same in every run."""
    return ((np.arange(math.prod(shape), dtype=np.int64) * 7919 % 1009 - 504) / 256).astype(np.float32).reshape(shape)


class LayerNorm:
    """Rows of COLUMNS numbers."""

    name = "LayerNorm"

    def __init__(self):
        self.weight, self.bias = 1 + tensor((COLUMNS,)) / 8, tensor((COLUMNS,))

    def shape(self, size):
        return (size // (4 * COLUMNS), COLUMNS)

    def numpy(self, x):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) / np.sqrt(x.var(-1, keepdims=True) + EPS) * self.weight + self.bias

    def torch(self):
        from torch import from_numpy
        from torch.nn.functional import layer_norm

        weight, bias = from_numpy(self.weight), from_numpy(self.bias)
        return lambda x: layer_norm(x, (COLUMNS,), weight, bias, EPS)

    def normd(self, client):
        return lambda x, **options: client.layer_norm(x, COLUMNS, self.weight, self.bias, EPS, **options)


class BatchNormInference:
    """Samples of CHANNELS channels, each 64 positions or what is left of them."""

    name = "BatchNorm inference"

    def __init__(self):
        self.weight, self.bias, self.mean = (tensor((3, CHANNELS)) + [[2], [0], [0]]).astype(np.float32)
        self.var = 1 + abs(self.bias)

    def shape(self, size):
        positions = min(64, size // (4 * CHANNELS))
        return (size // (4 * CHANNELS * positions), CHANNELS, positions)

    def numpy(self, x):
        mean, var, weight, bias = (one[:, None] for one in (self.mean, self.var, self.weight, self.bias))
        return (x - mean) / np.sqrt(var + EPS) * weight + bias

    def torch(self):
        from torch import from_numpy
        from torch.nn.functional import batch_norm

        mean, var, weight, bias = (from_numpy(one) for one in (self.mean, self.var, self.weight, self.bias))
        return lambda x: batch_norm(x, mean, var, weight, bias, eps=EPS)

    def normd(self, client):
        return lambda x, **options: client.batch_norm(
            x, self.mean, self.var, self.weight, self.bias, eps=EPS, **options)


LOCAL = ("numpy", "torch, CPU")


def ways(operation, x, tcp, unix, shared):
    """name -> a function without arguments that returns y, as numpy or torch has it."""
    found = {"numpy": lambda: operation.numpy(x)}
    if importlib.util.find_spec("torch"):
        import torch

        call, torch_x = operation.torch(), torch.from_numpy(x)
        found["torch, CPU"] = lambda: call(torch_x)
    shared_x, y = shared.shared_array(x), shared.empty(x.shape)
    over_tcp, over_unix, by_memory = (operation.normd(client) for client in (tcp, unix, shared))
    found["normd, TCP loopback"] = lambda: over_tcp(x)
    found["normd, Unix socket"] = lambda: over_unix(x)
    found["normd, shared, copied"] = lambda: by_memory(x)
    found["normd, shared, no copy"] = lambda: by_memory(shared_x, out=y)
    return found


def check(found):
    """All ways compute the same."""
    expected = None
    for name, call in found:
        y = np.asarray(call())
        expected = y if expected is None else expected
        if not np.allclose(y, expected, rtol=1e-4, atol=1e-4):
            raise SystemExit(f"{name} differs from numpy by {abs(y - expected).max()}")


def measure(operation, clients, rounds, seconds, sizes):
    """(way, size) -> seconds, one for each round."""
    times = {}
    for size in sizes:  # the tensors of one size at a time, so that 64 MiB are not held six times over
        found = list(ways(operation, tensor(operation.shape(size)), *clients).items())
        check(found)  # makes connections, regions and caches, too
        end = time.perf_counter() + seconds
        for number in range(MOST_ROUNDS):
            if number >= rounds and time.perf_counter() > end:
                break
            turn = number % len(found)
            for name, call in found[turn:] + found[:turn]:
                call()
                start = time.perf_counter()
                call()
                times.setdefault((name, size), []).append(time.perf_counter() - start)
    return times


def quantile(times, part):
    """(way, size) -> the time that `part` of the rounds stay below."""
    return {key: float(np.quantile(seconds, part)) for key, seconds in times.items()}


def sizes_of(times):
    return sorted({size for _, size in times})


def break_even(times, way, local):
    """The size in bytes from which on `way` takes no longer than `local`; 0: for all sizes, None: not for the last."""
    sizes = sizes_of(times)
    gains = [math.log(times[local, size] / times[way, size]) for size in sizes]
    if gains[-1] < 0:
        return None
    worse = max((i for i, gain in enumerate(gains) if gain < 0), default=-1)
    if worse < 0:
        return 0
    part = -gains[worse] / (gains[worse + 1] - gains[worse])
    return sizes[worse] * (sizes[worse + 1] / sizes[worse]) ** part


def bytes_text(size):
    return f"{size / KIB:.3g} KiB" if size < 1000 * KIB else f"{size / KIB**2:.3g} MiB"


def break_even_text(times, way, local):
    found, sizes = break_even(times, way, local), sizes_of(times)
    if found is None:
        return "not up to " + bytes_text(sizes[-1])
    return "from " + bytes_text(found or sizes[0])


def seconds_text(seconds):
    for unit, factor in (("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            break
    return f"{seconds * factor:.3g} {unit}"


def rows(title, times):
    """The table of an operation: a line for each way, then the break-even sizes."""
    names = list(dict.fromkeys(name for name, _ in times))
    yield [title, *map(bytes_text, sizes_of(times))]
    for name in names:
        yield [name, *(seconds_text(times[name, size]) for size in sizes_of(times))]
    yield []
    local = [name for name in LOCAL if name in names]
    yield [title + ", break-even with", *local]
    for name in names:
        if name not in LOCAL:
            yield [name, *(break_even_text(times, name, one) for one in local)]
    yield []


def print_table(lines, markdown):
    header = True
    for line in lines:
        if not markdown:
            print("".join(f"{cell:{52 if i == 0 else 18 if len(line) < 5 else 10}}" for i, cell in enumerate(line)))
            continue
        print("| " + " | ".join(line) + " |" if line else "")
        if header and line:
            print("|---" * len(line) + "|")
        header = not line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--normd", default="build/release/normd")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--torch-threads", type=int, default=1)
    parser.add_argument("--most-bytes", type=int, default=SIZES[-1])
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    server = Server(options.normd)
    try:
        unix = f"unix:{server.socket}"
        clients = [normd.connect(server.tcp, shared_memory="off"), normd.connect(unix, shared_memory="off"),
                   normd.connect(unix, shared_memory="on")]
        print(machine())
        if importlib.util.find_spec("torch"):
            import torch

            torch.set_num_threads(options.torch_threads)
            print(f"torch {torch.__version__}, {options.torch_threads} thread(s)")
        else:
            print("torch cannot be imported: its lines are left out")
        print(f"{options.rounds} rounds and more, up to {MOST_ROUNDS} in {options.seconds:g} s for each size\n")
        sizes = [size for size in SIZES if size <= options.most_bytes]
        for operation in (LayerNorm(), BatchNormInference()):
            times = measure(operation, clients, options.rounds, options.seconds, sizes)
            for words, part in (("median", 0.5), ("one in ten below", 0.1)):
                print_table(rows(f"{operation.name}, {words}", quantile(times, part)), options.markdown)
        for client in clients:
            client.close()
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
