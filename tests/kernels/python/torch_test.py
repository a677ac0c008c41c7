"""Tensors of torch, and what torch's own norms are. Skipped where torch is not installed: run.sh --torch has it."""

import numpy as np
import pytest
from conftest import normal

import normd_golden as golden
from normd_golden import cases, testing

torch = pytest.importorskip("torch", reason="torch is not installed here; run.sh --torch has it")
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_result_is_a_tensor_like_x(dtype):
    x = torch.from_numpy(normal((4, 32))).to(dtype)
    y = golden.layer_norm(x, 32)
    assert isinstance(y, torch.Tensor) and y.dtype == dtype and y.shape == x.shape
    wide = torch.nn.functional.layer_norm(x.double(), (32,))
    assert (y.double() - wide).abs().max() <= torch.finfo(dtype).eps * 2


def test_tensors_of_any_stride_and_with_gradients():
    x = torch.from_numpy(normal((32, 6))).t().requires_grad_()
    np.testing.assert_array_equal(golden.rms_norm(x).numpy(), golden.rms_norm(x.detach().numpy().copy()))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_layer_norm_of_torch_is_layer_norm(dtype):
    x, w, b = (torch.from_numpy(normal(shape, seed=seed)).to(dtype) for seed, shape in enumerate([(16, 256), 256, 256]))
    y = torch.nn.functional.layer_norm(x, (256,), w, b)
    report = golden.check(y, golden.LayerNorm(256), x, w, b, floor=1.0)
    assert report.max_ulp < 4
    if dtype == torch.bfloat16:
        assert report.variants[0].differences == ()


def test_the_modules_of_transformers_as_they_are_written():
    x, w = (torch.from_numpy(normal(shape, seed=seed)).bfloat16() for seed, shape in ((1, (16, 256)), (2, (256,))))
    wide = x.float()
    n = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    llama, gemma = w * n.to(x.dtype), (n * (1.0 + w.float())).type_as(x)
    spec = golden.RMSNorm(eps=1e-6)
    assert golden.check(llama, spec, x, w).variants[0].differences == ("CAST_THEN_AFFINE",)
    assert golden.check(gemma, spec, x, w).variants[0].differences == ("1 added to the weight",)
    assert golden.check(gemma, golden.RMSNorm(eps=1e-6, weight_offset=1), x, w).nearest > 0.99


def test_a_case_gives_tensors():
    for kind, made in ((case.kind, case) for case in cases.make_cases("rms_norm", ("float32",), ((4, 8),))):
        x, weight, bias = made.torch()
        assert bias is None and weight.shape == (8,)
        assert x.is_contiguous() == (kind != "strided")
        np.testing.assert_array_equal(x.numpy(), made.x)


X = torch.ones(2, 8)
OTHERS = [
    (lambda: X.to("meta"), TypeError, "x lies on the device meta, which has no elements"),
    (lambda: X.bfloat16().reshape((1,) * 8 + (16,)), ValueError, "x has rank 9; at most 8 is possible"),
    (lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), TypeError, "x is quantized (torch.qint8); give a"),
    (X.to_sparse, TypeError, "x is sparse (torch.sparse_coo); give a dense tensor"),
    (lambda: X.int(), TypeError, "x has dtype int32; float32, float16"),
]
if hasattr(torch, "float8_e5m2"):
    OTHERS.append((lambda: X.to(torch.float8_e5m2), TypeError, "x has dtype torch.float8_e5m2; float32, float16"))
if hasattr(torch, "nested_tensor") or hasattr(torch, "nested"):
    nested = torch.nested.nested_tensor if hasattr(torch.nested, "nested_tensor") else torch.nested_tensor
    OTHERS.append((lambda: nested([X, X]), TypeError, "x is a nested tensor; give a dense one"))


@pytest.mark.parametrize("make, error, sentence", OTHERS)
def test_a_tensor_of_another_kind_is_refused(make, error, sentence):
    with pytest.raises(error) as caught:
        golden.normalize("rms_norm", make())
    assert str(caught.value).startswith(sentence)


def test_rows_of_torch_are_batched_otherwise():
    x = torch.from_numpy(normal((6, 8)))
    testing.batch_invariant(lambda rows: rows * 0.5, x)
    with pytest.raises(AssertionError, match="in reverse order"):
        testing.batch_invariant(lambda rows: rows - rows[:1], x, splits=[])
