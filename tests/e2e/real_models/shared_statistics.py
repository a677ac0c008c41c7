"""One normaliser for several stable-baselines3 processes, through crashes: python shared_statistics.py NORMD

Three processes step Pendulum in an unmodified VecNormalize whose statistics are shared. Meanwhile the server is killed
with SIGKILL and started again on its store, several times, one process is killed in the middle of its work, and some
answers of the server are lost on the way, so that samples are sent again. Every process logs what it observed, in
blocks, each before it is sent, and which blocks were acknowledged.

Then the count must be that of the acknowledged samples, exactly; a block of the killed process that was on its way may
count, too, but wholly or not at all. Mean and variance must be those of the logged observations, and of the discounted
returns, calculated at once in more than float64.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import shared_statistics_worker as worker
from normd_server import Server

import normd

WORKERS = 3
# After how many acknowledged blocks, of all processes together, the server is killed, and process 0.
SERVER_KILLS, WORKER_KILL = (8, 20, 34, 46), 28
PRIOR = np.longdouble(1e-4)
TOLERANCE = 1e-12  # of the mean in deviations, of the variance relatively
LIMIT = 120.0  # seconds; no more than a guard against a hang


def contribute(server, folder):
    """Runs the processes through the kills; returns the blocks that were acknowledged at each kill of the server."""
    program = pathlib.Path(__file__).parent / "shared_statistics_worker.py"
    workers = [
        subprocess.Popen([sys.executable, str(program), str(rank), server.address, str(folder)])
        for rank in range(WORKERS)
    ]
    kills = []
    try:
        for blocks in sorted([*SERVER_KILLS, WORKER_KILL]):
            reached = wait_for_blocks(folder, workers, blocks)
            if blocks == WORKER_KILL:
                workers[0].kill()
                workers[0].wait()
                continue
            server.kill()
            server.start()
            kills.append(reached)
        for rank in range(1, WORKERS):
            if workers[rank].wait(LIMIT) != 0:
                raise RuntimeError(f"process {rank} ended with {workers[rank].returncode}")
    finally:
        for one in workers:
            if one.poll() is None:
                one.kill()
                one.wait()
    return kills


def acknowledged(folder, what, rank):
    return worker.read_number(folder / f"{rank}.{what}")


def wait_for_blocks(folder, workers, blocks):
    deadline = time.monotonic() + LIMIT
    while True:
        reached = sum(acknowledged(folder, "returns", rank) for rank in range(WORKERS))
        if reached >= blocks:
            return reached
        if time.monotonic() > deadline or any(one.poll() not in (None, 0, -9) for one in workers):
            raise RuntimeError(f"the processes ended or hang after {reached} blocks")
        time.sleep(0.005)


def logged_observations(folder, rank):
    """Those of each block."""
    return [np.load(path)["observations"] for path in worker.paths(folder, rank)]


def logged_returns(folder, rank):
    """The discounted returns of each block, as VecNormalize has them."""
    out, returns = [], np.zeros(worker.ENVIRONMENTS)
    for path in worker.paths(folder, rank):
        block, rows = np.load(path), []
        for rewards, dones in zip(block["rewards"], block["dones"]):
            returns = returns * worker.GAMMA + rewards
            rows.append(returns.copy())
            returns[dones] = 0
        out.append(np.concatenate(rows)[:, None])
    return out


def truth(samples):
    """Count, mean and variance of samples and the prior."""
    count = len(samples) + PRIOR
    mean = samples.astype(np.longdouble).sum(0) / count
    variance = (((samples - mean) ** 2).sum(0) + PRIOR * (1 + mean**2)) / count
    return count, mean, variance


def compare(folder, what, logged, info):
    """Whether the session holds the acknowledged blocks of all processes, and nothing else."""
    blocks, on_the_way = [], []
    for rank in range(WORKERS):
        known = acknowledged(folder, what, rank)
        mine = logged(folder, rank)
        blocks += mine[:known]
        on_the_way += mine[known : known + 1]
    sets = [blocks, blocks + on_the_way]
    count, mean, variance = min((truth(np.concatenate(one)) for one in sets), key=lambda it: abs(it[0] - info.count[0]))
    off_count = float(abs(info.count - count).max())
    off_mean = float((abs(info.running_mean - mean) / np.sqrt(variance)).max())
    off_variance = float((abs(info.m2 / info.count - variance) / variance).max())
    samples = sum(map(len, blocks))
    print(f"  {what:<13}{samples} samples acknowledged, {len(on_the_way)} block unanswered, count {info.count[0]:.4f}")
    print(f"  {'':<13}mean off by {off_mean:.1e} deviations, variance by {off_variance:.1e} (at most {TOLERANCE:.0e})")
    return off_count < 1e-9 and off_mean < TOLERANCE and off_variance < TOLERANCE


def main():
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name, Server(sys.argv[1], name) as server:
        folder = pathlib.Path(name)
        kills = contribute(server, folder)
        with normd.connect(server.address) as client:
            infos = [client.session(session).info() for session in ("pendulum", "pendulum.returns")]
        print(f"shared statistics: {WORKERS} processes of {worker.ENVIRONMENTS} environments")
        print(f"  server killed after {kills} blocks, process 0 after {WORKER_KILL}")
        lost = sum(worker.read_number(folder / f"{rank}.lost") for rank in range(WORKERS))
        print(f"  answers lost, so that samples were sent again: {lost}")
        holds = {
            "observations": compare(folder, "observations", logged_observations, infos[0]),
            "returns": compare(folder, "returns", logged_returns, infos[1]),
        }
        print(f"  {time.perf_counter() - start:.1f} s with the restarts")
        finished = [acknowledged(folder, "returns", rank) for rank in range(WORKERS)]
    ok = {
        "the statistics of observations are those of what was acknowledged": holds["observations"],
        "the statistics of returns are those of what was acknowledged": holds["returns"],
        "answers were lost": lost > 0,
        "process 0 was killed in the middle, and the others were not": finished[0] < worker.BLOCKS
        and finished[1:] == [worker.BLOCKS] * (WORKERS - 1),
        "the server was killed in the middle": len(kills) == len(SERVER_KILLS) and kills[-1] < sum(finished),
    }
    for claim, true in ok.items():
        if not true:
            print(f"  MISS: not true that {claim}")
    return 0 if all(ok.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
