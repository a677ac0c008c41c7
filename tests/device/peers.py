#!/usr/bin/env python3
"""PyTorch's times of the shapes of bench_cuda, eager and through torch.compile, on the GPU of this machine.

peers.py SHAPES.json TIMES.json              SHAPES.json: what `bench_cuda --list` prints; TIMES.json: for `--peers`
peers.py --turns [--max-autotune] SHAPES.json   answers as `bench_cuda --turns` does (bench/sections.h), for turns.py;
                                             FORM is eager, compile and, with --max-autotune, compile_max

Each form is captured in a CUDA graph of at least 20 calls over tensors of together more than twice the L2 cache,
outputs among them, so that no launch is paid by the host and no cache is warm: as bench_cuda does with normd's kernels.
Without a PyTorch that has CUDA and a device it says so and exits with status 3.
"""

import gc
import json
import os
import statistics
import sys

LAUNCHES = 20
LONG_LAUNCHES = 5  # in turns, of tensors that no cache has a part of
ROUNDS = 7
EPS = 1e-5
DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def make_call(torch, shape):
    """(function of x and residual, shape of x as PyTorch sees it, permutation or None)."""
    functional = torch.nn.functional
    dtype = getattr(torch, DTYPES[shape["dtype"]])
    images = len(shape["shape"]) == 4
    channels = shape["shape"][-1 if not images or shape["channels_last"] else 1]
    wide = torch.full((channels,), 1.25, device="cuda")
    own = wide.to(dtype)
    calls = {
        "LN": lambda x: functional.layer_norm(x, (channels,), own, own, EPS),
        "RMS": lambda x: functional.rms_norm(x, (channels,), own, EPS),
        "GN": lambda x: functional.group_norm(x, shape["groups"], own, own, EPS),
        "BN-train": lambda x: functional.batch_norm(x, None, None, wide, wide, True, 0.1, EPS),
        "BN-infer": lambda x: functional.batch_norm(x, wide, wide, wide, wide, False, 0.1, EPS),
    }
    call = calls[shape["op"]]

    def fused_add(x, residual):
        h = x + residual
        return call(h), h

    return fused_add if shape["residual"] else lambda x, residual: call(x)


def make_inputs(torch, shape, count):
    dtype = getattr(torch, DTYPES[shape["dtype"]])

    def tensor():
        x = torch.randn(shape["shape"], device="cuda", dtype=dtype)
        return x.permute(0, 3, 1, 2) if shape["channels_last"] else x  # channels last, as PyTorch has it

    return [(tensor(), tensor() if shape["residual"] else None) for _ in range(count)]


class Graph:
    """Calls captured once, on each of the inputs in turn; `pool` is the memory that graphs of one shape share."""

    def __init__(self, torch, call, inputs, launches, pool=None):
        outputs = [None] * len(inputs)
        self.launches = launches
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(3):
                call(*inputs[i % len(inputs)])
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool, stream=stream):
            for i in range(launches):
                outputs[i % len(inputs)] = None  # its memory is the next one's
                outputs[i % len(inputs)] = call(*inputs[i % len(inputs)])
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def seconds(self, warm_up=False):
        """Of one call; with `warm_up`, after a replay that is not timed."""
        if warm_up:
            self.graph.replay()
        self.begin.record()
        self.graph.replay()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / 1e3 / self.launches


def seconds_of(torch, call, inputs):
    graph = Graph(torch, call, inputs, max(LAUNCHES, len(inputs)))
    return statistics.median([graph.seconds() for _ in range(ROUNDS + 1)][1:])  # the first warms up


def l2_bytes(torch):
    return getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20)


def sets_of(torch, shape):
    """How many sets of tensors the calls take turns over."""
    l2 = l2_bytes(torch)
    return 1 if shape["bytes"] > 16 * l2 else max(2, 2 * l2 // shape["bytes"] + 1)


def first_line(error):
    return str(error).splitlines()[0] if str(error) else repr(error)


def measure(torch, shape):
    """{form: seconds}; a form that fails is left out and named."""
    count = sets_of(torch, shape)
    if 2 * count * shape["bytes"] > torch.cuda.mem_get_info()[0]:
        print(f"{shape['name']}: not run: not enough free memory")
        return {}
    call = make_call(torch, shape)
    inputs = make_inputs(torch, shape, count)
    torch._dynamo.reset()
    times = {}
    for form, function in (("eager", call), ("compile", torch.compile(call, dynamic=False))):
        try:
            times[form] = seconds_of(torch, function, inputs)
        except Exception as error:  # pylint: disable=broad-except
            print(f"{shape['name']} {form}: not run: {first_line(error)}")
    print(f"{shape['name']:32} " + "  ".join(f"{form} {1e6 * s:9.1f} us" for form, s in times.items()), flush=True)
    return times


class Turns:
    """Answers a line of `--turns` for a line."""

    def __init__(self, torch, shapes, max_autotune):
        self.torch = torch
        self.shapes = {shape["name"]: shape for shape in shapes}
        self.max_autotune = max_autotune
        self.give_back()

    def give_back(self):
        self.shape = self.pool = None
        self.functions, self.inputs, self.graphs = {}, {}, {}
        self.torch._dynamo.reset()
        gc.collect()
        self.torch.cuda.empty_cache()
        return "ok"

    def prepare(self, name):
        self.give_back()
        shape = self.shapes.get(name)
        if shape is None:
            return f"error no such shape: {name}"
        count = sets_of(self.torch, shape)
        # Inputs and outputs, and what compiling takes to try kernels.
        if 1.2 * count * shape["bytes"] + (1 << 30) > self.torch.cuda.mem_get_info()[0]:
            return "error the device has not enough free memory"
        call = make_call(self.torch, shape)
        self.functions = {"eager": call, "compile": self.torch.compile(call, dynamic=False)}
        if self.max_autotune:
            self.functions["compile_max"] = self.torch.compile(call, dynamic=False, mode="max-autotune-no-cudagraphs")
        self.shape = shape
        self.pool = self.torch.cuda.graph_pool_handle()
        self.inputs = {"run": make_inputs(self.torch, shape, count)}
        for form in self.functions:
            self.graph_of("run", form)
        return "ok"

    def graph_of(self, command, form):
        """A graph, or why there is none."""
        key = (command, form)
        if key not in self.graphs:
            inputs = self.inputs[command]
            is_long = command == "run" and len(inputs) == 1
            launches = LONG_LAUNCHES if is_long else max(LAUNCHES, len(inputs))
            try:
                self.graphs[key] = Graph(self.torch, self.functions[form], inputs, launches, self.pool)
            except Exception as error:  # pylint: disable=broad-except
                self.graphs[key] = first_line(error)
        return self.graphs[key]

    def run(self, command, form):
        if self.shape is None:
            return "error no shape"
        if form not in self.functions:
            return f"error no such form: {form}"
        if command == "warm":
            # As ShapeTensors::FitsCache has it.
            if self.shape["bytes"] > l2_bytes(self.torch) // 2:
                return "none"
            if "warm" not in self.inputs:
                self.inputs["warm"] = make_inputs(self.torch, self.shape, 1)
        graph = self.graph_of(command, form)
        if isinstance(graph, str):
            return f"error {graph}"
        return f"{graph.seconds(warm_up=graph.launches != LONG_LAUNCHES):.9g}"

    def answer(self, line):
        command, _, what = line.partition(" ")
        try:
            if command == "shape":
                return self.prepare(what)
            if command in ("run", "warm"):
                return self.run(command, what)
        except Exception as error:  # pylint: disable=broad-except
            return f"error {first_line(error)}"
        return self.give_back() if command == "done" else f"error no such command: {line}"


def serve_turns(torch, shapes, max_autotune):
    # PyTorch may print, too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    turns = Turns(torch, shapes, max_autotune)
    for line in sys.stdin:
        print(turns.answer(line.rstrip("\n")), file=answers, flush=True)
    return 0


def main():
    options = [argument for argument in sys.argv[1:] if argument.startswith("--")]
    files = [argument for argument in sys.argv[1:] if argument not in options]
    turns = "--turns" in options
    if len(files) != (1 if turns else 2) or not set(options) <= ({"--turns", "--max-autotune"} if turns else set()):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        print(f"NOT RUN: no PyTorch: {error}")
        return 3
    if not torch.cuda.is_available():
        print(f"NOT RUN: PyTorch {torch.__version__} has no CUDA device")
        return 3
    torch.set_grad_enabled(False)
    with open(files[0], encoding="utf-8") as file:
        shapes = json.load(file)
    if turns:
        return serve_turns(torch, shapes, "--max-autotune" in options)
    result = {"text": f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, eager and torch.compile, in CUDA graphs",
              "seconds": {}}
    for shape in shapes:
        result["seconds"][shape["name"]] = measure(torch, shape)
        torch.cuda.empty_cache()
        with open(files[1], "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
