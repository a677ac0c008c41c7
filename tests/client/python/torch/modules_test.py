"""The modules of normd.torch beside those of torch.nn: everything but forward is torch.nn's, and forward is equal."""

import copy
import io
import pickle

import pytest
import torch
from closeness import GRADIENT_TOLERANCE, TOLERANCE, assert_near

import normd.torch

# The class's name, its arguments, and shapes that it takes.
CASES = [
    ("LayerNorm", (6,), {}, [(3, 6), (2, 3, 6)]),
    ("LayerNorm", ((5, 6),), {"eps": 1e-3}, [(3, 5, 6)]),
    ("LayerNorm", (6,), {"elementwise_affine": False}, [(3, 6)]),
    ("GroupNorm", (2, 6), {}, [(3, 6, 4), (3, 6, 4, 2)]),
    ("GroupNorm", (3, 6), {"affine": False, "eps": 1e-2}, [(3, 6, 4)]),
    ("InstanceNorm1d", (3,), {}, [(2, 3, 7), (3, 7)]),
    ("InstanceNorm2d", (3,), {"affine": True}, [(2, 3, 4, 5), (3, 4, 5)]),
    ("InstanceNorm3d", (3,), {"track_running_stats": True, "momentum": 0.3}, [(2, 3, 4, 5, 2), (3, 4, 5, 2)]),
    ("BatchNorm1d", (3,), {}, [(6, 3), (6, 3, 5)]),
    ("BatchNorm2d", (3,), {"momentum": None, "eps": 1e-3}, [(4, 3, 5, 6)]),
    ("BatchNorm2d", (3,), {"track_running_stats": False}, [(4, 3, 5, 6)]),
    ("BatchNorm3d", (3,), {"affine": False}, [(4, 3, 5, 6, 2)]),
]
if hasattr(torch.nn, "RMSNorm"):  # since PyTorch 2.4
    CASES.append(("RMSNorm", (6,), {"eps": 1e-3}, [(3, 6)]))
    CASES.append(("RMSNorm", ((5, 6),), {"elementwise_affine": False}, [(3, 5, 6)]))
IDS = [f"{name}{args}{options or ''}" for name, args, options, _ in CASES]


def pair(name, args, options):
    """A module of each kind, with the same random parameters."""
    ours, theirs = getattr(normd.torch, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
    with torch.no_grad():
        for one, other in zip(ours.parameters(), theirs.parameters()):
            other.copy_(one.uniform_(0.5, 1.5))
    return ours, theirs


@pytest.mark.parametrize("name, args, options, shapes", CASES, ids=IDS)
def test_what_a_module_says_of_itself_is_torch_nns(name, args, options, shapes):
    ours, theirs = pair(name, args, options)
    assert repr(ours) == repr(theirs)[:-1] + ", served)"
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [key for key, _ in ours.named_parameters()] == [key for key, _ in theirs.named_parameters()]
    assert [key for key, _ in ours.named_buffers()] == [key for key, _ in theirs.named_buffers()]
    assert isinstance(ours, getattr(torch.nn, name))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name, args, options, shapes", CASES, ids=IDS)
def test_forward_backward_and_running_statistics_are_torch_nns(name, args, options, shapes, dtype):
    ours, theirs = (one.to(dtype) for one in pair(name, args, options))
    for training in (True, True, False):
        ours.train(training)
        theirs.train(training)
        for shape in shapes:
            x = (torch.randn(shape) * 2 + 1).to(dtype).requires_grad_()
            y, expected = ours(x), theirs(x)
            assert y.dtype == dtype
            assert_near(y, expected, 4 * TOLERANCE[dtype])  # PyTorch's own error is in it
            dy = torch.randn(shape).to(dtype)
            grads = torch.autograd.grad(y, [x, *ours.parameters()], dy)
            wanted = torch.autograd.grad(expected, [x, *theirs.parameters()], dy)
            for one, other in zip(grads, wanted):
                assert_near(one, other, GRADIENT_TOLERANCE[dtype])
            with torch.no_grad():
                if not training:
                    assert_near(ours(x), expected, 4 * TOLERANCE[dtype])
    for (key, one), other in zip(ours.state_dict().items(), theirs.state_dict().values()):
        assert one.dtype == other.dtype, key
        assert_near(one, other, 1e-6)


@pytest.mark.parametrize("name, args, options, shapes", CASES, ids=IDS)
def test_state_dicts_go_both_ways(name, args, options, shapes):
    ours, theirs = pair(name, args, options)
    for value in [*theirs.parameters(), *theirs.buffers()]:
        value.data = torch.rand_like(value.double()).mul(9).to(value.dtype)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    back = getattr(torch.nn, name)(*args, **options)
    back.load_state_dict(ours.state_dict(), strict=True)
    for one, other in zip(back.state_dict().values(), theirs.state_dict().values()):
        assert torch.equal(one, other)


def test_rms_norm_has_torch_nns_parameters_in_every_version():
    norm = normd.torch.RMSNorm(6, eps=1e-5)
    assert list(norm.state_dict()) == ["weight"] and torch.equal(norm.weight.detach(), torch.ones(6))
    assert repr(norm) == "RMSNorm((6,), eps=1e-05, elementwise_affine=True, served)"
    x = torch.randn(3, 6)
    assert_near(norm(x), x.double() / torch.sqrt(x.double().square().mean(-1, keepdim=True) + 1e-5), 2.0**-22)
    assert normd.torch.RMSNorm((2, 3), elementwise_affine=False).weight is None


def test_wrong_inputs_raise_as_in_torch_nn():
    with pytest.raises(ValueError, match="expected 4D input"):
        normd.torch.BatchNorm2d(3)(torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match="x has 4 channels; running_mean has 3"):
        normd.torch.BatchNorm2d(3)(torch.zeros(2, 4, 4, 4))
    with pytest.raises(ValueError, match="num_features=3"):
        normd.torch.InstanceNorm2d(3, affine=True)(torch.zeros(2, 4, 4, 4))
    with pytest.raises(ValueError):
        normd.torch.BatchNorm1d(3)(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="track_running_stats"):
        normd.torch.BatchNorm1d(3, track_running_stats=False, session="nothing-to-keep")


def test_a_failed_call_counts_no_batch():
    norm = normd.torch.BatchNorm1d(3)
    with pytest.raises(ValueError):
        norm(torch.zeros(1, 3))
    assert int(norm.num_batches_tracked) == 0


def test_a_module_calls_its_own_client(server):
    other = normd.connect(server.address)
    norm = normd.torch.LayerNorm(6, client=other)
    normd.set_default_client(None)
    norm(torch.zeros(2, 6))
    assert copy.deepcopy(norm).client is other
    other.close()
    with pytest.raises(normd.Unavailable):
        norm(torch.zeros(2, 6))


def test_modules_are_copied_pickled_and_saved():
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), normd.torch.LayerNorm(6), normd.torch.BatchNorm1d(6))
    x = torch.randn(5, 6)
    y = model(x)
    file = io.BytesIO()
    torch.save(model.eval(), file)
    file.seek(0)
    newer = {} if torch.__version__.startswith("1.") else {"weights_only": False}
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, **newer)):
        assert torch.equal(other(x), model(x))
        assert torch.equal(other.train()(x), y)
        assert int(other[2].num_batches_tracked) == 2 and int(model[2].num_batches_tracked) == 1


# ---- What records or compiles a model


def test_tracing_and_scripting_are_refused_clearly():
    model = torch.nn.Sequential(normd.torch.LayerNorm(6), torch.nn.ReLU())
    with pytest.raises(TypeError, match="restore"):
        torch.jit.script(model)
    with pytest.raises(RuntimeError, match="restore"):
        torch.jit.trace(model, torch.zeros(2, 6))
    with pytest.raises(TypeError, match="restore"):
        torch.fx.symbolic_trace(model)
    if hasattr(torch, "export"):
        with pytest.raises(RuntimeError, match="restore"):
            torch.export.export(model, (torch.zeros(2, 6),))


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch.compile came with PyTorch 2.0")
def test_a_compiled_model_calls_the_service():
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), normd.torch.LayerNorm(6), normd.torch.BatchNorm1d(6))
    plain = copy.deepcopy(model)
    compiled = torch.compile(model, backend="eager")
    for training in (True, True, False):
        x = torch.randn(5, 6)
        y, expected = compiled.train(training)(x), plain.train(training)(x)
        assert_near(y, expected, 1e-6)
        y.square().sum().backward()
        expected.square().sum().backward()
    for one, other in zip(model.parameters(), plain.parameters()):
        assert_near(one.grad, other.grad, 1e-4)
    assert int(model[2].num_batches_tracked) == 2
