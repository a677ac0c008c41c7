"""Shared statistics for stable-baselines3's VecNormalize, which stays as it is.

    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=8))
    shared = normd.stats.sb3.share(env, "pendulum")
    PPO("MlpPolicy", env).learn(100_000)

Every process that shares the name moves and uses the same observation and return statistics. `env.save` writes plain
arrays, which stable-baselines3 loads without normd.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Tuple, Union

import numpy as np
from stable_baselines3.common.running_mean_std import RunningMeanStd as Sb3RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize

from normd.client import Client
from normd.stats._running import Part, RunningMeanStd
from normd.stats._together import Together


class _Shared(Sb3RunningMeanStd):
    """What VecNormalize knows as its statistics. A copy, or one that was pickled, is stable-baselines3's own class."""

    def __init__(self, stats: Union[RunningMeanStd, Part]) -> None:
        self._stats = stats  # and none of the attributes that the class sets

    mean = property(lambda self: self._stats.mean)
    var = property(lambda self: self._stats.var)
    count = property(lambda self: self._stats.count)

    def update(self, arr: Any) -> None:
        self._stats.update(arr)

    def update_from_moments(self, batch_mean: Any, batch_var: Any, batch_count: float) -> None:
        self._stats.update_from_moments(batch_mean, batch_var, batch_count)

    def copy(self) -> Sb3RunningMeanStd:
        return _plain(np.array(self.mean), np.array(self.var), self.count)

    def __reduce__(self) -> Tuple[Any, ...]:
        return _plain, (np.array(self.mean), np.array(self.var), self.count)

    def __deepcopy__(self, memo: Any) -> Sb3RunningMeanStd:
        return self.copy()


def _plain(mean: Any, var: Any, count: float) -> Sb3RunningMeanStd:
    plain = Sb3RunningMeanStd(shape=np.shape(mean))
    plain.mean, plain.var, plain.count = mean, var, count
    return plain


def share(vec_normalize: VecNormalize, name: str, *, client: Optional[Client] = None, **options: Any) -> Together:
    """Gives `vec_normalize` statistics that all processes with this name share: observations and discounted returns.

    The sessions are `name` (dict observations: one session, whose channels have names) and `name`.returns. What the
    wrapper has seen before is not part of them. options: flush_samples and flush_seconds of RunningMeanStd. Returns both,
    to be flushed and closed.
    """
    parts = {}
    if vec_normalize.norm_obs:
        rms = vec_normalize.obs_rms
        if isinstance(rms, Mapping):
            shapes = {key: one.mean.shape for key, one in rms.items()}
            parts["observations"] = RunningMeanStd(name, shapes, client=client, **options)
            vec_normalize.obs_rms = {key: _Shared(parts["observations"].part(key)) for key in rms}
        else:
            parts["observations"] = RunningMeanStd(name, rms.mean.shape, client=client, **options)
            vec_normalize.obs_rms = _Shared(parts["observations"])
    if vec_normalize.norm_reward:
        parts["returns"] = RunningMeanStd(f"{name}.returns", (), client=client, **options)
        vec_normalize.ret_rms = _Shared(parts["returns"])
    return Together(parts)
