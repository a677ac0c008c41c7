"""normd.torch.functional beside torch.nn.functional."""

import pytest
import torch
import torch.nn.functional as reference
from closeness import GRADIENT_TOLERANCE, TOLERANCE, assert_near, widen

import normd
import normd.torch
import normd.torch.functional as served

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def rms_norm(x, shape, weight=None, bias=None, eps=None):
    axes = tuple(range(-len(shape), 0))
    y = x / torch.sqrt(x.square().mean(axes, keepdim=True) + eps)
    return y if weight is None else y * weight


def statistics(count, dtype=torch.float64):
    return torch.linspace(-1, 1, count).to(dtype), torch.linspace(0.5, 2, count).to(dtype)


# name: the function of x, weight and bias, PyTorch's, x's shape, the shape of weight and bias.
CASES = {
    "layer_norm": (
        lambda x, w, b: served.layer_norm(x, (6,), w, b, 1e-4),
        lambda x, w, b: reference.layer_norm(x, (6,), w, b, 1e-4),
        (3, 5, 6),
        (6,),
    ),
    "layer_norm over two axes": (
        lambda x, w, b: served.layer_norm(x, (5, 6), w, b),
        lambda x, w, b: reference.layer_norm(x, (5, 6), w, b),
        (3, 5, 6),
        (5, 6),
    ),
    "rms_norm": (
        lambda x, w, b: served.rms_norm(x, (6,), w, 1e-5),
        lambda x, w, b: rms_norm(x, (6,), w, eps=1e-5),
        (3, 5, 6),
        (6,),
    ),
    "group_norm": (
        lambda x, w, b: served.group_norm(x, 3, w, b, 1e-3),
        lambda x, w, b: reference.group_norm(x, 3, w, b, 1e-3),
        (2, 6, 3, 4),
        (6,),
    ),
    "instance_norm": (
        lambda x, w, b: served.instance_norm(x, weight=w, bias=b),
        lambda x, w, b: reference.instance_norm(x, weight=w, bias=b),
        (2, 3, 7),
        (3,),
    ),
    "instance_norm with given statistics": (
        lambda x, w, b: served.instance_norm(x, *statistics(3), w, b, use_input_stats=False),
        lambda x, w, b: reference.instance_norm(x, *statistics(3, x.dtype), w, b, use_input_stats=False),
        (2, 3, 7),
        (3,),
    ),
    "batch_norm in training": (
        lambda x, w, b: served.batch_norm(x, None, None, w, b, training=True),
        lambda x, w, b: reference.batch_norm(x, None, None, w, b, training=True),
        (4, 3, 5, 2),
        (3,),
    ),
    "batch_norm of vectors": (
        lambda x, w, b: served.batch_norm(x, None, None, w, b, training=True),
        lambda x, w, b: reference.batch_norm(x, None, None, w, b, training=True),
        (7, 4),
        (4,),
    ),
    "batch_norm in inference": (
        lambda x, w, b: served.batch_norm(x, *statistics(3), w, b, eps=1e-2),
        lambda x, w, b: reference.batch_norm(x, *statistics(3, x.dtype), w, b, eps=1e-2),
        (4, 3, 5, 2),
        (3,),
    ),
}


def operands(name, dtype, affine=True):
    _, _, shape, parameters = CASES[name]
    x = (torch.randn(shape) * 1.5 + 0.5).to(dtype).requires_grad_()
    if not affine:
        return x, None, None
    weight, bias = torch.rand(parameters) + 0.5, torch.randn(parameters)
    return x, weight.to(dtype).requires_grad_(), bias.to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize("name", CASES)
def test_y_is_pytorchs_and_so_are_the_gradients(name, affine, dtype):
    function, expected, _, _ = CASES[name]
    inputs = operands(name, dtype, affine)
    wide = widen(*inputs)
    y, wanted = function(*inputs), expected(*wide)
    assert y.dtype == dtype and y.requires_grad
    assert_near(y, wanted, TOLERANCE[dtype])
    with torch.no_grad():
        assert torch.equal(function(*inputs), y), "without gradients y is the same"

    dy = torch.randn(y.shape).to(dtype)
    pairs = [(one, other) for one, other in zip(inputs, wide) if one is not None]
    if name == "rms_norm":
        pairs = pairs[:2]  # no bias
    got = torch.autograd.grad(y, [one for one, _ in pairs], dy)
    want = torch.autograd.grad(wanted, [other for _, other in pairs], dy.double())
    for one, gradient, exact in zip([one for one, _ in pairs], got, want):
        assert gradient.dtype == one.dtype
        assert_near(gradient, exact, GRADIENT_TOLERANCE[dtype])


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_the_slope_of_what_the_service_computes(name):
    function, _, _, _ = CASES[name]
    inputs = operands(name, torch.float64)
    # Finite differences of served calls: 1e-6 apart, with errors near 1e-15 / 1e-6.
    assert torch.autograd.gradcheck(function, inputs[:2] + (None,) if name == "rms_norm" else inputs, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_can_be_differentiated_itself(name):
    function, expected, _, _ = CASES[name]
    found = []
    for one in (function, expected):
        x, w, b = operands(name, torch.float64)
        torch.manual_seed(1)
        weight = w * x.detach().flatten()[0]  # computed from another leaf; and from x itself, below
        y = one(x, weight + 0 * x.sum(), b)
        (slope,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad((slope.norm() - 1).square(), [x, w]))
        torch.manual_seed(0)
    for one, other in zip(*found):
        assert_near(one, other, 1e-6 * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("name", ["group_norm", "batch_norm in training", "batch_norm in inference"])
def test_channels_last_tensors_keep_their_memory_format(name):
    function, expected, _, _ = CASES[name]
    x, w, b = operands(name, torch.float32)
    last = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    y = function(last, w, b)
    assert y.is_contiguous(memory_format=torch.channels_last) and not y.is_contiguous()
    assert_near(y, expected(*widen(x, w, b)), TOLERANCE[torch.float32])
    (dx,) = torch.autograd.grad(y.square().sum(), last)
    (want,) = torch.autograd.grad(expected(x, w, b).square().sum(), x)
    assert_near(dx, want, GRADIENT_TOLERANCE[torch.float32])


def test_a_transposed_tensor_is_normalised_as_it_is_seen():
    x = torch.randn(6, 5).t()
    assert_near(served.layer_norm(x, (6,)), reference.layer_norm(x.double(), (6,)), TOLERANCE[torch.float32])


def test_only_the_gradients_that_are_wanted_are_computed():
    x, w, b = operands("layer_norm", torch.float32)
    y = served.layer_norm(x.detach(), (6,), w, b.detach())
    y.sum().backward()
    assert w.grad is not None and b.grad is None and x.grad is None
    assert not served.layer_norm(x.detach(), (6,)).requires_grad


@pytest.mark.parametrize("function", ["batch_norm", "instance_norm"])
def test_running_statistics_move_as_in_pytorch(function):
    shape = (4, 3, 5)
    ours, theirs = [torch.zeros(3), torch.ones(3)], [torch.zeros(3), torch.ones(3)]
    how = {"training": True} if function == "batch_norm" else {"use_input_stats": True}
    for _ in range(3):
        x = torch.randn(shape) * 3 + 1
        getattr(served, function)(x, *ours, momentum=0.3, **how)
        getattr(reference, function)(x, *theirs, momentum=0.3, **how)
    for one, other in zip(ours, theirs):
        assert_near(one, other, 1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1e-5, 1e-3, 1e-2])
def test_rms_norm_without_eps_takes_that_of_the_type_that_torch_computes_in(dtype, size):
    x = (torch.rand(2, 4) * size).to(dtype).requires_grad_()
    eps = 2.0**-52 if dtype == torch.float64 else 2.0**-23
    module = normd.torch.RMSNorm(4).to(dtype)
    wide = x.detach().double().requires_grad_()
    expected = rms_norm(wide, (4,), eps=eps)
    (slope,) = torch.autograd.grad(expected.sum(), wide)
    for one in (lambda x: served.rms_norm(x, (4,)), module, restored(module)):
        y = one(x)
        assert_near(y, expected, TOLERANCE[dtype])
        (found,) = torch.autograd.grad(y.sum(), x)
        assert_near(found / slope.abs().max(), slope / slope.abs().max(), GRADIENT_TOLERANCE[dtype])
        if torch_rms_norm_is_newest():
            assert_near(y, reference.rms_norm(x, (4,)), 2 * TOLERANCE[dtype])


def restored(module):
    """The same module of torch.nn, or of normd.torch where PyTorch has none."""
    other = normd.torch.RMSNorm(4, eps=module.eps).to(module.weight.dtype)
    if torch_rms_norm_is_newest() or not hasattr(torch.nn, "RMSNorm"):
        normd.torch.restore(other)
    return other


def torch_rms_norm_is_newest():
    """PyTorch 2.4 to 2.6 takes the machine epsilon of x's dtype, for float16 and bfloat16, too."""
    return hasattr(reference, "rms_norm") and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 7)


def test_y_is_memory_of_its_own_and_x_is_left_alone():
    x = torch.randn(2, 6)
    before = x.clone()
    y = served.layer_norm(x, (6,))
    y.relu_()
    again = served.layer_norm(x, (6,))
    assert torch.equal(x, before) and torch.equal(y, again.relu())


def test_an_empty_batch_gives_an_empty_y():
    assert served.layer_norm(torch.zeros(0, 6), (6,)).shape == (0, 6)
    mean, var = torch.zeros(3), torch.ones(3)
    assert served.batch_norm(torch.zeros(0, 3), mean, var, training=True).shape == (0, 3)
    assert torch.equal(mean, torch.zeros(3)) and torch.equal(var, torch.ones(3))


# ---- Errors


def test_other_devices_are_refused_by_name():
    with pytest.raises(ValueError, match="x is on meta"):
        served.layer_norm(torch.zeros(2, 6, device="meta"), (6,))
    with pytest.raises(ValueError, match="weight is on meta"):
        served.layer_norm(torch.zeros(2, 6), (6,), torch.ones(6, device="meta"))


def test_other_tensors_are_refused():
    with pytest.raises(TypeError, match="int64"):
        served.layer_norm(torch.zeros(2, 6, dtype=torch.int64), (6,))
    with pytest.raises(TypeError, match="sparse"):
        served.layer_norm(torch.zeros(2, 6).to_sparse(), (6,))
    with pytest.raises(TypeError, match="not list"):
        served.layer_norm([1.0, 2.0], (2,))


def test_what_the_server_refuses_names_the_field():
    with pytest.raises(normd.InvalidArgument) as caught:
        served.layer_norm(torch.zeros(2, 6), (5,))
    assert "normalized_shape" in caught.value.field
    with pytest.raises(ValueError):
        served.batch_norm(torch.zeros(1, 3), None, None, training=True)
    with pytest.raises(ValueError, match="spatial"):
        served.instance_norm(torch.zeros(2, 3, 1))
    with pytest.raises(ValueError, match="running_mean"):
        served.batch_norm(torch.zeros(2, 3), None, None)


def test_a_change_of_x_before_backward_raises():
    x = torch.randn(2, 6)
    w = torch.ones(6, requires_grad=True)
    y = served.layer_norm(x, (6,), w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        y.sum().backward()
