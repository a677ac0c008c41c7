"""Known implementations, unmodified, on the CPU: the spec that kernels/python/README.md names for each is what fits.

In float16 and bfloat16, where a kernel that calculates in float32 gives next to all of its variant's values. Liger's
kernels run in Triton's interpreter, which cuts bfloat16 off instead of rounding it; oneDNN has no float16 here.
"""

import importlib
import pathlib
import re

import ml_dtypes
import numpy as np
import pytest

import normd_golden as g

torch = pytest.importorskip("torch", reason="torch is not installed")
ROOT = pathlib.Path(__file__).resolve().parents[4]
N, EPS = 512, 1e-6
CAST = "cast_then_affine"
LLAMA, GEMMA = g.RMSNorm(eps=EPS, cast_order=CAST), g.RMSNorm(eps=EPS, weight_offset=1)
LAYER = g.LayerNorm(N, eps=EPS)
F16, BF16 = torch.float16, torch.bfloat16


def of_transformers(model, name):
    """A module of transformers with x and weight as its own."""

    def run(x, weight, bias):
        found = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
        module = getattr(found, name)(N, eps=EPS).to(x.dtype)
        with torch.no_grad():
            module.weight.copy_(weight)
            return module(x)

    return run


def of_liger(offset, casting_mode):
    def run(x, weight, bias):
        import triton_kernels

        return triton_kernels.liger_rms_norm(x, weight, EPS, offset, casting_mode)

    return run


def liger_layer_norm(x, weight, bias):
    import triton_kernels

    return triton_kernels.liger_layer_norm(x, weight, bias, EPS)


def onednn_layer_norm(x, weight, bias):
    import onednn

    words = x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    y = onednn.layer_norm(words, weight.float().numpy(), bias.float().numpy(), EPS)
    return torch.from_numpy(y.view(np.int16)).view(torch.bfloat16)


def onednn_batch_norm(x, weight, bias):
    """By way of torch, which asks oneDNN for it and takes images alone."""
    images, running = x[..., None, None].to_mkldnn(), (torch.zeros(N), torch.ones(N))
    y = torch.nn.functional.batch_norm(images, *running, weight.float(), bias.float(), training=True, eps=EPS)
    return y.to_dense(x.dtype).reshape(x.shape)


# name, the spec of the page, how it is called, types
IMPLEMENTATIONS = [
    *((f"transformers {name}", LLAMA, of_transformers(model, name), (F16, BF16)) for model, name in (
        ("llama", "LlamaRMSNorm"), ("mistral", "MistralRMSNorm"), ("qwen2", "Qwen2RMSNorm"), ("t5", "T5LayerNorm"))),
    *((f"transformers {name}", GEMMA, of_transformers(model, name), (F16, BF16)) for model, name in (
        ("gemma", "GemmaRMSNorm"), ("gemma2", "Gemma2RMSNorm"), ("gemma3", "Gemma3RMSNorm"))),
    ("Liger rms_norm, llama", LLAMA, of_liger(0.0, "llama"), (F16,)),
    ("Liger rms_norm, gemma", GEMMA, of_liger(1.0, "gemma"), (F16,)),
    ("Liger layer_norm", LAYER, liger_layer_norm, (F16,)),
    ("torch layer_norm", LAYER, lambda x, w, b: torch.nn.functional.layer_norm(x, (N,), w, b, EPS), (F16, BF16)),
    ("torch rms_norm", g.RMSNorm(eps=EPS), lambda x, w, b: torch.nn.functional.rms_norm(x, (N,), w, EPS), (F16, BF16)),
    ("oneDNN LayerNormalization", LAYER, onednn_layer_norm, (BF16,)),
    ("oneDNN BatchNormalization", g.BatchNorm(eps=EPS), onednn_batch_norm, (BF16,)),
]  # fmt: skip


def normal(seed, shape, dtype, around=0.0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (around + scale * torch.randn(shape, generator=generator)).to(dtype)


def inputs(spec, dtype):
    """x, weight and bias; the weight is around 1 with what is added to it, and RMSNorm has no bias."""
    weight = normal(2, N, dtype, around=1 - spec.weight_offset, scale=0.2)
    return normal(1, (64, N), dtype), weight, None if isinstance(spec, g.RMSNorm) else normal(3, N, dtype)


@pytest.mark.parametrize("name, spec, call, dtype", [
    pytest.param(name, spec, call, dtype, id=f"{name}-{dtype}")
    for name, spec, call, dtypes in IMPLEMENTATIONS for dtype in dtypes
])  # fmt: skip
def test_the_spec_of_the_page_fits(name, spec, call, dtype, record_property):
    x, weight, bias = inputs(spec, dtype)
    best = g.check(call(x, weight, bias), spec, x, weight, bias).variants[0]
    record_property("variant", f"{name} {str(dtype)[6:]}: {spec} {100 * best.nearest:.4g} %")
    assert best.differences == ()
    assert best.nearest > 0.999


def test_liger_without_casts_rounds_on_the_way():
    x, weight, _ = inputs(g.RMSNorm(), F16)
    report = g.check(of_liger(0.0, "none")(x, weight, None), g.RMSNorm(eps=EPS), x, weight)
    assert "rounds to float16 on the way" in report.variant


LAYER_5, RMS_5 = g.LayerNorm(N, eps=float(np.float32(1e-5))), g.RMSNorm(eps=float(np.float32(1e-5)))


def onnx_node(operator, spec, runner, has_skip=False, scale=0.01):
    """y of a node in float16, and the arguments of golden.check for it."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from normd_golden.audit import onnx_norms

    given = inputs(spec, F16)
    x, w, b = (None if one is None else one.numpy() for one in given)
    x, skip = x * np.float16(scale), normal(4, x.shape, F16, scale=scale).numpy() if has_skip else None
    named = {name: one for name, one in (("x", x), ("skip", skip), ("w", w), ("b", b)) if one is not None}
    attributes, domain = ({}, "com.microsoft") if has_skip else ({"axis": -1}, "")
    model = onnx_norms.model(operator, named, {"epsilon": 1e-5, **attributes}, domain)
    y = getattr(onnx_norms, runner)(model, named)[0]
    return y, (spec, x, w, b), {"residual": skip, "residual_rounding": "keep_wide"} if has_skip else {}


@pytest.mark.parametrize("operator, spec, has_skip", [
    ("LayerNormalization", LAYER_5, False), ("RMSNormalization", RMS_5, False),
    ("SkipLayerNormalization", LAYER_5, True), ("SkipSimplifiedLayerNormalization", RMS_5, True),
])  # fmt: skip
def test_onnx_runtime(operator, spec, has_skip, record_property):
    y, arguments, rest = onnx_node(operator, spec, "runtime", has_skip)
    fits = g.check(y, *arguments, **rest).variants
    rounded = next((one for one in fits if one.differences == ("the residual sum rounded first",)), None)
    beside = f", {100 * rounded.nearest:.4g} % with the residual sum rounded first" if rounded else ""
    record_property("variant", f"ONNX Runtime {operator} float16: {spec} {100 * fits[0].nearest:.4g} %{beside}")
    assert fits[0].differences == ()
    assert fits[0].nearest > 0.998


@pytest.mark.parametrize("operator, spec", [("LayerNormalization", LAYER_5), ("RMSNormalization", RMS_5)])
def test_the_reference_of_onnx_rounds_on_the_way(operator, spec, record_property):
    y, arguments, _ = onnx_node(operator, spec, "reference")
    report = g.check(y, *arguments)
    record_property("variant", f"onnx reference {operator} float16: {report.variant}")
    assert "rounds to float16 on the way" in report.variant


def test_the_reference_of_onnx_squares_in_float16():
    y, arguments, _ = onnx_node("RMSNormalization", RMS_5, "reference", scale=300)
    assert not y.any() and "squares in float16" in g.check(y, *arguments).variant


def test_the_pages_test_of_a_triton_kernel(pytester, monkeypatch):
    pytest.importorskip("triton", reason="triton is not installed")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    page = (ROOT / "kernels/python/README.md").read_text(encoding="utf-8")
    (block,) = (block for block in re.findall(r"```py\n(.*?)```", page, re.DOTALL) if "my_kernels" in block)
    pytester.makepyfile(block.replace("my_kernels", "triton_kernels"))
    result = pytester.runpytest_inprocess("-p", "normd_golden.pytest_plugin", "-W", "ignore::RuntimeWarning")
    result.assert_outcomes(passed=2 * (9 + 11), skipped=2 * (2 + 1))
