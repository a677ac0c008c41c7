"""torch.func, forward-mode derivatives and tracers: served as torch.nn's norms are, or refused with the way out."""

import copy

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from closeness import assert_near

import normd.torch

MODULES = {
    "LayerNorm": lambda norms: norms.LayerNorm(4),
    "GroupNorm": lambda norms: norms.GroupNorm(2, 4),
    "BatchNorm1d": lambda norms: norms.BatchNorm1d(4, track_running_stats=False),
    "BatchNorm1d in eval": lambda norms: norms.BatchNorm1d(4).eval(),
}
func = getattr(torch, "func", None)
new = pytest.mark.skipif(func is None, reason="torch.func came with PyTorch 2.0")
RESTORE = "restore"


def functions(kind):
    """The function of x of a served module, and of torch.nn's."""
    pair = []
    for norms in (normd.torch, torch.nn):
        module = MODULES[kind](norms).double()
        pair.append(lambda x, module=module: module(x).pow(3))
    return pair, torch.randn(5, 4, dtype=torch.float64)


@new
@pytest.mark.parametrize("kind", MODULES)
def test_reverse_mode_transforms(kind):
    pair, x = functions(kind)
    for transform in (
        lambda f: func.grad(lambda x: f(x).sum()),
        lambda f: func.jacrev(f),
        lambda f: lambda x: func.vjp(f, x)[1](torch.cos(x))[0],
        lambda f: func.grad(lambda x: func.grad(lambda x: f(x).sum())(x).square().sum()),
        lambda f: func.grad(lambda x: (torch.no_grad()(f)(x) * x).sum()),
    ):
        ours, theirs = (transform(one)(x) for one in pair)
        assert_near(ours, theirs, 1e-7 * max(1.0, float(theirs.detach().abs().max())))


@new
def test_functional_call():
    pair = normd.torch.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
    x = torch.randn(5, 4)
    found = []
    for one in pair:
        state = {key: value.detach().clone() for key, value in one.state_dict().items()}
        state["running_mean"] += 1

        def call(weight, one=one, state=state):
            return func.functional_call(one, {**state, "weight": weight}, (x,))

        y = call(torch.full((4,), 2.0))  # moves the given buffers
        one.eval()
        found.append([y, *state.values(), func.grad(lambda w: call(w).pow(3).sum())(state["weight"])])
        found[-1] += one.state_dict().values()
    for ours, theirs in zip(*found):
        assert_near(ours, theirs, 1e-4 * max(1.0, float(theirs.detach().abs().max())))


@new
@pytest.mark.parametrize("kind", MODULES)
def test_vmap_is_refused(kind):
    (ours, _), x = functions(kind)
    for f in (ours, func.grad(lambda x: ours(x).sum()), torch.no_grad()(ours)):
        with pytest.raises(RuntimeError, match=f"vmap.*{RESTORE}"):
            func.vmap(f)(x[None])
    with pytest.raises(RuntimeError, match="vmap"):
        func.vmap(lambda weight: normd.torch.functional.layer_norm(x, (4,), weight))(x)


@pytest.mark.parametrize("kind", MODULES)
def test_forward_mode_derivatives_are_refused(kind):
    (ours, _), x = functions(kind)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="tangent.*restore"):
        ours(forward_ad.make_dual(x, x))
    if func is not None:
        for transform in (lambda: func.jvp(ours, (x,), (x,)), lambda: func.jacfwd(ours)(x)):
            with pytest.raises(RuntimeError, match="tangent.*restore"):
                transform()
        with pytest.raises((RuntimeError, NotImplementedError), match="jvp|forward"):
            func.hessian(lambda x: ours(x).sum())(x)


@new
@pytest.mark.parametrize("kind", MODULES)
def test_what_records_a_program_is_refused(kind):
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    (ours, _), x = functions(kind)
    for mode in ("real", "fake", "symbolic"):
        with pytest.raises(RuntimeError, match=RESTORE):
            make_fx(lambda x: ours(x), tracing_mode=mode)(x)
    with FakeTensorMode() as mode, pytest.raises(RuntimeError, match=RESTORE):
        ours(mode.from_tensor(x))
    assert ours(x).shape == x.shape  # and it works again


@pytest.mark.skipif(func is not None, reason="PyTorch 2.0 and later have torch.func, tested above")
def test_the_functorch_of_pytorch_1_is_refused():
    functorch = pytest.importorskip("functorch")
    (ours, _), x = functions("LayerNorm")
    for transform in (functorch.grad(lambda x: ours(x).sum()), functorch.vmap(ours), functorch.jacrev(ours)):
        with pytest.raises(RuntimeError):
            transform(x[None])


@new
def test_a_whole_graph_cannot_be_compiled_and_says_so():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), normd.torch.LayerNorm(4))
    plain = copy.deepcopy(model)
    normd.torch.restore(plain)
    x = torch.randn(2, 4)
    with pytest.raises(Exception, match="needs_fullgraph_False"):
        torch.compile(model, backend="eager", fullgraph=True)(x)
    served = normd.torch.functional
    for f in (lambda x: served.layer_norm(x, (4,)) * 2, lambda x: served.rms_norm(x, (4,))):
        assert_near(torch.compile(f, backend="eager")(x), f(x), 1e-6)
    assert_near(torch.compile(model, backend="eager")(x), plain(x), 1e-5)
