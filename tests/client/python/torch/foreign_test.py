"""Norms that a model defines for itself: replace(model, classes=...)."""

import copy
import pickle

import pytest
import torch
from closeness import assert_near

import normd.torch


class Llama(torch.nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size) + 0.5)
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        wide = hidden_states.float()
        y = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * y.to(hidden_states.dtype)


class Gemma(Llama):
    def forward(self, x):
        wide = x.float()
        y = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (y * (1.0 + self.weight.float())).type_as(x)


class Mean(Llama):
    """No RMSNorm: it takes the mean of the absolute values."""

    def forward(self, x):
        return x / (x.abs().mean(-1, keepdim=True) + self.variance_epsilon) * self.weight


class Gated(Llama):
    def forward(self, x, gate=None):
        return super().forward(x * torch.nn.functional.silu(x))


class Layer(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.rand(size)), torch.nn.Parameter(torch.rand(size))
        self.eps = 1e-12

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        return self.weight * (x - mean) / torch.sqrt((x - mean).pow(2).mean(-1, keepdim=True) + self.eps) + self.bias


RMS, LAYER = normd.torch.RMSNorm, normd.torch.LayerNorm
CLASSES = {Llama: RMS, Gemma: RMS, Layer: LAYER}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", CLASSES)
def test_a_norm_of_the_models_own_is_served_bit_for_bit_but_rounding(kind, dtype):
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), kind(256))
    served = copy.deepcopy(model)
    assert normd.torch.replace(served, classes=CLASSES) == ["1"]
    served, model = served.to(dtype), model.to(dtype)
    assert isinstance(served[1], kind) and repr(served[1]).endswith("served)")
    x = torch.randn(64, 256).to(dtype)
    found = []
    for one in (served[1], model[1]):
        leaf = x.clone().requires_grad_()
        y = one(leaf)
        found.append([y, *torch.autograd.grad(y.float().pow(2).sum(), [leaf, one.weight])])
    assert found[0][0].dtype == dtype
    for one, other in zip(*found):
        assert_near(one, other, (1e-5 if dtype == torch.float32 else 3e-2) * float(other.detach().abs().max()))
    if kind is not Layer:  # which rounds nowhere in particular
        differing = (found[0][0] != found[1][0]).sum()
        assert dtype == torch.float32 or differing < 0.01 * x.numel(), "the cast order is the class's"
    served[1].weight.data.mul_(2)
    for name in ("eps", "variance_epsilon"):
        if hasattr(model[1], name):
            setattr(served[1], name, 0.5)
            setattr(model[1], name, 0.5)
    model[1].weight.data.mul_(2)
    assert_near(served[1](x), model[1](x), 1e-5 if dtype == torch.float32 else 5e-2)
    copied = copy.deepcopy(served)
    assert torch.equal(copied[1](x), served[1](x))
    with pytest.raises(TypeError, match="restore"):
        pickle.dumps(served)
    assert normd.torch.restore(served) == ["1"] and type(served[1]) is kind
    assert torch.equal(served[1](x), model[1](x)) and vars(served[1]).keys() == vars(model[1]).keys()


def test_the_norms_of_transformers_are_served():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama").LlamaRMSNorm
    gemma = pytest.importorskip("transformers.models.gemma.modeling_gemma").GemmaRMSNorm
    x = torch.randn(8, 256).bfloat16()
    for kind in (llama, gemma):
        model = torch.nn.Sequential(kind(256))  # a weight of ones, or of zeros
        expected = model.bfloat16()(x)
        assert normd.torch.replace(model, classes={kind: normd.torch.RMSNorm}) == ["0"]
        assert (model(x) != expected).float().mean() < 0.01


@pytest.mark.parametrize("kind", [Mean, Gated])
def test_what_computes_something_else_is_refused_and_nothing_is_replaced(kind):
    model = torch.nn.Sequential(torch.nn.LayerNorm(8), Llama(8), kind(8))
    with pytest.raises(ValueError, match=f"'2', a {kind.__name__}, does not compute what RMSNorm does"):
        normd.torch.replace(model, classes={**CLASSES, kind: RMS})
    with pytest.raises(ValueError, match="does not compute what LayerNorm does"):
        normd.torch.replace(model, classes={Llama: LAYER})
    assert [type(one) for one in model] == [torch.nn.LayerNorm, Llama, kind]


def test_what_cannot_be_served_says_why():
    model = torch.nn.Sequential(Llama(8))
    with pytest.raises(TypeError, match="BatchNorm1d is no class"):
        normd.torch.replace(model, classes={Llama: normd.torch.BatchNorm1d})
    with pytest.raises(ValueError, match="needs a weight on the CPU, and eps"):
        normd.torch.replace(torch.nn.Sequential(torch.nn.Linear(2, 2)), classes={torch.nn.Linear: RMS})
    normd.torch.replace(model, classes=CLASSES)
    with pytest.raises(TypeError, match="x is torch.bfloat16 and weight torch.float32"):
        model(torch.randn(2, 8).bfloat16())


def test_a_model_of_which_nothing_is_served_is_warned_of():
    model = torch.nn.Sequential(Llama(8), torch.nn.Linear(8, 8))
    model[0].__class__ = type("LlamaRMSNorm", (Llama,), {})
    with pytest.warns(UserWarning, match="its LlamaRMSNorm are classes of their own.*classes="):
        assert normd.torch.replace(model) == []
    with pytest.warns(UserWarning, match="names= and filter= choose none"):
        assert normd.torch.replace(torch.nn.Sequential(torch.nn.LayerNorm(8)), names="nothing") == []


def test_a_parametrized_norm_is_restored_after_its_parametrization():
    model = torch.nn.Sequential(torch.nn.LayerNorm(8))
    normd.torch.replace(model)
    parametrize = torch.nn.utils.parametrize
    parametrize.register_parametrization(model[0], "weight", torch.nn.Softplus())
    with pytest.raises(TypeError, match="'0' has parametrizations"):
        normd.torch.restore(model)
    parametrize.remove_parametrizations(model[0], "weight")
    assert normd.torch.restore(model) == ["0"] and type(model[0]) is torch.nn.LayerNorm
