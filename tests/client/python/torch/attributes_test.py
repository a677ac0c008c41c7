"""Attributes, parameters and buffers that somebody changes: a served module does what torch.nn's does, or raises."""

import copy
import uuid
import warnings

import pytest
import torch
from closeness import assert_near

import normd.torch

NEW = not torch.__version__.startswith("1.")


def put(name, value):
    return lambda module: setattr(module, name, value() if callable(value) else value)


def parameter(*values):
    return lambda: torch.nn.Parameter(torch.tensor(values))


def in_place(name, value):
    def change(module):
        with torch.no_grad():
            getattr(module, name).fill_(value)

    return change


def in_data(module):
    module.running_mean.data = torch.tensor([3.0, 4.0])
    module.running_var.data.fill_(2.0)


def by_names(module):
    for name, buffer in module.named_buffers():
        buffer.copy_(torch.full_like(buffer, 4 if name == "num_batches_tracked" else 0.25))


def by_state_dict(module):
    module.state_dict()["running_var"].copy_(torch.tensor([9.0, 4.0]))


def both(*changes):
    return lambda module: [change(module) for change in changes]


# What may be done to any module that has the attribute.
ATTRIBUTES = {
    "nothing": lambda module: None,
    "eps": put("eps", 0.5),
    "no weight": put("weight", None),
    "no bias": put("bias", None),
    "neither": both(put("weight", None), put("bias", None)),
    "another weight": put("weight", parameter(3.0, -2.0)),
    "a weight written": in_place("weight", 2.5),
    "a bias in data": lambda module: module.bias.data.fill_(-1.0),
    "a frozen weight": lambda module: module.weight.requires_grad_(False),
    "everything frozen": lambda module: module.requires_grad_(False),
    "parameters reset": both(in_place("weight", 9.0), lambda module: module.reset_parameters()),
    "a weight of another size": put("weight", parameter(1.0, 2.0, 3.0)),
    "a deleted weight": lambda module: delattr(module, "weight"),
    "affine said to be off": both(lambda module: setattr(module, "affine", False), put("elementwise_affine", False)),
    "training set": put("training", False),
    "a hook": lambda module: module.register_forward_hook(lambda module, inputs, y: y * 2) and None,
    "weight_norm": lambda module: torch.nn.utils.weight_norm(module, dim=None) and None,
    "a parametrization": lambda module: torch.nn.utils.parametrize.register_parametrization(
        module, "weight", torch.nn.Softplus()
    ),
    "pruned": lambda module: torch.nn.utils.prune.random_unstructured(module, "weight", 1),
    "float64": lambda module: module.double(),
}
RUNNING = {
    "no tracking": put("track_running_stats", False),
    "no tracking, no buffers": both(
        put("track_running_stats", False), put("running_mean", None), put("running_var", None)
    ),
    "no buffers": both(put("running_mean", None), put("running_var", None)),
    "no running_mean": put("running_mean", None),
    "no running_var": put("running_var", None),
    "no count": put("num_batches_tracked", None),
    "no count, cumulative": both(put("num_batches_tracked", None), put("momentum", None)),
    "momentum 0": put("momentum", 0),
    "momentum 1": put("momentum", 1.0),
    "momentum 0.9": put("momentum", 0.9),
    "cumulative": put("momentum", None),
    "a count written": in_place("num_batches_tracked", 7),
    "a count set, cumulative": both(put("num_batches_tracked", lambda: torch.tensor(7)), put("momentum", None)),
    "a mean written": in_place("running_mean", 7.0),
    "a variance written": in_place("running_var", 0.0),
    "a mean set": put("running_mean", lambda: torch.tensor([5.0, 6.0])),
    "data": in_data,
    "named_buffers": by_names,
    "state_dict": by_state_dict,
    "the values that it began with": both(in_place("running_mean", 0.0), in_place("running_var", 1.0)),
    "statistics reset": lambda module: module.reset_running_stats(),
    "all reset": lambda module: module.reset_parameters(),
    "a mean of another size": put("running_mean", lambda: torch.zeros(3)),
    "a mean with a gradient": put("running_mean", lambda: torch.ones(2, requires_grad=True)),
    "half and back": lambda module: module.bfloat16().float(),
    "shared memory": lambda module: module.share_memory() and None,
    "other num_features": put("num_features", 5),
    "eval without a count": both(put("training", False), lambda module: delattr(module, "num_batches_tracked")),
    "a deleted mean": lambda module: delattr(module, "running_mean"),
}
CLASSES = {
    "LayerNorm": ((2,), {"eps": 0.1}, (3, 2), ATTRIBUTES),  # a small one makes two values +1 and -1, with no gradient
    "GroupNorm": ((2, 2), {}, (3, 2, 4), ATTRIBUTES),
    "InstanceNorm1d": ((2,), {"affine": True, "track_running_stats": True}, (3, 2, 4), {**ATTRIBUTES, **RUNNING}),
    "InstanceNorm2d": ((2,), {"affine": True}, (3, 2, 4, 2), ATTRIBUTES),
    "BatchNorm1d": ((2,), {}, (5, 2), {**ATTRIBUTES, **RUNNING}),
    "BatchNorm2d": ((2,), {}, (3, 2, 2, 2), {**ATTRIBUTES, **RUNNING}),
    "BatchNorm1d, plain": ((2,), {"affine": False, "track_running_stats": False}, (5, 2), RUNNING),
    "BatchNorm1d, session": ((2,), {}, (5, 2), {**ATTRIBUTES, **RUNNING}),
}
if hasattr(torch.nn, "RMSNorm"):
    CLASSES["RMSNorm"] = ((2,), {"eps": 1e-5}, (3, 2), ATTRIBUTES)
CASES = [(kind, change) for kind, (*_, changes) in CLASSES.items() for change in changes]
# What torch.nn does, and a served module refuses: a session keeps all three buffers.
REFUSED = {
    ("BatchNorm1d, session", change)
    for change in ("no tracking, no buffers", "no buffers", "no count", "no count, cumulative")
}
# What a served module does, and torch.nn refuses.
TAKEN = set()
if not NEW:  # PyTorch 1 moves the other one; its InstanceNorm takes any num_features, and no momentum of None
    REFUSED |= {(kind, change) for kind in CLASSES for change in ("no running_mean", "no running_var")}
    REFUSED |= {("InstanceNorm1d", "other num_features")}
    TAKEN |= {("InstanceNorm1d", f"{count}cumulative") for count in ("", "no count, ", "a count set, ")}
# A session keeps what the buffers of a bfloat16 module round away.
COARSE = {("BatchNorm1d, session", "half and back"): 1e-2}


def make(kind, served):
    args, options, _, _ = CLASSES[kind]
    name, _, where = kind.partition(", ")
    if where == "session" and served:
        options = {**options, "session": f"attributes-{uuid.uuid4().hex[:12]}"}
    return getattr(normd.torch if served else torch.nn, name)(*args, **options)


def outcomes(module, change, shape):
    """What comes of a change between steps of training and inference: tensors, or the exception that ended it."""
    generator = torch.Generator().manual_seed(5)
    found = []
    try:
        for step in range(4):
            x = torch.randn(shape, generator=generator) * 2 + 3
            if step == 2:
                change(module)
            x = x.to(next(module.parameters(), x).dtype).requires_grad_()
            y = module(x)
            found.append(y)
            if y.requires_grad:
                wanted = [one for one in (x, *module.parameters()) if one.requires_grad]
                found += torch.autograd.grad(y.square().sum(), wanted)
        found += module.state_dict().values()
        module.eval()
        for rows in (3, 1):
            found.append(module(torch.ones((rows, *shape[1:]), dtype=x.dtype)).detach())
        module.train()
        found.append(module(x))
        found += module.state_dict().values()
    except (ValueError, RuntimeError, TypeError, AttributeError, KeyError) as error:
        return found, error
    return found, None


@pytest.mark.parametrize("kind, change", CASES, ids=["; ".join(one) for one in CASES])
def test_a_changed_module_does_what_torch_nns_does_or_raises(kind, change):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, _, shape, changes = CLASSES[kind]
        theirs, error = outcomes(make(kind, False), changes[change], shape)
        ours, refusal = outcomes(make(kind, True), changes[change], shape)
    if refusal is not None:
        assert error is not None or (kind, change) in REFUSED, f"torch.nn takes it: {refusal!r}"
        assert len(str(refusal)) > 20 or isinstance(refusal, (AttributeError, KeyError))
    elif (kind, change) not in TAKEN:
        assert error is None, f"torch.nn refuses it: {error!r}"
        assert len(ours) == len(theirs)
    tolerance = COARSE.get((kind, change), 1e-4)
    for one, other in zip(ours, theirs):
        assert one.dtype == other.dtype
        assert_near(one, other, tolerance * max(1.0, float(other.detach().abs().max())))


def test_what_is_refused_is_refused():
    """So that the list above holds nothing that works."""
    for kind, change in REFUSED:
        if change in CLASSES[kind][-1]:
            _, refusal = outcomes(make(kind, True), CLASSES[kind][-1][change], CLASSES[kind][-2])
            assert refusal is not None, (kind, change)


def test_tracking_that_was_switched_off_in_a_model_is_respected():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(1)).eval()
    model[0].running_mean.fill_(10)
    model[0].running_var.fill_(4)
    model[0].track_running_stats = False
    plain = copy.deepcopy(model)
    normd.torch.replace(model)
    for x in (torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0]])):
        assert_near(model(x), plain(x), 1e-5)
