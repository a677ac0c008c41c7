"""Which elements share their statistics, as indices: a row of a matrix for each statistics group."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

import numpy as np

from normd_golden import specs
from normd_golden._formats import Array
from normd_golden._normalize import Arguments


def _from_end(axes: Sequence[int], rank: int) -> Tuple[int, ...]:
    return tuple(sorted(axis % rank for axis in axes))


def listed_axes(spec: specs.Spec, rank: int) -> Tuple[int, ...]:
    """The axes that the spec names, in its order: those of weight and bias. () where it names none."""
    axes = specs.extents(getattr(spec, "axes", getattr(spec, "dim", None)), "axes")
    if axes:
        return tuple(axis % rank for axis in axes)
    count = len(specs.extents(getattr(spec, "normalized_shape", None), "normalized_shape"))
    has_rows = isinstance(spec, (specs.LayerNorm, specs.RMSNorm, specs.PRMSNorm, specs.ScaleNorm, specs.LpNorm))
    return tuple(range(rank - max(count, 1), rank)) if has_rows else ()


def reduced_axes(spec: specs.Spec, rank: int) -> Tuple[int, ...]:
    """The axes over which statistics are taken, GroupNorm's channels and PowerNorm aside."""
    channel = specs.channel_axis(spec, rank)
    if isinstance(spec, specs.BatchNorm):
        return tuple(axis for axis in range(rank) if axis != channel)
    if isinstance(spec, (specs.InstanceNorm, specs.GroupNorm)):
        return tuple(axis for axis in range(1, rank) if axis != channel)
    return _from_end(listed_axes(spec, rank), rank)


def group_rows(spec: specs.Spec, shape: Sequence[int], axes: Optional[Sequence[int]] = None) -> Array:
    """[groups, n]: the flat indices of the elements of each group. `axes` takes the place of the spec's own."""
    index = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    rank = len(shape)
    reduced = reduced_axes(spec, rank) if axes is None else _from_end(axes, rank)
    if isinstance(spec, specs.GroupNorm) and axes is None:
        channel = specs.channel_axis(spec, rank)
        split = (*shape[:channel], spec.num_groups, shape[channel] // spec.num_groups, *shape[channel + 1 :])
        index = index.reshape(split)
        reduced = (channel + 1, *(axis + (axis > channel) for axis in reduced))
    rest = tuple(axis for axis in range(index.ndim) if axis not in reduced)
    groups, n = (int(np.prod([index.shape[axis] for axis in axes], dtype=np.int64)) for axes in (rest, reduced))
    return index.transpose((*rest, *reduced)).reshape(groups, n)


def spread(given: Arguments, values: Array) -> Array:
    """A weight or bias, one value for each element of x."""
    spec, shape = given.spec, given.x.shape
    rank = len(shape)
    if isinstance(spec, specs.ScaleNorm):
        return np.broadcast_to(values.reshape(()), shape)
    listed = listed_axes(spec, rank)
    if listed:
        ordered = values.reshape([shape[axis] for axis in listed]).transpose(np.argsort(listed))
        return np.broadcast_to(ordered.reshape([shape[i] if i in listed else 1 for i in range(rank)]), shape)
    channel = specs.channel_axis(spec, rank)
    per_channel = np.repeat(values.reshape(-1), shape[channel] // max(values.size, 1))
    return np.broadcast_to(per_channel.reshape([-1 if i == channel else 1 for i in range(rank)]), shape)
