"""The asyncio client has the methods of the blocking one, and does not block the loop."""

import asyncio
import inspect

import numpy as np
import pytest

import normd
from normd import aio


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def public(kind):
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize("blocking, awaited, missing", [
    (normd.Client, aio.Client, set()),
    (normd.Session, aio.Session,
     {"version", "running_mean", "running_var", "running_phi", "num_batches_tracked", "weight", "bias"})])
def test_both_clients_have_the_same_methods_with_the_same_arguments_and_docstrings(blocking, awaited, missing):
    ours, theirs = public(awaited), public(blocking)
    assert set(theirs) - set(ours) == missing and set(ours) <= set(theirs)
    for name, member in ours.items():
        if inspect.isfunction(member):
            assert inspect.signature(member).parameters == inspect.signature(theirs[name]).parameters, name
            assert member.__doc__, name
    assert inspect.signature(aio.connect).parameters == inspect.signature(normd.connect).parameters


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm", "p_rms_norm",
                                  "scale_norm", "lp_norm", "power_norm"])
def test_functions_have_the_arguments_of_the_methods(name):
    function = dict(inspect.signature(getattr(normd, name)).parameters)
    method = dict(inspect.signature(getattr(normd.Client, name)).parameters)
    assert function.pop("client") and method.pop("self")
    assert function == method


def test_a_method_takes_no_other_client():
    with normd.connect("127.0.0.1:1") as client, pytest.raises(TypeError, match="unexpected keyword argument 'client'"):
        client.scale_norm(np.ones(4), client=client)


def test_many_calls_at_once_give_what_one_gives(server, client, random):
    xs = [random.standard_normal((rows, 1024)).astype(np.float32) for rows in (1, 4, 64, 300)]
    expected = [client.layer_norm(x, 1024) for x in xs]

    async def call_all():
        async with aio.connect(server.unix) as there:
            return await asyncio.gather(*(there.layer_norm(x, 1024) for x in xs * 5))

    for y, exact in zip(run(call_all()), expected * 5):
        np.testing.assert_array_equal(y, exact)


def test_every_operator_and_a_session_work(server, client, random):
    x = random.standard_normal((4, 6, 5)).astype(np.float32)

    async def use():
        async with aio.connect(server.unix) as there:
            np.testing.assert_array_equal(await there.rms_norm(x, 5), client.rms_norm(x, 5))
            np.testing.assert_array_equal(await there.group_norm(x, 3), client.group_norm(x, 3))
            np.testing.assert_array_equal(await there.instance_norm(x), client.instance_norm(x))
            running = np.zeros(6), np.ones(6)
            y = await there.batch_norm(x, *running, training=True)
            np.testing.assert_array_equal(y, client.batch_norm(x, None, None, training=True))
            assert running[0].any()
            np.testing.assert_array_equal(await there.batch_norm(x, *running), client.batch_norm(x, *running))
            np.testing.assert_array_equal(await there.p_rms_norm(x, 0.5), client.p_rms_norm(x, 0.5))
            np.testing.assert_array_equal(await there.scale_norm(x), client.scale_norm(x))
            np.testing.assert_array_equal(await there.lp_norm(x), client.lp_norm(x))
            np.testing.assert_array_equal(
                await there.power_norm(x, training=True), client.power_norm(x, training=True))
            results = await there.batch([there.prepare(normd.LayerNorm(5), x), there.prepare(normd.LayerNorm(4), x)])
            assert results[0].y is not None and isinstance(results[1], normd.InvalidArgument)
            bn = await there.session("t-aio", normd.BatchNorm(6))
            await asyncio.gather(*(bn(x) for _ in range(8)))
            await bn.commit([await bn.moments(x)])
            assert (await bn.info()).num_batches == 9
            await bn.load_state_dict(await bn.state_dict())
            assert [one.name async for one in there.sessions() if one.name == "t-aio"] == ["t-aio"]
            fork = await bn.fork("t-aio-fork")
            await fork.set_parameters(weight=np.ones(6))
            await fork.reset()
            await fork.delete()
            await bn.delete()
            assert (await there.describe()).limits.max_rank == 8

    run(use())


def test_errors_and_cancellations_leave_the_client_usable(server, client, random):
    x = random.standard_normal((256, 1024)).astype(np.float32)

    async def use():
        async with aio.connect(server.unix) as there:
            with pytest.raises(normd.InvalidArgument):
                await there.layer_norm(x, 7)
            for _ in range(5):
                task = asyncio.ensure_future(there.layer_norm(x, 1024))
                await asyncio.sleep(0.0005)
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    pass
            np.testing.assert_array_equal(await there.layer_norm(x, 1024), client.layer_norm(x, 1024))
        with pytest.raises(normd.Unavailable, match="closed"):
            await there.layer_norm(x, 1024)

    run(use())


def test_arrays_in_shared_memory_work_from_asyncio(server, random):
    x = random.standard_normal((64, 64)).astype(np.float32)

    async def use():
        async with aio.connect(server.unix, shared_memory="on") as there:
            shared = await there.shared_array(x)
            out = await there.empty(x.shape)
            assert await there.layer_norm(shared, 64, out=out) is out
            np.testing.assert_array_equal(out, await there.layer_norm(x, 64))

    run(use())
