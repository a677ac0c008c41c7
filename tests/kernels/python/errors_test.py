"""Mistakes get one sentence that names argument, value and limit."""

import numpy as np
import pytest
from conftest import normal

import normd_golden as golden
from normd_golden import testing

X = normal((4, 6))


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
    (lambda: golden.check(X, "rms_norm", X, floor=-1), ValueError, "floor is -1; it must be at least 0"),
    (lambda: testing.assert_norm(X, "rms_norm", X, max_ulp=-1), ValueError, "max_ulp is -1; it must be at least 0"),
    (lambda: testing.batch_invariant(lambda x: x, X[:1]), ValueError, "x has 1 rows; it must have at least 2"),
    (lambda: testing.norm_cases("rms_norm", dtypes=("f32",)), ValueError, "dtypes has 'f32'; float32, float16"),
])  # fmt: skip
def test_a_mistake_is_named(call, error, sentence):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_a_library_that_is_missing_is_named(monkeypatch):
    from normd_golden import _library

    monkeypatch.setenv("NORMD_GOLDEN_LIBRARY", "/nowhere/libnormd_golden.so")
    monkeypatch.setattr(_library, "_library", None)
    with pytest.raises(ImportError, match="normd_golden cannot load its library /nowhere/libnormd_golden.so"):
        golden.layer_norm(X, 6)
