"""Counts, means and squared deviations of samples, channel by channel, in float64: what contributions are made of.

The formulas are the server's: Chan, Golub and LeVeque 1983, as in `RunningStatistics` of proto/normd/v1/norm.proto.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclasses.dataclass
class Samples:
    """What is known of the samples of C channels: arrays of [C]."""

    count: Array
    mean: Array
    m2: Array
    min: Array
    max: Array

    @staticmethod
    def none(channels: int) -> "Samples":
        zeros = np.zeros(channels)
        return Samples(zeros, zeros, zeros, np.full(channels, np.inf), np.full(channels, -np.inf))

    @staticmethod
    def of(batch: Array) -> "Samples":
        """Those of a batch [N, C], N at least 1. A channel that is not finite has none, as on the server."""
        # add.reduce is what mean and sum call at last, and half of the time of a small batch is that of calling.
        n = len(batch)
        mean = np.add.reduce(batch, 0) / n
        deviations = batch - mean
        samples = Samples(
            np.full(mean.shape, float(n)),
            mean,
            np.einsum("nc,nc->c", deviations, deviations),
            np.minimum.reduce(batch, 0),
            np.maximum.reduce(batch, 0),
        )
        finite = np.isfinite(samples.m2)
        return samples if finite.all() else samples.where(finite)

    def where(self, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> "Samples":
        """These samples in the chosen channels, and none in the others."""
        none = Samples.none(len(self.count))
        return Samples(*(
            np.where(chosen, getattr(self, field.name), getattr(none, field.name))
            for field in dataclasses.fields(Samples)
        ))

    def placed(self, where: slice, channels: int) -> "Samples":
        """These samples as those of some of `channels` channels."""
        placed = Samples(*(np.array(one) for one in dataclasses.astuple(Samples.none(channels))))
        for field in dataclasses.fields(Samples):
            getattr(placed, field.name)[where] = getattr(self, field.name)
        return placed

    @property
    def is_empty(self) -> bool:
        return not self.count.any()

    def merged(self, later: "Samples", decay: float = 1.0) -> "Samples":
        """These samples and later ones; `decay` is what each later sample multiplies the weight of these by."""
        fading = 1.0 if decay == 1 else decay**later.count
        count = self.count * fading
        total = count + later.count
        share = np.divide(later.count, total, out=np.zeros_like(total), where=total > 0)
        # A side without samples has no say, whatever its mean is.
        delta = np.where(count > 0, later.mean - self.mean, 0.0)
        mean = np.where(count > 0, self.mean + delta * share, np.where(later.count > 0, later.mean, self.mean))
        m2 = self.m2 * fading + later.m2 + delta * delta * count * share
        return Samples(total, mean, m2, np.minimum(self.min, later.min), np.maximum(self.max, later.max))

    def variance(self, prior: float, unbiased: bool = False) -> Array:
        """m2 / count; `prior` where there are too few samples."""
        freedom = self.count - 1 if unbiased else self.count
        return np.divide(self.m2, freedom, out=np.full(self.count.shape, prior), where=freedom > 0)
