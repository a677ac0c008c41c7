"""Shared statistics as a module of PyTorch: reduced where the tensors are, a few numbers of each batch are sent.

    self.normalizer = normd.stats.torch.RunningMeanStd("ant/obs", (27,), clip=5.0)
    ...
    x = self.normalizer(observations)     # in training they are added first
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from normd.client import Client
from normd.errors import InvalidArgument
from normd.stats import _running
from normd.stats._samples import Samples


class RunningMeanStd(torch.nn.Module):
    """The mean and variance of all samples that all processes with this `name` have seen, in buffers of a module.

    Arguments are those of normd.stats.RunningMeanStd, but for a shape that is a dict. In training `forward` adds its
    batch, takes what others have sent, and normalises with both. In eval it uses the buffers as they are, so that a
    rollout and what is learnt from it have the same numbers; `refresh` renews them.

    The buffers mean, var and count are float64 and part of the state_dict: a checkpoint can be used without a server.
    Loading one sets the buffers and adds nothing to the statistics of all, which the next forward in training or
    `refresh` puts in their place. A deep copy or a pickle has the values and no server.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(
        self,
        name: str,
        shape: Union[int, Sequence[int]] = (),
        *,
        client: Optional[Client] = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.stats = _running.RunningMeanStd(name, shape, client=client, **options)
        if self.stats._layout.is_dict:
            raise InvalidArgument("shape is a dict; one module is of one tensor", field="shape", value=str(shape))
        self.epsilon, self.eps_mode, self.clip = self.stats.epsilon, self.stats.eps_mode, self.stats.clip
        for buffer in ("mean", "var", "count"):
            self.register_buffer(buffer, torch.zeros((), dtype=torch.float64))
        self._show()

    def forward(self, x: Tensor) -> Tensor:
        """(x - mean) / divisor, within [-clip, clip]: calculated in float64, of the dtype of x."""
        if self.training:
            self.update(x)
        y = (x.to(torch.float64) - self.mean) / self._divisor()
        return (y if self.clip is None else y.clamp(-self.clip, self.clip)).to(x.dtype)

    def denormalize(self, y: Tensor) -> Tensor:
        """The x whose forward in eval is y, unless that was clipped."""
        return (y.to(torch.float64) * self._divisor() + self.mean).to(y.dtype)

    def update(self, x: Tensor) -> None:
        """Adds the samples of x, [n, *shape] or one of them, and renews the buffers."""
        rows = x.detach().reshape(self._rows_of(x)).to(torch.float64)
        if len(rows) > 0:
            mean = rows.mean(0)
            moments = torch.stack([mean, (rows - mean).square().sum(0), rows.amin(0), rows.amax(0)])
            self.stats._add(_samples(len(rows), moments.cpu().numpy()))
        self._show()

    def refresh(self) -> None:
        """Reads what others have added, and renews the buffers."""
        self.stats.refresh()
        self._show()

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until the server has all samples so far."""
        self.stats.flush(timeout)

    def close(self, timeout: Optional[float] = None) -> None:
        """Flushes, and ends the thread. Buffers stay as they are."""
        self.stats.close(timeout)

    def _divisor(self) -> Tensor:
        """As `Snapshot.divisor`."""
        if self.eps_mode == "inside_sqrt":
            return torch.sqrt(self.var + self.epsilon)
        std = torch.sqrt(self.var)
        return std + self.epsilon if self.eps_mode == "add_to_root" else std.clamp_min(self.epsilon)

    def _rows_of(self, x: Tensor) -> Tuple[int, int]:
        shape = self.stats._layout.shapes[""]
        if x.dim() < len(shape) or tuple(x.shape[x.dim() - len(shape) :]) != shape:
            raise InvalidArgument(
                f"x has shape {list(x.shape)}; it must end in {list(shape)}",
                field="x",
                value=str(list(x.shape)),
                limit=str(list(shape)),
            )
        channels = self.stats._layout.channels
        return x.numel() // channels, channels

    def _show(self) -> None:
        """Puts the statistics into the buffers, where these are."""
        snapshot = self.stats.snapshot()
        for buffer in ("mean", "var", "count"):
            setattr(self, buffer, torch.from_numpy(getattr(snapshot, buffer).copy()).to(self.mean.device))

    def extra_repr(self) -> str:
        shape = list(self.stats._layout.shapes[""])
        return f"{self.stats.name}, {shape}, epsilon={self.epsilon}, {self.eps_mode}, clip={self.clip}"


def _samples(count: int, moments: "np.ndarray[Any, np.dtype[np.float64]]") -> Samples:
    mean, m2, low, high = moments
    samples = Samples(np.full(mean.shape, float(count)), mean, m2, low, high, float(count))
    finite = np.isfinite(m2)
    return samples if finite.all() else samples.where(finite)
