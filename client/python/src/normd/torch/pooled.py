"""Training BatchNorm over the batches of several processes together, as torch.nn.SyncBatchNorm does on GPUs.

In the path: batch_norm.py calls this where a module has a process_group. Each process asks the service for the moments
of its own batch; the processes exchange moments, [3, C] float64 each; and each asks the service to normalise its batch
by the statistics of all of them. The backward pass exchanges two sums per channel.
"""

from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

import normd
from normd._core import Moments
from normd.torch import functional
from normd.torch._autograd import Operand, as_function, is_transformed


def train_batch_norm(
    input: Tensor, weight: Operand, bias: Operand, eps: float, client: Any, group: Any, moments: List[Moments]
) -> Tensor:
    """y by the statistics of the batches of all processes of `group`; `moments` gets those of each, in their order.

    All processes must call it, in the same order of modules. A process may have an empty batch. ValueError if all
    batches together have one value per channel.
    """
    check_group(group)
    functional.check_channels(input, None, None, weight, bias)
    if any(one is not None and is_transformed(one) for one in (input, weight, bias)):
        raise RuntimeError("torch.func cannot go through the exchange of a process_group: leave process_group out")
    own = functional.moments_of_channels(input, eps, client)
    moments.extend(_gather(own, group))
    merged = functional.merge(moments)
    if float(merged.count.max()) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {tuple(input.shape)}")
    mean, var = torch.from_numpy(merged.mean), torch.from_numpy(merged.m2 / np.maximum(merged.count, 1))
    needs_grad = any(one is not None and one.requires_grad for one in (input, weight, bias))
    if not (torch.is_grad_enabled() and needs_grad):
        return functional.batch_norm(input, mean, var, weight, bias, False, 0.0, eps, client=client)
    y: Tensor = _Pooled.apply(input, weight, bias, mean, var, float(merged.count.max()), eps, client, group)
    return y


def check_group(group: Any) -> None:
    """Raises ValueError unless `group` is None or can exchange tensors that are on the CPU."""
    if group is None:
        return
    if not isinstance(group, dist.ProcessGroup):
        raise ValueError(f"process_group is {group!r}; it must be a group that this process is a member of")
    # PyTorch before 2.1 has no list by device, and one backend for all devices.
    by_device = getattr(dist, "get_backend_config", dist.get_backend)(group)
    if by_device in _WITHOUT_CPU or (":" in by_device and "cpu:" not in by_device):
        raise ValueError(
            f"process_group exchanges tensors by {by_device}, which cannot do it on the CPU, where normd.torch works; "
            'pass process_group=torch.distributed.new_group(backend="gloo"), made in all processes'
        )


_WITHOUT_CPU = ("nccl", "xccl", "hccl")


def _gather(own: Moments, group: Any) -> List[Moments]:
    packed = torch.stack([torch.from_numpy(one) for one in (own.count, own.mean, own.m2)])
    parts = [torch.empty_like(packed) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, packed, group=group)
    return [Moments(*(row.numpy() for row in part)) for part in parts]


@as_function
class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor,
        weight: Operand,
        bias: Operand,
        mean: Tensor,
        var: Tensor,
        count: float,
        eps: float,
        client: Any,
        group: Any,
    ) -> Tensor:
        return functional.batch_norm(x, mean, var, weight, bias, False, 0.0, eps, client=client)

    @staticmethod
    def setup_context(ctx: Any, inputs: Tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[:5])
        ctx.count, ctx.eps, _, ctx.group = inputs[5:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight, bias, mean, var = ctx.saved_tensors
        wide = torch.promote_types(x.dtype, torch.float32)
        shape = [1, -1] + [1] * (x.dim() - 2)
        axes = [axis for axis in range(x.dim()) if axis != 1]
        inv_std = torch.rsqrt(var + ctx.eps)
        centred = x.to(wide) - mean.to(wide).view(shape)  # before it is scaled, so that a large mean costs no digits
        normalised = centred * inv_std.to(wide).view(shape)
        dy = dy.to(wide)
        # Sums over this process's batch: of dy, which is the bias's gradient, and of dy * normalised, the weight's.
        sums = torch.stack([dy.sum(axes).double(), (dy * normalised).sum(axes).double()])
        dx = dweight = dbias = None
        if ctx.needs_input_grad[1]:
            dweight = sums[1].to(weight.dtype)
        if ctx.needs_input_grad[2]:
            dbias = sums[0].to(bias.dtype)
        # Every process takes part, whether its own x needs a gradient or not: others wait for it.
        total = sums.clone()
        dist.all_reduce(total, group=ctx.group)
        if ctx.needs_input_grad[0]:
            means = (total / ctx.count).to(wide)
            scale = inv_std if weight is None else inv_std * weight.double()
            dx = dy - means[0].view(shape) - normalised * means[1].view(shape)
            dx = (dx * scale.to(wide).view(shape)).to(x.dtype)
        return dx, dweight, dbias, None, None, None, None, None, None
