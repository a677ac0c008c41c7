#!/usr/bin/env python3
"""PyTorch's times of the shapes of bench_cuda, eager and through torch.compile, on the GPU of this machine.

peers.py SHAPES.json TIMES.json   SHAPES.json: what `bench_cuda --list` prints; TIMES.json: for `bench_cuda --peers`.
Each form is captured in a CUDA graph of at least 20 calls over tensors of together more than twice the L2 cache, outputs
among them, so that no launch is paid by the host and no cache is warm: as bench_cuda does with normd's kernels. Without
a PyTorch that has CUDA and a device it says so and exits with status 3.
"""

import json
import statistics
import sys

LAUNCHES = 20
ROUNDS = 7
EPS = 1e-5


def make_call(torch, shape):
    """(function of x and residual, shape of x as PyTorch sees it, permutation or None)."""
    functional = torch.nn.functional
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[shape["dtype"]]
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
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[shape["dtype"]]

    def tensor():
        x = torch.randn(shape["shape"], device="cuda", dtype=dtype)
        return x.permute(0, 3, 1, 2) if shape["channels_last"] else x  # channels last, as PyTorch has it

    return [(tensor(), tensor() if shape["residual"] else None) for _ in range(count)]


def seconds_of(torch, call, inputs):
    launches = max(LAUNCHES, len(inputs))
    outputs = [None] * len(inputs)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            call(*inputs[i % len(inputs)])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(launches):
            outputs[i % len(inputs)] = call(*inputs[i % len(inputs)])
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(ROUNDS + 1):  # the first warms up
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / launches)
    return statistics.median(times[1:])


def measure(torch, shape):
    """{form: seconds}; a form that fails is left out and named."""
    properties = torch.cuda.get_device_properties(0)
    l2 = getattr(properties, "L2_cache_size", 64 << 20)
    count = 1 if shape["bytes"] > 16 * l2 else max(2, 2 * l2 // shape["bytes"] + 1)
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
            print(f"{shape['name']} {form}: not run: {str(error).splitlines()[0] if str(error) else error!r}")
    print(f"{shape['name']:32} " + "  ".join(f"{form} {1e6 * s:9.1f} us" for form, s in times.items()), flush=True)
    return times


def main():
    if len(sys.argv) != 3:
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
    with open(sys.argv[1], encoding="utf-8") as file:
        shapes = json.load(file)
    result = {"text": f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, eager and torch.compile, in CUDA graphs",
              "seconds": {}}
    for shape in shapes:
        result["seconds"][shape["name"]] = measure(torch, shape)
        torch.cuda.empty_cache()
        with open(sys.argv[2], "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
