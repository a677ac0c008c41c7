"""One of the processes of shared_statistics.py: python shared_statistics_worker.py RANK ADDRESS FOLDER

It steps its environments and logs each block of steps before it sends the samples; FOLDER/RANK.observations and
FOLDER/RANK.returns are how many blocks of each the server has acknowledged.
"""

import pathlib
import sys

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import normd
import normd.stats.sb3

ENVIRONMENTS, BLOCKS, STEPS, GAMMA = 4, 24, 25, 0.99
# Every so many answers to a contribution one is lost on the way, as when a connection breaks or a deadline passes. After
# the one the client asks again, after the other the thread that sends.
LOST_EVERY = 5


def paths(folder, rank):
    """The logged blocks of a process, in order."""
    return sorted(folder.glob(f"{rank}-*.npz"))


def read_number(path):
    return int(path.read_text()) if path.exists() else 0


def write(path, content):
    """At once: whoever reads sees the old or the new content, and so does who comes after a kill."""
    new = path.with_suffix(".new")
    if isinstance(content, dict):
        with open(new, "wb") as file:
            np.savez(file, **content)
    else:
        new.write_text(str(content))
    new.replace(path)


def lose_answers(client, path):
    unary, answers = client._transport.unary, 0

    async def lossy(method, request, timeout):
        nonlocal answers
        reply = await unary(method, request, timeout)
        if method.endswith("/CommitMoments"):
            answers += 1
            if answers % LOST_EVERY == 0:
                write(path, answers // LOST_EVERY)
                lost = normd.Unavailable if answers // LOST_EVERY % 2 else normd.DeadlineExceeded
                raise lost("the answer is lost")
        return reply

    client._transport.unary = lossy


def steps(env):
    """A block of random actions."""
    observations, rewards, dones = [], [], []
    for _ in range(STEPS):
        _, _, done, _ = env.step(np.array([env.action_space.sample() for _ in range(ENVIRONMENTS)]))
        observations.append(env.get_original_obs())
        rewards.append(env.get_original_reward())
        dones.append(done)
    return {"observations": np.concatenate(observations), "rewards": np.array(rewards), "dones": np.array(dones)}


def main():
    rank, address, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")] * ENVIRONMENTS), gamma=GAMMA)
    env.seed(int(rank))
    env.action_space.seed(int(rank))
    with normd.connect(address) as client:
        lose_answers(client, folder / f"{rank}.lost")
        # Samples are sent when this program says so, so that it knows which were on their way when it is killed.
        shared = normd.stats.sb3.share(env, "pendulum", client=client, flush_samples=10**9, flush_seconds=1e6)
        env.reset()
        first = env.get_original_obs()
        for number in range(BLOCKS):
            block = steps(env)
            if number == 0:
                block["observations"] = np.concatenate([first, block["observations"]])
            write(folder / f"{rank}-{number:02}.npz", block)
            for what, part in (("observations", shared.observations), ("returns", shared.returns)):
                part.flush(120)
                write(folder / f"{rank}.{what}", number + 1)
        shared.close()


if __name__ == "__main__":
    main()
