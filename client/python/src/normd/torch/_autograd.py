"""A served forward pass with a local backward pass.

In the path: between normd.torch.functional and the client. The service computes y; it has no backward pass. Gradients
are computed here, by PyTorch, from the saved x: autograd differentiates PyTorch's own version of the same function.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Operand = Optional[Tensor]
# y of (x, weight, bias).
Norm = Callable[[Tensor, Operand, Operand], Tensor]

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def apply(serve: Norm, local: Norm, x: Tensor, weight: Operand, bias: Operand) -> Tensor:
    """serve(x, weight, bias), differentiable with the gradients of `local`, which computes the same y with PyTorch.

    Raises:
      TypeError: x is no tensor of a floating-point dtype that normd has, or is sparse, quantised or nested.
      ValueError: a tensor is not on the CPU.
      RuntimeError: torch.jit.trace is running, which would record this call's y as a constant.
    """
    _check(x, weight, bias)
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, weight, bias)):
        y: Tensor = _Served.apply(serve, local, x, weight, bias)
        return y
    return serve(x, weight, bias)


def _check(x: Tensor, weight: Operand, bias: Operand) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(
            f"normd.torch normalises tensors, not {type(x).__name__} (symbolic tracing cannot go through a call of a "
            "service: trace the model that normd.torch.restore returns it to)"
        )
    if torch.jit.is_tracing():
        raise RuntimeError(
            "torch.jit.trace would record what the service answers now as a constant: trace the model after "
            "normd.torch.restore(model)"
        )
    for name, one in (("x", x), ("weight", weight), ("bias", bias)):
        if one is not None and one.device.type != "cpu":
            raise ValueError(f"{name} is on {one.device}; normd.torch serves tensors on the CPU: pass {name}.cpu()")
    if x.dtype not in DTYPES or x.layout != torch.strided or getattr(x, "is_nested", False):
        kind = "nested" if getattr(x, "is_nested", False) else f"{x.layout} {x.dtype}"
        raise TypeError(f"x is {kind}; normd.torch serves dense float32, float16, bfloat16 and float64 tensors")


class _Served(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, serve: Norm, local: Norm, x: Tensor, weight: Operand, bias: Operand) -> Tensor:
        ctx.local = local
        ctx.save_for_backward(x, weight, bias)
        return serve(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        saved = ctx.saved_tensors
        needs = ctx.needs_input_grad[2:]
        wide = torch.promote_types(saved[0].dtype, torch.float32)  # PyTorch has no f16 kernels of norms on every CPU
        with torch.enable_grad():
            inputs = [
                None if one is None else one.detach().to(wide).requires_grad_(need) for one, need in zip(saved, needs)
            ]
            y = ctx.local(*inputs)
        wanted = [one for one, need in zip(inputs, needs) if need]
        found = iter(torch.autograd.grad(y, wanted, dy.to(wide)))
        # The copies above hide from autograd in which dtype the caller has each of them.
        grads = [next(found).to(one.dtype) if need else None for one, need in zip(saved, needs)]
        return (None, None, *grads)
