"""Shared statistics for stable-baselines3's VecNormalize, which stays as it is.

    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=8))
    shared = normd.stats.sb3.share(env, "pendulum")
    PPO("MlpPolicy", env).learn(100_000)

Every process that shares the name moves and uses the same observation and return statistics. `env.save` writes plain
arrays, which stable-baselines3 loads without normd.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple, Union

import numpy as np
from stable_baselines3.common.running_mean_std import RunningMeanStd as Sb3RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize

from normd.client import Client
from normd.errors import InvalidArgument
from normd.stats._running import Part, RunningMeanStd
from normd.stats._snapshot import Snapshot
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
    wrapper has seen before is not part of them; epsilon and clips are its own. options: flush_samples and flush_seconds
    of RunningMeanStd. Returns both, to be flushed and closed.
    """
    parts = {}
    options = {"client": client, "epsilon": vec_normalize.epsilon, **options}
    if vec_normalize.norm_obs:
        rms, clip = vec_normalize.obs_rms, vec_normalize.clip_obs
        if isinstance(rms, Mapping):
            shapes = {key: one.mean.shape for key, one in rms.items()}
            parts["observations"] = RunningMeanStd(name, shapes, clip=clip, **options)
            vec_normalize.obs_rms = {key: _Shared(parts["observations"].part(key)) for key in rms}
        else:
            parts["observations"] = RunningMeanStd(name, rms.mean.shape, clip=clip, **options)
            vec_normalize.obs_rms = _Shared(parts["observations"])
    if vec_normalize.norm_reward:
        parts["returns"] = RunningMeanStd(f"{name}.returns", (), clip=vec_normalize.clip_reward, **options)
        vec_normalize.ret_rms = _Shared(parts["returns"])
    return Together(parts)


def snapshots(vec_normalize: VecNormalize) -> Dict[str, Snapshot]:
    """The arrays of a VecNormalize, such as one loaded from vec_normalize.pkl: "observations" and "returns".

    With its epsilon and clips. min and max are nan: VecNormalize does not know them.
    """
    out = {}
    if vec_normalize.norm_obs:
        out["observations"] = _snapshot(vec_normalize.obs_rms, vec_normalize.epsilon, vec_normalize.clip_obs)
    if vec_normalize.norm_reward:
        out["returns"] = _snapshot(vec_normalize.ret_rms, vec_normalize.epsilon, vec_normalize.clip_reward)
    return out


def _snapshot(rms: Any, epsilon: float, clip: float) -> Snapshot:
    def each(get: Any) -> Any:
        return {key: get(one) for key, one in rms.items()} if isinstance(rms, Mapping) else get(rms)

    unknown = each(lambda one: np.full(np.shape(one.mean), np.nan))
    return Snapshot(
        mean=each(lambda one: np.array(one.mean)),
        var=each(lambda one: np.array(one.var)),
        count=each(lambda one: np.full(np.shape(one.mean), float(one.count))),
        min=unknown,
        max=unknown,
        version=0,
        digest="",
        epsilon=epsilon,
        clip=clip,
    )


def restore(
    vec_normalize: VecNormalize, observations: Optional[Snapshot] = None, returns: Optional[Snapshot] = None
) -> None:
    """Gives a VecNormalize the arrays of snapshots, and nothing that is shared: for evaluation, or to save it.

    InvalidArgument if epsilon or clip are not the wrapper's, or keys or shapes are others: it would then normalise in
    another way.
    """
    if observations is not None:
        _check_same(observations, vec_normalize.epsilon, vec_normalize.clip_obs)
        vec_normalize.obs_rms = _restored(observations, vec_normalize.obs_rms)
    if returns is not None:
        _check_same(returns, vec_normalize.epsilon, vec_normalize.clip_reward)
        vec_normalize.ret_rms = _restored(returns, vec_normalize.ret_rms)


def _check_same(snapshot: Snapshot, epsilon: float, clip: float) -> None:
    wanted = {"epsilon": epsilon, "clip": clip, "eps_mode": "inside_sqrt"}
    for field, here in wanted.items():
        there = getattr(snapshot, field)
        if there != here:
            raise InvalidArgument(
                f"{field} of the snapshot is {there}, of the wrapper {here}",
                field=field,
                value=str(there),
                limit=str(here),
            )


def _restored(snapshot: Snapshot, old: Any) -> Any:
    def shapes(of: Any) -> Any:
        return {key: np.shape(one) for key, one in of.items()} if isinstance(of, Mapping) else np.shape(of)

    there = shapes({key: one.mean for key, one in old.items()} if isinstance(old, Mapping) else old.mean)
    if shapes(snapshot.mean) != there:
        raise InvalidArgument(
            f"the snapshot has {shapes(snapshot.mean)}, the wrapper {there}",
            field="mean",
            value=str(shapes(snapshot.mean)),
            limit=str(there),
        )
    if isinstance(snapshot.mean, Mapping):
        parts = (snapshot.mean, snapshot.var, snapshot.count)
        return {key: _restored_one(*(part[key] for part in parts)) for key in snapshot.mean}
    return _restored_one(snapshot.mean, snapshot.var, snapshot.count)


def _restored_one(mean: Any, var: Any, count: Any) -> Sb3RunningMeanStd:
    return _plain(np.array(mean), np.array(var), float(np.ravel(count)[0]))
