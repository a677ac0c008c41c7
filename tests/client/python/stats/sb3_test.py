"""stable-baselines3's VecNormalize with shared statistics: unmodified, it does what it did with its own."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.running_mean_std import RunningMeanStd as Sb3RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import normd.stats.sb3 as shared_by


def made():
    return VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")] * 2))


def run(env, steps=60):
    env.seed(3)
    env.action_space.seed(3)
    observations, rewards = [env.reset()], []
    for _ in range(steps):
        observation, reward, _, _ = env.step(np.array([env.action_space.sample() for _ in range(2)]))
        observations.append(observation)
        rewards.append(reward)
    return np.array(observations), np.array(rewards)


def test_one_process_has_sb3s_own_statistics(client):
    own = made()
    expected = run(own)
    env = made()
    with shared_by.share(env, "sb3-one", client=client, flush_samples=16) as shared:
        for got, wanted in zip(run(env), expected):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
        shared.flush(10)
        np.testing.assert_allclose(env.obs_rms.mean, own.obs_rms.mean, rtol=1e-14, atol=1e-15)
        np.testing.assert_allclose(env.obs_rms.var, own.obs_rms.var, rtol=1e-14)
        assert env.obs_rms.count == pytest.approx(own.obs_rms.count, rel=1e-14)
        np.testing.assert_allclose(env.ret_rms.var, own.ret_rms.var, rtol=1e-14)


def test_what_is_saved_is_sb3s_own_and_counts_nothing(client, tmp_path):
    env = made()
    with shared_by.share(env, "sb3-saved", client=client) as shared:
        run(env)
        shared.flush(10)
        env.save(str(tmp_path / "vec_normalize.pkl"))
        loaded = VecNormalize.load(str(tmp_path / "vec_normalize.pkl"), env.venv)
        for other in (loaded.obs_rms, copy.deepcopy(env.obs_rms), env.obs_rms.copy(), pickle.loads(pickle.dumps(env.obs_rms))):
            assert type(other) is Sb3RunningMeanStd
            np.testing.assert_array_equal(other.mean, env.obs_rms.mean)
        before = shared.observations.count
        run(loaded, 10)
        shared.flush(10)
        assert shared.observations.count == before


class DictEnvironment(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict(
        {"place": gymnasium.spaces.Box(-9, 9, (2,)), "speed": gymnasium.spaces.Box(-9, 9, (1,))})
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}


def test_dict_observations_are_one_session(client):
    env = VecNormalize(DummyVecEnv([DictEnvironment]))
    with shared_by.share(env, "sb3-dict", client=client) as shared:
        env.reset()
        for _ in range(9):
            env.step(np.array([0]))
        shared.flush(10)
        assert env.obs_rms["place"].count == env.obs_rms["speed"].count == pytest.approx(10.0001)
        assert env.obs_rms["place"].mean.shape == (2,)
    assert client.session("sb3-dict").info().channel_names == ("place/0", "place/1", "speed")
