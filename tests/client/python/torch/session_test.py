"""BatchNorm of normd.torch with its running statistics in a session."""

import copy
import os
import pickle
import uuid

import pytest
import torch
from closeness import assert_near

import normd
import normd.torch


@pytest.fixture
def name():
    return f"bn-{uuid.uuid4().hex[:12]}"


def batches(count=3):
    return [torch.randn(6, 3, 4, 4) * 2 + 1 for _ in range(count)]


def assert_same_state(ours, theirs):
    for (key, one), other in zip(ours.state_dict().items(), theirs.state_dict().values()):
        assert one.dtype == other.dtype and one.shape == other.shape, key
        assert_near(one, other, 1e-6)


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_running_statistics_are_torch_nns_and_live_on_the_server(client, name, momentum):
    ours = normd.torch.BatchNorm2d(3, momentum=momentum, session=name)
    theirs = torch.nn.BatchNorm2d(3, momentum=momentum)
    for x in batches():
        assert_near(ours(x), theirs(x), 1e-5)
    info = client.session(name).info()
    assert info.version == info.num_batches == 3
    assert_near(torch.from_numpy(info.running_mean), theirs.running_mean, 1e-6)
    assert_same_state(ours, theirs)
    x = batches(1)[0]
    assert_near(ours.eval()(x), theirs.eval()(x), 1e-5)
    with torch.no_grad():
        assert_near(ours(x), theirs(x), 1e-5)
    assert client.session(name).num_batches_tracked == 3


def test_inference_follows_weight_and_bias_and_leaves_the_session_alone(client, name):
    norm = normd.torch.BatchNorm2d(3, session=name).eval()
    plain = torch.nn.BatchNorm2d(3).eval()
    x = batches(1)[0]
    with torch.no_grad():
        for value in (1.0, 2.5):
            for one in (norm, plain):
                one.weight.fill_(value)
                one.bias.fill_(-value)
            assert_near(norm(x), plain(x), 1e-5)
    found = client.session(name).info()
    assert found.version == 0 and found.weight is None and found.bias is None


def test_modules_that_share_a_session_have_weights_of_their_own(name):
    modules = [normd.torch.BatchNorm2d(3, session=name).eval() for _ in range(2)]
    plain = torch.nn.BatchNorm2d(3).eval()
    modules[1].weight.data.fill_(5.0)
    x = batches(1)[0]
    with torch.no_grad():
        first = modules[0](x)
        assert_near(modules[1](x), 5 * first, 1e-5)
        assert_near(modules[0](x), first, 1e-7)
        assert_near(first, plain(x), 1e-5)


def test_the_first_inference_after_a_restart_waits_for_the_server(tmp_path, name):
    from normd_server import Server

    program = os.path.abspath(os.environ["NORMD_PROGRAM"])
    with Server(program, str(tmp_path)) as server, normd.connect(server.address) as own:
        norm = normd.torch.BatchNorm2d(3, client=own, session=name)
        x = batches(1)[0]
        norm(x)
        norm.eval()
        with torch.no_grad():
            expected = norm(x)
            norm.weight.mul_(2)
            server.kill()
            with pytest.raises(normd.Unavailable):
                own.layer_norm(x, 4, timeout=0.05)
            server.start()
            assert_near(norm(x), 2 * expected, 1e-5)


def test_gradients_flow_in_eval_by_the_sessions_statistics(name):
    ours, theirs = normd.torch.BatchNorm2d(3, session=name), torch.nn.BatchNorm2d(3)
    for x in batches(2):
        ours(x), theirs(x)
    x = batches(1)[0].requires_grad_()
    grads = [torch.autograd.grad(one.eval()(x).pow(3).sum(), [x, one.weight, one.bias]) for one in (ours, theirs)]
    for one, other in zip(*grads):
        assert_near(one, other, 1e-3 * float(other.abs().max()))


def test_two_modules_share_a_session(name):
    trained, reader = normd.torch.BatchNorm2d(3, session=name), normd.torch.BatchNorm2d(3, session=name).eval()
    plain = torch.nn.BatchNorm2d(3)
    for x in batches(2):
        trained(x), plain(x)
        with torch.no_grad():
            assert_near(reader(x), plain.eval()(x), 1e-5)  # the newest statistics, though the reader trained nothing
        plain.train()
    reader.fetch()
    assert_same_state(reader, plain)


def test_a_new_session_begins_with_the_buffers_and_an_old_one_keeps_its_own(name):
    plain = torch.nn.BatchNorm2d(3)
    for x in batches():
        plain(x)
    model = torch.nn.Sequential(copy.deepcopy(plain))
    normd.torch.replace(model, sessions=lambda _: name)
    x = batches(1)[0]
    with torch.no_grad():
        assert_near(model.eval()(x), plain.eval()(x), 1e-5)
    late = normd.torch.BatchNorm2d(3, session=name)
    late.fetch()
    assert_same_state(late, plain)


def test_another_eps_than_the_sessions_is_refused(name):
    normd.torch.BatchNorm2d(3, session=name)(batches(1)[0])
    with pytest.raises(normd.FailedPrecondition, match="another spec"):
        normd.torch.BatchNorm2d(3, eps=1e-3, session=name)(batches(1)[0])


def test_load_state_dict_and_reset_set_the_session(client, name):
    plain = torch.nn.BatchNorm2d(3)
    for x in batches():
        plain(x)
    norm = normd.torch.BatchNorm2d(3, session=name)
    norm(batches(1)[0])
    norm.load_state_dict(plain.state_dict())
    assert client.session(name).num_batches_tracked == 3
    assert_same_state(norm, plain)
    x = batches(1)[0]
    norm(x), plain(x)
    assert_same_state(norm, plain)
    norm.reset_running_stats()
    plain.reset_running_stats()
    assert client.session(name).num_batches_tracked == 0
    assert_same_state(norm, plain)


def test_a_state_dict_without_statistics_leaves_those_of_the_session(client, name):
    norm = normd.torch.BatchNorm2d(3, session=name)
    norm(batches(1)[0])
    before = client.session(name).info()
    norm.load_state_dict({"weight": torch.full((3,), 2.0)}, strict=False)
    assert client.session(name).info().uid == before.uid and int(norm.num_batches_tracked) == 1
    state = torch.nn.BatchNorm2d(3).state_dict()  # an OrderedDict that says its version
    for key in ("weight", "bias", "running_var", "num_batches_tracked"):
        del state[key]
    state["running_mean"].fill_(5.0)
    norm.load_state_dict(state, strict=False)
    after = client.session(name).info()
    assert after.running_mean.tolist() == [5.0] * 3 and after.num_batches == 1
    assert_near(torch.from_numpy(after.running_var), torch.from_numpy(before.running_var), 1e-6)


def test_a_copy_has_statistics_of_its_own_and_a_pickle_the_session(client, name):
    norm = normd.torch.BatchNorm2d(3, session=name)
    norm(batches(1)[0])
    copied, unpickled = copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))
    assert_same_state(copied, norm)
    copied(batches(1)[0])
    assert int(copied.num_batches_tracked) == 2 and client.session(name).num_batches_tracked == 1
    unpickled(batches(1)[0])
    assert client.session(name).num_batches_tracked == 2


def test_a_batch_with_a_nan_moves_nothing(client, name):
    norm = normd.torch.BatchNorm2d(3, session=name)
    x = batches(1)[0]
    x[0, 1, 0, 0] = float("nan")
    y = norm(x)
    assert not norm.last_state.applied and norm.last_state.reason == "non_finite"
    assert y[:, 1].isnan().all() and not y[:, 0].isnan().any()
    assert client.session(name).num_batches_tracked == 0
    assert torch.equal(norm.running_mean, torch.zeros(3))


def test_restore_fetches_and_leaves_the_session(client, name):
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(3))
    plain = copy.deepcopy(model)
    normd.torch.replace(model, sessions=lambda _: name)
    for x in batches():
        model(x), plain(x)
    assert normd.torch.restore(model) == ["0"]
    assert type(model[0]) is torch.nn.BatchNorm2d
    assert_same_state(model, plain)
    assert client.session(name).num_batches_tracked == 3
    model(batches(1)[0])
    assert client.session(name).num_batches_tracked == 3


def test_a_step_whose_answer_is_lost_counts_once(client, name, monkeypatch):
    norm = normd.torch.BatchNorm2d(3, session=name)
    norm(batches(1)[0])
    unary, lost = client._transport.unary, []

    async def lose_the_first_answer(method, request, timeout):
        reply = await unary(method, request, timeout)
        if method.endswith("CommitMoments") and not lost:
            lost.append(method)
            raise normd.Unavailable("the answer is lost")
        return reply

    monkeypatch.setattr(client._transport, "unary", lose_the_first_answer)
    norm(batches(1)[0])
    assert lost and norm.last_state.replayed
    assert client.session(name).num_batches_tracked == 2
