"""Unmodified frameworks under the plugin, on the CPU: torch, jax, ONNX Runtime and a kernel in Triton's interpreter.

    tests/kernels/python/run.sh --frameworks      # an environment of 6 GB

On ordinary data every implementation is held to a limit; what it makes of hard inputs is written into the table that the
run ends with. Errors count in ulp at the root mean square of y, where elements near 0 have errors of the others.
"""

import json
import os

import numpy as np
import pytest

import normd_golden as g
from normd_golden.cases import make_cases

EPS = float(np.float32(1e-5))
SHAPE = (64, 512)
LAYER, RMS, LP = g.LayerNorm(SHAPE[-1], eps=EPS), g.RMSNorm(SHAPE[-1], eps=EPS), g.LpNorm(2, -1, eps=1e-12)


def torch_tensors(case):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch, case.torch()


def torch_layer(case):
    torch, (x, weight, bias) = torch_tensors(case)
    return torch.nn.functional.layer_norm(x, SHAPE[-1:], weight, bias, EPS)


def torch_rms(case):
    torch, (x, weight, _) = torch_tensors(case)
    return torch.nn.functional.rms_norm(x, SHAPE[-1:], weight, EPS)


def torch_lp(case):
    torch, (x, _, _) = torch_tensors(case)
    return torch.nn.functional.normalize(x, 2.0, -1, 1e-12)


def onnx_node(operator):
    def run(case):
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
        from normd_golden.audit import onnx_norms

        given = {"x": case.x, "w": case.weight, "b": case.bias}
        inputs = {name: np.ascontiguousarray(one) for name, one in given.items() if one is not None}
        return onnx_norms.runtime(onnx_norms.model(operator, inputs, {"axis": -1, "epsilon": EPS}), inputs)[0]

    return run


def jax_standardize(case):
    """jax.nn.standardize is LayerNorm without parameters; a user multiplies and adds."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    return jax.jit(lambda x, w, b: jax.nn.standardize(x, axis=-1, epsilon=EPS) * w + b)(case.x, case.weight, case.bias)


def jax_rms(case):
    """As most models of jax have it: in float32, rounded before the weight."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    np_ = jax.numpy

    def rms(x, weight):
        wide = x.astype(np_.float32)
        return (wide * jax.lax.rsqrt(np_.mean(wide * wide, -1, keepdims=True) + EPS)).astype(x.dtype) * weight

    return jax.jit(rms)(case.x, case.weight)


def triton_rms(case):
    """A row a program, in float32, as the kernels of Liger and vLLM have it."""
    torch, (x, weight, _) = torch_tensors(case)
    pytest.importorskip("triton", reason="triton is not installed")
    import triton_kernels

    return triton_kernels.rms_norm(x.contiguous(), weight, EPS)


# framework, operator, spec, how it is called, types, the limits on ordinary data in ulp
TYPES = ("float32", "float16", "bfloat16")
RUNS = [
    ("torch", "layer_norm", LAYER, torch_layer, TYPES, 8),
    ("torch", "rms_norm", RMS, torch_rms, TYPES, 8),
    ("torch", "normalize", LP, torch_lp, TYPES, 8),
    ("ONNX Runtime", "LayerNormalization", LAYER, onnx_node("LayerNormalization"), TYPES[:2], 8),
    ("ONNX Runtime", "RMSNormalization", RMS, onnx_node("RMSNormalization"), TYPES[:2], 8),
    ("jax", "nn.standardize * w + b", LAYER, jax_standardize, TYPES, 16),
    ("jax", "RMSNorm, rounded before w", RMS, jax_rms, TYPES, 8),
    ("Triton's interpreter", "RMSNorm, a row a program", RMS, triton_rms, TYPES, 8),
]
CASES = [
    pytest.param(framework, operator, call, limit, case, id=f"{framework}-{operator}-{case.name}")
    for framework, operator, spec, call, types, limit in RUNS
    for case in make_cases(spec, types, (SHAPE,), True, spec is LAYER)
]


def rms_of(case):
    y = np.asarray(g.normalize(*case.args).y, np.float64)
    finite = y[np.isfinite(y)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("framework, operator, call, limit, case", CASES)
def test_a_framework(framework, operator, call, limit, case, golden, record_property):
    y = call(case)
    record_property("framework", json.dumps([framework, operator, case.kind]))
    if case.kind == "normal":
        golden.assert_norm(y, *case.args, max_ulp=limit, floor=rms_of(case))
    else:
        golden.check(y, *case.args, floor=rms_of(case))


def test_nothing_was_left_out():
    """A run that should have the frameworks has them."""
    if os.environ.get("NORMD_GOLDEN_FRAMEWORKS") != "1":
        pytest.skip("run.sh --frameworks has the frameworks")
    for name in ("jax", "liger_kernel", "onnxruntime", "torch", "transformers", "triton"):
        __import__(name)
