"""What somebody writes into a module with a session goes to the session; what the session has is read everywhere."""

import copy
import io
import pickle
import threading

import pytest
import torch
from closeness import assert_near
from session_test import assert_same_state, batches, name  # noqa: F401

import normd
import normd.torch


def both(name, **options):  # noqa: F811
    return normd.torch.BatchNorm2d(3, session=name, **options), torch.nn.BatchNorm2d(3, **options)


def train(modules, count=2):
    for x in batches(count):
        for one in modules:
            one.train()(x)


def assert_same(modules):
    """In eval, in what they show, and after another step."""
    x = batches(1)[0]
    with torch.no_grad():
        assert_near(modules[0].eval()(x), modules[1].eval()(x), 1e-5)
    assert_same_state(*modules)
    train(modules, 1)
    assert_same_state(*modules)


def update_bn(module):
    torch.manual_seed(3)
    torch.optim.swa_utils.update_bn(batches(), torch.nn.Sequential(module))


def average(module):
    averaged = torch.optim.swa_utils.AveragedModel(module)
    averaged.update_parameters(module)
    with torch.no_grad():
        for one, other in zip(module.buffers(), averaged.module.buffers()):
            one.copy_(0.5 * one + other)


def load(strict):
    def change(module):
        state = {key: torch.full_like(value, 5) for key, value in torch.nn.BatchNorm2d(3).state_dict().items()}
        if not strict:
            del state["running_var"], state["weight"], state["bias"]
        module.load_state_dict(state, strict=strict)

    return change


def schedule(module):
    for momentum in (0.5, 0.25, 0):
        module.momentum = momentum
        torch.manual_seed(4)
        module.train()(batches(1)[0])


def write_by_hand(module):
    """By references that were taken before the last step."""
    mean, var, count = module.running_mean, module.running_var, module.num_batches_tracked
    torch.manual_seed(4)
    module.train()(batches(1)[0])
    mean.mul_(0.5)
    var.data.add_(1.0)
    count.sub_(1)


CHANGES = {
    "update_bn": update_bn,
    "update_bn twice": lambda module: [update_bn(module), update_bn(module)],
    "momentum in every step": schedule,
    "averages": average,
    "references": write_by_hand,
    "load_state_dict": load(True),
    "a part of a state_dict": load(False),
    "eps": lambda module: setattr(module, "eps", 0.5),
    "fresh values": lambda module: [module.running_mean.zero_(), module.running_var.fill_(1)],
    "swapped tensors": lambda module: module._buffers.update(running_mean=torch.tensor([1.0, 2.0, 3.0])),
    "requires_grad_": lambda module: module.requires_grad_(False),
    "inference_mode": torch.inference_mode()(lambda module: module.running_mean.fill_(2)),
}


@pytest.mark.parametrize("trained", [True, False], ids=["trained", "new"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_does_what_it_does_to_torch_nns(name, change, trained):  # noqa: F811
    modules = both(name)
    if trained:
        train(modules)
    for one in modules:
        CHANGES[change](one)
    assert_same(modules)


@pytest.mark.parametrize("change", ["update_bn", "load_state_dict", "fresh values", "swapped tensors"])
def test_a_change_of_a_module_that_has_not_called_yet_reaches_a_session_that_exists(name, change):  # noqa: F811
    trained, plain = both(name)
    train([trained, plain])
    modules = normd.torch.BatchNorm2d(3, session=name), plain
    for one in modules:
        CHANGES[change](one)
    assert_same(modules)


def test_a_session_that_exists_is_seen_before_the_first_call(name):  # noqa: F811
    trained, plain = both(name)
    train([trained, plain])
    for seen in (lambda module: module.running_mean, lambda module: dict(module.named_buffers())["running_mean"]):
        assert_near(seen(normd.torch.BatchNorm2d(3, session=name)), plain.running_mean, 1e-6)
    assert_same_state(normd.torch.BatchNorm2d(3, session=name), plain)
    assert_same_state(copy.deepcopy(normd.torch.BatchNorm2d(3, session=name)), plain)


def test_whoever_opens_the_session_later_sees_what_was_written(client, name):  # noqa: F811
    first, plain = both(name)
    train([first, plain])
    for one in (first, plain):
        update_bn(one)
    first.fetch()  # or any other use
    info = client.session(name).info()
    assert info.num_batches == 3 and info.labels == {}
    assert_near(torch.from_numpy(info.running_mean), plain.running_mean, 1e-6)
    assert_same([normd.torch.BatchNorm2d(3, session=name), plain])  # with its momentum of 0.1


def test_what_one_module_writes_another_one_reads(name):  # noqa: F811
    writer, reader = (normd.torch.BatchNorm2d(3, session=name) for _ in range(2))
    train([writer, reader])
    writer.running_mean.fill_(9)
    writer.fetch()  # or any other use
    assert reader.running_mean.tolist() == [9.0] * 3 and int(reader.num_batches_tracked) == 4
    writer(batches(1)[0])
    for read in (lambda: reader.running_mean, lambda: reader.state_dict()["running_mean"]):
        assert torch.equal(read(), writer.running_mean)
    assert torch.equal(dict(reader.named_buffers())["running_var"], writer.running_var)


def test_a_refused_value_costs_nothing(client, name):  # noqa: F811
    norm = normd.torch.BatchNorm2d(3, session=name)
    train([norm])
    before = client.session(name).info()
    norm.momentum = 1.5
    with pytest.raises(normd.InvalidArgument, match="momentum"):
        norm(batches(1)[0])
    assert client.session(name).info().uid == before.uid
    norm.momentum = 0.1
    norm.running_var.fill_(-1)
    with pytest.raises(normd.InvalidArgument, match="var"):
        norm.eval()(batches(1)[0])
    assert client.session(name).info().uid == before.uid


def test_a_state_dict_of_another_size_costs_nothing(client, name):  # noqa: F811
    norm, plain = both(name)
    train([norm, plain])
    uid = client.session(name).info().uid
    for one in (norm, plain):
        with pytest.raises(RuntimeError, match="size mismatch"):
            one.load_state_dict(torch.nn.BatchNorm2d(4).state_dict())  # the count fits, and is loaded
    assert client.session(name).info().uid == uid
    assert_same([norm, plain])


def test_other_types_and_places_of_the_same_values_leave_the_session_alone(client, name):  # noqa: F811
    norm, plain = both(name)
    train([norm, plain])
    uid = client.session(name).info().uid
    for move in (
        lambda module: module.double(),
        lambda module: module.to(torch.bfloat16),
        lambda module: module.half(),
        lambda module: module.float(),
        lambda module: module.share_memory(),
        lambda module: module.to("cpu"),
    ):
        move(norm)
        norm.eval()(batches(1)[0].to(norm.weight.dtype))
        assert norm.running_mean.dtype == norm.weight.dtype
        assert_near(norm.running_mean, plain.running_mean.to(norm.weight.dtype), 1e-6)
        norm(batches(1)[0].to(norm.weight.dtype))
    assert client.session(name).info().uid == uid
    norm.bfloat16().train()(batches(1)[0].bfloat16())
    info = client.session(name).info()
    assert info.uid == uid and info.num_batches == 3
    norm.running_mean.fill_(7)
    assert_near(norm.eval()(torch.full((1, 3, 1, 1), 7.0).bfloat16()).float(), torch.zeros(1, 3, 1, 1), 1e-6)


def test_the_meta_device_has_no_values_and_takes_none(client, name):  # noqa: F811
    norm, plain = both(name)
    train([norm, plain])
    uid = client.session(name).info().uid
    norm.to_empty(device="meta") if hasattr(norm, "to_empty") else norm.to("meta")
    for use in (norm.fetch, lambda: norm.eval()(batches(1)[0]), lambda: norm.train()(batches(1)[0])):
        with pytest.raises(ValueError, match="meta"):
            use()
    norm.to_empty(device="cpu")
    with torch.no_grad():
        norm.weight.fill_(1.0)
        norm.bias.fill_(0.0)
    assert client.session(name).info().uid == uid
    assert_same([norm, plain])


def test_a_buffer_that_is_gone_is_missed(name):  # noqa: F811
    norm, _ = both(name)
    train([norm])
    norm.running_mean = None
    for use in (norm.fetch, lambda: norm.eval()(batches(1)[0]), lambda: norm.train()(batches(1)[0])):
        with pytest.raises(ValueError, match="running_mean.* (None|neither be)"):
            use()
    norm.session = None
    norm.running_var = None
    norm.eval()(batches(1)[0])


def test_files_and_copies_have_what_was_written(name):  # noqa: F811
    norm, plain = both(name)
    train([norm, plain])
    for one in (norm, plain):
        one.running_mean.fill_(7)
    newer = {} if torch.__version__.startswith("1.") else {"weights_only": False}
    file = io.BytesIO()
    torch.save(norm, file)
    file.seek(0)
    for other in (copy.deepcopy(norm), pickle.loads(pickle.dumps(norm)), torch.load(file, **newer)):
        assert_same_state(other, plain)
    assert_same([norm, plain])


def test_a_shallow_copy_shares_everything_but_a_session(client, name):  # noqa: F811
    norm = normd.torch.BatchNorm2d(3, client=client)
    other = copy.copy(norm)
    assert other.client is client and other.running_mean is norm.running_mean and other.weight is norm.weight
    other(batches(1)[0])
    assert int(norm.num_batches_tracked) == 1
    with pytest.raises(TypeError, match="deepcopy"):
        copy.copy(normd.torch.BatchNorm2d(3, session=name))


def test_a_batch_with_a_nan_leaves_the_buffers_as_they_were(name):  # noqa: F811
    norm, plain = both(name)
    train([norm, plain])
    held = norm.running_mean
    norm(torch.full((2, 3, 2, 2), float("nan")))
    assert torch.equal(held, norm.running_mean)
    assert_same([norm, plain])


def test_a_model_in_distributed_data_parallel_keeps_its_buffers_to_itself(name):  # noqa: F811
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3))
    kept = torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
    kept(model, ["0.bias"])
    normd.torch.replace(model, names="1", sessions=lambda _: name)
    ignored = {f"1.{one}" for one in ("running_mean", "running_var", "num_batches_tracked")}
    assert set(model._ddp_params_and_buffers_to_ignore) == {"0.bias", *ignored}
    normd.torch.restore(model)
    assert list(model._ddp_params_and_buffers_to_ignore) == ["0.bias"]


def test_threads_that_train_and_read_write_nothing(client, name):  # noqa: F811
    norm, _ = both(name)
    train([norm])
    uid, failed = client.session(name).info().uid, []

    def work(use):
        try:
            for _ in range(15):
                use()
        except Exception as error:
            failed.append(error)

    uses = [lambda: norm(batches(1)[0]), lambda: norm(batches(1)[0]), lambda: norm.running_mean.sum(), norm.state_dict]
    threads = [threading.Thread(target=work, args=[use]) for use in uses]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    info = client.session(name).info()
    assert not failed and info.uid == uid and info.num_batches == 32


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch.compile came with PyTorch 2.0")
def test_a_compiled_model_sees_what_was_written(name):  # noqa: F811
    norm, plain = both(name)
    compiled = torch.compile(torch.nn.Sequential(norm), backend="eager")
    for x in batches():
        compiled.train()(x), plain.train()(x)
        for one in (norm, plain):
            one.running_var.mul_(2)
            one.momentum = 0.5
        assert_near(compiled.eval()(x), plain.eval()(x), 1e-5)
    assert_same([norm, plain])
