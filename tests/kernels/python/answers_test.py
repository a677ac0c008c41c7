"""The answers: the nearest value of every element, by a judge that shares no code with the kernels."""

import math
import warnings

import ml_dtypes
import mpmath
import numpy as np
import pytest
from conftest import JUDGE, is_nearest, judge_row, normal

import normd_golden as golden


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("mode", ["inside_sqrt", "add_to_root", "clamp_root"])
def test_layer_norm_gives_the_nearest_value(dtype, mode):
    x, w, b = normal((4, 97), dtype, around=3), normal(97, dtype, seed=2), normal(97, dtype, seed=3)
    y = golden.layer_norm(x, 97, w, b, eps=1e-3, eps_mode=mode)
    assert y.dtype == dtype
    for row in range(4):
        exact = judge_row(x[row], w, b, eps=1e-3, centred=True, mode=mode)
        assert all(is_nearest(one, value) for one, value in zip(y[row], exact))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_rms_norm_gives_the_nearest_value(dtype):
    x, w = normal((4, 97), dtype), normal(97, dtype, seed=2)
    y = golden.rms_norm(x, 97, w, eps=1e-6)
    for row in range(4):
        exact = judge_row(x[row], w, eps=1e-6, centred=False)
        assert all(is_nearest(one, value) for one, value in zip(y[row], exact))


def test_what_a_bias_leaves_by_cancellation_is_the_nearest_value():
    x = normal((1, 256))
    bias = -golden.layer_norm(x, 256)[0]
    y = golden.layer_norm(x, 256, None, bias)
    assert 0 < np.abs(y).max() < 1e-6
    assert all(is_nearest(one, value) for one, value in zip(y[0], judge_row(x[0], None, bias, eps=1e-5, centred=True)))


def test_eps_of_rms_norm_is_that_of_torch():
    x = np.full((1, 4), 1e-4, np.float32)
    assert golden.rms_norm(x)[0, 0] == pytest.approx(1e-4 / math.sqrt(1e-8 + 2.0**-23), rel=1e-6)
    wide = golden.rms_norm(x.astype(np.float64))
    assert wide[0, 0] == pytest.approx(float(x[0, 0]) / math.sqrt(float(x[0, 0]) ** 2 + 2.0**-52), rel=1e-15)


def test_bfloat16_is_the_nearest_of_its_type():
    x = normal((3, 64)).astype(ml_dtypes.bfloat16)
    y = golden.layer_norm(x, 64)
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(golden.layer_norm(x.astype(x.dtype.newbyteorder(">")), 64), y)
    for row in range(3):
        exact = judge_row(x[row].astype(np.float64), eps=1e-5, centred=True)
        spacing = 2.0 ** (np.floor(np.log2(np.abs([float(one) for one in exact]))) - 7)
        off = [abs(float(JUDGE.mpf(float(a)) - value)) for a, value in zip(y[row], exact)]
        assert (np.array(off) <= spacing / 2).all()


def test_the_value_is_known_to_a_hundred_bits():
    x, w, b = normal((2, 50), around=100), normal(50, seed=2), normal(50, seed=3)
    value = golden.exact(golden.LayerNorm(50), x, w, b)
    for row in range(2):
        for i, exact in enumerate(judge_row(x[row], w, b, eps=1e-5, centred=True)):
            off = abs(exact - JUDGE.mpf(float(value.high[row, i])) - JUDGE.mpf(float(value.low[row, i])))
            assert off <= JUDGE.mpf(float(value.bound[row, i]))
            low, high = value.interval((row, i))
            assert JUDGE.mpf(low.numerator) / low.denominator <= exact <= JUDGE.mpf(high.numerator) / high.denominator
    assert value.bound.max() < 1e-29
    assert np.abs(value.low).max() > 0


def judge(value):
    """A list of the 300-bit numbers of an array."""
    return [JUDGE.mpf(float(one)) for one in np.ravel(value)]


def power_norm(x, weight, bias, phi):
    """PowerNorm with one group of channels and given phi, which is the float64 that the formula has."""
    for row in x:
        root = JUDGE.sqrt(sum(one**2 for one in judge(row)) / len(row) + JUDGE.mpf(1e-5))
        for one, w, b, v in zip(*map(judge, (row, weight, bias, phi))):
            yield one / root / JUDGE.sqrt(v + JUDGE.mpf(1e-5)) * w + b


def lp_norm(x, norm):
    for row in x:
        yield from (one / norm(judge(row)) for one in judge(row))


def masked_batch_norm(x, mask, weight):
    for channel in range(x.shape[1]):
        counted = judge(x[mask, channel])
        mean = sum(counted) / len(counted)
        root = JUDGE.sqrt(sum((one - mean) ** 2 for one in counted) / len(counted) + JUDGE.mpf(1e-5))
        yield from ((one - mean) / root * JUDGE.mpf(float(weight[channel])) for one in judge(x[:, channel]))


def residual_layer_norm(x, r):
    for row, other in zip(x, r):
        h = [a + JUDGE.mpf(1 / 3) * b for a, b in zip(judge(row), judge(other))]
        mean = sum(h) / len(h)
        root = JUDGE.sqrt(sum((one - mean) ** 2 for one in h) / len(h) + JUDGE.mpf(1e-5))
        yield from ((one - mean) / root for one in h)


X, R, W, B = (normal(shape, seed=seed) for seed, shape in enumerate([(6, 5), (6, 5), 5, 5]))
V = np.abs(normal(5, np.float64, seed=4))
MASK = np.array([True, False, True, True, False, True])
ROOT = {
    1: lambda row: sum(map(abs, row)),
    2: lambda row: JUDGE.sqrt(sum(one**2 for one in row)),
    math.inf: lambda row: max(map(abs, row)),
}


def scale_norm(x, weight, bias):
    for one in lp_norm(x, lambda row: ROOT[2](row) + JUDGE.mpf(1e-5)):
        yield one * judge(weight)[0] + judge(bias)[0]


@pytest.mark.parametrize("spec, arguments, exact", [
    (golden.ScaleNorm(), {"weight": W[:1], "bias": B[:1]}, lambda: scale_norm(X, W, B)),
    (golden.LpNorm(1, -1), {}, lambda: lp_norm(X, ROOT[1])),
    (golden.LpNorm(2, -1), {}, lambda: lp_norm(X, ROOT[2])),
    (golden.LpNorm(math.inf, -1), {}, lambda: lp_norm(X, ROOT[math.inf])),
    (golden.PowerNorm(), {"weight": W, "bias": B, "running_var": V}, lambda: power_norm(X, W, B, V)),
    (golden.BatchNorm(), {"training": True, "mask": MASK, "weight": W}, lambda: masked_batch_norm(X, MASK, W)),
    (golden.LayerNorm(5), {"residual": R, "residual_scale": 1 / 3, "residual_rounding": "keep_wide"},
     lambda: residual_layer_norm(X, R)),
], ids=["scale", "L1", "L2", "L-infinity", "power of given phi", "mask", "residual kept wide"])  # fmt: skip
def test_the_value_of_other_methods_is_known_to_a_hundred_bits(spec, arguments, exact):
    value = golden.exact(spec, X, **arguments)
    if spec == golden.BatchNorm():  # whose judge goes channel by channel
        value = value._make(part.T for part in value)
    for high, low, bound, right in zip(*map(judge, value), exact()):
        assert abs(right - high - low) <= bound
    assert 0 < np.abs(value.low).max() and value.bound.max() < 1e-30


def test_given_statistics_and_those_of_power_norm_in_training():
    mean, var = np.array([0.5, -1.0, 2.0, 0.0, 1.0]), V
    value = golden.exact(golden.BatchNorm(), X, W, running_mean=mean, running_var=var)
    for i, j in np.ndindex(X.shape):
        right = (JUDGE.mpf(float(X[i, j])) - mean[j]) / JUDGE.sqrt(JUDGE.mpf(var[j]) + JUDGE.mpf(1e-5)) * float(W[j])
        assert abs(right - judge(value.high[i, j])[0] - judge(value.low[i, j])[0]) <= value.bound[i, j] < 1e-30
    # v is a float64 by definition, and near this; y as if it were given is y.
    scaled = list(power_norm(X, np.ones(5), np.zeros(5), np.full(5, 1 - 1e-5)))
    near = [float(sum(one**2 for one in scaled[j::5]) / len(X)) for j in range(5)]
    value = golden.exact(golden.PowerNorm(), X, W, B, training=True)
    assert value.bound.max() < 1e-30
    for column in range(5):
        fits = 0
        for v in (near[column], np.nextafter(near[column], 0), np.nextafter(near[column], 9)):
            right = list(power_norm(X, W, B, np.full(5, v)))[column::5]
            parts = (judge(part[:, column]) for part in value)
            fits += all(abs(one - high - low) <= bound for one, high, low, bound in zip(right, *parts))
        assert fits == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_elements_that_are_asked_for_are_those_of_all(dtype):
    from normd_golden import _exact, _normalize

    for spec, shape in ((golden.GroupNorm(2, layout="NHWC"), (2, 3, 3, 4)), (golden.LayerNorm(axes=(2, 0)), (2, 3, 4)),
                        (golden.PowerNorm(2), (3, 4)), (golden.BatchNorm(), (3, 4, 5))):  # fmt: skip
        given = _normalize.arguments(spec, normal(shape, dtype), training=True)
        all_of_them = _exact.refine(given, _exact.of_arguments(given))
        some = np.array([7, 2, 5])
        few = _exact.refine(given, _exact.of_arguments(given), some)
        others = np.setdiff1d(np.arange(few.low.size), some)
        for name in ("low", "bound"):
            a, b = (getattr(one, name).reshape(-1) for one in (few, all_of_them))
            np.testing.assert_array_equal(a[some], b[some])
        assert not few.low.reshape(-1)[others].any() and all_of_them.low.any()


@pytest.mark.parametrize("spec, shape, group", [
    (golden.GroupNorm(2), (2, 4, 3), lambda x: x[1, 2:].reshape(-1)),
    (golden.InstanceNorm(layout="NHWC"), (2, 3, 3, 5), lambda x: x[1, :, :, 4].reshape(-1)),
    (golden.LayerNorm(axes=(1,)), (2, 7, 3), lambda x: x[1, :, 2]),
], ids=str)  # fmt: skip
def test_groups_are_those_of_the_method(spec, shape, group):
    x = normal(shape, np.float64)
    value = golden.exact(spec, x)
    for high, low, exact in zip(group(value.high), group(value.low), judge_row(group(x), eps=1e-5, centred=True)):
        assert abs(exact - JUDGE.mpf(float(high)) - JUDGE.mpf(float(low))) < 1e-28


def test_batch_norm_of_given_statistics():
    x, mean, var = normal((5, 3)), np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.25, 4.0])
    y = golden.batch_norm(x, mean, var)
    for i in range(3):
        for j in range(5):
            exact = (JUDGE.mpf(float(x[j, i])) - mean[i]) / JUDGE.sqrt(JUDGE.mpf(float(var[i])) + JUDGE.mpf(1e-5))
            assert is_nearest(y[j, i], exact)


def test_training_uses_the_statistics_of_the_batch():
    x = normal((6, 4))
    np.testing.assert_array_equal(golden.batch_norm(x, training=True), golden.layer_norm(x, axes=(0,)))


def test_lp_norm_and_scale_norm():
    x = normal((3, 8))
    assert np.abs(golden.lp_norm(x, math.inf)).max(axis=1).tolist() == [1.0] * 3
    length = [mpmath.sqrt(sum(JUDGE.mpf(float(one)) ** 2 for one in row)) for row in x]
    for row in range(3):
        exact = [JUDGE.mpf(float(one)) / (length[row] + JUDGE.mpf(1e-5)) for one in x[row]]
        assert all(is_nearest(one, value) for one, value in zip(golden.scale_norm(x)[row], exact))


def test_other_outputs_are_the_nearest_too():
    x, r = normal((2, 16)), normal((2, 16), seed=2)
    found = golden.normalize(golden.RMSNorm(eps=1e-6), x, residual=r, outputs=("y", "h", "inv_std"))
    assert found.rounding == "NEAREST" and found.mean is None
    np.testing.assert_array_equal(found.h, x + r)
    np.testing.assert_array_equal(found.y, golden.rms_norm(x + r, eps=1e-6))
    assert found.inv_std.shape == (2, 1) or found.inv_std.shape == (2,)


def test_near_the_end_of_float64_the_value_keeps_its_bound():
    x, large = np.array([[-2.0, 1.0, 1.0]]), np.full(3, 1.7e308)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = golden.exact(golden.RMSNorm(eps=0.0), x, large, large)
    assert np.isfinite(value.high).tolist() == [[True, False, False]]
    low, high = value.interval((0, 0))
    exact = judge_row(x[0], large, large, eps=0, centred=False)[0]
    assert JUDGE.mpf(low.numerator) / low.denominator <= exact <= JUDGE.mpf(high.numerator) / high.denominator
    assert value.bound[0, 0] > 0


def test_training_leaves_running_statistics_aside():
    x, given = normal((6, 4)), np.full(4, 3.0)
    y = golden.batch_norm(x, given, given, training=True)
    np.testing.assert_array_equal(y, golden.batch_norm(x, training=True))
    report = golden.check(y, golden.BatchNorm(), x, running_mean=given, running_var=given, training=True)
    assert report.nearest == 1.0 and report.variants[0].differences == ()


def test_a_mask_is_of_the_shape_of_x_without_channels_or_flat():
    x, mask = normal((2, 4, 3)), np.array([[True, False, True], [True, True, False]])
    y = golden.batch_norm(x, training=True, mask=mask)
    np.testing.assert_array_equal(y, golden.batch_norm(x, training=True, mask=mask.reshape(-1)))
    last = golden.batch_norm(x.transpose(0, 2, 1), training=True, mask=mask, layout="channels_last")
    np.testing.assert_array_equal(last, y.transpose(0, 2, 1))


def test_residual_rounding_of_none_is_the_default():
    x, r = normal((4, 32), np.float16), normal((4, 32), np.float16, seed=2)
    for rounding in (None, "round_first"):
        rest = {"residual": r, "residual_rounding": rounding}
        y = golden.rms_norm(x, **rest)
        np.testing.assert_array_equal(y, golden.rms_norm(x + r))
        assert golden.check(y, "rms_norm", x, **rest).variants[0].differences == ()
        assert golden.exact("rms_norm", x, **rest).bound.max() < 1e-29


def test_what_cannot_be_decided_says_so():
    x = normal((4, 6))
    assert golden.normalize(golden.PowerNorm(), x, training=True).rounding == "NEAREST"
    assert golden.normalize(golden.LpNorm(p=10), x).rounding == "NEAREST"
    assert golden.normalize(golden.LpNorm(p=11), x).rounding == "BOUNDED"
    assert golden.normalize(golden.LpNorm(p=7), x.astype(np.float64)).rounding == "BOUNDED"
    assert golden.normalize(golden.LpNorm(p=2.5), x).rounding == "BOUNDED"
    assert golden.normalize(golden.LpNorm(p=1), x).rounding == "NEAREST"


def test_memory_of_any_order_and_alignment():
    x = normal((6, 40))
    want = golden.layer_norm(x, 40)
    odd = np.empty(241, np.float32)[1:].reshape(6, 40)
    odd[...] = x
    spread = np.zeros((6, 80), np.float32)
    spread[:, ::2] = x
    for other in (odd, spread[:, ::2], np.asfortranarray(x), x.astype(">f4"), x.tolist()):
        got = golden.layer_norm(np.asarray(other, np.float32) if isinstance(other, list) else other, 40)
        np.testing.assert_array_equal(got, want)


def test_memory_that_may_not_be_written():
    x = normal((6, 40))
    want = golden.layer_norm(x, 40)
    x.setflags(write=False)
    np.testing.assert_array_equal(golden.layer_norm(x, 40), want)
    first = np.broadcast_to(x[0], (6, 40))
    np.testing.assert_array_equal(golden.layer_norm(first, 40), np.broadcast_to(want[0], (6, 40)))
    np.testing.assert_array_equal(golden.layer_norm(memoryview(x), 40), want)


def test_groups_without_elements_take_no_time():
    assert golden.rms_norm(np.empty((2**40, 0), np.float32)).shape == (2**40, 0)
    found = golden.normalize("rms_norm", np.empty((3, 0), np.float32), outputs=("y", "inv_std"))
    assert found.y.size == 0 and np.isnan(found.inv_std).all()


def test_an_empty_tensor_has_an_empty_answer():
    assert golden.layer_norm(np.empty((0, 8), np.float32), 8).shape == (0, 8)
    assert golden.check(np.empty((0, 8), np.float32), "layer_norm", np.empty((0, 8), np.float32)).nearest == 1.0


ALL = ("layer_norm", "rms_norm", "p_rms_norm", "scale_norm", golden.LpNorm(dim=-1), "batch_norm", "instance_norm")


@pytest.mark.parametrize("spec", ALL, ids=str)
@pytest.mark.parametrize("shape", [(3, 0), (0, 4), (1, 1), (3, 1, 1)], ids=str)
def test_shapes_with_no_elements_or_one(spec, shape):
    x = np.full(shape, 3, np.float32)
    y = golden.normalize(spec, x).y
    report = golden.check(y, spec, x, reference=y)
    assert report.nearest == 1.0 and str(report)
    value = golden.exact(spec, x)
    assert value.high.shape == value.bound.shape == shape
    assert not report.variants or report.variants[0].differences == ()


class OnDlpack:
    """An array of a library that numpy does not know, on a device of that library."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device, self.asked = array, device, []

    def __dlpack__(self, *, dl_device=None, **options):
        self.asked.append(dl_device)
        if (dl_device or self.device) != (1, 0):
            raise BufferError("the memory of a device is no capsule for the CPU")
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.device


class LikeCupy(OnDlpack):
    def __array__(self, *arguments, **options):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


class WithoutCopies(OnDlpack):
    """Of a library before DLPack 1.0, whose __dlpack__ knows no dl_device."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


@pytest.mark.parametrize("kind", [OnDlpack, LikeCupy])
@pytest.mark.parametrize("device", [(1, 0), (2, 0), (2, 1)], ids=str)
def test_arrays_of_other_libraries_come_by_dlpack(kind, device):
    x, w = normal((2, 8)), normal(8, seed=2)
    given = kind(x, device), kind(w, device)
    np.testing.assert_array_equal(golden.layer_norm(given[0], 8, given[1]), golden.layer_norm(x, 8, w))
    assert given[0].asked == ([None] if device == (1, 0) else [(1, 0)])
    assert golden.check(kind(golden.layer_norm(x, 8), device), "layer_norm", x).nearest == 1.0


def test_memory_of_a_device_that_nobody_copies_is_refused():
    x = WithoutCopies(normal((2, 8)), (2, 0))
    with pytest.raises(TypeError, match=r"^x cannot be read by DLPack from device \(2, 0\): .*; copy it to the CPU"):
        golden.layer_norm(x, 8)
    np.testing.assert_array_equal(golden.rms_norm(WithoutCopies(x.array)), golden.rms_norm(x.array))
