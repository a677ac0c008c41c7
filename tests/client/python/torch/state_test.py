"""State dicts of torch.nn of every type, given to a session of the client."""

import uuid

import pytest
import torch

import normd


def opened(client):
    return client.session(f"state-{uuid.uuid4().hex[:12]}", normd.BatchNorm(3))


def module(dtype):
    norm = torch.nn.BatchNorm1d(3).to(dtype)
    for value in (*norm.parameters(), norm.running_mean, norm.running_var):
        value.data = torch.rand(3).to(dtype)
    norm.num_batches_tracked.fill_(5)
    return norm


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_a_state_dict_of_any_type_is_taken(client, dtype):
    norm, session = module(dtype), opened(client)
    named = {**dict(norm.named_parameters()), **dict(norm.named_buffers())}  # Parameters, which require a gradient
    for state in (norm.state_dict(), named):
        session.load_state_dict(state)
        info = session.info()
        assert info.num_batches == 5
        for key in ("weight", "bias", "running_mean", "running_var"):
            assert getattr(info, key).tolist() == state[key].double().tolist()


def test_the_session_calculates_with_what_was_loaded(client):
    norm, session = module(torch.bfloat16).eval(), opened(client)
    session.load_state_dict(norm.state_dict())
    x = torch.randn(4, 3)
    with torch.no_grad():
        torch.testing.assert_close(session.eval()(x), norm.float()(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("key", ["weight", "running_var"])
def test_a_tensor_without_values_is_refused_by_name(client, key):
    session = opened(client)
    before = session.info().uid
    with pytest.raises(normd.InvalidArgument, match=f"{key} is on the meta device"):
        session.load_state_dict({**module(torch.float32).state_dict(), key: torch.empty(3, device="meta")})
    assert session.info().uid == before
