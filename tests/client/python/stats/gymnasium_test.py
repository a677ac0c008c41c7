"""gymnasium's wrappers with shared statistics: unmodified, they do what they did with their own."""

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, vector

import normd
import normd.stats.gymnasium as shared_by


def run(env, steps=100):
    observations, rewards = [env.reset(seed=7)[0]], []
    env.action_space.seed(7)
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        observations.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            observations.append(env.reset()[0])
    return np.array(observations), np.array(rewards)


def made():
    return NormalizeReward(NormalizeObservation(gymnasium.make("Pendulum-v1")))


def test_one_process_sees_what_it_saw_with_its_own_statistics(client):
    own = made()
    expected_observations, expected_rewards = run(own)
    env = made()
    with shared_by.share(env, "gym-one", client=client, flush_samples=16) as shared:
        observations, rewards = run(env)
        np.testing.assert_allclose(observations, expected_observations, rtol=1e-5, atol=1e-5)  # its own are float32
        np.testing.assert_allclose(rewards, expected_rewards, rtol=1e-12)
        shared.flush(10)
        assert shared.observations.count == pytest.approx(101.0001, rel=1e-15)
        np.testing.assert_allclose(shared.returns.var, own.return_rms.var, rtol=1e-13)


def test_two_environments_share(client):
    one, two = made(), made()
    with shared_by.share(one, "gym-two", client=client) as first, shared_by.share(two, "gym-two", client=client):
        run(one, 30)
        run(two, 50)
        first.flush(10)
    with normd.stats.RunningMeanStd("gym-two", (3,), client=client) as stats:
        assert stats.count == pytest.approx(82.0001, rel=1e-15)


def test_wrappers_of_a_vector_environment_share_in_the_same_way(client):
    def made_vector():
        env = gymnasium.make_vec("CartPole-v1", num_envs=3)
        return vector.NormalizeReward(vector.NormalizeObservation(env))

    own, env = made_vector(), made_vector()
    with shared_by.share(env, "gym-vector", client=client, flush_samples=16) as shared:
        for one in (own, env):
            one.reset(seed=5)
        for step in range(40):
            actions = np.full(3, step % 2)
            expected, got = own.step(actions), env.step(actions)
            np.testing.assert_allclose(got[0], expected[0], rtol=1e-4, atol=1e-5)  # its own are float32
            np.testing.assert_allclose(got[1], expected[1], rtol=1e-6)
        shared.flush(10)
        assert shared.observations.count == pytest.approx(own.unwrapped.num_envs * 41 + 1e-4, rel=1e-12)
        np.testing.assert_allclose(shared.returns.var, own.return_rms.var, rtol=1e-6)


def test_an_environment_without_statistics_is_refused(client):
    with pytest.raises(normd.InvalidArgument, match="neither NormalizeObservation nor NormalizeReward"):
        shared_by.share(gymnasium.make("Pendulum-v1"), "gym-none", client=client)
