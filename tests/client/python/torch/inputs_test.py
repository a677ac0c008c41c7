"""Inputs of every shape, type and kind: a served module does what torch.nn's does, or raises."""

import warnings

import pytest
import torch
from closeness import assert_near
from torch.utils.checkpoint import checkpoint

import normd.torch

NEW = not torch.__version__.startswith("1.")
# The class's name, its arguments, a shape that it takes.
MODULES = {
    "LayerNorm": ((4,), {"eps": 0.1}, (3, 4)),
    "LayerNorm of two axes": (((3, 4),), {}, (2, 3, 4)),
    "GroupNorm": ((2, 4), {}, (3, 4, 5)),
    "GroupNorm of channels": ((4, 4), {}, (3, 4, 5)),
    "InstanceNorm1d": ((4,), {"affine": True, "track_running_stats": True}, (3, 4, 5)),
    "InstanceNorm2d": ((4,), {}, (3, 4, 5, 2)),
    "InstanceNorm3d": ((4,), {"affine": True}, (3, 4, 5, 2, 2)),
    "BatchNorm1d": ((4,), {}, (5, 4)),
    "BatchNorm1d of sequences": ((4,), {"momentum": None}, (5, 4, 3)),
    "BatchNorm2d": ((4,), {"track_running_stats": False}, (3, 4, 5, 2)),
    "BatchNorm3d": ((4,), {"affine": False}, (3, 4, 5, 2, 2)),
}
if hasattr(torch.nn, "RMSNorm"):
    MODULES["RMSNorm"] = ((4,), {"eps": 0.1}, (3, 4))
SHAPES = [(), (4,), (1, 4), (4, 4), (0, 4), (4, 1), (2, 3), (4, 0)]
SHAPES += [(1, 4, 1), (2, 4, 1), (4, 4, 4), (0, 4, 5), (2, 4, 0), (3, 5, 6)]
SHAPES += [(1, 4, 1, 1), (2, 4, 1, 3), (0, 4, 2, 2), (4, 4, 2, 2), (2, 3, 4, 4), (4, 2, 2, 2), (1, 4, 2, 2, 2)]
ERRORS = (ValueError, RuntimeError, TypeError, IndexError)


def pair(kind):
    args, options, shape = MODULES[kind]
    name = kind.split(" ")[0]
    ours, theirs = getattr(normd.torch, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
    with torch.no_grad():
        for one, other in zip(ours.parameters(), theirs.parameters()):
            other.copy_(one.uniform_(0.5, 1.5))
    return (ours, theirs), shape


def call(module, x):
    x = x.detach().clone() if x.layout == torch.strided and not x.requires_grad else x
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = module(x)
    except ERRORS as error:
        return error
    return y


def compare(modules, x, tolerance=1e-4):
    for training in (True, False, True):
        ours, theirs = (call(one.train(training), x) for one in modules)
        if isinstance(ours, Exception) or isinstance(theirs, Exception):
            if not x.numel():
                return  # no number can be another one; each kind of PyTorch's refuses some
            assert isinstance(ours, ERRORS), f"torch.nn refuses it: {theirs!r}"
            is_new = not NEW and "num_features" in str(ours)  # PyTorch 1 does not look at it in InstanceNorm
            assert isinstance(theirs, ERRORS) or is_new, f"torch.nn takes it: {ours!r}"
            assert len(str(ours)) > 15
            return
        assert ours.dtype == theirs.dtype
        if ours.numel() and not isinstance(modules[0], torch.nn.modules.instancenorm._InstanceNorm):
            assert ours.stride() == theirs.stride()  # an InstanceNorm keeps channels_last, which torch.nn's does not
        assert_near(ours, theirs, tolerance)
    for one, other in zip(modules[0].buffers(), modules[1].buffers()):
        assert_near(one, other, tolerance)


@pytest.mark.parametrize("kind", MODULES)
def test_shapes(kind):
    for shape in SHAPES:
        modules, _ = pair(kind)
        compare(modules, torch.randn(shape))


@pytest.mark.parametrize("kind", MODULES)
def test_strides(kind):
    modules, shape = pair(kind)
    x = torch.randn(shape)
    for strided in (
        torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2],
        torch.randn(shape[::-1]).permute(*reversed(range(len(shape)))),
        torch.randn(1, *shape[1:]).expand(shape),
        torch.randn(7, *shape)[3],
        x.flip(0),
        torch._neg_view(x),
        x.as_strided(shape, x.stride(), 0),
    ):
        ours, theirs = (one(strided) for one in modules)
        assert_near(ours, theirs, 1e-4)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if len(shape) in formats:
        compare(modules, x.contiguous(memory_format=formats[len(shape)]))


TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("of_x", TYPES, ids=str)
@pytest.mark.parametrize("kind", MODULES)
def test_types_of_x_beside_those_of_parameters_and_buffers(kind, of_x):
    """y has x's type. What torch.nn does not mix, or has no kernel for, may be served."""
    for of_module in TYPES:
        modules, shape = pair(kind)
        modules = [one.to(of_module) for one in modules]
        x = torch.randn(shape).to(of_x)
        for training in (True, False):
            ours, theirs = (call(one.train(training), x) for one in modules)
            assert not isinstance(ours, Exception), ours
            assert ours.dtype == of_x and {one.dtype for one in modules[0].parameters()} <= {of_module}
            if not isinstance(theirs, Exception):
                assert theirs.dtype == of_x
                # PyTorch rounds running statistics of 16 bits, and intermediate results, once more.
                tolerance = 1e-4 if 16 not in {torch.finfo(one).bits for one in (of_x, of_module)} else 5e-2
                assert_near(ours, theirs, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", MODULES)
def test_autocast(kind, dtype):
    modules, shape = pair(kind)
    x = torch.randn(shape).to(dtype).requires_grad_()
    found = []
    for one in modules:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = call(one, x)
        found.append(y if isinstance(y, Exception) else (y, *torch.autograd.grad(y.float().square().sum(), x)))
    assert found[0][0].dtype == dtype
    if NEW or dtype == torch.float32:  # PyTorch 1 mixes bfloat16 and float32 in batch_norm alone
        for one, other in zip(*found):
            assert one.dtype == other.dtype
            assert_near(one, other, 1e-4 if dtype == torch.float32 else 1e-1)


@pytest.mark.parametrize("kind", MODULES)
def test_other_inputs(kind):
    modules, shape = pair(kind)
    for x in (
        torch.ones(shape, dtype=torch.int32),
        torch.ones(shape, dtype=torch.complex64),
        torch.ones(shape, dtype=torch.bool),
        torch.ones(shape, device="meta"),
        torch.ones(shape).to_sparse(),
        torch.ones(shape).numpy(),
        None,
    ):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            modules[0](x)
    special = torch.randn(shape)
    special.view(-1)[0], special.view(-1)[5] = float("nan"), float("inf")
    ours, theirs = (one(special) for one in modules)
    assert torch.equal(ours.isnan(), theirs.isnan())
    for x in (torch.zeros(shape), torch.full(shape, 3.0)):
        ours, theirs = (one(x) for one in modules)
        assert_near(ours, theirs, 1e-3)


@pytest.mark.parametrize("kind", MODULES)
def test_modes_of_autograd(kind):
    modules, shape = pair(kind)
    leaf = torch.randn(shape)
    for reentrant in (True, False):
        found = []
        for one in modules:
            x = leaf.clone().requires_grad_()
            y = checkpoint(lambda x, one=one: one(x * 2).square(), x, use_reentrant=reentrant)
            y.sum().backward()
            found.append([y, x.grad, *one.buffers()])
        for one, other in zip(*found):
            assert_near(one, other, 1e-3)
    with torch.inference_mode():
        x = torch.randn(shape)
        ours, theirs = (one(x) for one in modules)
        assert ours.is_inference()
        assert_near(ours, theirs, 1e-4)


def test_a_subclass_of_tensor_stays_one():
    class Named(torch.Tensor):
        pass

    x = torch.randn(3, 4).as_subclass(Named)
    for module in (normd.torch.LayerNorm(4), normd.torch.BatchNorm1d(4)):
        assert type(module(x)) is Named
        with torch.no_grad():
            assert type(module.eval()(x)) is Named


@pytest.mark.skipif(not NEW, reason="torch.device became a context with PyTorch 2.0")
@pytest.mark.parametrize("kind", MODULES)
def test_the_default_device_is_that_of_new_tensors_alone(kind):
    modules, shape = pair(kind)
    x = torch.randn(shape)
    with torch.device("meta"):
        compare(modules, x)
        compare(modules, x.clone().requires_grad_())


@pytest.mark.skipif(
    not hasattr(torch.utils.checkpoint, "set_checkpoint_early_stop"), reason="checkpoints stop early since PyTorch 2.1"
)
def test_a_step_at_the_end_of_what_is_checkpointed_counts_once():
    """README.md says so: torch.nn's counts twice."""
    norm = normd.torch.BatchNorm1d(4)
    checkpoint(norm, torch.randn(5, 4).requires_grad_(), use_reentrant=False).sum().backward()
    assert int(norm.num_batches_tracked) == 1
