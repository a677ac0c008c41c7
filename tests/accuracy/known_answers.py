#!/usr/bin/env python3
"""Examples that popular libraries get wrong: the true value beside normd's, PyTorch's and ONNX Runtime's.

    tests/accuracy/known_answers.py [--build-dir DIR] [--server TARGET]

Needs numpy, torch, onnx and onnxruntime, in a virtual environment outside the repository; a library that is missing has
an empty column. Starts DIR/normd (build/release) unless a server is named, and asks it with DIR/normctl. Prints a table
in Markdown, of each example one element: where somebody is furthest from the truth. Bold: not within 4 ulp of the
tensor's type at max(|y|, |b|, |w|), NaN or Inf where the truth is a number, or the sign of a zero. True values are
computed from the inputs as the type holds them, in fractions, with 80-digit square roots.
"""

import argparse
import datetime
import math
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np

getcontext().prec = 80
# Decimal's exponents are wide enough for every f64; fractions are exact.


@dataclass
class Example:
    title: str
    op: str  # layer, rms, lp2, batch (training), batch_inference, instance, group
    x: list  # one statistic set
    dtype: str = "f32"
    eps: float = 1e-5
    weight: list = field(default_factory=list)
    bias: list = field(default_factory=list)
    mean: float = 0
    variance: float = 1
    at: int = -1  # the element to print; -1: where somebody is furthest from the truth

    def array(self, values=None):
        with np.errstate(over="ignore"):
            return np.array(self.x if values is None else values).astype(
                {"f32": np.float32, "f16": np.float16, "f64": np.float64}[self.dtype])


def normal_row(mean, deviation, count, seed):
    source = random.Random(seed)
    return [mean + deviation * source.gauss(0, 1) for _ in range(count)]


LEAST_F16, LEAST_F32 = 2.0**-24, 2.0**-149

EXAMPLES = [
    Example("LN [1e8, 1e8+8, 1e8+16, 1e8+24]", "layer", [1e8, 1e8 + 8, 1e8 + 16, 1e8 + 24]),
    Example("LN, mean / deviation 1e6, d = 1024", "layer", normal_row(1e6, 1, 1024, 1)),
    Example("LN f64, mean / deviation 1e12, d = 1024", "layer", normal_row(1e12, 1, 1024, 2), "f64"),
    Example("LN of 12345.678, 1,000 times", "layer", [12345.678] * 1000),
    Example("BN training of 12345.678, 1,000 times", "batch", [12345.678] * 1000),
    Example("GN of 12345.678, 1,000 times", "group", [12345.678] * 1000),
    Example("IN of 12345.678, 1,000 times", "instance", [12345.678] * 1000),
    Example("LN of 0.1, 7 times", "layer", [0.1] * 7),
    Example("LN of 0.1, 7 times, eps 0 (0/0)", "layer", [0.1] * 7, eps=0),
    Example("BN training, mean / deviation 1e6, N = 1024", "batch", normal_row(1e6, 1, 1024, 3)),
    Example("GN, mean / deviation 1e6, 1,024 values", "group", normal_row(1e6, 1, 1024, 4)),
    Example("IN, mean / deviation 1e6, 1,024 values", "instance", normal_row(1e6, 1, 1024, 5)),
    Example("LN [1e19, 2e19, 3e19]", "layer", [1e19, 2e19, 3e19]),
    Example("RMS [1e19, 2e19, 3e19]", "rms", [1e19, 2e19, 3e19]),
    Example("L2 [1e19, 2e19, 3e19]", "lp2", [1e19, 2e19, 3e19], eps=0),
    Example("RMS [1e-30, 2e-30], eps 0", "rms", [1e-30, 2e-30], eps=0),
    Example("L2 [1e-30, 2e-30]", "lp2", [1e-30, 2e-30], eps=0),
    Example("LN of one element, b = -1.5", "layer", [3.25], weight=[2], bias=[-1.5]),
    Example("BN inference, x 1000000.5, mean 1e6, var 1e-4", "batch_inference", [1000000.5], mean=1e6, variance=1e-4),
    Example("LN f16 [2^-24, -2^-24], eps 0", "layer", [LEAST_F16, -LEAST_F16], "f16", 0),
    Example("RMS f16 [2^-24, -2^-24], eps 0", "rms", [LEAST_F16, -LEAST_F16], "f16", 0),
    Example("L2 [2^-149, 0]", "lp2", [LEAST_F32, 0.0], eps=0),
    Example("RMS f16 [300, -256, 1000, 2]", "rms", [300, -256, 1000, 2], "f16"),
    Example("RMS [-0, 1]", "rms", [-0.0, 1.0], at=0),
    Example("LN [-1, -0, 1]", "layer", [-1.0, -0.0, 1.0], at=1),
    Example("L2 of zeros", "lp2", [0.0, 0.0, 0.0], eps=0),
]


# ---- The truth ----


def root(value):
    return (Decimal(value.numerator) / Decimal(value.denominator)).sqrt()


def truth(e):
    """Exact y, as Decimals; None where it is NaN. -0 where that is asked for."""
    held = [float(v) for v in e.array()]
    x = [Fraction(v) for v in held]
    w = [Fraction(v) for v in e.weight] or [Fraction(1)] * len(x)
    b = [Fraction(v) for v in e.bias] or [Fraction(0)] * len(x)
    centred = e.op in ("layer", "batch", "group", "instance", "batch_inference")
    mean = Fraction(e.mean) if e.op == "batch_inference" else sum(x) / len(x) if centred else Fraction(0)
    squares = sum((v - mean) ** 2 for v in x)
    square = Fraction(e.variance) if e.op == "batch_inference" else squares if e.op == "lp2" else squares / len(x)
    divisor = root(square + Fraction(e.eps))
    out = []
    for i, v in enumerate(x):
        if divisor == 0:
            out.append(Decimal(0) if e.op == "lp2" else None)
            continue
        numerator = (v - mean) * w[i]
        y = Decimal(numerator.numerator) / Decimal(numerator.denominator) / divisor
        y += Decimal(b[i].numerator) / Decimal(b[i].denominator)
        if y == 0 and not centred and math.copysign(1, held[i]) < 0:
            y = Decimal("-0")
        out.append(y)
    return out


# ---- Those who answer: each gives a list of floats, or raises ----


class Normd:
    def __init__(self, build, target):
        self.normctl = os.path.join(build, "normctl")
        self.target = target

    def answer(self, e, precision):
        with tempfile.TemporaryDirectory() as folder:
            def save(name, values):
                path = os.path.join(folder, name + ".npy")
                np.save(path, values)
                return path

            shape = {"batch": (-1, 1), "batch_inference": (-1, 1), "group": (1, 1, -1), "instance": (1, 1, -1)}.get(
                e.op, (1, -1))
            command = {"layer": "layer-norm", "rms": "rms-norm", "lp2": "lp-norm", "group": "group-norm",
                       "instance": "instance-norm"}.get(e.op, "batch-norm")
            out = os.path.join(folder, "y.npy")
            args = [self.normctl, command, save("x", e.array().reshape(shape)), "-o", out, "--eps", repr(float(e.eps)),
                    "--server", self.target, "--precision", precision]
            if e.op in ("group", "instance"):
                args += ["--layout", "channels-first"]
            if e.op == "group":
                args += ["--num-groups", "1"]
            if e.op == "batch":
                args += ["--training"]
            if e.op == "batch_inference":
                args += ["--running-mean", save("m", np.array([e.mean]))]
                args += ["--running-var", save("v", np.array([e.variance]))]
            if e.weight:
                args += ["--weight", save("w", e.array(e.weight))]
            if e.bias:
                args += ["--bias", save("b", e.array(e.bias))]
            done = subprocess.run(args, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(done.stderr.strip())
            return [float(v) for v in np.load(out).reshape(-1)]


def torch_answer(e):
    import torch
    from torch.nn import functional

    x = torch.from_numpy(e.array())
    w = torch.from_numpy(e.array(e.weight)) if e.weight else None
    b = torch.from_numpy(e.array(e.bias)) if e.bias else None
    n = len(e.x)
    if e.op == "layer":
        y = functional.layer_norm(x.reshape(1, n), (n,), w, b, e.eps)
    elif e.op == "rms":
        y = functional.rms_norm(x.reshape(1, n), (n,), w, e.eps)
    elif e.op == "lp2":
        y = functional.normalize(x.reshape(1, n), p=2, dim=-1)  # its own eps, 1e-12, is a floor of the norm
    elif e.op == "batch":
        y = functional.batch_norm(x.reshape(n, 1), None, None, w, b, True, 0.1, e.eps)
    elif e.op == "batch_inference":
        held = [torch.tensor([v], dtype=x.dtype) for v in (e.mean, e.variance)]
        y = functional.batch_norm(x.reshape(n, 1), held[0], held[1], w, b, False, 0.1, e.eps)
    elif e.op == "group":
        y = functional.group_norm(x.reshape(1, 1, n), 1, w, b, e.eps)
    else:
        y = functional.instance_norm(x.reshape(1, 1, n), eps=e.eps)
    return [float(v) for v in y.reshape(-1)]


def onnx_answer(e):
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    onnxruntime.set_default_logger_severity(4)
    kind = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "f64": TensorProto.DOUBLE}[e.dtype]
    n = len(e.x)
    if e.op == "batch":
        raise NotImplementedError("training is not offered")
    shape = {"group": (1, 1, n), "instance": (1, 1, n), "batch_inference": (n, 1)}.get(e.op, (1, n))
    inputs = {"x": e.array().reshape(shape)}
    parameters = 1 if e.op in ("group", "instance", "batch_inference") else n
    one, zero = e.array(e.weight or [1.0] * parameters), e.array(e.bias or [0.0] * parameters)
    op, attributes = {
        "layer": ("LayerNormalization", {"axis": -1, "epsilon": float(e.eps)}),
        "rms": ("RMSNormalization", {"axis": -1, "epsilon": float(e.eps)}),
        "lp2": ("LpNormalization", {"axis": -1, "p": 2}),
        "group": ("GroupNormalization", {"num_groups": 1, "epsilon": float(e.eps)}),
        "instance": ("InstanceNormalization", {"epsilon": float(e.eps)}),
        "batch_inference": ("BatchNormalization", {"epsilon": float(e.eps)}),
    }[e.op]
    if e.op != "lp2":
        inputs["scale"] = one
    if e.op not in ("lp2", "rms"):
        inputs["bias"] = zero
    if e.op == "batch_inference":
        inputs["mean"], inputs["var"] = e.array([e.mean]), e.array([e.variance])
    graph = helper.make_graph(
        [helper.make_node(op, list(inputs), ["y"], **attributes)], "example",
        [helper.make_tensor_value_info(name, kind, v.shape) for name, v in inputs.items()],
        [helper.make_tensor_value_info("y", kind, inputs["x"].shape)])
    opset = 23 if e.op in ("rms", "group") else 21
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [float(v) for v in session.run(None, inputs)[0].reshape(-1)]


# ---- Judging and printing ----

MANTISSA = {"f32": 23, "f16": 10, "f64": 52}
LOWEST = {"f32": -126, "f16": -14, "f64": -1022}


def error_ulp(e, i, got, want):
    """Error in ulp at max(|y|, |b|, |w|); Inf for what cannot be compared."""
    if want is None:
        return 0 if math.isnan(got) else math.inf
    if not math.isfinite(got):
        return math.inf
    if want == 0 and got == 0:
        return 0 if math.copysign(1, got) == math.copysign(1, want) else math.inf
    scale = max(abs(float(want)), abs(e.bias[i]) if e.bias else 0, abs(e.weight[i]) if e.weight else 1)
    exponent = max(LOWEST[e.dtype], math.frexp(scale)[1] - 1)
    return float(abs(Decimal(got) - want) / Decimal(2) ** (exponent - MANTISSA[e.dtype]))


def show(value):
    if value is None:
        return "NaN"
    if isinstance(value, Decimal):
        value = float(value)
    if math.isnan(value):
        return "NaN"
    return f"{value:.9g}"


def row(e, answers):
    """One line of the table, and whether normd in EXACT is right."""
    want = truth(e)
    got, errors = [], []
    for answer in answers:
        try:
            values = answer(e)
            got.append(values)
            errors.append([error_ulp(e, i, v, w) for i, (v, w) in enumerate(zip(values, want))])
        except Exception as failure:  # a library that lacks the operation, the type or itself
            print(f"{e.title}: {type(failure).__name__}: {str(failure).splitlines()[0][:150]}", file=sys.stderr)
            got.append(None)
            errors.append(None)
    worst = e.at if e.at >= 0 else max(range(len(want)), key=lambda i: max((r[i] for r in errors if r), default=0))
    cells = []
    for values, error in zip(got, errors):
        if values is None:
            cells.append("–")
            continue
        text = show(values[worst])
        cells.append(f"**{text}**" if max(error) > 4 else text)
    line = f"| {e.title} | {show(want[worst])} | " + " | ".join(cells) + " |"
    # EXACT's own, stricter bound is judged by the test suite.
    return line, errors[0] is not None and max(errors[0]) <= 4


class Server:
    def __init__(self, build, folder):
        ports = os.path.join(folder, "ports")
        self.process = subprocess.Popen(
            [os.path.join(build, "normd"), "--listen=127.0.0.1:0", "--admin_listen=", f"--port_file={ports}",
             f"--data_dir={folder}/data", "--log_level=error"])
        deadline = time.monotonic() + 30
        while not os.path.exists(ports):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("normd did not start")
            time.sleep(0.05)
        with open(ports, encoding="utf-8") as lines:
            self.target = next(line.strip().split("=", 1)[1] for line in lines if line.startswith("grpc="))

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def version(name):
    try:
        return __import__(name).__version__
    except ImportError:
        return "missing"


def main():
    root_folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build-dir", default=os.path.join(root_folder, "build/release"))
    parser.add_argument("--server", help="host:port of a running normd")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = None if options.server else Server(options.build_dir, folder)
        try:
            normd = Normd(options.build_dir, options.server or server.target)
            answers = [lambda e: normd.answer(e, "exact"), lambda e: normd.answer(e, "fast"), torch_answer, onnx_answer]
            print(f"PyTorch {version('torch')}, ONNX Runtime {version('onnxruntime')}, CPU ({platform.machine()}), "
                  f"{datetime.date.today()}. Bold is wrong.\n")
            print("| example | true | normd EXACT | normd FAST | PyTorch | ONNX Runtime |\n|---|---|---|---|---|---|")
            right = True
            for e in EXAMPLES:
                line, exact = row(e, answers)
                print(line, flush=True)
                right = right and exact
        finally:
            if server:
                server.stop()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
