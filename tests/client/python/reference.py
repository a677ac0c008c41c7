"""The formulas of kernels/README.md in float64, written straight."""

import numpy as np


def shaped(parameter, shape):
    return np.asarray(parameter, np.float64).reshape(shape)


def normalise(x, axes, eps, subtract_mean=True):
    x = np.asarray(x, np.float64)
    mean = x.mean(axes, keepdims=True) if subtract_mean else 0.0
    square = ((x - mean) ** 2).mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(square + eps)


def layer_norm(x, rank, weight=1.0, bias=0.0, eps=1e-5):
    return normalise(x, tuple(range(-rank, 0)), eps) * np.float64(weight) + np.float64(bias)


def rms_norm(x, rank, weight=1.0, eps=1e-6):
    return normalise(x, tuple(range(-rank, 0)), eps, subtract_mean=False) * np.float64(weight)


def group_norm(x, groups, weight=1.0, bias=0.0, eps=1e-5):
    n, c = x.shape[:2]
    y = normalise(np.reshape(x, (n, groups, -1)), -1, eps).reshape(x.shape)
    channels = (1, c) + (1,) * (x.ndim - 2)
    return y * np.broadcast_to(weight, c).reshape(channels) + np.broadcast_to(bias, c).reshape(channels)


def batch_norm(x, mean, var, eps=1e-5):
    channels = (1, -1) + (1,) * (x.ndim - 2)
    return (np.asarray(x, np.float64) - shaped(mean, channels)) / np.sqrt(shaped(var, channels) + eps)


def batch_statistics(x):
    """Mean and biased variance of each channel, and the values in each."""
    axes = (0, *range(2, x.ndim))
    x = np.asarray(x, np.float64)
    return x.mean(axes), x.var(axes), x.size // x.shape[1]


def ulp_distance(y, exact):
    """How far y is from the exact values, in units in the last place of y's dtype at the largest |exact|."""
    top = float(np.abs(exact).max())
    unit = float(np.spacing(np.asarray(top).astype(y.dtype)).astype(np.float64))
    return float(np.abs(y.astype(np.float64) - exact).max()) / unit
