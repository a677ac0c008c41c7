"""Kernels for GPUs, a plain RMSNorm and those of Liger, run by Triton's interpreter on the CPU: TRITON_INTERPRET=1."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.runtime.interpreter import TensorHandle  # noqa: E402


@triton.jit
def _rms_norm(x, weight, y, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    mean = tl.sum(values * values, axis=0) / n
    scaled = values / tl.sqrt(mean + eps)
    w = tl.load(weight + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, (scaled * w).to(y.dtype.element_ty), mask=at < n)


def rms_norm(x, weight, eps):
    y = torch.empty_like(x)
    rows, n = x.numel() // x.shape[-1], x.shape[-1]
    _rms_norm[(rows,)](x, weight, y, n, eps, BLOCK=triton.next_power_of_2(n))
    return y


@triton.jit
def _rsqrt(x):
    return tl.rsqrt(x)


def _scalar(value):
    """A float as compiled kernels have it, where the interpreter would leave Python's."""
    return tl.tensor(TensorHandle(np.array([value], np.float32), tl.float32), tl.float32)


def liger_rms_norm(x, weight, eps, offset, casting_mode):
    """Liger's own kernel, but for rsqrt of libdevice, which the interpreter lacks."""
    from liger_kernel.ops import rms_norm as liger

    liger.rsqrt = _rsqrt
    return liger.LigerRMSNormFunction.apply(x, weight, _scalar(eps), _scalar(offset), casting_mode, False)


def liger_layer_norm(x, weight, bias, eps):
    from liger_kernel.ops import layer_norm as liger

    liger.rsqrt = _rsqrt
    return liger.LigerLayerNormFunction.apply(x, weight, bias, _scalar(eps))
