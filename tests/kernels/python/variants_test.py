"""Which variant of a method a kernel is: the mistakes that kernels have are found, and named."""

import ml_dtypes
import numpy as np
import pytest
from conftest import layer_norm_kernel, normal, rms_norm_kernel

import normd_golden as golden

RMS = golden.RMSNorm(eps=1e-6)
SMALL = {"scale": 1e-3}  # where eps matters


def differences(y, spec, x, *parameters, **rest):
    fits = golden.check(y, spec, x, *parameters, **rest).variants
    return fits[0].differences


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("fault, found", [
    ({}, ()),
    ({"outside": True}, ("eps 1e-06 added after the root",)),
    ({"offset": 1}, ("1 added to the weight",)),
], ids=str)  # fmt: skip
def test_faults_of_rms_norm(dtype, fault, found):
    x, w = normal((16, 256), dtype, **SMALL), normal(256, dtype, seed=2)
    assert differences(rms_norm_kernel(x, w, 1e-6, **fault), RMS, x, w) == found


def test_the_cast_order_of_llama():
    x, w = normal((16, 256), np.float16), normal(256, np.float16, seed=2)
    y = rms_norm_kernel(x, w, 1e-6, cast_first=True)
    report = golden.check(y, RMS, x, w)
    assert report.variants[0].differences == ("CAST_THEN_AFFINE",)
    assert report.variant.startswith("variant: CAST_THEN_AFFINE fits: ")
    assert differences(y, golden.RMSNorm(eps=1e-6, cast_order="cast_then_affine"), x, w) == ()


def test_float32_arithmetic_on_float32_rounds_before_the_weight_too():
    x, w, b = normal((16, 256)), normal(256, seed=2), normal(256, seed=3)
    assert differences(layer_norm_kernel(x, w, b, 1e-5), golden.LayerNorm(256), x, w, b) == ("CAST_THEN_AFFINE",)


def test_two_differences_are_named_together():
    x, w = normal((16, 256), np.float16, **SMALL), normal(256, np.float16, seed=2)
    y = rms_norm_kernel(x, w, 1e-6, cast_first=True, outside=True)
    assert golden.check(y, RMS, x, w).variant.startswith(
        "variant: CAST_THEN_AFFINE with eps 1e-06 added after the root fits: "
    )


def test_the_weight_of_gemma():
    x, w = normal((16, 256)), normal(256, seed=2, scale=0.1)
    gemma = golden.RMSNorm(eps=1e-6, weight_offset=1)
    assert differences(rms_norm_kernel(x, w, 1e-6, offset=1), RMS, x, w) == ("1 added to the weight",)
    assert differences(rms_norm_kernel(x, w, 1e-6), gemma, x, w) == ("nothing added to the weight",)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("cast_first", [True, False])
def test_one_plus_the_weight_rounded_before_the_product(dtype, cast_first):
    x, w = normal((16, 256)).astype(dtype), normal(256, seed=2, scale=0.1).astype(dtype)
    y = rms_norm_kernel(x, (dtype(1) + w).astype(dtype), 1e-6, cast_first=cast_first)
    rounded = "1 + weight rounded before the product"
    order = ("CAST_THEN_AFFINE",) if cast_first else ()
    gemma = golden.RMSNorm(eps=1e-6, weight_offset=1)
    assert differences(y, gemma, x, w) == (*order, rounded)
    assert differences(y, RMS, x, w) == (*order, "1 added to the weight", rounded)
    wide = golden.rms_norm(x, 256, w, eps=1e-6, weight_offset=1)
    assert differences(wide, gemma, x, w) == ()


def test_squares_that_overflow():
    x, w = normal((16, 256), np.float16, scale=400), normal(256, np.float16, seed=2)
    y = rms_norm_kernel(x, w, 1e-6, narrow=True)
    assert (y == 0).all()
    assert differences(y, RMS, x, w) == ("squares in float16, which overflow from 256 on",)


def test_an_unbiased_variance():
    x, w, b = normal((64, 24)), normal(24, seed=2), normal(24, seed=3)
    found = differences(layer_norm_kernel(x, w, b, 1e-5, ddof=1), golden.LayerNorm(24), x, w, b)
    assert "an unbiased variance (n - 1)" in found


def test_statistics_over_the_wrong_axis():
    x, w = normal((4, 32, 32)), normal(32, seed=2)
    assert differences(rms_norm_kernel(x, w, 1e-6, axis=1), RMS, x, w) == ("statistics over axis 1",)
    assert differences(rms_norm_kernel(x, w, 1e-6, axis=(1, 2)), RMS, x, w) == ("statistics over axes 1, 2",)
    assert differences(rms_norm_kernel(x, w, 1e-6, axis=(0, 1, 2)), RMS, x, w) == ("statistics over axes 0, 1, 2",)


def test_a_mean_that_should_not_be_there():
    x = normal((16, 128), around=0.5)
    assert differences(golden.layer_norm(x, 128, eps=1e-6), RMS, x) == ("a mean subtracted, biased variance",)
    assert differences(golden.rms_norm(x, 128, eps=1e-5), golden.LayerNorm(128), x) == ("no mean subtracted",)


def test_another_eps():
    x = normal((16, 128), **SMALL)
    assert differences(golden.layer_norm(x, 128, eps=1e-12), golden.LayerNorm(128), x) == ("eps 1e-12 under the root",)
    clamped = golden.layer_norm(normal((16, 128), scale=1e-6), 128, eps_mode="clamp_root")
    assert differences(clamped, golden.LayerNorm(128), normal((16, 128), scale=1e-6)) == (
        "eps 1e-05 as the least root",
    )


def test_a_residual_that_is_rounded_or_kept_wide():
    x, r = normal((16, 256), np.float16), normal((16, 256), np.float16, seed=2, scale=0.01)
    wide = golden.rms_norm(x, eps=1e-6, residual=r, residual_rounding="keep_wide")
    assert differences(wide, RMS, x, residual=r) == ("the residual sum kept wide",)
    assert differences(golden.rms_norm(x + r, eps=1e-6), RMS, x, residual=r) == ()


@pytest.mark.parametrize("spec, shape", [
    (golden.GroupNorm(2), (2, 4, 5, 5)), (golden.GroupNorm(2, layout="NHWC"), (2, 5, 5, 4)),
    (golden.InstanceNorm(), (2, 3, 40)),
    (golden.BatchNorm(), (40, 3)), (golden.LayerNorm(axes=(2, 1)), (2, 3, 4)), (golden.PRMSNorm(k=10), (4, 40)),
    (golden.ScaleNorm(), (4, 40)),
], ids=str)  # fmt: skip
def test_every_method_fits_itself(spec, shape):
    x = normal(shape)
    w = normal(golden.parameter_shape(spec, x) or (1,), seed=2)
    y = golden.normalize(spec, x, w).y
    best = golden.check(y, spec, x, w).variants[0]
    assert best.differences == () and best.nearest > 0.999


def test_what_the_data_cannot_tell_apart_is_said():
    x = normal((16, 256))  # eps 1e-12 and none are the same here
    report = golden.check(golden.rms_norm(x, eps=0.0), golden.RMSNorm(eps=1e-3), x)
    assert "others fit as well, which this data cannot tell apart" in report.variant


def test_a_kernel_that_rounds_at_every_step_is_told():
    x = normal((16, 256), np.float16)
    y = x / np.sqrt((x * x).mean(-1, keepdims=True, dtype=np.float16) + np.float16(1e-6))
    assert "so this rounds to float16 on the way" in golden.check(y, RMS, x).variant
    assert "on the way" not in golden.check(rms_norm_kernel(x, np.ones(256, np.float16), 1e-6), RMS, x).variant


def test_where_nothing_fits_the_verdict_says_so():
    x = normal((8, 256), around=2.0**19)
    mean = x.mean(-1, keepdims=True, dtype=np.float32)
    variance = np.abs((x * x).mean(-1, keepdims=True, dtype=np.float32) - mean * mean)  # all of it rounding error
    wrong = (x - mean) / np.sqrt(variance + np.float32(1e-5))
    for candidate in (wrong, normal((8, 256), seed=9), np.zeros_like(x)):
        text = golden.check(candidate, golden.LayerNorm(256), x).variant
        assert text.startswith("variant: none fits; the nearest is "), text
        assert "numbers of float32 away" in text


NOTHING = {
    "noise": lambda x, w, b: normal((16, 256), x.dtype, seed=9),
    "no bias": lambda x, w, b: golden.layer_norm(x, 256, w),
    "no weight": lambda x, w, b: golden.layer_norm(x, 256, None, b),
    "x": lambda x, w, b: x,
    "zeros": lambda x, w, b: np.zeros_like(x),
    "NaN": lambda x, w, b: np.full_like(x, np.nan),
    "doubled": lambda x, w, b: 2 * golden.layer_norm(x, 256, w, b),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("what", NOTHING)
def test_what_is_no_variant_fits_none(what, dtype):
    x, w, b = normal((16, 256), dtype), normal(256, dtype, seed=2), normal(256, dtype, seed=3)
    report = golden.check(NOTHING[what](x, w, b), golden.LayerNorm(256), x, w, b)
    assert report.variant.startswith("variant: none fits; the nearest is "), report.variant


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_what_is_near_a_variant_everywhere_and_never_its_value_fits_none(dtype):
    x = normal((16, 256), dtype)  # whose root mean square is near 1
    assert "variant: none fits" in golden.check(x, golden.LayerNorm(256), x).variant
    x = normal((4, 8, 8), dtype, around=2)  # of the other layout
    y = golden.normalize(golden.GroupNorm(2, layout="NHWC"), x).y
    assert "variant: none fits" in golden.check(y, golden.GroupNorm(2), x).variant


def test_a_kernel_that_is_right_in_half_of_its_rows_is_still_recognised():
    x = normal((8, 256), np.float16)
    y = golden.rms_norm(x, eps=1e-6)
    y[4:] = 0
    assert golden.check(y, RMS, x).variants[0].differences == ()
    text = golden.check(y, RMS, x).variant
    assert text.startswith("variant: as specified (50 % of the sample nearest; the others are about 1.4e+04 numbers of")
    assert "on the way" not in text


@pytest.mark.parametrize("scale, share", [(1.0, 98), (0.1, 90)])
def test_a_variant_that_fits_better_is_not_hidden_by_one_that_nearly_does(scale, share):
    x, w = normal((64, 256), np.float16, scale=scale), normal(256, np.float16, seed=2)
    y = golden.rms_norm(x, 256, w, eps=1e-5, eps_mode="add_to_root")
    report = golden.check(y, RMS, x, w)
    assert report.variants[0].nearest == 1.0 and report.variants[0].differences != ()
    as_specified = next(one for one in report.variants if not one.differences)
    assert share / 100 < as_specified.nearest < 1 and not as_specified.is_alike
    assert ": 100 % of the sample nearest, 9" in report.variant


def test_what_fits_as_well_as_specified_is_said():
    x = normal((16, 256))
    text = golden.check(golden.rms_norm(x, eps=1e-12), golden.RMSNorm(eps=1e-12), x).variant
    assert text.startswith("variant: as specified (100 % of the sample nearest); ")
    assert "others fit as well, which this data cannot tell apart, such as eps " in text
    x = normal((16, 256), scale=1e-3)
    assert "fit" not in golden.check(golden.rms_norm(x, eps=1e-6), RMS, x).variant


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("rounding", ["round_first", "keep_wide"])
def test_a_scaled_residual_is_summed_as_the_golden_norm_sums(dtype, rounding):
    x, r, w = normal((64, 256), dtype), normal((64, 256), dtype, seed=5), normal(256, dtype, seed=2)
    rest = {"residual": r, "residual_scale": 1 / 3}
    y = golden.rms_norm(x, 256, w, eps=1e-6, residual_rounding=rounding, **rest)
    best = golden.check(y, RMS, x, w, residual_rounding=rounding, **rest).variants[0]
    assert best.differences == () and best.nearest == 1.0
    other = {"round_first": "keep_wide", "keep_wide": "round_first"}[rounding]
    best = golden.check(y, RMS, x, w, residual_rounding=other, **rest).variants[0]
    assert len(best.differences) == 1 and "the residual sum" in best.differences[0] and best.nearest > 0.995


def test_shares_of_float64_are_of_nearest_values():
    x, w = normal((16, 256), np.float64), normal(256, np.float64, seed=2)
    y = golden.layer_norm(x, 256, w)
    assert golden.check(y, golden.LayerNorm(256), x, w).variant == "variant: as specified (100 % of the sample nearest)"
    best = golden.check(golden.layer_norm(x, 256, w, eps=1e-3), golden.LayerNorm(256), x, w).variants[0]
    assert best.differences == ("eps 0.001 under the root",) and best.nearest > 0.995
    naive = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w
    assert golden.check(naive, RMS, x, w).variants[0].differences == ("CAST_THEN_AFFINE",)
    assert golden.check(naive, RMS, x, w).variants[0].nearest < 0.95


@pytest.mark.parametrize("eps", [2.0**-52, 1e-12, 1e-8, 1e-7, 2.0**-23, 1e-6, 1e-4, 1e-3])
def test_eps_of_known_implementations_are_found(eps):
    x = normal((16, 256), np.float64, scale=eps**0.5)
    found = golden.check(golden.layer_norm(x, 256, eps=eps), golden.LayerNorm(256), x).variants[0]
    assert found.differences == (f"eps {eps:g} under the root",)


def test_methods_without_variants_say_nothing():
    x = normal((4, 6))
    report = golden.check(x, golden.LpNorm(), x)
    assert report.variants == [] and report.variant == ""
