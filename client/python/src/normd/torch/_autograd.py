"""A served forward pass with a local backward pass.

In the path: between normd.torch.functional and the client. The service computes y; it has no backward pass. Gradients
are computed here, by PyTorch, from the saved x: autograd differentiates PyTorch's own version of the same function, as
often as it is asked to.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, List, Optional, Sequence, Tuple, Type, TypeVar

import torch
from torch import Tensor, overrides
from torch.autograd import forward_ad

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Operand = Optional[Tensor]
# y of (x, weight, bias).
Norm = Callable[[Tensor, Operand, Operand], Tensor]

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def apply(serve: Norm, local: Norm, x: Tensor, weight: Operand, bias: Operand) -> Tensor:
    """serve(x, weight, bias), differentiable with the gradients of `local`, which computes the same y with PyTorch.

    Raises:
      TypeError: x is no tensor of a floating-point dtype that normd has, or is sparse, quantised or nested.
      ValueError: a tensor is not on the CPU.
      RuntimeError: torch.jit.trace, torch.export, torch.func.vmap or a forward-mode derivative is at work, which would
        record this call's y as a constant or see nothing of it.
    """
    check(x=x, weight=weight, bias=bias)
    given = [one for one in (x, weight, bias) if one is not None]
    if overrides.has_torch_function(given):  # a subclass of Tensor: y is to be one, too
        of_kind: Tensor = overrides.handle_torch_function(apply, given, serve, local, x, weight, bias)
        return of_kind
    needs_grad = torch.is_grad_enabled() and any(one.requires_grad for one in given)
    if needs_grad or any(is_transformed(one) for one in given):
        y: Tensor = _Served.apply(serve, local, x, weight, bias)
        return y
    return serve(x, weight, bias)


# torch.compile(fullgraph=True) raises an error that has this name, and nothing else of ours.
def _service_call_which_needs_fullgraph_False(function: Callable[..., T], *args: Any, **options: Any) -> T:
    return function(*args, **options)


# torch.compiler.disable would import the compiler here, two seconds for everybody; this imports it when it is called,
# and then it is there already. PyTorch before 2.0 has no compiler.
_disable: Callable[..., Any] = getattr(torch, "_disable_dynamo", lambda function: function)
_call_uncompiled = _disable(_service_call_which_needs_fullgraph_False)
_is_tracing: Callable[[], bool] = getattr(torch.jit, "is_tracing")  # not among the names that torch.jit declares
_compiler = getattr(torch, "compiler", None)
_is_compiling: Callable[[], bool] = getattr(_compiler, "is_compiling", lambda: False)
_is_exporting: Callable[[], bool] = getattr(_compiler, "is_exporting", lambda: False)


def outside_of_graphs(function: F) -> F:
    """Decorates `function`: torch.compile breaks its graph there instead of tracing the client."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if _is_compiling():
            return _call_uncompiled(function, *args, **options)
        return function(*args, **options)

    return call  # type: ignore[return-value]


# What torch.func wraps tensors in. PyTorch before 2.0 has it in a package of its own, which takes no such functions.
_functorch = getattr(torch._C, "_functorch", None)
_is_batched: Callable[[Tensor], bool] = getattr(_functorch, "is_batchedtensor", lambda tensor: False)
_unpack_dual: Callable[[Tensor], Any] = getattr(forward_ad, "unpack_dual")
_is_differentiated: Callable[[Tensor], bool] = getattr(_functorch, "is_gradtrackingtensor", lambda tensor: False)

VMAP = (
    "torch.func.vmap cannot go through a call of a service, which has no batching rule: pass the whole batch, or use "
    "vmap after normd.torch.restore(model)"
)


def is_transformed(tensor: Tensor) -> bool:
    """True inside torch.func.grad, vjp, vmap and their like."""
    return _is_batched(tensor) or _is_differentiated(tensor)


def check(x: Tensor, **others: Operand) -> None:
    """Raises what `apply` says unless all of these can be served."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"normd.torch normalises tensors, not {type(x).__name__} (symbolic tracing cannot go through a call of a "
            "service: trace the model that normd.torch.restore returns it to)"
        )
    if _is_tracing() or _is_exporting() or _is_making_fx():
        raise RuntimeError(
            "torch.jit.trace, torch.export and make_fx would record what the service answers now as a constant: use "
            "them after normd.torch.restore(model)"
        )
    if _has_no_values(x):
        raise RuntimeError(
            f"x is a {type(x).__name__}, which has no values to send: trace with it after normd.torch.restore(model)"
        )
    for name, one in (("x", x), *others.items()):
        if one is not None:
            _check_one(name, one)
    if x.dtype not in DTYPES or x.layout != torch.strided or getattr(x, "is_nested", False):
        kind = "nested" if getattr(x, "is_nested", False) else f"{x.layout} {x.dtype}"
        raise TypeError(f"x is {kind}; normd.torch serves dense float32, float16, bfloat16 and float64 tensors")


def _check_one(name: str, one: Tensor) -> None:
    if one.device.type != "cpu":
        raise ValueError(f"{name} is on {one.device}; normd.torch serves tensors on the CPU: pass {name}.cpu()")
    if _is_batched(one):
        raise RuntimeError(VMAP)
    if getattr(forward_ad, "_current_level", -1) >= 0 and _unpack_dual(one).tangent is not None:
        raise RuntimeError(
            f"{name} has a tangent; normd.torch has gradients in reverse mode alone: use torch.func.grad or vjp, or "
            "normd.torch.restore(model) first"
        )


def _is_making_fx() -> bool:
    tracer = sys.modules.get("torch.fx.experimental.proxy_tensor")  # not imported for this: whoever traces has it
    return getattr(tracer, "get_proxy_mode", lambda: None)() is not None


def _has_no_values(x: Tensor) -> bool:
    """True for what tracers of PyTorch 2 pass through a model: FakeTensor, FunctionalTensor, and symbolic proxies."""
    return type(x).__module__.startswith(("torch._subclasses.", "torch.fx."))


def as_function(kind: Type[T]) -> Type[T]:
    """A torch.autograd.Function whose forward takes no ctx, and which has a setup_context, for any PyTorch.

    torch.func needs the two apart; PyTorch before 2.0 knows them together alone.
    """
    if not hasattr(torch.autograd.Function, "setup_context"):
        forward = getattr(kind, "forward")

        def both(ctx: Any, *inputs: Any) -> Any:
            output = forward(*inputs)
            getattr(kind, "setup_context")(ctx, inputs, output)
            return output

        setattr(kind, "forward", staticmethod(both))
    return kind


@as_function
class _Served(torch.autograd.Function):
    @staticmethod
    def forward(serve: Norm, local: Norm, x: Tensor, weight: Operand, bias: Operand) -> Tensor:
        return serve(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        ctx.local = inputs[1]
        ctx.save_for_backward(*inputs[2:])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        raise RuntimeError(VMAP)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return (None, None, *_gradients(ctx.local, ctx.saved_tensors, ctx.needs_input_grad[2:], dy))


def _gradients(local: Norm, saved: Sequence[Operand], needs: Sequence[bool], dy: Tensor) -> List[Operand]:
    """Those of local(*saved) that are needed, None for the others."""
    assert saved[0] is not None
    wide = torch.promote_types(saved[0].dtype, torch.float32)  # PyTorch has no f16 kernels of norms on every CPU
    inputs = [one if one is None else one.to(wide) for one in saved]
    needed = [at for at, need in enumerate(needs) if need]

    def y_of(*values: Tensor) -> Tensor:
        arguments = list(inputs)
        for at, value in zip(needed, values):
            arguments[at] = value
        return local(*arguments)  # type: ignore[arg-type]

    # Each by itself, though one may be computed from another.
    at_hand = [inputs[at].view_as(inputs[at]) for at in needed]  # type: ignore[union-attr, arg-type]
    if any(one is not None and is_transformed(one) for one in (dy, *saved)):
        found = torch.func.vjp(y_of, *at_hand)[1](dy.to(wide))
    elif torch.is_grad_enabled():  # create_graph=True: these gradients may be differentiated themselves
        found = torch.autograd.grad(y_of(*at_hand), at_hand, dy.to(wide), create_graph=True)
    else:
        at_hand = [one.detach().requires_grad_() for one in at_hand]
        with torch.enable_grad():
            y = y_of(*at_hand)
        found = torch.autograd.grad(y, at_hand, dy.to(wide))
    gradients: List[Operand] = [None, None, None]
    for at, gradient in zip(needed, found):
        gradients[at] = gradient.to(saved[at].dtype)  # type: ignore[union-attr]
    return gradients
