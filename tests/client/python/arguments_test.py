"""Arguments as torch takes them, sessions of methods without a state, and state_dicts of other programs."""

import asyncio
import inspect

import ml_dtypes
import numpy as np
import pytest

import normd

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.mark.parametrize("shape", [[4], (4,), np.array([4]), np.int64(4), np.array(4), [np.int32(4)], range(4, 5)])
def test_a_shape_may_be_any_sequence_of_integers(client, server, shape):
    expected = client.layer_norm(X, 4)
    for _ in range(2):  # the second call may be a remembered one
        np.testing.assert_array_equal(client.layer_norm(X, shape), expected)
        np.testing.assert_array_equal(normd.layer_norm(X, shape, client=client), expected)
    np.testing.assert_array_equal(client.rms_norm(X, shape), client.rms_norm(X, 4))
    np.testing.assert_array_equal(client.normalize(normd.LayerNorm(shape), X).y, expected)

    async def use():
        async with normd.aio.connect(server.unix) as there:
            return await there.layer_norm(X, shape)

    np.testing.assert_array_equal(asyncio.run(use()), expected)


@pytest.mark.parametrize("dim", [[1], (1,), np.array([1]), np.int64(1), np.array(1), [-1]])
def test_an_axis_may_be_any_sequence_of_integers(client, dim):
    np.testing.assert_array_equal(client.lp_norm(X, dim=dim), client.lp_norm(X, dim=1))
    np.testing.assert_array_equal(client.normalize(normd.LpNorm(dim=dim), X).y, client.lp_norm(X))


@pytest.mark.parametrize("spec", [normd.LayerNorm(4), normd.RMSNorm(4), normd.InstanceNorm(2), normd.GroupNorm(2),
                                  normd.ScaleNorm(), normd.LpNorm(), normd.PRMSNorm(0.5)])
def test_a_session_without_a_state_is_called_like_a_module(client, server, spec):
    x = np.random.default_rng(0).standard_normal((3, 2, 4), dtype=np.float32)
    session = client.session("t-stateless", spec)
    np.testing.assert_array_equal(session(x), client.normalize(spec, x).y)
    np.testing.assert_array_equal(session.eval()(x), session.train()(x))
    assert session.version == 0 and session.last_state is None

    async def use():
        async with normd.aio.connect(server.unix) as there:
            return await (await there.session("t-stateless"))(x)

    np.testing.assert_array_equal(asyncio.run(use()), session(x))
    session.delete()


@pytest.mark.parametrize("names", [("gamma", "beta", "moving_mean", "moving_variance"),
                                   ("scale", "bias", "mean", "var"), ("weight", "bias", "_mean", "_variance")])
def test_a_state_dict_may_have_the_names_of_other_programs(client, names):
    session = client.session("t-names", normd.BatchNorm(3))
    values = [np.float32([1, 2, 3]), np.float32([4, 5, 6]), np.float32([7, 8, 9]), np.float32([1, 2, 3])]
    session.load_state_dict(dict(zip(names, values)))
    found = session.state_dict()
    for name, value in zip(("weight", "bias", "running_mean", "running_var"), values):
        np.testing.assert_array_equal(found[name], value)
    with pytest.raises(normd.InvalidArgument, match="'running_mean' twice, as 'moving_mean'"):
        session.load_state_dict({"running_mean": values[2], "moving_mean": values[2], "running_var": values[3]})
    session.delete()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ">f4", np.float64])
def test_a_state_dict_may_have_any_type_of_floats(client, dtype):
    session = client.session("t-dtypes", normd.BatchNorm(2))
    state = {name: np.array([0.5, 3], dtype) for name in ("weight", "bias", "running_mean", "running_var")}
    session.load_state_dict(state)
    assert session.state_dict()["running_mean"].tolist() == [0.5, 3] and session.weight.tolist() == [0.5, 3]
    session.delete()


def test_a_session_prints_as_lines_that_a_person_reads(client):
    session = client.session("t-print", normd.BatchNorm(3))
    session(X.reshape(-1, 1).repeat(3, 1))
    text = str(session.info())
    assert text.startswith("session t-print: batch_norm, version 1, 1 batches\n")
    assert "running_mean: [0.35 0.35 0.35]" in text and "{" not in text
    session.delete()


@pytest.mark.parametrize("name, value", [
    ("eps", "1e-5"), ("eps", True), ("eps", [1e-5]), ("weight_offset", "1"), ("residual_scale", "2"), ("eps", 1j)])
def test_a_number_that_is_none_is_named(client, name, value):
    for _ in range(2):
        with pytest.raises(normd.InvalidArgument, match=f"{name} is .*; it must be a number") as caught:
            client.layer_norm(X, 4, residual=X, **{name: value})
        assert caught.value.field == name


@pytest.mark.parametrize("make, name", [
    (lambda: normd.GroupNorm(2.0), "num_groups"), (lambda: normd.GroupNorm("2"), "num_groups"),
    (lambda: normd.GroupNorm(True), "num_groups"), (lambda: normd.BatchNorm(4.0), "num_features"),
    (lambda: normd.BatchNorm(4, affine="yes"), "affine"), (lambda: normd.BatchNorm(4, momentum="0.1"), "momentum"),
    (lambda: normd.PRMSNorm(k=2.5), "k"), (lambda: normd.LayerNorm([True]), "normalized_shape"),
    (lambda: normd.LpNorm(p="2"), "p"), (lambda: normd.PowerNorm(4, warmup_iters=1.5), "warmup_iters")])
def test_an_attribute_of_another_type_is_named(make, name):
    with pytest.raises(normd.InvalidArgument, match=f"{name} is ") as caught:
        make()
    assert caught.value.field == name


def test_numbers_of_numpy_are_numbers(client):
    expected = client.group_norm(X[..., None], 2, eps=0.5)
    for eps in (np.float32(0.5), np.float64(0.5), np.array(0.5)):
        np.testing.assert_array_equal(client.group_norm(X[..., None], np.int32(2), eps=eps), expected)


def test_a_file_of_bfloat16_is_normalised_when_its_type_is_given(client, tmp_path):
    x = np.arange(8).reshape(2, 4).astype(ml_dtypes.bfloat16)
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(source, x.view("V2"))  # what ml_dtypes' arrays are saved as
    client.normalize_file(source, target, normd.LayerNorm(4), dtype="bfloat16")
    np.testing.assert_array_equal(np.load(target).view(ml_dtypes.bfloat16), client.layer_norm(x, 4))
    with pytest.raises(normd.InvalidArgument, match="give dtype='bfloat16'"):
        client.normalize_file(source, target, normd.LayerNorm(4))
    for content in (b"", b"PK", b"\x93NUMPY\x01\x00v\x00{'descr': 'float99', 'fortran_order': False, 'shape': (2,), }"):
        source.write_bytes(content)
        with pytest.raises(normd.InvalidArgument, match="in.npy is no .npy file that numpy can read"):
            client.normalize_file(source, target, normd.LayerNorm(4))


def test_the_help_of_an_operator_lists_its_keywords():
    for function in (normd.layer_norm, normd.Client.batch_norm, normd.aio.Client.lp_norm):
        text = inspect.getdoc(function)
        for name in normd.Options.__annotations__:
            assert f"\n{name}: " in text, name
