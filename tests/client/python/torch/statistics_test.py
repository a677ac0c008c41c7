"""normd.stats.torch: a module that holds shared statistics."""

import copy

import numpy as np
import pytest
import torch

import normd
import normd.stats
from normd.stats.torch import RunningMeanStd


def test_training_adds_a_batch_and_normalises_with_it(client):
    module = RunningMeanStd("torch-training", (3,), clip=2.0)
    batches = [torch.randn(n, 4, 3) * 3 + 5 for n in (1, 8)]
    for batch in batches:
        y = module(batch)
    rows = torch.cat(batches).reshape(-1, 3).double()
    count = len(rows) + 1e-4
    mean = rows.sum(0) / count
    var = ((rows - mean).square().sum(0) + 1e-4 * (1 + mean.square())) / count
    torch.testing.assert_close(module.mean, mean, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(module.var, var, rtol=1e-13, atol=1e-13)
    assert y.dtype == torch.float32 and y.abs().max() == 2.0
    expected = ((batches[1].double() - mean) / (var + 1e-8).sqrt()).clamp(-2, 2)
    torch.testing.assert_close(y, expected.float())
    module.flush(10)
    info = client.session("torch-training").info()
    np.testing.assert_allclose(info.count, 36.0001)
    np.testing.assert_array_equal(info.max, rows.amax(0).numpy())
    back = module.eval().denormalize(expected)
    inside = expected.abs() < 2
    torch.testing.assert_close(back[inside], batches[1].double()[inside])
    module.close()


@pytest.mark.parametrize("eps_mode", ["inside_sqrt", "add_to_root", "clamp_root"])
def test_normalising_has_the_bits_of_a_snapshot(client, eps_mode):
    module = RunningMeanStd(f"torch-{eps_mode}", (3,), epsilon=0.01, eps_mode=eps_mode)
    x = torch.randn(50, 3) * 1e3 + 1e4
    y = module(x)
    assert np.array_equal(y.numpy(), module.stats.snapshot().normalize(x.numpy()))
    module.close()


def test_in_eval_a_rollout_and_its_learner_have_the_same_numbers(client):
    module, x = RunningMeanStd("torch-eval", (2,)), torch.randn(10, 2)
    module(x)
    module.eval()
    before = module(x)
    with normd.stats.RunningMeanStd("torch-eval", (2,), client=client) as other:
        other.update(np.full((100, 2), 7.0))
    module.flush(10)
    torch.testing.assert_close(module(x), before, rtol=0, atol=0)
    module.refresh()
    assert module.count.tolist() == pytest.approx([110.0001] * 2) and not torch.equal(module(x), before)
    module.close()


def test_a_checkpoint_has_the_values_and_counts_nothing(client):
    module, x = RunningMeanStd("torch-checkpoint", (2,)), torch.randn(10, 2) + 3
    module(x)
    module.flush(10)
    plain = copy.deepcopy(module).eval()
    torch.testing.assert_close(plain(x), module.eval()(x), rtol=0, atol=0)
    other = RunningMeanStd("torch-checkpoint-2", (2,)).eval()
    other.load_state_dict(module.state_dict())
    torch.testing.assert_close(other(x), module(x), rtol=0, atol=0)
    other.close()
    assert client.session("torch-checkpoint-2").info().count.tolist() == [1e-4, 1e-4]
    module.close()


def test_gradients_go_through_and_statistics_have_none(client):
    module, x = RunningMeanStd("torch-gradients", ()), torch.tensor([1.0, 3.0], requires_grad=True)
    module(x).sum().backward()
    torch.testing.assert_close(x.grad.double(), (1 / (module.var + 1e-8).sqrt()).expand(2))
    assert not list(module.parameters())
    module.close()


def test_another_shape_is_refused(client):
    module = RunningMeanStd("torch-shape", (2,))
    with pytest.raises(normd.InvalidArgument, match=r"x has shape \[3\]; it must end in \[2\]"):
        module(torch.zeros(3))
    module.close()
    with pytest.raises(normd.InvalidArgument, match="shape is a dict"):
        RunningMeanStd("torch-dict", {"place": 2})
