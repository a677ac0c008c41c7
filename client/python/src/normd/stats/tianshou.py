"""Shared statistics for Tianshou, in the place of tianshou.utils.RunningMeanStd.

    env = VectorEnvNormObs(SubprocVectorEnv(...))
    env.set_obs_rms(normd.stats.tianshou.RunningMeanStd("ant/obs", shape=(27,)))
    algorithm.ret_rms = normd.stats.tianshou.RunningMeanStd("ant/returns")    # of A2C, PPO and others
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from normd.client import Client
from normd.stats import _running
from normd.stats._shape import ShapeOf


class RunningMeanStd(_running.RunningMeanStd):
    """As tianshou.utils.RunningMeanStd, with the samples of all processes that share `name`: no prior, clip_max 10.

    options: flush_samples and flush_seconds of normd.stats.RunningMeanStd.
    """

    def __init__(
        self,
        name: str,
        shape: ShapeOf = (),
        *,
        clip_max: Optional[float] = 10.0,
        epsilon: float = float(np.finfo(np.float32).eps),
        client: Optional[Client] = None,
        **options: Any,
    ) -> None:
        super().__init__(name, shape, client=client, prior_count=0, epsilon=epsilon, clip=clip_max or None, **options)

    @property
    def eps(self) -> float:
        return self.epsilon

    @property
    def clip_max(self) -> Optional[float]:
        return self.clip

    def norm(self, data_array: Any) -> Any:
        """`normalize`, always in float64."""
        return self.normalize(np.asarray(data_array, np.float64))
