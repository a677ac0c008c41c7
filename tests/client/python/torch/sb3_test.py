"""stable-baselines3's VecNormalize with shared statistics: unmodified, it does what it did with its own."""

import copy
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import DtypeObservation
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.running_mean_std import RunningMeanStd as Sb3RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import normd.stats
import normd.stats.sb3 as shared_by


def made(dtype=np.float64, **options):
    # SB3 reduces a batch in the dtype of the observations, and only in float64 are its own statistics exact.
    one = lambda: Monitor(DtypeObservation(gymnasium.make("Pendulum-v1"), dtype))  # noqa: E731
    env = VecNormalize(DummyVecEnv([one, one]), **options)
    env.seed(3)
    env.action_space.seed(3)
    return env


def run(env, steps=60):
    """The original observations of so many steps."""
    env.reset()
    observations = [env.get_original_obs()]
    for _ in range(steps):
        env.step(np.array([env.action_space.sample() for _ in range(2)]))
        observations.append(env.get_original_obs())
    return np.concatenate(observations)


def assert_same(ours, theirs):
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(ours.var, theirs.var, rtol=1e-14)
    assert ours.count == pytest.approx(theirs.count, rel=1e-14)


def test_a_training_has_sb3s_own_statistics_and_returns(client):
    def train(env):
        model = PPO("MlpPolicy", env, n_steps=100, batch_size=50, n_epochs=2, seed=5)
        model.learn(1_000)
        return [episode["r"] for episode in model.ep_info_buffer]

    own, env = made(), made()
    expected = train(own)
    assert len(expected) == 4
    with shared_by.share(env, "sb3-training", client=client, flush_samples=64) as shared:
        assert train(env) == expected
        shared.flush(10)
        assert_same(env.obs_rms, own.obs_rms)
        assert_same(env.ret_rms, own.ret_rms)
        assert shared.observations.version >= 2, "the server has taken part"


def test_observations_of_float32_are_summed_in_float64(client):
    own, env = made(np.float32), made(np.float32)
    observations = run(own).astype(np.longdouble)
    count = len(observations) + np.longdouble(1e-4)
    mean = observations.sum(0) / count
    with shared_by.share(env, "sb3-float32", client=client) as shared:
        run(env)
        shared.flush(10)
        np.testing.assert_allclose(env.obs_rms.mean, mean.astype(float), rtol=1e-14, atol=1e-16)
        assert abs(own.obs_rms.mean - mean).max() > 1e-10, "SB3's own are rounded in each batch"


def test_what_is_saved_is_sb3s_own_and_counts_nothing(client, tmp_path):
    env = made()
    with shared_by.share(env, "sb3-saved", client=client) as shared:
        run(env)
        shared.flush(10)
        env.save(str(tmp_path / "vec_normalize.pkl"))
        loaded = VecNormalize.load(str(tmp_path / "vec_normalize.pkl"), env.venv)
        pickled = pickle.loads(pickle.dumps(env.obs_rms))
        for other in (loaded.obs_rms, copy.deepcopy(env.obs_rms), env.obs_rms.copy(), pickled):
            assert type(other) is Sb3RunningMeanStd
            np.testing.assert_array_equal(other.mean, env.obs_rms.mean)
        before = shared.observations.count
        run(loaded, 10)
        shared.flush(10)
        assert shared.observations.count == before


class DictEnvironment(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict({
        "place": gymnasium.spaces.Box(-9, 9, (2,), np.float64),
        "speed": gymnasium.spaces.Box(-9, 9, (1,), np.float64),
        "colour": gymnasium.spaces.Box(0, 1, (1,), np.float64),
    })
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}


def test_dict_observations_are_one_session_of_the_chosen_keys(client):
    def run_dict(env):
        env.seed(3)
        env.reset()
        for _ in range(9):
            env.step(np.array([0]))

    own, env = (VecNormalize(DummyVecEnv([DictEnvironment]), norm_obs_keys=["place", "speed"]) for _ in range(2))
    run_dict(own)
    with shared_by.share(env, "sb3-dict", client=client) as shared:
        run_dict(env)
        for key in ("place", "speed"):
            assert_same(env.obs_rms[key], own.obs_rms[key])
        shared.flush(10)
        assert_same(env.obs_rms["place"], own.obs_rms["place"])
    assert client.session("sb3-dict").info().channel_names == ("place/0", "place/1", "speed")


def test_what_is_not_normalised_is_not_shared(client):
    with shared_by.share(made(norm_obs=False), "sb3-rewards", client=client) as shared:
        assert shared.returns.count == 1e-4
        with pytest.raises(KeyError):
            shared.observations
    with pytest.raises(normd.NotFound):
        client.session("sb3-rewards")


def test_a_snapshot_goes_into_vec_normalize_pkl_and_back(client, tmp_path):
    env = made()
    with shared_by.share(env, "sb3-file", client=client) as shared:
        run(env)
        shared.flush(10)
        observations, returns = shared.observations.snapshot(), shared.returns.snapshot()
    other = made(training=False)
    shared_by.restore(other, observations, returns)
    other.save(str(tmp_path / "vec_normalize.pkl"))
    loaded = VecNormalize.load(str(tmp_path / "vec_normalize.pkl"), other.venv)
    assert type(loaded.obs_rms) is Sb3RunningMeanStd
    x = np.random.default_rng(0).normal(0, 3, (50, 3))
    np.testing.assert_array_equal(loaded.normalize_obs(x), observations.normalize(x).astype(np.float32))
    back = shared_by.snapshots(loaded)
    for got, wanted in ((back["observations"], observations), (back["returns"], returns)):
        for field in ("mean", "var", "count"):
            np.testing.assert_array_equal(getattr(got, field), getattr(wanted, field))
        assert (got.epsilon, got.clip) == (wanted.epsilon, wanted.clip) == (1e-8, 10.0)


def test_a_snapshot_that_normalises_otherwise_is_refused(client):
    with normd.stats.RunningMeanStd("sb3-other", (3,), client=client, epsilon=1e-5, clip=10.0) as stats:
        with pytest.raises(normd.InvalidArgument, match="epsilon of the snapshot is 1e-05, of the wrapper 1e-08"):
            shared_by.restore(made(), stats.snapshot())
    with normd.stats.RunningMeanStd("sb3-shape", (4,), client=client, clip=10.0) as stats:
        with pytest.raises(normd.InvalidArgument, match=r"the snapshot has \(4,\), the wrapper \(3,\)"):
            shared_by.restore(made(), stats.snapshot())
