"""The norms of torch.nn.functional, computed by the service: same names, arguments and defaults, and `client`.

    import normd.torch.functional as F

    y = F.layer_norm(x, (768,), weight, bias)          # the default client
    y = F.group_norm(x, 32, client=normd.connect("gpu-host:8001"))

x is a tensor on the CPU of dtype float32, float16, bfloat16 or float64; y has its dtype and shape, and its elements
are the values of the dtype nearest to the exact ones. Contiguous tensors, and channels_last ones of 4 or 5 dimensions, are not copied on the
way to the client. Gradients flow to x, weight and bias: PyTorch computes them locally, see `normd.torch`.

All functions raise TypeError or ValueError for tensors that are not served (another dtype, another device), and
`normd.Error` for what the server refuses: `normd.InvalidArgument`, which is a ValueError, names field, value and limit.
"""

from __future__ import annotations

import math
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.nn.functional
from torch import Tensor

import normd
from normd._core import Moments
from normd.specs import rms_norm_eps
from normd.torch import _autograd
from normd.torch._autograd import Operand

# The axis of the channels, by the memory format of x.
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@_autograd.outside_of_graphs
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Operand = None,
    bias: Operand = None,
    eps: float = 1e-5,
    *,
    client: Any = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the trailing axes `normalized_shape`.

    weight and bias have the shape normalized_shape.
    """
    shape = tuple(normalized_shape)
    spec = normd.LayerNorm(shape, eps=eps)

    def local(x: Tensor, w: Operand, b: Operand) -> Tensor:
        return torch.nn.functional.layer_norm(x, shape, w, b, eps)

    return _autograd.apply(stateless(client, spec), local, input, weight, bias)


@_autograd.outside_of_graphs
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Operand = None,
    eps: Optional[float] = None,
    *,
    client: Any = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the trailing axes `normalized_shape`.

    weight has the shape normalized_shape. eps None is 2^-23, for float64 2^-52, as in PyTorch from 2.7 on. There is no
    need for a PyTorch that has torch.nn.functional.rms_norm.
    """
    _autograd.check(input)
    shape = tuple(normalized_shape)
    eps = rms_norm_eps(input.dtype) if eps is None else eps
    spec = normd.RMSNorm(shape, eps=eps)

    def local(x: Tensor, w: Operand, b: Operand) -> Tensor:
        return local_rms_norm(x, shape, w, eps)

    return _autograd.apply(stateless(client, spec), local, input, weight, None)


def local_rms_norm(x: Tensor, normalized_shape: Sequence[int], weight: Operand, eps: Optional[float]) -> Tensor:
    """`rms_norm`, computed by PyTorch's elementwise operators."""
    axes = tuple(range(-len(normalized_shape), 0))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    y = wide * torch.rsqrt(wide.square().mean(axes, keepdim=True) + (rms_norm_eps(x.dtype) if eps is None else eps))
    return (y if weight is None else y * weight).to(x.dtype)


@_autograd.outside_of_graphs
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Operand = None,
    bias: Operand = None,
    eps: float = 1e-5,
    *,
    client: Any = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each sample and group of C / num_groups channels.

    input is [N, C, *], weight and bias are [C].
    """
    _autograd.check(input)
    if input.dim() > 1 and input.shape[1] == num_groups and math.prod(input.shape[:1] + input.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 value per group, got input size {tuple(input.shape)}")

    def spec(layout: str) -> Any:
        return normd.GroupNorm(num_groups, eps=eps, layout=layout)

    def local(x: Tensor, w: Operand, b: Operand) -> Tensor:
        return torch.nn.functional.group_norm(x, num_groups, w, b, eps)

    return _autograd.apply(_by_layout(client, spec), local, input, weight, bias)


@_autograd.outside_of_graphs
def instance_norm(
    input: Tensor,
    running_mean: Operand = None,
    running_var: Operand = None,
    weight: Operand = None,
    bias: Operand = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    client: Any = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each sample and channel.

    input is [N, C, *] with more than one spatial element, the other tensors are [C]. With use_input_stats the
    statistics are those of x, and running_mean and running_var, where given, move in place by `momentum`; without it
    they are used instead.
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps, client=client)
    check_channels(input, running_mean, running_var, weight, bias)
    if math.prod(input.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {tuple(input.shape)}")

    def spec(layout: str) -> Any:
        return normd.InstanceNorm(eps=eps, layout=layout)

    def local(x: Tensor, w: Operand, b: Operand) -> Tensor:
        return torch.nn.functional.instance_norm(x, None, None, w, b, True, 0.0, eps)

    tracked = running_mean is not None and running_var is not None
    moments: List[Moments] = []
    y = _autograd.apply(_by_layout(client, spec, moments if tracked else None), local, input, weight, bias)
    if running_mean is not None and running_var is not None and input.numel():
        # As PyTorch: the running statistics move by the means of those of the instances.
        own = moments[0]
        count, mean, m2 = (one.reshape(input.shape[:2]).mean(0) for one in (own.count, own.mean, own.m2))
        move_running(running_mean, running_var, Moments(count, mean, m2), momentum)
    return y


@_autograd.outside_of_graphs
def batch_norm(
    input: Tensor,
    running_mean: Operand,
    running_var: Operand,
    weight: Operand = None,
    bias: Operand = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    client: Any = None,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each channel.

    input is [N, C] or [N, C, *], the other tensors are [C]. In training the statistics are those of x over all axes but
    the channels', and running_mean and running_var, where given, move in place by `momentum`, the variance unbiased.
    Otherwise the two are needed, and are used.
    """
    check_channels(input, running_mean, running_var, weight, bias)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("Expected running_mean and running_var to be defined when training=False")
        return _infer_batch_norm(input, running_mean, running_var, weight, bias, eps, client)
    moments: List[Moments] = []
    y = train_batch_norm(input, weight, bias, eps, client, moments)
    if running_mean is not None and running_var is not None:
        move_running(running_mean, running_var, moments[0], momentum)
    return y


def check_channels(input: Tensor, mean: Operand, var: Operand, weight: Operand, bias: Operand) -> None:
    """Raises TypeError, ValueError or RuntimeError unless these are tensors that can be served, [C] for a C of x."""
    given = {"running_mean": mean, "running_var": var, "weight": weight, "bias": bias}
    _autograd.check(input, **given)
    if (mean is None) != (var is None):
        raise ValueError("running_mean and running_var must either both be None or neither be None")
    if input.dim() < 2:
        raise ValueError(f"x has {input.dim()} dimensions; it must have at least 2, [N, C, *]")
    if any(one is not None and one.requires_grad for one in (mean, var)):
        raise RuntimeError("a running statistic requires a gradient, and has none, as in PyTorch: detach it")
    for name, one in given.items():
        if one is not None and tuple(one.shape) != (input.shape[1],):
            has = one.shape[0] if one.dim() == 1 else f"shape {tuple(one.shape)}"
            raise ValueError(f"x has {input.shape[1]} channels; {name} has {has}, and must have [C]")


def train_batch_norm(
    input: Tensor, weight: Operand, bias: Operand, eps: float, client: Any, moments: Optional[List[Moments]]
) -> Tensor:
    """y by the batch's own statistics; their moments are appended to `moments`."""

    def spec(layout: str) -> Any:
        return normd.BatchNorm(eps=eps, layout=layout)

    def local(x: Tensor, w: Operand, b: Operand) -> Tensor:
        return torch.nn.functional.batch_norm(x, None, None, w, b, True, 0.0, eps)

    return _autograd.apply(_by_layout(client, spec, moments, training=True), local, input, weight, bias)


def _infer_batch_norm(
    input: Tensor, mean: Tensor, var: Tensor, weight: Operand, bias: Operand, eps: float, client: Any
) -> Tensor:
    mean, var = mean.detach().clone(), var.detach().clone()  # a later step moves the caller's, before backward

    def spec(layout: str) -> Any:
        return normd.BatchNorm(eps=eps, layout=layout)

    def local(x: Tensor, w: Operand, b: Operand) -> Tensor:
        return torch.nn.functional.batch_norm(x, mean.to(x.dtype), var.to(x.dtype), w, b, False, 0.0, eps)

    return _autograd.apply(_by_layout(client, spec, statistics=(mean, var)), local, input, weight, bias)


def stateless(client: Any, spec: Any) -> _autograd.Norm:
    """Serves a spec that does not depend on the layout of x."""

    def serve(x: Tensor, w: Operand, b: Operand) -> Tensor:
        y: Tensor = resolve(client).normalize(spec, x, w, b).y
        return y

    return serve


def _by_layout(
    client: Any,
    spec: Any,
    moments: Optional[List[Moments]] = None,
    training: bool = False,
    statistics: Tuple[Operand, Operand] = (None, None),
) -> _autograd.Norm:
    """Serves spec(layout) with the layout that x has in memory."""

    def serve(x: Tensor, w: Operand, b: Operand) -> Tensor:
        last = _is_channels_last(x)
        # An axis that is moved in a channels_last tensor makes a contiguous one of the same memory.
        result = resolve(client).normalize(
            spec("channels_last" if last else "channels_first"),
            x.movedim(1, -1) if last else x,
            w,
            b,
            running_mean=statistics[0],
            running_var=statistics[1],
            training=training,
            outputs=("y",) if moments is None else ("y", "moments"),
        )
        if moments is not None:
            moments.append(result.moments)
        y: Tensor = result.y
        return y.movedim(-1, 1) if last else y

    return serve


def _is_channels_last(x: Tensor) -> bool:
    memory_format = _CHANNELS_LAST.get(x.dim())
    return memory_format is not None and not x.is_contiguous() and x.is_contiguous(memory_format=memory_format)


def resolve(client: Any) -> Any:
    """`client`, or the default one."""
    return normd.default_client() if client is None else client


# ---- Moments


def moments_of_channels(x: Tensor, eps: float, client: Any) -> Moments:
    """Count, mean and M2 of each channel of x."""
    last = _is_channels_last(x)
    spec = normd.BatchNorm(eps=eps, layout="channels_last" if last else "channels_first")
    found: Moments = resolve(client).moments(spec, (x.movedim(1, -1) if last else x).detach())
    return found


def merge(parts: Sequence[Moments]) -> Moments:
    """The moments of all parts together."""
    if len(parts) == 1:
        return parts[0]
    counts, means, m2s = (np.stack(rows) for rows in zip(*((one.count, one.mean, one.m2) for one in parts)))
    count = counts.sum(0)
    mean = (counts * means).sum(0) / np.maximum(count, 1)
    return Moments(count, mean, (m2s + counts * (means - mean) ** 2).sum(0))


def move_running(running_mean: Tensor, running_var: Tensor, batch: Moments, weight: float) -> None:
    """running = (1 - weight) * running + weight * new in place, rounded once; the new variance is unbiased.

    A batch without elements moves nothing.
    """
    if not batch.count.any():
        return
    count, mean, m2 = (torch.from_numpy(np.asarray(one)) for one in (batch.count, batch.mean, batch.m2))
    with torch.no_grad():
        for running, new in ((running_mean, mean), (running_var, m2 / (count - 1))):
            running.copy_(running.double() + (new - running.double()) * weight)
