"""RMSNorms and LayerNorms that a model defines for itself, as language models do, computed by the service.

In the path: replacing.py, for `replace(model, classes=...)`. Such a class may add 1 to its weight, or round before it
multiplies by it, and its code does not say so in a way that can be read. So it is found out: each module computes an
example by itself, and is served as that operator whose y is nearest, if one is near enough.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any, Dict, NamedTuple, Type

import torch
from torch import Tensor

import normd
from normd.torch import _autograd, functional, layers
from normd.torch._autograd import Operand
from normd.torch._module import Served

_EPS_NAMES = ("eps", "variance_epsilon", "epsilon", "layer_norm_eps")
# How far the example's y may be from the module's own, in units of bfloat16's last place at 4: what rounding explains.
_NEAR = 2.0**-6


class Way(NamedTuple):
    """How a class of its own computes."""

    kind: str  # "rms_norm" or "layer_norm"
    eps: str  # the attribute that holds eps
    weight_offset: float
    cast_order: str


class Foreign(Served):
    """Base, beside a model's own class, of its modules that are served."""

    SERVED: Dict[str, Any] = {**Served.SERVED, "_way": None}

    _way: Any = None

    def _serve(self, input: Tensor) -> Tensor:
        return _serve(self, self._way, input, self.client)

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        clone = super().__deepcopy__(memo)
        clone._way = self._way
        return clone

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"a served {type(self).__name__} cannot be pickled: use its state_dict, or normd.torch.restore(model) first"
        )


def _serve(module: Any, way: Way, x: Tensor, client: Any) -> Tensor:
    weight, bias, eps = module.weight, getattr(module, "bias", None), getattr(module, way.eps)
    _autograd.check(x, weight=weight, bias=bias)
    if weight.dtype != x.dtype:
        raise TypeError(
            f"x is {x.dtype} and weight {weight.dtype}; a served {type(module).__name__} needs one type: convert x or "
            "the module, or normd.torch.restore(model)"
        )
    shape = tuple(weight.shape)
    make = normd.RMSNorm if way.kind == "rms_norm" else normd.LayerNorm
    spec = make(shape, eps=eps, cast_order=way.cast_order, weight_offset=way.weight_offset)

    def local(x: Tensor, w: Operand, b: Operand) -> Tensor:
        assert w is not None
        if way.kind == "layer_norm":
            return torch.nn.functional.layer_norm(x, shape, w + way.weight_offset, b, eps)
        return functional.local_rms_norm(x, shape, w + way.weight_offset, eps)

    return _autograd.apply(functional.stateless(client, spec), local, x, weight, bias)


_made: Dict[Type[Any], Type[Any]] = {}


def served_class(kind: Type[Any]) -> Type[Any]:
    """The class that serves modules of the model's class `kind`."""
    if kind not in _made:
        _made[kind] = type(kind.__name__, (Foreign, kind), {"__module__": kind.__module__, "LOCAL": kind})
    return _made[kind]


def find_way(name: str, module: Any, like: Type[Any], client: Any) -> Way:
    """How `module` computes. TypeError, ValueError where it is not what `like` is, so that nothing else is computed."""
    kinds = {layers.RMSNorm: "rms_norm", layers.LayerNorm: "layer_norm"}
    if like not in kinds:
        raise TypeError(f"classes: {like.__name__} is no class to serve others as; RMSNorm and LayerNorm are")
    eps = next((one for one in _EPS_NAMES if isinstance(getattr(module, one, None), float)), None)
    weight = getattr(module, "weight", None)
    if eps is None or not isinstance(weight, Tensor) or weight.device.type != "cpu":
        raise ValueError(
            f"{name!r}, a {type(module).__name__}, cannot be served: it needs a weight on the CPU, and eps as one of "
            f"{', '.join(_EPS_NAMES)}"
        )
    # Rounding is seen in bfloat16, and the weights, which may be all 1, do not hide an offset.
    example = copy.deepcopy(module).bfloat16().eval()
    generator = torch.Generator().manual_seed(1)
    x = (torch.randn((64, *weight.shape), generator=generator) + 0.5).bfloat16()
    with torch.no_grad():
        for one in example.parameters():
            one.copy_(torch.rand(one.shape, generator=generator) + 0.25)
        expected = example(x)
        orders = ("affine_then_cast", "cast_then_affine")
        ways = [Way(kinds[like], eps, *rest) for rest in itertools.product((0.0, 1.0), orders)]
        errors = [_error(_serve(example, way, x, client), expected) for way in ways]
    if min(errors) > _NEAR:
        raise ValueError(
            f"{name!r}, a {type(module).__name__}, does not compute what {like.__name__} does: its y differs by "
            f"{min(errors):.2g} in an example, and would if it were served"
        )
    return ways[errors.index(min(errors))]


def _error(y: Tensor, expected: Any) -> float:
    """The mean of the differences, so that the rounding of most elements decides; inf for something else than y."""
    if not isinstance(expected, Tensor) or expected.shape != y.shape:
        return float("inf")
    difference = (y.double() - expected.double()).abs()
    return float(difference.max()) if float(difference.max()) > 4 * _NEAR else float(difference.mean())
