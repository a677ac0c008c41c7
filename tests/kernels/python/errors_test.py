"""Mistakes get one sentence that names argument, value and limit."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
from conftest import normal

import normd_golden as golden
from normd_golden import testing

X = normal((4, 6))
CHANNELS = normal((2, 6, 3))


@pytest.mark.parametrize("call, error, sentence", [
    (lambda: golden.layer_norm(X, 5), ValueError, "normalized_shape is [5]; it must be the trailing extents of x"),
    (lambda: golden.layer_norm(X, 6, np.ones(5)), ValueError, "weight has 5 values; it must have 6"),
    (lambda: golden.layer_norm(X, 6, eps=-1), ValueError, "eps is -1; it must be finite and at least 0"),
    (lambda: golden.layer_norm(X, 6, eps=float("nan")), ValueError, "eps is nan; it must be finite and at least 0"),
    (lambda: golden.layer_norm(X, 6, eps="small"), TypeError, "eps is 'small'; it must be a number"),
    (lambda: golden.layer_norm(X, 6.0), TypeError, "normalized_shape is 6.0; it must be a whole number"),
    (lambda: golden.layer_norm(X, [1] * 9), ValueError, "normalized_shape has 9 values; at most 8 are possible"),
    (lambda: golden.layer_norm(X, 6, eps_mode="outside"), ValueError, "eps_mode is 'outside'; inside_sqrt, add_to_roo"),
    (lambda: golden.layer_norm(X, 6, epsilon=1), TypeError, "epsilon is no argument of layer_norm; axes, cast_order"),
    (lambda: golden.layer_norm(X.astype(np.int32), 6), TypeError, "x has dtype int32; float32, float16"),
    (lambda: golden.layer_norm(X.astype(object), 6), TypeError, "x has dtype object; float32, float16"),
    (lambda: golden.layer_norm(np.ma.masked_array(X), 6), TypeError, "x is a masked array"),
    (lambda: golden.layer_norm(np.float32(1), 1), ValueError, "x has rank 0; the rank must be between 1 and 8"),
    (lambda: golden.rms_norm(np.ones([1] * 9)), ValueError, "x has rank 9; at most 8 is possible"),
    (lambda: golden.rms_norm(X, residual=X[:2]), ValueError, "residual has shape [2,6]; it must have [4,6]"),
    (lambda: golden.rms_norm(X, weight_offset=2), ValueError, "weight_offset is 2; it must be 0 or 1"),
    (lambda: golden.group_norm(X, 4), ValueError, "num_groups is 4; it must"),
    (lambda: golden.group_norm(X, 0), ValueError, "num_groups is 0; it must be at least 1"),
    (lambda: golden.batch_norm(X), ValueError, "running_var is missing; give the statistics, or training=True"),
    (lambda: golden.batch_norm(X, np.ones(6), -np.ones(6)), ValueError, "running_var[0] is -1; it must be at least 0"),
    (lambda: golden.batch_norm(X, np.ones(5), np.ones(5)), ValueError, "running_var has 5 values; it must have 6"),
    (lambda: golden.batch_norm(X, None, np.ones(6)), ValueError, "running_mean is missing; give it with running_var"),
    (lambda: golden.p_rms_norm(X, 1.5), ValueError, "p is 1.5; it must be above 0 and at most 1"),
    (lambda: golden.p_rms_norm(X, k=7), ValueError, "k is 7; it must be"),
    (lambda: golden.lp_norm(X, 0.5), ValueError, "p is 0.5; it must be at least 1"),
    (lambda: golden.lp_norm(X, dim=2), ValueError, "dim[0] is 2; it must be between -2 and 1"),
    (lambda: golden.normalize("layer", X), ValueError, "spec is 'layer'; a Spec and batch_norm, layer_norm"),
    (lambda: golden.normalize(3, X), TypeError, "spec is a int; a Spec and batch_norm"),
    (lambda: golden.normalize("rms_norm", X, outputs=("z",)), ValueError, "outputs is ('z',); a tuple of y, h"),
    (lambda: golden.check(X[:2], "rms_norm", X), ValueError, "candidate has shape [2, 6]; it must have that of x, [4,"),
    (lambda: golden.check(X.astype("f8"), "rms_norm", X), TypeError, "candidate has dtype float64; it must have that"),
    (lambda: golden.check(X, "rms_norm", X, reference=X[0]), ValueError, "reference has shape [6]; it must have"),
    (lambda: golden.layer_norm(X + 0j, 6), TypeError, "x has dtype complex64; float32, float16"),
    (lambda: golden.layer_norm(X, 6, [1] * 6), TypeError, "weight has dtype int64; float32, float16"),
    (lambda: golden.rms_norm(X, residual=X, residual_scale="2"), TypeError, "residual_scale is '2'; it must be a numb"),
    (lambda: golden.rms_norm(X, residual=X, residual_scale=np.inf), ValueError, "residual_scale is inf; it must be fi"),
    (lambda: golden.check(X, "rms_norm", X, running_var=np.ones(6)), ValueError, "running_var is given, but rms_norm"),
    (lambda: golden.check(X, "power_norm", X, running_mean=np.ones(6), running_var=np.ones(6)), ValueError,
     "running_mean is given, but power_norm takes none"),
    (lambda: golden.batch_norm(X, training=True, mask=np.ones(3, bool)), ValueError, "mask has 3 values; it must have"),
    (lambda: golden.batch_norm(X, training=True, mask=np.ones(4)), TypeError, "mask has dtype float64; bool and uint8"),
    (lambda: golden.layer_norm(X, 6, mask=np.ones(4, bool)), ValueError, "mask is given, but"),
    (lambda: golden.check(X, "rms_norm", X, floor="1"), TypeError, "floor is '1'; it must be a number"),
    (lambda: golden.check(X, "rms_norm", X, floor=-1), ValueError, "floor is -1; it must be finite and at least 0"),
    (lambda: testing.assert_norm(X, "rms_norm", X, max_ulp=-1), ValueError, "max_ulp is -1; it must be at least 0"),
    (lambda: testing.batch_invariant(lambda x: x, X[:1]), ValueError, "x has 1 rows; it must have at least 2"),
    (lambda: testing.norm_cases("rms_norm", dtypes=("f32",)), ValueError, "dtypes has 'f32'; float32, float16"),
    (lambda: golden.rms_norm(X, axes=(2**70,)), ValueError, f"axes is {2**70}; it must be a whole numbe"),
    (lambda: golden.group_norm(X, 2**64 + 3), ValueError, f"num_groups is {2**64 + 3}; it must be a whole"),
    (lambda: golden.p_rms_norm(X, k=2**64 + 3), ValueError, f"k is {2**64 + 3}; it must be a whole number of"),
    (lambda: golden.layer_norm(X, 2**63), ValueError, f"normalized_shape is {2**63}; it must be a whole"),
    (lambda: golden.rms_norm(X, eps=10**400), ValueError, "eps is a number of 1329 bits; it must be at most the large"),
    (lambda: golden.rms_norm(X, eps=b"1"), TypeError, "eps is b'1'; it must be a number"),
    (lambda: golden.layer_norm(X, 6, eps=None), TypeError, "eps is None; it must be a number"),
    (lambda: golden.GroupNorm(num_groups=None), TypeError, "num_groups is None; it must be a whole number"),
    (lambda: golden.GroupNorm(layout=None), ValueError, "layout is None; channels_first, channels_last"),
    (lambda: golden.lp_norm(X, dim=()), ValueError, "dim is (); it must have at least one value"),
    (lambda: golden.rms_norm(X, ()), ValueError, "normalized_shape is (); it must have at least one value"),
    (lambda: golden.lp_norm(np.float32(1), dim=None), ValueError, "x has rank 0; the rank must be between 1 and 8"),
    (lambda: golden.check(X, "rms_norm", X, worst=1.5), TypeError, "worst is 1.5; it must be a whole number"),
    (lambda: golden.check(X, "rms_norm", X, worst=-1), ValueError, "worst is -1; it must be at least 0"),
    (lambda: golden.check(X, "rms_norm", X, floor=np.inf), ValueError, "floor is inf; it must be finite and at least"),
    (lambda: golden.check(X, "rms_norm", X, floor=np.nan), ValueError, "floor is nan; it must be finite and at least"),
    (lambda: testing.assert_norm(X, "rms_norm", X, max_ulp=1e9, min_nearest=np.nan), ValueError, "min_nearest is nan;"),
    (lambda: testing.assert_norm(X, "rms_norm", X, max_ulp=1e9, min_nearest=100), ValueError, "min_nearest is 100; it"),
    (lambda: golden.rms_norm(X, residual=X, residual_rounding="wide"), ValueError, "residual_rounding is 'wide'; roun"),
    (lambda: golden.batch_norm(CHANNELS, training=True, mask=np.ones((3, 2), bool)), ValueError,
     "mask has shape [3, 2]; it must have [2, 3], that of x without channels"),
    (lambda: golden.batch_norm(CHANNELS, training=True, mask=np.ones((), bool)), ValueError, "mask has shape []; it m"),
    (lambda: testing.batch_invariant(lambda x: x, X, splits=[[7]]), ValueError, "splits[0] is [7]; it must be rising"),
    (lambda: testing.batch_invariant(lambda x: x, X, splits=[[1], [2, 1]]), ValueError, "splits[1] is [2, 1]; it must"),
    (lambda: testing.batch_invariant(lambda x: x, X, splits=[[]]), ValueError, "splits[0] is []; it must be rising ro"),
    (lambda: testing.batch_invariant(lambda x: x, X, splits=[2]), TypeError, "splits[0] is 2; it must be a list of ro"),
    (lambda: testing.norm_cases("rms_norm", shapes=((),)), ValueError, "shapes has (); it must have 1 to 8 extents"),
    (lambda: testing.norm_cases("rms_norm", shapes=((0,),)), ValueError, "shapes has (0,); it must have 1 to 8 extent"),
    (lambda: testing.norm_cases("rms_norm", shapes=(4, 8)), TypeError, "shapes has 4; each of them must be a tuple of"),
    (lambda: golden.rms_norm(None), TypeError, "x is None; give an array"),
    (lambda: golden.check(None, "rms_norm", X), TypeError, "candidate is None; give an array"),
    (lambda: golden.check(X.astype(object), "rms_norm", X), TypeError, "candidate has dtype object; float32"),
    (lambda: golden.check(X + 0j, "rms_norm", X), TypeError, "candidate has dtype complex64; float32"),
    (lambda: golden.check(1.0, "rms_norm", X), TypeError, "candidate has dtype float64; it must have that of x, float"),
    (lambda: golden.check(X, "rms_norm", X, reference=X.astype("f8")), TypeError, "reference has dtype float64; it mu"),
    (lambda: golden.rms_norm([[1.0], [1.0, 2.0]]), TypeError, "x is a list that numpy cannot read (setting an array"),
    (lambda: golden.rms_norm(X.astype(np.longdouble)), TypeError, "x has dtype float128; float32, float16"),
    (lambda: golden.rms_norm(X.astype(ml_dtypes.float8_e5m2)), TypeError, "x has dtype float8_e5m2; float32, float16"),
    (lambda: golden.rms_norm(np.broadcast_to(np.float32(1), (2**46, 8))), ValueError,
     f"x has shape [{2**46}, 8]; a dense copy needs {2**51} bytes, which there are not"),
    (lambda: golden.layer_norm(X), ValueError, "normalized_shape is missing; give normalized_shape or axes"),
    (lambda: golden.layer_norm(X, 6, axes=(1,)), ValueError, "axes and normalized_shape are both given; give one of"),
    (lambda: golden.layer_norm(X, -1), ValueError, "normalized_shape[0] is -1; it must be at least 0"),
    (lambda: golden.layer_norm(X, axes=(1, 1)), ValueError, "axes[1] is 1; it must be an axis that is not listed bef"),
    (lambda: golden.layer_norm(X, 6, np.ones((2, 3), "f4")), ValueError, "weight has shape [2,3]; it must have [6]"),
    (lambda: golden.rms_norm(X, eps=np.inf), ValueError, "eps is inf; it must be finite and at least 0"),
    (lambda: golden.rms_norm(X, eps=1j), TypeError, "eps is 1j; it must be a number"),
    (lambda: golden.rms_norm(X, eps=np.True_), TypeError, "eps is "),
    (lambda: golden.rms_norm(X, eps=np.ones(2)), TypeError, "eps is array([1., 1.]); it must be a number"),
    (lambda: golden.rms_norm(X, weight_offset=np.nan), ValueError, "weight_offset is nan; it must be 0 or 1"),
    (lambda: golden.rms_norm(X, cast_order=1), ValueError, "cast_order is 1; affine_then_cast, cast_then_affine are"),
    (lambda: golden.rms_norm(X, residual_scale=2), ValueError, "residual_scale is 2.0; give the residual that it scal"),
    (lambda: golden.normalize(golden.LpNorm(), X, np.ones(6, "f4")), ValueError, "weight is given, but lp_norm takes"),
    (lambda: golden.normalize("batch_norm", X, training="no"), TypeError, "training is 'no'; it must be True or False"),
    (lambda: golden.normalize("rms_norm", X, outputs=None), ValueError, "outputs is None; a tuple of y, h, mean, inv_"),
    (lambda: golden.normalize("rms_norm", X, epsilon=1), TypeError, "epsilon is no argument; residual, residual_scale"),
    (lambda: golden.normalize(golden.RMSNorm, X), TypeError, "spec is the class RMSNorm; give one of it, such as RMS"),
    (lambda: golden.batch_norm(X, np.ones(6), np.full(6, np.nan)), ValueError, "running_var[0] is nan; it must be at"),
    (lambda: golden.p_rms_norm(X), ValueError, "p is missing; give p or k"),
    (lambda: golden.p_rms_norm(X, np.nan), ValueError, "p is nan; it must be above 0 and at most 1"),
    (lambda: golden.lp_norm(X, np.nan), ValueError, "p is nan; it must be at least 1"),
    (lambda: golden.exact("rms_norm", X).interval((9, 9)), ValueError, "index is (9, 9); it must name one element of"),
    (lambda: golden.exact("rms_norm", X).interval(0), ValueError, "index is 0; it must name one element of shape [4, 6"),
    (lambda: testing.norm_cases("rms_norm", dtypes="f32"), ValueError, "dtypes has 'f32'; float32, float16"),
    (lambda: testing.norm_cases("rms_norm", shapes=((2**40, 8),)), ValueError, f"shapes has ({2**40}, 8); it must have"),
    (lambda: testing.batch_invariant(lambda x: x, 3.0), TypeError, "x is a float without axes; it must have rows to"),
])  # fmt: skip
def test_a_mistake_is_named(call, error, sentence):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_a_library_that_is_missing_is_named(monkeypatch):
    from normd_golden import _library

    monkeypatch.setenv("NORMD_GOLDEN_LIBRARY", "/nonexistent/libnormd_golden.so")
    monkeypatch.setattr(_library, "_library", None)
    with pytest.raises(ImportError, match="normd_golden cannot load its library /nonexistent/libnormd_golden.so"):
        golden.layer_norm(X, 6)


@pytest.mark.parametrize("missing", ["normd_golden_call_bytes", "normd_golden_plan_info_bytes"])
def test_a_library_of_another_version_is_refused(monkeypatch, missing):
    from normd_golden import _library
    from normd_golden._library import library

    kind = {"normd_golden_call_bytes": "Call", "normd_golden_plan_info_bytes": "PlanInfo"}[missing]
    larger = type(kind, (getattr(_library, kind),), {"_fields_": [("more", ctypes.c_int64)]})
    monkeypatch.setattr(_library, kind, larger)
    monkeypatch.setattr(_library, "_library", None)
    with pytest.raises(ImportError, match="is of another version of normd_golden: install both anew"):
        library()


def refusal(**fields):
    """What golden.h says of a call of BatchNorm on [2, 3] with these fields of the struct."""
    from normd_golden import _library
    from normd_golden._library import library

    x, variance, y = (np.ones(shape, dtype) for shape, dtype in (((2, 3), "f4"), (3, "f8"), ((2, 3), "f4")))
    call = _library.Call()
    call.spec.method, call.spec.layout = golden.BatchNorm.code, fields.pop("layout", 1)
    call.x = _library.Tensor(x.ctypes.data, 1, 2, (2, 3))
    call.given_mean = call.given_variance = variance.ctypes.data
    call.num_given, call.y = 3, y.ctypes.data
    for name, value in fields.items():
        setattr(call, name, value)
    error = ctypes.create_string_buffer(200)
    failed = library().normd_golden_run(ctypes.byref(call), error, ctypes.c_size_t(200))
    assert bool(failed) == bool(error.value)
    return error.value.decode()


def test_the_c_interface_checks_every_number():
    assert refusal() == ""
    assert refusal(residual_rounding=2) == ""
    assert refusal(residual_rounding=7) == "residual_rounding is 7; it must be between 0 and 2"
    assert refusal(residual_rounding=-1) == "residual_rounding is -1; it must be between 0 and 2"
    assert refusal(given_mean=None) == "running_mean is missing; give the means of running_var"
    assert refusal(layout=2) == ""
    assert refusal(layout=0) == "layout is 0; it must be NORMD_CHANNELS_FIRST or NORMD_CHANNELS_LAST"
    assert refusal(layout=3) == "layout is 3; it must be NORMD_CHANNELS_FIRST or NORMD_CHANNELS_LAST"


def exact_refusal(index=0, dtype=4, cast_order=0):
    """What golden.h says of the exact values of an RMSNorm on [2]."""
    from normd_golden import _library

    x, y, low, bound, wanted = np.ones(2), np.ones(2), np.zeros(2), np.zeros(2), np.array([index])
    call = _library.Call()
    call.spec.method, call.spec.cast_order, call.y = golden.RMSNorm.code, cast_order, y.ctypes.data
    call.x = _library.Tensor(x.ctypes.data, dtype, 1, (2,))
    values = _library.ExactValues(wanted.ctypes.data, 1, low.ctypes.data, bound.ctypes.data)
    try:
        _library.exact(call, values)
    except ValueError as error:
        return str(error)
    return ""


def test_the_exact_values_of_the_c_interface_are_checked():
    assert exact_refusal() == ""
    assert exact_refusal(index=2) == "elements is 2; it must be at least 0 and below 2"
    assert exact_refusal(index=-1) == "elements is -1; it must be at least 0 and below 2"
    assert exact_refusal(dtype=1) == "x.dtype is 1; it must be NORMD_F64"
    assert exact_refusal(cast_order=2) == "cast_order is 2; it must be NORMD_AFFINE_THEN_CAST"
