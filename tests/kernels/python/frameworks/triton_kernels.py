"""RMSNorm as kernels for GPUs are written, run by Triton's interpreter on the CPU: set TRITON_INTERPRET=1 before."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402


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
