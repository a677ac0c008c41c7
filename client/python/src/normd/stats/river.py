"""river's StandardScaler with statistics that many processes share.

    model = normd.stats.river.StandardScaler("clicks") | linear_model.LogisticRegression()
    for x, y in stream:
        model.learn_one(x, y)             # every process learns from its own stream
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence

import numpy as np
from river.base import MiniBatchTransformer
from river.utils import dataframe

from normd.errors import InvalidArgument
from normd.stats._running import RunningMeanStd, existing_session
from normd.stats._samples import Array, Samples


class StandardScaler(MiniBatchTransformer):
    """As river.preprocessing.StandardScaler, with the samples of all processes that share `name`.

    name: the session's, on the server of normd's default client. features: the names of all features; without them
    those that the session has, or else those of the first x. A later x may lack some of them, which then learn nothing;
    one with others is refused, because whose statistics they were would depend on who came first. NaN is no sample.
    flush_samples, flush_seconds: as of normd.stats.RunningMeanStd. Clones share the statistics.
    """

    def __init__(
        self,
        name: str,
        features: Optional[Sequence[str]] = None,
        with_std: bool = True,
        flush_samples: int = 2048,
        flush_seconds: float = 1.0,
    ) -> None:
        self.name = name
        self.features = features
        self.with_std = with_std
        self.flush_samples = flush_samples
        self.flush_seconds = flush_seconds
        self._shared: Optional[RunningMeanStd] = None
        self._places: Dict[str, int] = {}  # where a feature's channel is

    # ---- river's methods

    def learn_one(self, x: Mapping[str, Any]) -> None:
        """Adds the features of x, one sample each."""
        shared = self._open(x)
        row = np.full((1, len(self._places)), math.nan)
        row[0, self._columns(x)] = [float(value) for value in x.values()]
        shared._add_batch(row, slice(0, len(self._places)))

    def transform_one(self, x: Mapping[str, Any]) -> Dict[str, float]:
        """(x - mean) / sqrt(variance) of each feature; 0 where there is no variance, as river's."""
        view = self._open(x)._view()
        places = self._columns(x)
        means = view.mean[places].tolist()
        if not self.with_std:
            return {key: value - mean for (key, value), mean in zip(x.items(), means)}
        variances = view.variance(0.0)[places].tolist()
        return {
            key: (value - mean) / variance**0.5 if variance else 0.0
            for (key, value), mean, variance in zip(x.items(), means, variances)
        }

    def learn_many(self, X: Any) -> None:
        """Adds the rows of a data frame: pandas, polars or another that river takes."""
        frame = dataframe.into_frame(X)
        if len(frame) == 0:
            return
        shared = self._open(frame.columns)
        rows = np.full((len(frame), len(self._places)), math.nan)
        rows[:, self._columns(frame.columns)] = dataframe.to_numpy(frame)
        shared._add_batch(rows, slice(0, len(self._places)))

    def transform_many(self, X: Any) -> Any:
        """A data frame of the same kind; a feature without variance keeps its difference from the mean, as river's."""
        frame = dataframe.into_frame(X)
        view = self._open(frame.columns)._view()
        places = self._columns(frame.columns)
        out = dataframe.to_numpy(frame) - view.mean[places]
        if self.with_std:
            deviations = np.sqrt(view.variance(0.0)[places])
            np.divide(out, deviations, where=deviations > 0, out=out)
        return dataframe.to_native_frame(out, columns=frame.columns, like=frame)

    # ---- river's attributes

    @property
    def counts(self) -> Dict[str, float]:
        return self._by_feature(self._present().count)

    @property
    def means(self) -> Dict[str, float]:
        return self._by_feature(self._present().mean)

    @property
    def vars(self) -> Dict[str, float]:
        return self._by_feature(self._present().variance(0.0))

    def _by_feature(self, values: Array) -> Dict[str, float]:
        return dict(zip(self._places, values.tolist()))

    def _present(self) -> Samples:
        return self._shared._view() if self._shared is not None else Samples.none(0)

    # ---- The server

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until the server has all samples so far."""
        if self._shared is not None:
            self._shared.flush(timeout)

    def refresh(self) -> None:
        """Reads what others have added: one call."""
        if self._shared is not None:
            self._shared.refresh()

    def close(self, timeout: Optional[float] = None) -> None:
        """Flushes, and ends the thread. Values stay readable."""
        if self._shared is not None:
            self._shared.close(timeout)

    def _open(self, x: Sequence[str] | Mapping[str, Any]) -> RunningMeanStd:
        if self._shared is None:
            names = self._names(x)
            self._shared = RunningMeanStd(
                self.name,
                dict.fromkeys(names, ()),
                prior_count=0,
                epsilon=0,
                skip_nan=True,
                flush_samples=self.flush_samples,
                flush_seconds=self.flush_seconds,
            )
            self._places = {name: place for place, name in enumerate(names)}
        return self._shared

    def _names(self, x: Sequence[str] | Mapping[str, Any]) -> List[str]:
        """The features in the session's order, or in one that does not depend on who makes the session."""
        found = existing_session(self.name)
        names = sorted(self.features or (found.channel_names if found else x))
        return list(found.channel_names) if found and sorted(found.channel_names) == names else names

    def _columns(self, names: Sequence[str] | Mapping[str, Any]) -> List[int]:
        """The channels of these features."""
        try:
            return [self._places[name] for name in names]
        except KeyError as error:
            raise InvalidArgument(
                f"x has the feature {error}; {self.name} has {sorted(self._places)}",
                field="x",
                value=str(error),
                limit=str(sorted(self._places)),
            ) from None
