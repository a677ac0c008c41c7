"""A small network trained on scikit-learn's digits, its running statistics in sessions: python digits.py NORMD

Plain PyTorch trains on full batches. Two worker processes train the same network, from the same weights and on the same
batches, each on its half: the service computes the moments of each half and normalises it by both together, and every
step is committed to the sessions once. Meanwhile the server is killed with SIGKILL and started again, several times,
and the answers to some commits are lost, so that the commits are sent again.
No step may be lost or counted twice, the running statistics must be those of plain PyTorch, and the accuracy on images
that were not trained on must be within 0.5 points of plain PyTorch's. Once in float32, as people train; once in
float64, where rounding does not grow to anything visible, so that the statistics must be equal to many digits.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"  # read by OpenMP and OpenBLAS when PyTorch is loaded; each process computes alone

import digits_model
import torch
from normd_server import Server

WORKERS = 2
# After which parts of the steps the server is killed.
KILLS = (0.2, 0.4, 0.6, 0.8)
POINTS = 0.5
# By dtype, how far the running statistics may be from plain PyTorch's, in deviations of their channels. Trainings that
# differ in rounding alone drift apart: 3e-3 were seen after 216 steps in float32, 7e-14 in float64.
STATISTICS = {torch.float32: 0.1, torch.float64: 1e-9}
LIMIT = 300.0  # seconds; no more than a guard against a hang


def train_plain(dtype: torch.dtype):
    """The accuracy, the state_dict, and the number of steps."""
    (images, labels), test = digits_model.data(dtype)
    model = digits_model.network(dtype)
    optimizer = digits_model.optimizer(model)
    steps = 0
    for batch in digits_model.batches(len(labels)):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
        steps += 1
    return digits_model.accuracy(model, *test), model.state_dict(), steps


def train_served(server: Server, folder: pathlib.Path, steps: int, dtype: torch.dtype):
    """Runs the workers and kills the server; returns what worker 0 wrote and the steps before and after each kill."""
    program = pathlib.Path(__file__).parent / "digits_worker.py"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    rest = [str(WORKERS), server.address, str(folder), str(dtype)[len("torch.") :]]
    workers = [
        subprocess.Popen([sys.executable, str(program), str(rank), *rest], env=environment) for rank in range(WORKERS)
    ]
    kills = []
    try:
        for part in KILLS:
            reached = wait_for_step(folder, workers, round(part * steps))
            server.kill()
            server.start()
            kills.append(reached)
        for worker in workers:
            if worker.wait(LIMIT) != 0:
                raise RuntimeError(f"a worker ended with {worker.returncode}")
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
    return json.loads((folder / "result.json").read_text()), kills


def wait_for_step(folder: pathlib.Path, workers, step: int) -> int:
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            reached = int((folder / "step").read_text())
        except FileNotFoundError:
            reached = 0
        if reached >= step:
            return reached
        if time.monotonic() > deadline or any(worker.poll() is not None for worker in workers):
            raise RuntimeError(f"the workers ended or hang at step {reached}")
        time.sleep(0.002)


def compare(dtype: torch.dtype) -> bool:
    start = time.perf_counter()
    plain_accuracy, plain, steps = train_plain(dtype)
    plain_seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as name, Server(sys.argv[1], name) as server:
        folder = pathlib.Path(name)
        start = time.perf_counter()
        result, kills = train_served(server, folder, steps, dtype)
        served_seconds = time.perf_counter() - start
        served = torch.load(folder / "model.pt")

    drift = 0.0
    for key in plain:
        if key.endswith(("running_mean", "running_var")):
            deviation = plain[key.replace("running_mean", "running_var")].sqrt()
            power = 2 if key.endswith("running_var") else 1
            drift = max(drift, float(((plain[key] - served[key]).abs() / deviation**power).max()))
    print(f"digits, {dtype}: {steps} steps of {digits_model.BATCH} images, {WORKERS} workers, server killed after steps {kills}")
    for session in result["sessions"]:
        print(f"  session {session['name']:<12} version {session['version']}, {session['num_batches']} batches")
    print(f"  commits that were sent again and were there already: {result['replayed']}")
    print(f"  accuracy on {digits_model.TEST_IMAGES} test images: plain {plain_accuracy:.2f} %, served {result['accuracy']:.2f} %")
    print(f"  running statistics: largest difference {drift:.1e} of a channel's deviation (at most {STATISTICS[dtype]:.0e})")
    print(f"  plain {plain_seconds:.1f} s, served {served_seconds:.1f} s with the restarts")
    ok = {
        "some commits were sent again although they had been made": result["replayed"] > 0,
        "every step is in every session once": all(
            session["version"] == session["num_batches"] == steps for session in result["sessions"]
        )
        and len(result["sessions"]) == 2,
        "the restored model says how many steps there were": all(
            int(served[key]) == steps for key in served if key.endswith("num_batches_tracked")
        ),
        "the server was killed in the middle": len(kills) == len(KILLS) and kills[-1] < steps,
        "accuracies agree": abs(plain_accuracy - result["accuracy"]) <= POINTS and plain_accuracy > 90,
        "running statistics agree": drift <= STATISTICS[dtype],
    }
    for claim, holds in ok.items():
        if not holds:
            print(f"  MISS: not true that {claim}")
    return all(ok.values())


def main() -> int:
    return 0 if all([compare(torch.float32), compare(torch.float64)]) else 1


if __name__ == "__main__":
    sys.exit(main())
