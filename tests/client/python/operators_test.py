"""Every operator against its formula, in every dtype, with what the arguments can be."""

import math

import ml_dtypes
import numpy as np
import pytest
import reference

import normd

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
BOUND = 1.01  # ulp: EXACT is within one, and references round, too


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_is_the_formula_in_every_dtype(client, random, dtype):
    x, w, b = (random.standard_normal(shape).astype(dtype) for shape in ((6, 5, 32), (5, 32), (5, 32)))
    y = client.layer_norm(x, (5, 32), w, b, eps=1e-3)
    assert y.dtype == dtype and y.shape == x.shape
    exact = reference.layer_norm(x, 2, w.astype(np.float64), b.astype(np.float64), 1e-3)
    assert reference.ulp_distance(y, exact) <= (16 if dtype is np.float64 else BOUND)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_without_eps_takes_that_of_the_type_torch_computes_in(client, random, dtype):
    x = (random.standard_normal((4, 16)) * 1e-3).astype(dtype)
    eps = 2.0**-52 if dtype is np.float64 else 2.0**-23
    exact = reference.rms_norm(x, 1, eps=eps)
    assert reference.ulp_distance(client.rms_norm(x, 16), exact) <= (16 if dtype is np.float64 else BOUND)
    assert client.normalize(normd.RMSNorm(16), x).applied.eps == eps


def test_rms_norm_without_eps_has_the_numbers_that_torch_prints_for_bfloat16(client):
    y = client.rms_norm(np.array([0.01, 0.02], ml_dtypes.bfloat16), 2)
    assert y.astype(float).tolist() == [0.6328125, 1.265625]


def test_group_norm_and_instance_norm_take_channels_first(client, random):
    x, w, b = random.standard_normal((3, 6, 4, 5)), random.standard_normal(6), random.standard_normal(6)
    np.testing.assert_allclose(client.group_norm(x, 3, w, b), reference.group_norm(x, 3, w, b), rtol=1e-13, atol=1e-14)
    instance = client.instance_norm(x, weight=w, bias=b)
    np.testing.assert_allclose(instance, reference.group_norm(x, 6, w, b), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("layout", ["channels_last", "NHWC"])
def test_channels_last_is_channels_first_of_the_transposed_array(client, random, layout):
    x, w = random.standard_normal((3, 4, 5, 6)), random.standard_normal(6)
    first = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(
        client.group_norm(x, 2, w, layout=layout), client.group_norm(first, 2, w).transpose(0, 2, 3, 1))


def test_batch_norm_inference_uses_the_given_statistics(client, random):
    x, mean, var = random.standard_normal((4, 3, 5)), random.standard_normal(3), random.random(3) + 0.5
    np.testing.assert_allclose(client.batch_norm(x, mean, var), reference.batch_norm(x, mean, var), rtol=1e-13)
    same = client.instance_norm(x, mean, var, use_input_stats=False)
    np.testing.assert_array_equal(same, client.batch_norm(x, mean, var))


def test_batch_norm_training_moves_the_callers_statistics_as_torch_does(client, random):
    x = random.standard_normal((8, 3, 5)).astype(np.float32)
    running_mean, running_var = np.zeros(3, np.float32), np.ones(3, np.float32)
    y = client.batch_norm(x, running_mean, running_var, training=True, momentum=0.25)
    mean, var, n = reference.batch_statistics(x)
    np.testing.assert_allclose(y, reference.batch_norm(x, mean, var), atol=1e-6)
    np.testing.assert_allclose(running_mean, 0.25 * mean, rtol=1e-5)
    np.testing.assert_allclose(running_var, 0.75 + 0.25 * var * n / (n - 1), rtol=1e-6)


@pytest.mark.parametrize("wrong, said", [
    ([0.0] * 3, "is a list; it must be a numpy array or a torch tensor"),
    (np.zeros(4), r"has shape \(4,\); it must be \(3,\)"),
    (np.zeros((3, 1)), r"has shape \(3, 1\); it must be \(3,\)"),
    (np.zeros(3, int), "has dtype int64; it must be float32"),
    (np.broadcast_to(np.zeros(1), 3), "is read-only"),
])
def test_running_statistics_that_cannot_move_are_refused_before_the_call(client, random, wrong, said):
    x = random.standard_normal((8, 3, 5)).astype(np.float32)
    good = np.zeros(3)
    with pytest.raises(normd.InvalidArgument, match=f"running_var {said}") as caught:
        client.batch_norm(x, good, wrong, training=True)
    assert caught.value.field == "running_var" and caught.value.value and caught.value.limit
    assert not good.any()
    with pytest.raises(normd.InvalidArgument, match=f"running_mean {said}"):
        client.batch_norm(np.moveaxis(x, 1, -1), wrong, good, training=True, layout="NHWC")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.dtype(">f4")])
def test_running_statistics_may_be_of_any_float(client, random, dtype):
    x = random.standard_normal((8, 3)).astype(np.float32)
    running = np.zeros(3, dtype)
    client.batch_norm(x, running, None, training=True, momentum=1.0)
    np.testing.assert_allclose(running.astype(np.float64), x.mean(0), atol=1e-2)


def test_batch_norm_training_without_statistics_moves_nothing(client, random):
    x = random.standard_normal((8, 3))
    mean, var, _ = reference.batch_statistics(x)
    y = client.batch_norm(x, None, None, training=True)
    np.testing.assert_allclose(y, reference.batch_norm(x, mean, var), rtol=1e-12, atol=1e-14)


def test_a_mask_leaves_positions_out_of_the_statistics(client, random):
    x = random.standard_normal((6, 3, 4))
    mask = random.random((6, 4)) < 0.7
    kept = x.transpose(0, 2, 1)[mask]
    y = client.batch_norm(x, None, None, training=True, mask=mask)
    np.testing.assert_allclose(y, reference.batch_norm(x, kept.mean(0), kept.var(0)), rtol=1e-12, atol=1e-13)


def test_the_other_methods_are_their_formulas(client, random):
    x = random.standard_normal((4, 10))
    partial = np.sqrt((x[:, :5] ** 2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(client.p_rms_norm(x, 0.5), x / partial, rtol=1e-13)
    np.testing.assert_array_equal(client.p_rms_norm(x, k=5), client.p_rms_norm(x, 0.5))
    scaled = x / (np.linalg.norm(x, axis=-1, keepdims=True) + 1e-5) * 3
    np.testing.assert_allclose(client.scale_norm(x, 3.0), scaled, rtol=1e-13)
    for p in (1.0, 2.0, 2.5, math.inf):
        exact = x / np.maximum(np.linalg.norm(x, ord=p, axis=1, keepdims=True), 1e-12)
        np.testing.assert_allclose(client.lp_norm(x, p), exact, rtol=1e-13)
    np.testing.assert_allclose(client.lp_norm(x, dim=0), x / np.linalg.norm(x, axis=0), rtol=1e-13)
    np.testing.assert_allclose(client.lp_norm(x, dim=(0, 1)), x / np.linalg.norm(x), rtol=1e-13)


def test_power_norm_gives_the_worked_example(client):
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    y = client.power_norm(x, training=True)
    np.testing.assert_allclose(y, [[0.845146, 1.054088], [1.133884, 0.942807]], atol=1e-6)
    y = client.power_norm(x, [0.58559869, 1.41439654])
    np.testing.assert_allclose(y, [[0.826467, 1.063584], [1.108823, 0.9513]], atol=1e-6)


def test_attributes_that_torch_does_not_have_are_keywords(client, random):
    x, w = random.standard_normal((4, 8)), random.standard_normal(8)
    root = np.sqrt((x**2).mean(-1, keepdims=True))
    np.testing.assert_allclose(client.rms_norm(x, 8, eps=0.5, eps_mode="add_to_root"), x / (root + 0.5), rtol=1e-13)
    np.testing.assert_allclose(client.rms_norm(x, 8, w, 0.0, weight_offset=1.0), x / root * (1 + w), rtol=1e-13)
    middle = client.normalize(normd.LayerNorm(axes=(1,)), x.reshape(4, 2, 4)).y
    np.testing.assert_allclose(middle, reference.normalise(x.reshape(4, 2, 4), 1, 1e-5), rtol=1e-12)


def test_a_post_norm_block_normalises_the_sum_and_a_pre_norm_block_keeps_it(client, random):
    x, r, w = (random.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (4, 8), 8))
    h = x + np.float32(0.5) * r
    np.testing.assert_array_equal(
        client.layer_norm(x, 8, w, residual=r, residual_scale=0.5), client.layer_norm(h, 8, w))
    stream = r.copy()
    y = client.layer_norm(x, 8, w, residual=stream, residual_out=stream)
    np.testing.assert_array_equal(stream, x + r)
    np.testing.assert_array_equal(y, client.layer_norm(x + r, 8, w))


def test_a_result_has_every_output_that_was_asked_for(client, random):
    x = random.standard_normal((4, 8)).astype(np.float16)
    result = client.normalize(normd.LayerNorm(8), x, outputs=("y", "mean", "inv_std", "moments"))
    wide = x.astype(np.float64)
    assert result.y.dtype == np.float16 and result.mean.dtype == np.float32 and result.h is None
    np.testing.assert_allclose(result.mean, wide.mean(-1), atol=1e-7)
    np.testing.assert_allclose(result.inv_std, 1 / np.sqrt(wide.var(-1) + 1e-5), rtol=1e-6)
    np.testing.assert_allclose(result.moments.m2, wide.var(-1) * 8, rtol=1e-12)
    assert (result.applied.method, result.applied.precision, result.applied.device) == ("layer_norm", "exact", "cpu")
    assert result.applied.rounding == "nearest"
    assert result.state is None


def test_fast_may_be_asked_for(client, random):
    x = random.standard_normal((64, 1024)).astype(np.float32)
    y = client.layer_norm(x, 1024, precision="fast", device="cpu")
    np.testing.assert_allclose(y, reference.layer_norm(x, 1), atol=1e-5)


def test_results_are_aligned_writable_and_nobody_elses(client, random):
    x = random.standard_normal((3, 7)).astype(np.float32)
    first, second = client.layer_norm(x, 7), client.layer_norm(x, 7)
    assert first.flags.aligned and first.flags.writeable and first.flags.c_contiguous
    first[:] = 0
    np.testing.assert_array_equal(second, client.layer_norm(x, 7))


def test_out_is_written_and_returned(client, random):
    x = random.standard_normal((4, 8)).astype(np.float32)
    expected, out = client.layer_norm(x, 8), np.empty_like(x)
    assert client.layer_norm(x, 8, out=out) is out
    np.testing.assert_array_equal(out, expected)
    wide = np.zeros((4, 16), np.float32)
    client.layer_norm(x, 8, out=wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], expected)
    assert not wide[:, 1::2].any()
    client.layer_norm(x, 8, out=x)
    np.testing.assert_array_equal(x, expected)


def test_out_in_bfloat16_is_written(client, random):
    x = random.standard_normal((4, 8)).astype(ml_dtypes.bfloat16)
    out = np.empty_like(x)
    client.layer_norm(x, 8, out=out)
    np.testing.assert_array_equal(out, client.layer_norm(x, 8))


def test_out_in_bfloat16_may_have_strides_and_is_not_uint16(client, random):
    x = random.standard_normal((4, 8)).astype(ml_dtypes.bfloat16)
    wide = np.zeros((4, 16), ml_dtypes.bfloat16)
    client.layer_norm(x, 8, out=wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], client.layer_norm(x, 8))
    assert not wide[:, 1::2].any()
    with pytest.raises(normd.InvalidArgument, match="out is uint16 of shape .*; it must be bfloat16"):
        client.layer_norm(x, 8, out=np.empty((4, 8), np.uint16))


def test_out_and_residual_out_are_two_arrays(client, random):
    x, residual = (random.standard_normal((4, 8)).astype(np.float32) for _ in range(2))
    out = np.empty_like(x)
    with pytest.raises(normd.InvalidArgument, match="out and residual_out are one array") as caught:
        client.layer_norm(x, 8, residual=residual, out=out, residual_out=out)
    assert caught.value.field == "residual_out"


@pytest.mark.parametrize("change", [
    lambda x: np.asfortranarray(x), lambda x: x[::-1], lambda x: np.repeat(x, 2, 1)[:, ::2],
    lambda x: x.astype(">f4"), lambda x: np.broadcast_to(x, x.shape), lambda x: x.view(np.ndarray).tolist()])
def test_any_strides_and_byte_orders_are_taken(client, random, change):
    x = random.standard_normal((4, 8)).astype(np.float32)
    changed = change(x)
    plain = np.ascontiguousarray(changed, np.float64 if isinstance(changed, list) else np.float32)
    np.testing.assert_array_equal(client.layer_norm(changed, 8), client.layer_norm(plain, 8))


def test_an_unaligned_array_is_taken(client, random):
    x = random.standard_normal((4, 8)).astype(np.float32)
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1).reshape(4, 8)
    assert not shifted.flags.aligned
    np.testing.assert_array_equal(client.layer_norm(shifted, 8), client.layer_norm(x, 8))


@pytest.mark.parametrize("shape", [(0, 8), (3, 0, 8)])
def test_empty_arrays_are_normalised(client, shape):
    y = client.layer_norm(np.empty(shape, np.float32), 8)
    assert y.shape == shape and y.dtype == np.float32


def test_parameters_may_have_another_dtype(client, random):
    x, w = random.standard_normal((4, 8)).astype(np.float16), random.standard_normal(8)
    y = client.layer_norm(x, 8, w.astype(np.float32), np.zeros(8, ml_dtypes.bfloat16))
    assert y.dtype == np.float16
    exact = reference.layer_norm(x, 1, w.astype(np.float32).astype(np.float64))
    assert reference.ulp_distance(y, exact) <= BOUND


def test_a_call_that_was_seen_before_gives_what_the_first_one_gave(client, random):
    """The second call of a kind is made of remembered bytes: other values, other parameters, other shapes."""
    for shape in ((4, 8), (3, 8)):
        for _ in range(3):
            x, w, b = (random.standard_normal(s).astype(np.float32) for s in (shape, 8, 8))
            for parameters in ((), (w,), (w, b), (None, b)):
                expected = client.normalize(normd.LayerNorm(8), x, *parameters).y
                np.testing.assert_array_equal(client.layer_norm(x, 8, *parameters), expected)
    swapped = x.astype(">f4")
    np.testing.assert_array_equal(client.layer_norm(swapped, 8), client.layer_norm(x, 8))
    np.testing.assert_array_equal(client.layer_norm(swapped, 8), client.layer_norm(x, 8))


def test_one_array_given_twice_does_not_stand_for_two_in_later_calls(client, random):
    x, zeros, ones = random.standard_normal((4, 3)).astype(np.float32), np.zeros(3, np.float32), np.ones(3, np.float32)
    client.batch_norm(x, zeros, ones, ones, zeros)
    mean, var, w, b = (random.random(3).astype(np.float32) + 0.5 for _ in range(4))
    exact = reference.batch_norm(x, mean, var) * w + b
    for _ in range(2):
        np.testing.assert_allclose(client.batch_norm(x, mean, var, w, b), exact, atol=1e-5)


def test_functions_use_the_default_client_or_the_one_given(server, client, random, monkeypatch):
    x = random.standard_normal((4, 8)).astype(np.float32)
    monkeypatch.setenv("NORMD_SERVER", server.tcp)
    normd.set_default_client(None)
    try:
        assert normd.default_client().target == server.tcp
        np.testing.assert_array_equal(normd.layer_norm(x, 8), client.layer_norm(x, 8))
        np.testing.assert_array_equal(normd.rms_norm(x, 8, client=client), client.rms_norm(x, 8))
    finally:
        normd.default_client().close()
        normd.set_default_client(None)


def test_a_batch_has_a_result_or_an_error_for_each_call(client, random):
    x = random.standard_normal((4, 8)).astype(np.float32)
    specs = [normd.LayerNorm(8), normd.LayerNorm(7), normd.GroupNorm(2)]
    results = client.batch([client.prepare(spec, x) for spec in specs])
    np.testing.assert_array_equal(results[0].y, client.layer_norm(x, 8))
    assert isinstance(results[1], normd.InvalidArgument) and results[1].value == "[7]"
    np.testing.assert_array_equal(results[2].y, client.group_norm(x, 2))
    assert client.batch([]) == []


def test_moments_are_those_of_each_group(client, random):
    x = random.standard_normal((5, 3, 4))
    moments = client.moments(normd.BatchNorm(3), x)
    mean, var, n = reference.batch_statistics(x)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(moments.m2, var * n, rtol=1e-12)
    np.testing.assert_array_equal(moments.count, [n] * 3)
