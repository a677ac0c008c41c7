"""One of the data-parallel workers of digits.py: python digits_worker.py RANK WORKERS ADDRESS FOLDER DTYPE

It trains on its part of each batch, with BatchNorm's statistics pooled over the workers and kept in sessions of the
server; gradients are averaged by DistributedDataParallel. Worker 0 writes what came out to FOLDER/result.json.
"""

import json
import pathlib
import sys

import digits_model
import torch
import torch.distributed as dist

import normd
import normd.torch

# The server is killed and started again meanwhile: calls are repeated until it is back.
PATIENT = normd.RetryOptions(max_attempts=60, max_backoff=0.5, budget_tokens=1000)


# Every 20th answer to a commit is lost on the way, as when a connection breaks: the commit is made and sent again.
LOST_EVERY = 20


def lose_answers(client) -> None:
    unary, commits = client._transport.unary, 0

    async def lossy(method, request, timeout):
        nonlocal commits
        reply = await unary(method, request, timeout)
        if method.endswith("/CommitMoments"):
            commits += 1
            if commits % LOST_EVERY == 0:
                raise normd.Unavailable("the answer is lost")
        return reply

    client._transport.unary = lossy


def train(model, rank, workers, images, labels, reached) -> None:
    """Calls reached(step) after each step."""
    parallel = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    optimizer = digits_model.optimizer(model)
    share = digits_model.BATCH // workers
    for step, batch in enumerate(digits_model.batches(len(labels)), 1):
        mine = batch[rank * share : (rank + 1) * share]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(parallel(images[mine]), labels[mine]).backward()
        optimizer.step()
        reached(step)


def main() -> None:
    rank, workers = int(sys.argv[1]), int(sys.argv[2])
    address, folder, dtype = sys.argv[3], pathlib.Path(sys.argv[4]), getattr(torch, sys.argv[5])
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=workers)
    (images, labels), test = digits_model.data(dtype)
    model = digits_model.network(dtype)
    with normd.connect(address, deadline=120, retry=PATIENT) as client:
        lose_answers(client)
        norms = normd.torch.replace(model, client, sessions="digits", process_group=dist.group.WORLD)
        replayed = 0

        def reached(step):
            nonlocal replayed
            if rank == 0:
                replayed += sum(module.last_state.replayed for module in model if hasattr(module, "last_state"))
                (folder / "step.new").write_text(str(step))
                (folder / "step.new").replace(folder / "step")  # at once: whoever reads sees the old or the new number

        train(model, rank, workers, images, labels, reached)
        dist.barrier()
        if rank == 0:
            infos = [client.session(f"digits.{name}").info() for name in norms]
            result = {
                "sessions": [{"name": one.name, "version": one.version, "num_batches": one.num_batches} for one in infos],
                "replayed": replayed,
                "accuracy": digits_model.accuracy(model, *test),
            }
            normd.torch.restore(model)
            torch.save(model.state_dict(), folder / "model.pt")
            (folder / "result.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
