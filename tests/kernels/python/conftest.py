"""Kernels as their authors write them, right and wrong, and the outer judge: the formulas in 300 bits of mpmath."""

import pathlib

import mpmath
import numpy as np

pytest_plugins = ["pytester"]
ROOT = pathlib.Path(__file__).resolve().parents[3]
JUDGE = mpmath.mp.clone()
JUDGE.prec = 300


def random(seed):
    return np.random.default_rng(seed)


def normal(shape, dtype=np.float32, seed=1, around=0.0, scale=1.0):
    return (around + scale * random(seed).standard_normal(shape)).astype(dtype)


def judge_row(x, weight=None, bias=None, *, eps, centred, mode="inside_sqrt", n=None):
    """One row of LayerNorm (`centred`) or RMSNorm, as numbers of 300 bits. n: what the sum of squares is divided by."""
    x = [JUDGE.mpf(float(one)) for one in x]
    mean = sum(x) / len(x) if centred else JUDGE.mpf(0)
    square = sum((one - mean) ** 2 for one in x) / (n or len(x))
    eps = JUDGE.mpf(float(eps))
    divisor = {
        "inside_sqrt": lambda: JUDGE.sqrt(square + eps),
        "add_to_root": lambda: JUDGE.sqrt(square) + eps,
        "clamp_root": lambda: max(JUDGE.sqrt(square), eps),
    }[mode]()
    weight = [1.0] * len(x) if weight is None else weight
    bias = [0.0] * len(x) if bias is None else bias
    return [(one - mean) / divisor * JUDGE.mpf(float(w)) + JUDGE.mpf(float(b)) for one, w, b in zip(x, weight, bias)]


def is_nearest(y, exact):
    """Whether no neighbour of the number y of its numpy type is nearer to the exact value."""
    own = abs(JUDGE.mpf(float(y)) - exact)
    around = (np.nextafter(y, y.dtype.type(np.inf)), np.nextafter(y, y.dtype.type(-np.inf)))
    return all(own <= abs(JUDGE.mpf(float(other)) - exact) for other in around)


def rms_norm_kernel(x, weight, eps, *, outside=False, cast_first=False, offset=0, narrow=False, axis=-1):
    """RMSNorm in a type wider than that of x, with the mistakes that kernels have."""
    wider = np.float64 if x.dtype == np.float32 else np.float32
    wide = x.astype(wider)
    with np.errstate(over="ignore"):
        squares = (x * x).astype(wider) if narrow else wide * wide
    mean = squares.mean(axis=axis, keepdims=True, dtype=wider)
    n = wide / (np.sqrt(mean) + wider(eps) if outside else np.sqrt(mean + wider(eps)))
    if cast_first:
        return n.astype(x.dtype) * weight
    return (n * (weight.astype(wider) + wider(offset))).astype(x.dtype)


def layer_norm_kernel(x, weight, bias, eps, *, ddof=0, axis=-1):
    """LayerNorm in float32; ddof=1 is the unbiased variance."""
    wide = x.astype(np.float32)
    centred = wide - wide.mean(axis=axis, keepdims=True)
    variance = (centred * centred).sum(axis=axis, keepdims=True) / np.float32(x.shape[axis] - ddof)
    return (centred / np.sqrt(variance + np.float32(eps)) * weight + bias).astype(x.dtype)
