"""normd.torch.replace and restore on models of real shapes."""

import copy

import pytest
import torch
from closeness import assert_near

import normd.torch


class Block(torch.nn.Module):
    """A residual block as in ResNet-18."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(channels)
        self.conv2 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(channels)
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


def resnet():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(inplace=True),
        Block(8),
        Block(8),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 5),
    )


def transformer(**options):
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, **options)
    return torch.nn.TransformerEncoder(layer, 2, norm=torch.nn.LayerNorm(16), enable_nested_tensor=False)


class Counter:
    """A client that counts what goes through it."""

    def __init__(self, client):
        self._client, self.calls = client, 0

    def __getattr__(self, name):
        return getattr(self._client, name)

    def normalize(self, *args, **options):
        self.calls += 1
        return self._client.normalize(*args, **options)


@pytest.mark.parametrize("norm_first", [False, True])
def test_every_norm_of_a_transformer_is_served_with_and_without_gradients(client, norm_first):
    model = transformer(norm_first=norm_first).eval()
    x = torch.randn(3, 7, 16)
    expected = model(x)
    counter = Counter(client)
    names = normd.torch.replace(model, counter)
    assert names == ["layers.0.norm1", "layers.0.norm2", "layers.1.norm1", "layers.1.norm2", "norm"]
    assert_near(model(x), expected, 1e-5)
    assert counter.calls == 5
    with torch.no_grad():  # PyTorch's fast path would compute the norms of the layers by itself
        assert_near(model(x), expected, 1e-5)
    assert counter.calls == 10

    assert normd.torch.restore(model) == names
    assert type(model.norm) is torch.nn.LayerNorm and model.layers[0].activation_relu_or_gelu == 1
    assert torch.equal(model(x), expected) and counter.calls == 10


def test_a_padded_batch_goes_through_an_encoder_as_dense_tensors(client):
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2).eval()  # nested tensors where rows are padded
    x, padding = torch.randn(3, 7, 16), torch.zeros(3, 7, dtype=torch.bool)
    padding[1, 5:] = True
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=padding)
        counter = Counter(client)
        normd.torch.replace(model, counter)
        assert_near(model(x, src_key_padding_mask=padding)[~padding], expected[~padding], 1e-5)
        assert counter.calls == 4
        normd.torch.restore(model)
        assert torch.equal(model(x, src_key_padding_mask=padding), expected) and counter.calls == 4


def test_a_resnet_trains_as_with_pytorch():
    plain = resnet()
    model = copy.deepcopy(plain)
    names = normd.torch.replace(model)
    assert names == ["1", "3.bn1", "3.bn2", "4.bn1", "4.bn2"]
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9) for one in (plain, model)]
    for _ in range(3):
        x, labels = torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,))
        for one, optimizer in zip((plain, model), optimizers):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(one(x), labels).backward()
            optimizer.step()
    for (key, one), other in zip(model.state_dict().items(), plain.state_dict().values()):
        assert one.dtype == other.dtype, key
        assert_near(one, other, 1e-4)
    x = torch.randn(2, 3, 8, 8)
    assert_near(model.eval()(x), plain.eval()(x), 1e-4)
    served = model(x)
    normd.torch.restore(model)
    assert type(model[1]) is torch.nn.BatchNorm2d and not model[1].training
    assert_near(model(x), served, 1e-5)
    assert vars(model[1]).keys() == vars(plain[1]).keys()


def test_replacing_keeps_every_object():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.BatchNorm1d(4))
    norm, weight, running = model[1], model[1].weight, model[2].running_mean
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    norm.register_forward_hook(lambda module, inputs, y: seen.append(y.shape))
    model[2].eval()
    assert normd.torch.replace(model) == ["1", "2"]
    assert model[1] is norm and norm.weight is weight and model[2].running_mean is running
    assert model[0].training and not model[2].training
    model(torch.randn(3, 4)).square().sum().backward()
    assert seen == [(3, 4)]
    before = weight.detach().clone()
    optimizer.step()
    assert not torch.equal(weight.detach(), before)
    normd.torch.restore(model)
    assert model[1] is norm and norm.weight is weight and type(norm) is torch.nn.LayerNorm


def test_a_norm_in_two_places_and_a_norm_alone_are_served():
    norm = torch.nn.LayerNorm(4)
    model = torch.nn.ModuleDict({"a": norm, "b": torch.nn.Sequential(norm)})
    assert normd.torch.replace(model) == ["a"]
    assert isinstance(model["b"][0], normd.torch.LayerNorm)
    assert normd.torch.restore(norm) == [""] and type(model["a"]) is torch.nn.LayerNorm
    assert normd.torch.replace(norm) == [""] and isinstance(norm, normd.torch.LayerNorm)


def test_names_and_filter_choose():
    model = resnet()
    assert normd.torch.replace(model, names=["3.*", "1"]) == ["1", "3.bn1", "3.bn2"]
    assert normd.torch.replace(model, names="4.bn2") == ["4.bn2"]
    assert normd.torch.replace(model, filter=lambda name, module: module.num_features == 8) == ["4.bn1"]
    assert normd.torch.replace(model) == []
    assert len(normd.torch.restore(model)) == 5 and normd.torch.restore(model) == []


def test_a_subclass_with_a_forward_of_its_own_is_left_alone():
    class Doubled(torch.nn.LayerNorm):
        def forward(self, input):
            return 2 * super().forward(input)

    model = torch.nn.Sequential(Doubled(4), torch.nn.LayerNorm(4))
    assert normd.torch.replace(model) == ["1"]


@pytest.mark.parametrize("sessions", ["Not/valid", lambda name: "the-same", lambda name: "x" * 64])
def test_invalid_session_names_replace_nothing(sessions):
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4))
    if sessions == "Not/valid":
        model = torch.nn.ModuleDict({"A": model[0], "a": model[1]})  # both would be "not-valid.a"
    with pytest.raises(ValueError, match="session"):
        normd.torch.replace(model, sessions=sessions)
    assert all(type(norm) is torch.nn.BatchNorm1d for norm in model.children())


def test_rms_norms_are_restored_to_something_that_needs_no_service(client):
    model = torch.nn.Sequential(normd.torch.RMSNorm(4))
    x = torch.randn(3, 4)
    y = model(x)
    assert normd.torch.restore(model) == ["0"]
    normd.set_default_client(None)
    assert_near(model(x), y, 1e-6)
    assert normd.torch.replace(model, client) == ["0"] and torch.equal(model(x), y)
