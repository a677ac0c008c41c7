"""BatchNorm over the batches of several processes: equal to one process with all rows."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from closeness import assert_near

import normd
import normd.torch

WORKERS = 2
SPLITS = {"equal halves": (0, 5, 10), "unequal parts": (0, 3, 10), "one without rows": (0, 0, 10)}


def rows():
    generator = torch.Generator().manual_seed(3)
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return draw(10, 3, 4) * 2 + 5, draw(10, 3, 4), draw(3) + 2, draw(3)


def work(rank, address, folder, bounds, session):
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORKERS)
    x, dy, weight, bias = rows()
    mine = slice(bounds[rank], bounds[rank + 1])
    with normd.connect(address) as client:
        norm = normd.torch.BatchNorm1d(3, client=client, session=session, process_group=dist.group.WORLD).double()
        with torch.no_grad():
            norm.weight.copy_(weight)
            norm.bias.copy_(bias)
        part = x[mine].clone().requires_grad_()
        y = norm(part)
        y.backward(dy[mine])
        with torch.no_grad():
            again = norm(x[mine])
        dist.barrier()  # the first process commits, the others must not read before
        norm.fetch()
        torch.save(
            {
                "y": y.detach(),
                "again": again,
                "dx": part.grad,
                "dweight": norm.weight.grad,
                "dbias": norm.bias.grad,
                "state": dict(norm.state_dict()),
            },
            f"{folder}/{rank}.pt",
        )
        dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("bounds", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize("session", [None, "pooled"], ids=["buffers", "session"])
def test_two_processes_are_one_batch(server, tmp_path, monkeypatch, client, bounds, session):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    name = session and f"{session}-{bounds[1]}"
    torch.multiprocessing.spawn(work, (server.address, str(tmp_path), bounds, name), nprocs=WORKERS)
    parts = [torch.load(tmp_path / f"{rank}.pt") for rank in range(WORKERS)]

    x, dy, weight, bias = rows()
    plain = torch.nn.BatchNorm1d(3).double()
    with torch.no_grad():
        plain.weight.copy_(weight)
        plain.bias.copy_(bias)
    x.requires_grad_()
    y = plain(x)
    y.backward(dy)
    plain(x)
    assert_near(torch.cat([part["y"] for part in parts]), y, 1e-12)
    assert_near(torch.cat([part["again"] for part in parts]), y, 1e-12)
    assert_near(torch.cat([part["dx"] for part in parts]), x.grad, 1e-11)
    assert_near(sum(part["dweight"] for part in parts), plain.weight.grad, 1e-11)
    assert_near(sum(part["dbias"] for part in parts), plain.bias.grad, 1e-11)
    for part in parts:
        for (key, one), other in zip(part["state"].items(), plain.state_dict().values()):
            assert_near(one, other, 1e-12)
    if name:
        assert client.session(name).version == 2, "each step is committed once"


def train_in_parallel(rank, address, folder, session):
    """Two served norms in DistributedDataParallel, which broadcasts buffers: one knows it, one was put in by hand."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORKERS)
    with normd.connect(address) as client:
        normd.set_default_client(client)
        group = dist.group.WORLD
        by_hand = normd.torch.BatchNorm1d(3, session=f"{session}.hand", process_group=group)
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), by_hand).double()
        normd.torch.replace(model, sessions=session, process_group=group)
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        x = rows()[0]
        for step in range(4):
            parallel(x[rank * 5 : rank * 5 + 5] * (step + 1)).sum().backward()
            dist.barrier()
            if step == 1:  # all of them write; the first one's values count
                for norm in model:
                    norm.running_mean.fill_(7.0 if rank == 0 else 8.0)
        copied = copy.deepcopy(model)
        copied(x[rank * 5 : rank * 5 + 5])
        torch.save([dict(model.state_dict()), dict(copied.state_dict())], f"{folder}/{rank}.pt")
        dist.barrier()
    dist.destroy_process_group()


def test_distributed_data_parallel_and_writes(server, tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    torch.multiprocessing.spawn(train_in_parallel, (server.address, str(tmp_path), "parallel"), nprocs=WORKERS)
    plain = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)).double()
    x = rows()[0]
    for step in range(4):
        plain(x * (step + 1))
        if step == 1:
            for norm in plain:
                norm.running_mean.fill_(7.0)
    copied = copy.deepcopy(plain)
    copied(x)
    for rank in range(WORKERS):
        for found, expected in zip(torch.load(tmp_path / f"{rank}.pt"), (plain, copied)):
            for (key, one), other in zip(found.items(), expected.state_dict().values()):
                assert_near(one, other, 1e-9)


def test_a_group_that_cannot_exchange_tensors_of_the_cpu_is_refused(monkeypatch):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        group = dist.group.WORLD
        asked = "get_backend_config" if hasattr(dist, "get_backend_config") else "get_backend"
        for backend in ("cuda:gloo", "cuda:nccl", "nccl"):  # as PyTorch names them; CUDA is not needed to be refused
            model = torch.nn.Sequential(torch.nn.BatchNorm1d(3))
            with monkeypatch.context() as patched:
                patched.setattr(dist, asked, lambda group: backend)  # noqa: B023
                with pytest.raises(ValueError, match=f"{backend}.*gloo"):
                    normd.torch.replace(model, process_group=group)
                assert type(model[0]) is torch.nn.BatchNorm1d
                with pytest.raises(ValueError, match=f"{backend}.*gloo"):
                    normd.torch.BatchNorm1d(3, process_group=group)
        norm = normd.torch.BatchNorm1d(3, process_group=group)
        norm(torch.randn(4, 3))
        if hasattr(torch, "func"):
            with pytest.raises(RuntimeError, match="process_group"):
                torch.func.grad(lambda x: norm(x).sum())(torch.randn(4, 3))
        with pytest.raises(ValueError, match="a member of"):
            normd.torch.BatchNorm1d(3, process_group=dist.GroupMember.NON_GROUP_MEMBER)
        norm.process_group = "no group"
        with pytest.raises(ValueError, match="no group"):
            norm(torch.randn(4, 3))
    finally:
        dist.destroy_process_group()
