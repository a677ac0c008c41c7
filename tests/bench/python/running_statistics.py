#!/usr/bin/env python3
"""What shared statistics cost beside stable-baselines3's own.

    tests/bench/python/running_statistics.py [--normd=build/release/normd] [--rounds=15]

Starts a server of its own. In each round both are timed once, in turn, so that they meet the same machine; medians of
the rounds are printed, and the median of the rounds' quotients. "update" is one batch. "step" is a step of VecNormalize
over 8 environments of CartPole, in which statistics are moved and read: by itself, which is hardly more than the
statistics, and with a policy of SB3's usual size that chooses the actions. The thread that sends works meanwhile, as it
does in use. Needs stable-baselines3: the environment that tests/e2e/real_models.sh makes has it.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.running_mean_std import RunningMeanStd as Sb3RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e" / "real_models"))
from normd_server import Server  # noqa: E402

import normd  # noqa: E402
import normd.stats.sb3  # noqa: E402

BATCHES = [(1, 3), (8, 17), (64, 17), (8, 376), (2048, 17)]
ELEMENTS = 300_000  # of the batches of one timing, at most 500 of them
STEPS = 300


def microseconds(function, calls):
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls * 1e6


def compare(title, theirs, ours, calls, rounds):
    pairs = [(microseconds(theirs, calls), microseconds(ours, calls)) for _ in range(rounds)]
    quotient = statistics.median(our / their for their, our in pairs)
    their, our = (statistics.median(column) for column in zip(*pairs))
    print(f"{title:<28} SB3 {their:8.1f} us   normd {our:8.1f} us   {quotient:.2f}x")


def compare_updates(client, rounds):
    for dtype in (np.float32, np.float64):
        for rows, channels in BATCHES:
            batch = np.random.default_rng(0).normal(0, 1, (rows, channels)).astype(dtype)
            theirs = Sb3RunningMeanStd(shape=(channels,))
            name = f"bench-{rows}-{channels}-{batch.dtype}"
            with normd.stats.RunningMeanStd(name, (channels,), client=client) as ours:
                calls = min(500, ELEMENTS // batch.size)
                title = f"update {batch.dtype} [{rows}, {channels}]"
                compare(title, lambda: theirs.update(batch), lambda: ours.update(batch), calls, rounds)


def made():
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 8))
    env.action_space.seed(0)
    env.reset()
    return env


def compare_steps(client, rounds):
    theirs, ours = made(), made()
    actions = np.array([theirs.action_space.sample() for _ in range(8)])
    policy = PPO("MlpPolicy", theirs, seed=0)

    def act(env):
        env.step(policy.predict(env.normalize_obs(env.get_original_obs()))[0])

    with normd.stats.sb3.share(ours, "bench-step", client=client):
        compare("step of 8 CartPole", lambda: theirs.step(actions), lambda: ours.step(actions), STEPS, rounds)
        compare("step with a policy", lambda: act(theirs), lambda: act(ours), STEPS, rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--normd", default="build/release/normd")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Server(options.normd, folder) as server:
        with normd.connect(server.address) as client:
            compare_updates(client, options.rounds)
            compare_steps(client, options.rounds)


if __name__ == "__main__":
    main()
