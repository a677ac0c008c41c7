"""The judgement of a result: its distance from the truth, and which of two results is nearer to it."""

import ml_dtypes
import numpy as np
import pytest
from conftest import JUDGE, judge_row, layer_norm_kernel, normal

import normd_golden as golden
from normd_golden import _formats
from normd_golden._report import errors_of

SPEC = golden.LayerNorm(128)


def steps_from(y, steps):
    """The numbers of y's type `steps` places above."""
    format_ = next(one for one in _formats.FORMATS if one.words == y.dtype)
    return format_.at_index(format_.index(y) + steps)


def test_the_golden_result_is_perfect():
    x = normal((8, 128))
    report = golden.check(golden.layer_norm(x, 128), SPEC, x)
    assert report.nearest == 1.0 and report.max_ulp <= 0.5 and report.rounding == "NEAREST"
    assert report.histogram["nearest"] == x.size and not [one for one in report.worst if one.ulp > 0.5]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_a_step_away_is_counted_as_such(dtype):
    x = normal((4, 128)).astype(dtype)
    y = np.array(golden.layer_norm(x, 128))
    words = y.view(np.uint16) if dtype == ml_dtypes.bfloat16 else y
    words[2, 7:8] = steps_from(words[2, 7:8], 3)
    report = golden.check(y, SPEC, x)
    assert report.nearest == 1 - 1 / y.size
    assert 2.5 <= report.max_ulp <= 3.5
    assert report.worst[0].index == (2, 7) and report.worst[0].candidate == float(y[2, 7])
    assert report.worst[0].x == float(x[2, 7])


def test_the_worst_element_shows_the_truth_and_its_neighbours():
    x, w, b = normal((3, 128)), normal(128, seed=2), normal(128, seed=3)
    y = np.array(golden.layer_norm(x, 128, w, b))
    y[1, 5] = 9.0
    worst = golden.check(y, SPEC, x, w, b).worst[0]
    exact = judge_row(x[1], w, b, eps=1e-5, centred=True)[5]
    assert abs(JUDGE.mpf(worst.exact) - exact) <= abs(exact) * JUDGE.mpf(2) ** -53
    assert worst.below < exact < worst.above
    assert np.nextafter(np.float32(worst.below), np.float32(np.inf)) == np.float32(worst.above)
    assert (worst.weight, worst.bias) == (float(w[5]), float(b[5]))


def test_errors_are_those_of_the_judge():
    x, w, b = normal((2, 128)), normal(128, seed=2), normal(128, seed=3)
    y = layer_norm_kernel(x, w, b, 1e-5)
    report = golden.check(y, SPEC, x, w, b)
    for row in range(2):
        for i, exact in enumerate(judge_row(x[row], w, b, eps=1e-5, centred=True)):
            ulp = 2.0 ** (np.floor(np.log2(abs(float(exact)))) - 23)
            assert report.errors[row, i] == pytest.approx(
                abs(float(JUDGE.mpf(float(y[row, i])) - exact)) / ulp, rel=1e-6
            )


def test_a_floor_bounds_what_cancellation_makes_of_small_results():
    x, w, b = normal((64, 128)), normal(128, seed=2), normal(128, seed=3)
    y = layer_norm_kernel(x, w, b, 1e-5)
    assert golden.check(y, SPEC, x, w, b).max_ulp > 20
    assert golden.check(y, SPEC, x, w, b, floor=1.0).max_ulp < 10


def test_infinities_and_nans_count_only_where_they_are_wrong():
    x = normal((3, 128))
    x[1, 4] = np.nan
    y = np.array(golden.layer_norm(x, 128))
    assert np.isnan(y[1]).all() and golden.check(y, SPEC, x).nearest == 1.0
    y[0, 0], y[1, 1] = np.inf, 0.0
    report = golden.check(y, SPEC, x)
    assert report.max_ulp == np.inf and np.isinf(report.errors).sum() == 2
    assert {one.index for one in report.worst[:2]} == {(0, 0), (1, 1)}


def test_overflow_to_infinity_is_right_where_the_golden_result_overflows():
    x, w = normal((1, 8), np.float16), np.full(8, 65504, np.float16)
    y = golden.rms_norm(x, weight=w)
    assert np.isinf(y).any() and golden.check(y, golden.RMSNorm(), x, w).max_ulp <= 0.5


def test_a_zero_of_the_other_sign_is_reported():
    x = np.zeros((2, 8), np.float32)
    y = golden.layer_norm(x, 8)
    y[0, 3] = -0.0
    report = golden.check(y, golden.LayerNorm(8), x)
    assert report.nearest == 1.0 and report.zero_signs == 1
    assert "1 zeros have the other sign" in str(report)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_which_of_two_is_nearer_is_what_the_judge_says(dtype):
    x, w, b = normal((2, 128), dtype), normal(128, dtype, seed=2), normal(128, dtype, seed=3)
    y = golden.layer_norm(x, 128, w, b)
    one = steps_from(y, np.arange(256).reshape(2, 128) % 4 - 1)
    other = steps_from(y, -(np.arange(256).reshape(2, 128) % 3 - 1))
    against = golden.check(one, SPEC, x, w, b, reference=other).against
    for row in range(2):
        for i, exact in enumerate(judge_row(x[row], w, b, eps=1e-5, centred=True)):
            a, c = (abs(JUDGE.mpf(float(y_[row, i])) - exact) for y_ in (one, other))
            assert against.nearer[row, i] == (0 if a == c else 1 if a < c else -1), (row, i)
    assert against.undecided == 0
    assert against.nearer_candidate > 20 and against.nearer_reference > 20
    assert against.reference.nearest < 1


def test_two_that_are_equally_far_are_told_as_such():
    x, w = np.array([[1, -1]], np.float32), np.full(2, 1 + 2.0**-24)  # float64: the middle of two numbers of float32
    one, other = np.array([[1, -1]], np.float32), np.array([[1, -1]], np.float32) * np.float32(1 + 2.0**-23)
    against = golden.check(one, golden.RMSNorm(eps=0), x, w, reference=other).against
    assert against.nearer.tolist() == [[0, 0]] and against.undecided == 2


def test_the_default_eps_of_rms_norm_is_that_of_the_type():
    for dtype in (np.float32, np.float64):
        x = normal((4, 64), dtype, scale=1e-4)
        assert golden.check(golden.rms_norm(x), golden.RMSNorm(), x).max_ulp <= 0.5


def test_the_verdict_names_who_is_right():
    x, w, b = normal((32, 128), around=300), normal(128, seed=2), normal(128, seed=3)
    y = golden.layer_norm(x, 128, w, b)
    report = golden.check(y, SPEC, x, w, b, reference=layer_norm_kernel(x, w, b, 1e-5))
    assert report.against.nearer_candidate > 2000 and report.against.nearer_reference == 0
    assert "nearer to the truth: the candidate" in str(report)


def test_cast_then_affine_has_its_own_truth():
    x, w = normal((8, 128), np.float16), normal(128, np.float16, seed=2)
    spec = golden.RMSNorm(eps=1e-6, cast_order="cast_then_affine")
    y = golden.rms_norm(x, 128, eps=1e-6) * w  # both in float16
    report = golden.check(y, spec, x, w)
    assert report.nearest == 1.0 and report.max_ulp == 0.0
    assert golden.check(y, golden.RMSNorm(eps=1e-6), x, w).nearest < 0.9


def test_rounding_to_bfloat16_is_to_nearest_even():
    rng = np.random.default_rng(5)
    values = rng.standard_normal(20000) * 2.0 ** rng.integers(-140, 126, 20000)
    middles = 1 + (2 * np.arange(128) + 1) / 256
    beside = np.concatenate([middles, np.nextafter(middles, 2), np.nextafter(middles, 1), [0.0, -0.0]])
    for numbers in (values, beside):
        got = _formats.BF16.widen(_formats.BF16.round(numbers))
        ulp = _formats.BF16.ulp(numbers)
        off = np.abs(got - numbers) / ulp
        assert (off <= 0.5).all()
        ties = off == 0.5
        assert (_formats.BF16.round(numbers)[ties] & 1 == 0).all()
    assert ties.sum() == 128
    special = _formats.BF16.widen(_formats.BF16.round(np.array([np.inf, -np.inf, 3.4e38, np.nan])))
    np.testing.assert_array_equal(special, [np.inf, -np.inf, np.inf, np.nan])


def test_percentiles_and_histogram_agree_with_the_errors():
    x, w, b = normal((16, 128)), normal(128, seed=2), normal(128, seed=3)
    report = golden.check(layer_norm_kernel(x, w, b, 1e-5), SPEC, x, w, b)
    assert report.percentiles[50.0] == np.sort(report.errors, axis=None)[x.size // 2]
    assert sum(report.histogram.values()) == x.size
    assert report.histogram["nearest"] / x.size == report.nearest
    assert report.mean_ulp == pytest.approx(report.errors.mean())


def test_errors_of_values_that_no_method_gives():
    exact = np.array([[1.0, 0.1, np.nan, np.inf, 1e30, 0.0]])
    words = np.array([[1.0, np.nextafter(np.float32(0.1), np.float32(1)), np.nan, np.inf, np.inf, 0.5]], np.float32)
    found = errors_of(_formats.F32, words, exact)
    assert found.is_nearest.tolist() == [[True, False, True, True, False, False]]
    assert found.ulp[0, 1] == pytest.approx(1.2) and found.ulp[0, 4] == np.inf and not found.ulp[0, :1].any()
    assert str(found).startswith("50 % nearest, max inf ulp, mean ")
    assert errors_of(_formats.F32, words[:, 5:], exact[:, 5:], floor=1.0).ulp.tolist() == [[0.5 * 2**23]]
