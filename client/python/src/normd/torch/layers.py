"""LayerNorm, RMSNorm, GroupNorm and InstanceNorm of torch.nn, computed by the service.

In the path: functional.py does the calls, _module.py is the common base.
"""

from __future__ import annotations

import warnings
from typing import Any, Optional, Sequence, Union

import torch
from torch import Tensor

from normd.torch import functional
from normd.torch._module import Served

Shape = Union[int, Sequence[int]]


class LayerNorm(Served, torch.nn.LayerNorm):
    """torch.nn.LayerNorm, computed by the service; the arguments are those of the installed PyTorch, and `client`.

    x: [*, *normalized_shape]; weight, bias: normalized_shape. Errors: see normd.torch.functional.

        norm = normd.torch.LayerNorm(768)
        y = norm(torch.randn(8, 128, 768))
    """

    def _serve(self, input: Tensor) -> Tensor:
        return functional.layer_norm(
            input, self.normalized_shape, self.weight, self.bias, self.eps, client=self.client
        )


class _RMSNorm(torch.nn.Module):
    """torch.nn.RMSNorm for PyTorch before 2.4, which has none."""

    weight: Optional[torch.nn.Parameter]

    def __init__(
        self,
        normalized_shape: Shape,
        eps: Optional[float] = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = torch.ones(self.normalized_shape, device=device, dtype=dtype) if elementwise_affine else None
        self.register_parameter("weight", None if weight is None else torch.nn.Parameter(weight))

    def reset_parameters(self) -> None:
        if self.weight is not None:
            torch.nn.init.ones_(self.weight)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"

    def forward(self, x: Tensor) -> Tensor:
        return functional.local_rms_norm(x, self.normalized_shape, self.weight, self.eps)


#: The RMSNorm that `restore` makes of a served one: torch.nn's where PyTorch has it.
LocalRMSNorm: Any = getattr(torch.nn, "RMSNorm", _RMSNorm)


class RMSNorm(Served, LocalRMSNorm):  # type: ignore[misc]
    """torch.nn.RMSNorm, computed by the service, for any PyTorch from 1.13 on.

    x: [*, *normalized_shape]; weight: normalized_shape; eps None: 2^-23, for float64 2^-52, as in PyTorch from 2.7 on.
    Errors: see normd.torch.functional.

        norm = normd.torch.RMSNorm(4096, eps=1e-6)
        y = norm(torch.randn(8, 4096, dtype=torch.bfloat16))
    """

    def _serve(self, input: Tensor) -> Tensor:
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps, client=self.client)


class GroupNorm(Served, torch.nn.GroupNorm):
    """torch.nn.GroupNorm, computed by the service.

    x: [N, C, *] with C divisible by num_groups; weight, bias: [C]. Errors: see normd.torch.functional.

        norm = normd.torch.GroupNorm(num_groups=32, num_channels=64)
        y = norm(torch.randn(4, 64, 16, 16))
    """

    def _serve(self, input: Tensor) -> Tensor:
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps, client=self.client)


class _InstanceNorm(Served):
    def _serve(self, input: Tensor) -> Tensor:
        module: Any = self
        module._check_input_dim(input)
        is_sample = input.dim() == module._get_no_batch_dim()
        channels = input.size(0 if is_sample else 1)
        if channels != module.num_features:
            said = f"x has {channels} channels; the module has num_features={module.num_features}"
            if module.affine:
                raise ValueError(said)
            warnings.warn(f"{said}, which is not used without affine=True", stacklevel=4)
        return self._normalize(input.unsqueeze(0)).squeeze(0) if is_sample else self._normalize(input)

    def _normalize(self, input: Tensor) -> Tensor:
        module: Any = self
        momentum = 0.0 if module.momentum is None else module.momentum  # as torch.nn has it, which passes None on
        return functional.instance_norm(
            input,
            module.running_mean,
            module.running_var,
            module.weight,
            module.bias,
            module.training or not module.track_running_stats,
            momentum,
            module.eps,
            client=self.client,
        )


class InstanceNorm1d(_InstanceNorm, torch.nn.InstanceNorm1d):
    """torch.nn.InstanceNorm1d, computed by the service.

    x: [N, C, L] or [C, L] with L > 1; weight, bias: [C]. With track_running_stats the buffers move as in torch.nn; they
    are never kept by a session. Errors: see normd.torch.functional.
    """


class InstanceNorm2d(_InstanceNorm, torch.nn.InstanceNorm2d):
    """torch.nn.InstanceNorm2d, computed by the service.

    x: [N, C, H, W] or [C, H, W] with H * W > 1; weight, bias: [C]. Otherwise as InstanceNorm1d.

        norm = normd.torch.InstanceNorm2d(64, affine=True)
        y = norm(torch.randn(4, 64, 16, 16))
    """


class InstanceNorm3d(_InstanceNorm, torch.nn.InstanceNorm3d):
    """torch.nn.InstanceNorm3d, computed by the service.

    x: [N, C, D, H, W] or [C, D, H, W] with more than one spatial element; weight, bias: [C]. Otherwise as
    InstanceNorm1d.
    """
