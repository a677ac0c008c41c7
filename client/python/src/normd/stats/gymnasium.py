"""Shared statistics for gymnasium's NormalizeObservation and NormalizeReward, plain and of vector environments.

    env = NormalizeObservation(gymnasium.make("Pendulum-v1"))
    shared = normd.stats.gymnasium.share(env, "pendulum")

Every process that shares the name moves and uses the same statistics.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

import numpy as np

from normd.client import Client
from normd.errors import InvalidArgument
from normd.stats._running import RunningMeanStd
from normd.stats._together import Together


def share(env: Any, name: str, *, client: Optional[Client] = None, **options: Any) -> Together:
    """Gives each wrapper of `env` that has running statistics those that all processes with this name share.

    The session of observations is `name`, that of discounted returns `name`.returns. What the wrappers have seen before
    is not part of them; epsilon is theirs. options: flush_samples and flush_seconds of RunningMeanStd. Returns both, to
    be flushed and closed. InvalidArgument if no wrapper has statistics.
    """
    parts: Dict[str, RunningMeanStd] = {}
    wrapper = env
    while wrapper is not None:
        own = vars(wrapper)
        if "obs_rms" in own:
            shape, epsilon = np.shape(own["obs_rms"].mean), wrapper.epsilon
            parts["observations"] = RunningMeanStd(name, shape, client=client, epsilon=epsilon, **options)
            wrapper.obs_rms = parts["observations"]
        if "return_rms" in own:
            returns = RunningMeanStd(f"{name}.returns", (), client=client, epsilon=wrapper.epsilon, **options)
            parts["returns"] = returns
            wrapper.return_rms = parts["returns"]
        wrapper = own.get("env")
    if not parts:
        raise InvalidArgument(
            f"env is {env}; it has neither NormalizeObservation nor NormalizeReward",
            field="env",
            value=str(env),
            limit="NormalizeObservation or NormalizeReward",
        )
    return Together(parts)
