#!/usr/bin/env python3
"""PyTorch's side of the kernels bench: works on the buffers of bench_kernels, whose file it inherits.

torch_peer.py FILE_DESCRIPTOR, started by torch_peer.cc. One command a line, one answer a line:
  version                                                              -> versions and settings
  prepare OP DTYPE LAYOUT OUTER CHANNELS SIDE ROW THREADS Y_OFFSET     -> the form that will run, or "-": has none
  run ITERATIONS                                                       -> seconds of one call, page faults of all
An operation that has several forms is run in the one that is fastest here, eager and without gradients. Forms with
an output argument write to y; the others allocate, from memory that malloc keeps. torch.compile is left out: it takes
seconds a shape, of which there are hundreds.
"""

import mmap
import os
import resource
import sys
import time

import numpy
import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
X_OFFSET = 2 << 20  # as in buffers.h
PARAMETERS = 1 << 16
EPS = 1e-5
GROUPS = 32


def faults():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


class Peer:
    def __init__(self, descriptor):
        size = os.fstat(descriptor).st_size
        memory = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.bytes = torch.from_numpy(numpy.frombuffer(memory, dtype=numpy.uint8))
        self.call = None

    def tensor(self, offset, shape, dtype):
        count = int(numpy.prod(shape)) * dtype.itemsize
        return self.bytes[offset:offset + count].view(dtype).view(shape)

    def parameter(self, which, length, dtype):
        values = self.tensor(which * (PARAMETERS * 4 + 4096 + 832), (length,), torch.float32)
        return values.clone() if dtype == torch.float32 else values.to(dtype)

    def prepare(self, op, dtype, layout, outer, channels, side, row, threads, y_offset):
        outer, channels, side, row = int(outer), int(channels), int(side), int(row)
        torch.set_num_threads(int(threads))
        dtype = DTYPES[dtype]
        if layout == "rows":
            shape = (outer, row)
            x, y = self.tensor(X_OFFSET, shape, dtype), self.tensor(int(y_offset), shape, dtype)
        else:
            shape = (outer, channels, side, side) if layout == "nchw" else (outer, side, side, channels)
            x, y = self.tensor(X_OFFSET, shape, dtype), self.tensor(int(y_offset), shape, dtype)
            if layout == "nhwc":  # logically channels first, as torch has channels_last
                x, y = x.permute(0, 3, 1, 2), y.permute(0, 3, 1, 2)
        forms = self.forms(op, dtype, x, y, row if layout == "rows" else channels)
        best = None
        for name, call in forms.items():
            try:
                call()
            except (RuntimeError, TypeError, NotImplementedError):
                continue
            seconds = min(self.time(call, 1) for _ in range(3))
            if best is None or seconds < best[0]:
                best = (seconds, name, call)
        if best is None:
            return "-"
        self.call = best[2]
        result = self.call()
        result = result[0] if isinstance(result, tuple) else result
        if result.data_ptr() != y.data_ptr():  # for the comparison of results
            y.copy_(result)
        return best[1]

    def forms(self, op, dtype, x, y, length):
        """The ways of doing `op`, by name."""
        weight, bias = self.parameter(0, length, dtype), self.parameter(1, length, dtype)
        wide_weight, wide_bias = self.parameter(0, length, torch.float32), self.parameter(1, length, torch.float32)
        mean, variance = self.parameter(2, length, torch.float32), self.parameter(3, length, torch.float32)
        saved = [torch.empty(length), torch.empty(length)]
        aten = torch.ops.aten
        if op == "LN":
            return {"layer_norm": lambda: F.layer_norm(x, (length,), weight, bias, EPS),
                    "layer_norm, f32 parameters": lambda: F.layer_norm(x, (length,), wide_weight, wide_bias, EPS)}
        if op == "RMS":
            def composed():
                scale = torch.mean(x * x, -1, keepdim=True).add_(EPS).rsqrt_()
                torch.mul(x, scale, out=y)
                return y.mul_(weight)

            return {"rms_norm": lambda: F.rms_norm(x, (length,), weight, EPS), "composed": composed}
        if op in ("BN-train", "BN-infer"):
            training = op == "BN-train"
            running = (None, None) if training else (mean, variance)
            return {
                "native_batch_norm out": lambda: aten.native_batch_norm.out(
                    x, wide_weight, wide_bias, *running, training, 0.1, EPS, out=y, save_mean=saved[0],
                    save_invstd=saved[1]),
                "batch_norm": lambda: F.batch_norm(x, *running, wide_weight, wide_bias, training, 0.1, EPS),
                "batch_norm, own dtype": lambda: F.batch_norm(
                    x, *(r if r is None else r.to(dtype) for r in running), weight, bias, training, 0.1, EPS)}
        if op == "GN":
            return {"group_norm": lambda: F.group_norm(x, GROUPS, weight, bias, EPS),
                    "group_norm, f32 parameters": lambda: F.group_norm(x, GROUPS, wide_weight, wide_bias, EPS)}
        if op == "IN":
            return {"instance_norm": lambda: F.instance_norm(x, weight=weight, bias=bias, eps=EPS),
                    "group_norm": lambda: F.group_norm(x, length, weight, bias, EPS)}
        return {}

    @staticmethod
    def time(call, iterations):
        begin = time.perf_counter()
        for _ in range(iterations):
            call()
        return (time.perf_counter() - begin) / iterations

    def run(self, iterations):
        before = faults()
        seconds = self.time(self.call, int(iterations))
        return f"{seconds:.9e} {faults() - before}"


def main():
    peer = Peer(int(sys.argv[1]))
    torch.set_grad_enabled(False)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "version":
            answer = (f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, eager, no gradients, "
                      "memory kept by malloc")
        else:
            answer = getattr(peer, {"prepare": "prepare", "run": "run"}[command])(*arguments)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
