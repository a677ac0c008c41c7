"""scikit-learn's StandardScaler with statistics that many processes share.

    scaler = normd.stats.sklearn.StandardScaler("clicks")
    for rows in producer:
        scaler.partial_fit(rows)          # every process adds its own
    scaler.transform(rows)                # with everybody's
"""

from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from normd._sessions import SessionInfo
from normd.errors import FailedPrecondition
from normd.stats._running import RunningMeanStd, existing_session
from normd.stats._samples import Array, Samples

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before 1.6

    def validate_data(estimator: Any, X: Any, *, ensure_all_finite: Any, **options: Any) -> Any:
        return estimator._validate_data(X, force_all_finite=ensure_all_finite, **options)


FLOATS = (np.float64, np.float32, np.float16)


class StandardScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """As sklearn.preprocessing.StandardScaler, with the samples of all processes that share `name`.

    name: the session's, on the server of normd's default client. Names of columns become names of its channels, so that
    other columns, or these in another order, are refused everywhere. flush_samples, flush_seconds: as of
    normd.stats.RunningMeanStd. with_mean, with_std, copy: as sklearn's.

    `partial_fit` adds rows and waits for nothing; NaN is no sample. `fit` is `partial_fit` where no sample is there
    yet, and raises FailedPrecondition elsewhere, because it would forget, for everybody, what others have added.
    `mean_`, `var_`, `scale_` and `n_samples_seen_` are those of everybody's samples, and may be another moment's at the
    next look; `freeze` makes them final. Clones share the statistics; a pickle has their values and no server.
    """

    def __init__(
        self,
        name: str,
        *,
        copy: bool = True,
        with_mean: bool = True,
        with_std: bool = True,
        flush_samples: int = 2048,
        flush_seconds: float = 1.0,
    ) -> None:
        self.name = name
        self.copy = copy
        self.with_mean = with_mean
        self.with_std = with_std
        self.flush_samples = flush_samples
        self.flush_seconds = flush_seconds

    # ---- Adding rows

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "StandardScaler":
        """Adds X to statistics that have no sample; FailedPrecondition if they have."""
        X = self._validated(X, reset=True)
        shared = self._open()
        shared.refresh()
        if not shared._view().is_empty:
            raise FailedPrecondition(
                f"{self.name} has {shared.count} samples, which fit would forget: partial_fit adds to them, and "
                "deleting the session, or another name, begins anew",
                field="name",
                value=self.name,
                limit="statistics without samples",
            )
        return self._add(X, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "StandardScaler":
        """Adds the rows of X, each counted `sample_weight` times."""
        X = self._validated(X, reset=not hasattr(self, "n_features_in_"))
        self._open()
        return self._add(X, sample_weight)

    def _add(self, X: Any, sample_weight: Any) -> "StandardScaler":
        if sample_weight is None:
            self._shared._add_batch(np.array(X, np.float64), slice(0, X.shape[1]))
            return self
        weights = np.broadcast_to(np.asarray(sample_weight, np.float64), (len(X),))
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise ValueError("sample_weight must be finite and at least 0")
        self._shared._add(Samples.of_present(X.astype(np.float64), weights))
        return self

    # ---- Using them

    def transform(self, X: Any, copy: Optional[bool] = None) -> Any:
        """(X - mean_) / scale_, of the dtype of X if that is a float's."""
        view = self._view()
        X = self._validated(X, copy=self.copy if copy is None else copy)
        if self.with_mean:
            X -= view.mean
        if self.with_std:
            X /= _scale_of(view)
        return X

    def inverse_transform(self, X: Any, copy: Optional[bool] = None) -> Any:
        """The X whose `transform` this is."""
        view = self._view()
        X = self._validated(X, copy=self.copy if copy is None else copy)
        if self.with_std:
            X *= _scale_of(view)
        if self.with_mean:
            X += view.mean
        return X

    @property
    def mean_(self) -> Optional[Array]:
        view = self._view()
        return view.mean.copy() if self.with_mean or self.with_std else None

    @property
    def var_(self) -> Optional[Array]:
        return self._view().variance(0.0) if self.with_std else None

    @property
    def scale_(self) -> Optional[Array]:
        return _scale_of(self._view()) if self.with_std else None

    @property
    def n_samples_seen_(self) -> Union[int, float, Array]:
        """The rows of each feature; a number where all features have equally many, an int if it is whole."""
        counts = self._view().count
        if (counts != counts[0]).any():
            return counts.astype(np.int64) if (counts == np.floor(counts)).all() else counts.copy()
        return int(counts[0]) if counts[0] == np.floor(counts[0]) else float(counts[0])

    # ---- The server

    def flush(self, timeout: Optional[float] = None) -> "StandardScaler":
        """Waits until the server has all rows so far."""
        self._open().flush(timeout)
        return self

    def refresh(self) -> "StandardScaler":
        """Reads what others have added: one call."""
        self._open().refresh()
        return self

    def freeze(self) -> "StandardScaler":
        """Sends all rows and makes the statistics refuse every later one, for good and for everybody."""
        self._open().freeze()
        return self

    def close(self, timeout: Optional[float] = None) -> None:
        """Flushes, and ends the thread. Values stay readable."""
        if "_shared" in vars(self):
            self._shared.close(timeout)

    def __sklearn_is_fitted__(self) -> bool:
        return "_shared" in vars(self) or existing_session(self.name) is not None

    def _view(self) -> Samples:
        check_is_fitted(self)
        view = self._open()._view()
        if view.is_empty:
            raise NotFittedError(f"{self.name} has no samples yet")
        return view

    def _open(self) -> RunningMeanStd:
        """The shared statistics, which are opened, or made for the columns that were seen, at the first use."""
        if "_shared" not in vars(self):
            found = None if hasattr(self, "n_features_in_") else existing_session(self.name)
            if found is not None:
                self._take_features(found)
            names = [str(one) for one in getattr(self, "feature_names_in_", ())]
            shape = dict.fromkeys(names, ()) if names else (self.n_features_in_,)
            self._shared = RunningMeanStd(
                self.name,
                shape,
                prior_count=0,
                epsilon=0,
                skip_nan=True,
                flush_samples=self.flush_samples,
                flush_seconds=self.flush_seconds,
            )
        return self._shared

    def _take_features(self, info: SessionInfo) -> None:
        """Makes the features of statistics that others have made those of this object."""
        self.n_features_in_ = info.num_channels
        if info.channel_names:
            self.feature_names_in_ = np.array(info.channel_names, object)

    def _validated(self, X: Any, *, reset: bool = False, copy: bool = False) -> Any:
        return validate_data(self, X, dtype=FLOATS, copy=copy, ensure_all_finite="allow-nan", reset=reset)


def _scale_of(samples: Samples) -> Array:
    """sqrt(var), and 1 where the variance is 0 but for rounding: scikit-learn's own rule and bound."""
    variance, eps = samples.variance(0.0), np.finfo(np.float64).eps
    bound = samples.count * eps * variance + (samples.count * samples.mean * eps) ** 2
    return np.where(variance <= bound, 1.0, np.sqrt(variance))
