"""A session is used like a module of torch.nn, and is on the server what it is there."""

import threading

import numpy as np
import pytest
import reference

import normd

C = 3


@pytest.fixture
def bn(client, request):
    name = "t-" + "".join(c if c.isalnum() else "-" for c in request.node.name.lower())[:50].strip("-")
    session = client.session(name, normd.BatchNorm(C))
    yield session
    session.delete()


def batch(random, n=8):
    return random.standard_normal((n, C, 4)).astype(np.float32)


def test_training_uses_the_batch_and_moves_the_state_inference_uses_the_state(bn, random):
    assert bn.training and bn.last_state is None and bn.num_batches_tracked == 0
    x = batch(random)
    mean, var, n = reference.batch_statistics(x)
    np.testing.assert_allclose(bn(x), reference.batch_norm(x, mean, var), atol=1e-6)
    assert bn.last_state.applied and bn.last_state.version == bn.version == 1
    np.testing.assert_allclose(bn.running_mean, 0.1 * mean, rtol=1e-12)
    np.testing.assert_allclose(bn.running_var, 0.9 + 0.1 * var * n / (n - 1), rtol=1e-12)
    assert bn.eval() is bn and not bn.training
    np.testing.assert_allclose(bn(x), reference.batch_norm(x, bn.running_mean, bn.running_var), atol=1e-6)
    assert bn.version == 1 and bn.num_batches_tracked == 1


def test_non_finite_batches_reach_y_and_leave_the_state(bn, random):
    x = batch(random)
    x[0, 0, 0] = np.nan
    assert np.isnan(bn(x)[:, 0]).all()
    assert (bn.last_state.applied, bn.last_state.reason, bn.version) == (False, "non_finite", 0)


def test_a_state_dict_goes_to_another_session_bit_for_bit(client, bn, random):
    bn(batch(random))
    bn.set_parameters(weight=np.array([1, 2, 3], np.float32))
    state = bn.state_dict()
    assert list(state) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    assert state["num_batches_tracked"].dtype == np.int64 and state["running_mean"].dtype == np.float64
    other = client.session("t-state-dict-copy", normd.BatchNorm(C))
    other.load_state_dict(state)
    for key, value in other.state_dict().items():
        np.testing.assert_array_equal(value, state[key])
    x = batch(random)
    np.testing.assert_array_equal(other.eval()(x), bn.eval()(x))
    other.delete()


def test_a_wrong_state_dict_leaves_the_session_as_it_was(bn, random):
    bn(batch(random))
    before = bn.info()
    with pytest.raises(normd.InvalidArgument):
        bn.load_state_dict({"running_mean": np.zeros(C + 1), "running_var": np.ones(C + 1)})
    with pytest.raises(normd.InvalidArgument, match="'scale'"):
        bn.load_state_dict({**bn.state_dict(), "scale": np.ones(C)})
    assert bn.info().uid == before.uid and bn.version == 1


def test_a_state_dict_without_running_statistics_is_refused_and_one_without_parameters_keeps_them(bn, random):
    bn(batch(random))
    bn.set_parameters(weight=np.array([1, 2, 3], np.float32))
    before = bn.info()
    for state, missing in (({}, "running_mean"), ({"weight": np.ones(C)}, "running_mean"),
                           ({"running_mean": np.zeros(C)}, "running_var")):
        with pytest.raises(normd.InvalidArgument, match=f"no '{missing}'") as caught:
            bn.load_state_dict(state)
        assert caught.value.limit == "running_mean, running_var"
    assert bn.info().uid == before.uid
    bn.load_state_dict({"running_mean": np.full(C, 5.0), "running_var": np.ones(C)})
    after = bn.info()
    np.testing.assert_array_equal(after.running_mean, np.full(C, 5.0))
    np.testing.assert_array_equal(after.weight, before.weight)
    np.testing.assert_array_equal(after.bias, before.bias)
    assert after.num_batches == before.num_batches == 1


def test_what_a_process_leaves_that_ends_while_it_loads_is_gone_soon(client, bn, monkeypatch):
    service, left = client._sessions, []

    async def end(name):
        left.append(name)
        raise KeyboardInterrupt

    monkeypatch.setattr(service, "delete", end)
    with pytest.raises(KeyboardInterrupt):
        bn.load_state_dict(bn.state_dict())
    monkeypatch.undo()
    trial = client.session(left[0])
    assert 0 < (trial.info().expire_time - trial.info().create_time).total_seconds() <= 60
    assert bn.info().expire_time is None
    trial.delete()


def test_a_session_is_opened_again_with_the_same_spec_and_refused_with_another(client, bn, random):
    bn(batch(random))
    assert client.session(bn.name, normd.BatchNorm(C)).version == 1
    assert client.session(bn.name).version == 1
    assert client.session("sessions/" + bn.name).name == bn.name
    with pytest.raises(normd.FailedPrecondition) as caught:
        client.session(bn.name, normd.BatchNorm(C, momentum=0.5))
    assert "momentum is 0.1 there, and 0.5 here" in str(caught.value)
    with pytest.raises(normd.FailedPrecondition, match="num_channels is 3 there, and 4 here"):
        client.session(bn.name, normd.BatchNorm(C + 1))
    with pytest.raises(normd.FailedPrecondition, match="method is batch_norm there, and layer_norm here"):
        client.session(bn.name, normd.LayerNorm(C))


def test_any_method_can_be_a_session(client, random):
    x = random.standard_normal((4, 8)).astype(np.float32)
    w = random.standard_normal(8).astype(np.float32)

    def stateless(spec, *parameters):
        return client.normalize(spec, x, *parameters).y

    root = np.sqrt(1 + 1e-5)  # of the initial running variance and phi
    cases = [
        (normd.LayerNorm(8), w, x, stateless(normd.LayerNorm(8), w)),
        (normd.RMSNorm(8), w, x, stateless(normd.RMSNorm(8), w)),
        (normd.GroupNorm(2), w, x, stateless(normd.GroupNorm(2), w)),
        (normd.PRMSNorm(0.5), None, x, x / np.sqrt((x[:, :4] ** 2).mean(1, keepdims=True) + 1e-6)),
        (normd.ScaleNorm(), None, x, x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-5)),
        (normd.LpNorm(), None, x, x / np.linalg.norm(x, axis=1, keepdims=True)),
        (normd.PowerNorm(8), None, x, x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5) / root),
        (normd.InstanceNorm(8, track_running_stats=True), None, x[:, :, None], x[:, :, None] / root),
    ]
    for number, (spec, weight, given, expected) in enumerate(cases):
        session = client.session(f"t-method-{number}", spec, weight=weight)
        assert client.session(f"t-method-{number}", spec).version == 0
        np.testing.assert_allclose(session.eval()(given), expected, rtol=1e-5, atol=1e-6)
        session.delete()


def test_pooled_moments_are_one_step_of_the_whole_batch(client, bn, random):
    x = batch(random, 12)
    whole = client.session("t-pooled-whole", normd.BatchNorm(C))
    whole(x)
    state = bn.commit([bn.moments(x[:5]), bn.moments(x[5:])])
    assert state.applied and state.num_batches == 1
    np.testing.assert_allclose(bn.running_mean, whole.running_mean, rtol=1e-12)
    np.testing.assert_allclose(bn.running_var, whole.running_var, rtol=1e-12)
    whole.delete()


def test_exact_moments_leave_the_state_of_the_whole_batch(client, bn, random):
    for dtype in (np.float32, np.float64):
        x = (1e4 + batch(random, 12)).astype(dtype)
        bn.reset()
        bn.commit([bn.moments(x, exact=True)])
        want = bn.running_mean.tobytes(), bn.running_var.tobytes()
        for parts in ([x[:5], x[5:]], [x[9:], x[:2], x[2:9]], [x[i : i + 1] for i in range(12)]):
            bn.reset()
            bn.commit([bn.moments(part, exact=True) for part in parts])
            assert (bn.running_mean.tobytes(), bn.running_var.tobytes()) == want
    given = client.moments(normd.BatchNorm(C), x, exact=True)
    assert given.exact is not None and len(given.exact) == 8 + 816 * C
    assert client.moments(normd.BatchNorm(C), x).exact is None
    assert normd.Moments.from_proto(given.to_proto()).exact == given.exact


def test_exact_moments_that_were_changed_are_refused(bn, random):
    moments = bn.moments(batch(random), exact=True)
    changed = normd.Moments(moments.count, moments.mean + 1, moments.m2, moments.exact)
    with pytest.raises(normd.InvalidArgument, match=r"moments\[0\]\.mean\[0\]"):
        bn.commit([changed])


def test_a_step_with_the_same_id_counts_once(bn, random):
    moments = [bn.moments(batch(random))]
    step = normd.Step("trainer-7", 3)
    assert not bn.commit(moments, step=step).replayed
    assert bn.commit(moments, step=step).replayed
    x = batch(random)
    first = bn.normalize(x, step=normd.Step("trainer-8", 1))
    again = bn.normalize(x, step=normd.Step("trainer-8", 1))
    assert again.state.replayed and bn.last_state.replayed and bn.num_batches_tracked == 2
    np.testing.assert_array_equal(first.y, again.y)


def test_expected_version_keeps_two_writers_apart(bn, random):
    bn.normalize(batch(random), expected_version=0)
    with pytest.raises(normd.Aborted):
        bn.normalize(batch(random), expected_version=0)


def test_validate_only_and_reset_and_fork(client, bn, random):
    assert bn.normalize(batch(random), validate_only=True).state.reason == "validate_only"
    assert bn.version == 0
    bn(batch(random))
    fork = bn.fork("t-forked")
    np.testing.assert_array_equal(fork.running_mean, bn.running_mean)
    assert fork.version == 0
    fork.reset()
    np.testing.assert_array_equal(fork.running_mean, np.zeros(C))
    fork.delete()
    with pytest.raises(normd.NotFound):
        fork.info()


def test_sessions_are_listed_by_label(client):
    made = [client.session(f"t-listed-{number}", normd.LayerNorm(4), labels={"of": "list-test"}) for number in range(3)]
    found = list(client.sessions("of=list-test"))
    assert [one.name for one in found] == ["t-listed-0", "t-listed-1", "t-listed-2"]
    assert found[0].method == "layer_norm" and found[0].labels == {"of": "list-test"} and found[0].weight is None
    for session in made:
        session.delete()


def test_specs_that_cannot_be_sessions_are_refused(client):
    with pytest.raises(normd.InvalidArgument, match="num_features is 0"):
        client.session("t-no", normd.BatchNorm())
    with pytest.raises(normd.InvalidArgument, match="keeps running statistics"):
        client.session("t-no", normd.BatchNorm(3, track_running_stats=False))


def test_threads_may_train_one_session_object(bn, random):
    batches = [batch(random) for _ in range(32)]

    def train(part):
        for x in part:
            bn(x)

    threads = [threading.Thread(target=train, args=(batches[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bn.num_batches_tracked == 32
