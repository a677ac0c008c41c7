"""A served forward pass with a local backward pass.

In the path: between normd.torch.functional and the client. The service computes y; it has no backward pass. Gradients
are computed here, by PyTorch, from the saved x: autograd differentiates PyTorch's own version of the same function.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

T = TypeVar("T")
Operand = Optional[Tensor]
# y of (x, weight, bias).
Norm = Callable[[Tensor, Operand, Operand], Tensor]

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def apply(serve: Norm, local: Norm, x: Tensor, weight: Operand, bias: Operand) -> Tensor:
    """serve(x, weight, bias), differentiable with the gradients of `local`, which computes the same y with PyTorch.

    Raises:
      TypeError: x is no tensor of a floating-point dtype that normd has, or is sparse, quantised or nested.
      ValueError: a tensor is not on the CPU.
      RuntimeError: torch.jit.trace or torch.export is running, which would record this call's y as a constant.
    """
    return outside_of_graphs(_apply, serve, local, x, weight, bias)


def _apply(serve: Norm, local: Norm, x: Tensor, weight: Operand, bias: Operand) -> Tensor:
    _check(x, weight, bias)
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, weight, bias)):
        y: Tensor = _Served.apply(serve, local, x, weight, bias)
        return y
    return serve(x, weight, bias)


def _call(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


# torch.compiler.disable would import the compiler here, two seconds for everybody; this imports it when it is called,
# and then it is there already. PyTorch before 2.0 has no compiler.
_call_uncompiled: Callable[..., Any] = getattr(torch, "_disable_dynamo", lambda function: function)(_call)
_is_tracing: Callable[[], bool] = getattr(torch.jit, "is_tracing")  # not among the names that torch.jit declares
_compiler = getattr(torch, "compiler", None)
_is_compiling: Callable[[], bool] = getattr(_compiler, "is_compiling", lambda: False)
_is_exporting: Callable[[], bool] = getattr(_compiler, "is_exporting", lambda: False)


def outside_of_graphs(function: Callable[..., T], *args: Any) -> T:
    """function(*args); torch.compile breaks its graph there instead of tracing the client."""
    if _is_compiling():
        result: T = _call_uncompiled(function, *args)
        return result
    return function(*args)


def _check(x: Tensor, weight: Operand, bias: Operand) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(
            f"normd.torch normalises tensors, not {type(x).__name__} (symbolic tracing cannot go through a call of a "
            "service: trace the model that normd.torch.restore returns it to)"
        )
    if _is_tracing() or _is_exporting():
        raise RuntimeError(
            "torch.jit.trace and torch.export would record what the service answers now as a constant: use them after "
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
        wanted = [one for one, need in zip(inputs, needs) if need and one is not None]
        found = iter(torch.autograd.grad(y, wanted, dy.to(wide)))
        grads = [next(found).to(one.dtype) if need else None for one, need in zip(saved, needs)]
        return (None, None, *grads)
