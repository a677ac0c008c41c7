"""BatchNorm over the batches of several processes: equal to one process with all rows."""

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
