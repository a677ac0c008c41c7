"""RunningMeanStd: shared statistics of observations, used as stable-baselines3's and gymnasium's class of that name."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Optional

import numpy as np

from normd._sessions import SessionInfo
from normd._transport import run
from normd.client import Client
from normd.errors import InvalidArgument, NotFound
from normd.functional import default_client
from normd.specs import BatchNorm
from normd.stats._contributor import Contributor, known_of
from normd.stats._delta import Ledger, Rule
from normd.stats._samples import Array, Samples
from normd.stats._shape import Layout, ShapeOf
from normd.stats._snapshot import DIVISORS, Snapshot, each

# How many samples and seconds at most are between two contributions.
FLUSH_SAMPLES, FLUSH_SECONDS = 2048, 1.0

VARIANCES = ("biased", "unbiased")


def existing_session(name: str) -> Optional[SessionInfo]:
    """The session of this name on the default client's server, if it has one."""
    try:
        return run(default_client()._sessions.get(name))
    except NotFound:
        return None


def _check_one_of(field: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        limit = ", ".join(allowed)
        raise InvalidArgument(f"{field} is {value!r}; it must be one of {limit}", field=field, value=value, limit=limit)


class Part:
    """One key of a RunningMeanStd of dict observations, which code that knows one array at a time may use."""

    def __init__(self, whole: "RunningMeanStd", key: str) -> None:
        self._whole, self._key = whole, key
        self._layout, self._range = whole._layout.of_key(key)

    def update(self, batch: Any) -> None:
        """Adds samples of this key, [n, *shape]."""
        rows = self._layout.rows(batch)
        if len(rows) > 0:
            self._whole._add_batch(rows, self._range)

    def update_from_moments(self, mean: Any, var: Any, count: float) -> None:
        """As of RunningMeanStd."""
        self._add(_samples_of_moments(self._layout, mean, var, count))

    def _add(self, samples: Samples) -> None:
        self._whole._add(samples.placed(self._range, self._whole._layout.channels))

    @property
    def mean(self) -> Any:
        return self._whole.mean[self._key]

    @property
    def var(self) -> Any:
        return self._whole.var[self._key]

    @property
    def count(self) -> float:
        return float(self._whole._view(extremes=False).count[self._range][0])


def _samples_of_moments(layout: Layout, mean: Any, var: Any, count: float) -> Samples:
    (mean_row,), (var_row,) = layout.rows(mean), layout.rows(var)
    counts = np.full(mean_row.shape, float(count))
    unknown = np.full(mean_row.shape, np.nan)
    return Samples(counts, mean_row, var_row * counts, unknown, unknown)


class RunningMeanStd:
    """The mean and variance of all samples that all processes with this `name` have seen, each counted once.

    name: the session's, which is created unless it exists. shape: of one sample, () for a number; or a dict of shapes
    for observations that are dicts, each of whose channels has a name. client: default normd's own.
    prior_count: how many samples of mean 0 and variance 1 the statistics begin with. variance: "biased", or "unbiased",
    which divides by count - 1. epsilon, eps_mode: `normalize` divides by sqrt(var + epsilon), "inside_sqrt", or by
    std + epsilon, "add_to_root", or by max(std, epsilon), "clamp_root". clip: what it limits its result to. decay: what
    the weight of a sample is multiplied by for each one of a later `update`; those of one `update` weigh alike, and
    when they are sent makes no difference. max_count: a channel whose count has reached it moves no more; the
    contribution that reaches it counts wholly. skip_nan: NaN is no sample; without it a batch with one adds nothing to
    its channel. flush_samples, flush_seconds: samples are sent when a channel has so many, though not within 0.2 s of
    the last ones, and when they are so old.

    `update` merges samples here, which takes microseconds, and never waits for the network; a thread sends what has
    gathered, and brings what others have sent. What is shown is the server's state with all of the own samples. While
    no server answers, samples gather and nothing is lost; `flush` waits until the server has them. What the server has
    acknowledged survives whatever the session's durability says.

    A copy, or one that was pickled, has the values and no server: it counts nothing. Safe from any thread, and after a
    fork. Raises what the server refuses for good, such as FailedPrecondition of a frozen session.
    """

    def __init__(
        self,
        name: str,
        shape: ShapeOf = (),
        *,
        client: Optional[Client] = None,
        prior_count: float = 1e-4,
        epsilon: float = 1e-8,
        eps_mode: str = "inside_sqrt",
        variance: str = "biased",
        clip: Optional[float] = None,
        decay: float = 1.0,
        max_count: Optional[float] = None,
        skip_nan: bool = False,
        flush_samples: int = FLUSH_SAMPLES,
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        if clip is not None and not clip > 0:
            raise InvalidArgument(f"clip is {clip}; it must be above 0", field="clip", value=str(clip), limit="> 0")
        if not (flush_samples > 0 and flush_seconds > 0):
            raise InvalidArgument(
                f"flush_samples is {flush_samples} and flush_seconds {flush_seconds}; both must be above 0",
                field="flush_samples",
                value=str(flush_samples),
                limit="> 0",
            )
        _check_one_of("eps_mode", eps_mode, DIVISORS)
        _check_one_of("variance", variance, VARIANCES)
        self._layout = Layout(shape)
        self.name, self.epsilon, self.eps_mode, self.clip = name, epsilon, eps_mode, clip
        self._unbiased = variance == "unbiased"
        spec = BatchNorm(
            self._layout.channels,
            affine=False,
            layout="channels_last",
            weighting="samples",
            prior_count=prior_count,
            decay=decay,
            max_count=max_count,
            eps=epsilon,
            # What is the default stays unsaid, as other clients leave it.
            eps_mode=None if eps_mode == "inside_sqrt" else eps_mode,
            running_variance=None if variance == "biased" else variance,
        )
        service = (client or default_client())._sessions
        info = run(service.open(name, spec, channel_names=self._layout.channel_names))
        self._service = service
        self._rule, self._skip_nan = Rule(decay, max_count), skip_nan
        self._detached: Optional[Samples] = None  # of a copy, which has no server
        self._version = info.version
        ledger = Ledger(known_of(info), self._rule, skip_nan)
        self._contributor: Optional[Contributor] = Contributor(service, name, ledger, flush_samples, flush_seconds)

    # ---- Adding samples

    def update(self, batch: Any) -> None:
        """Adds samples: an array [n, *shape] or one sample, or a dict of them."""
        rows = self._layout.rows(batch)
        if len(rows) > 0:
            self._add_batch(rows, slice(0, self._layout.channels))

    def update_from_moments(self, mean: Any, var: Any, count: float) -> None:
        """Adds `count` samples of this mean and (biased) variance, whose smallest and largest are not known."""
        self._add(_samples_of_moments(self._layout, mean, var, count))

    def _add(self, samples: Samples) -> None:
        if self._contributor is not None:
            self._contributor.add(samples)
        else:
            assert self._detached is not None
            self._detached = self._rule.merged(self._detached, samples)

    def _add_batch(self, rows: Array, where: slice) -> None:
        if self._contributor is not None:
            self._contributor.add_batch(rows, where)
        else:
            samples = Samples.of_all([rows], self._skip_nan)
            self._add(samples.placed(where, self._layout.channels))

    def part(self, key: str) -> "Part":
        """The statistics of one key of a dict of shapes, to be updated by itself."""
        return Part(self, key)

    # ---- Reading

    def _view(self, extremes: bool = True) -> Samples:
        if self._contributor is not None:
            return self._contributor.view(extremes)
        assert self._detached is not None
        return self._detached

    @property
    def mean(self) -> Any:
        """Of the shape, float64; a dict of arrays for a dict of shapes."""
        return self._layout.split(self._view(extremes=False).mean)

    @property
    def var(self) -> Any:
        """The variance, as `mean`."""
        return self._layout.split(self._view(extremes=False).variance(1.0, self._unbiased))

    @property
    def std(self) -> Any:
        """sqrt(var)."""
        return each(np.sqrt, self.var)

    @property
    def count(self) -> Any:
        """The samples so far: a number where all channels have equally many, else as `mean`."""
        counts = self._view(extremes=False).count
        return float(counts[0]) if (counts == counts[0]).all() else self._layout.split(counts)

    @property
    def version(self) -> int:
        """The server's version that is part of what is shown."""
        return self._version if self._contributor is None else self._contributor.version

    def normalize(self, x: Any) -> Any:
        """(x - mean) / divisor, within [-clip, clip]: see `Snapshot.normalize`."""
        return self._shown(extremes=False).normalize(x)

    def denormalize(self, y: Any) -> Any:
        """The x whose `normalize` is y, unless that was clipped."""
        return self._shown(extremes=False).denormalize(y)

    def snapshot(self) -> Snapshot:
        """The statistics as they are now."""
        return self._shown(extremes=True)

    def _shown(self, extremes: bool) -> Snapshot:
        if self._contributor is None:
            return self._snapshot(self._view(), self._version)
        seen = self._contributor.seen(extremes)
        return self._snapshot(seen.samples, seen.version)

    def _snapshot(self, samples: Samples, version: int, digest: str = "") -> Snapshot:
        split = self._layout.split
        return Snapshot(
            mean=split(samples.mean),
            var=split(samples.variance(1.0, self._unbiased)),
            count=split(samples.count),
            min=split(samples.min),
            max=split(samples.max),
            version=version,
            digest=digest,
            epsilon=self.epsilon,
            clip=self.clip,
            eps_mode=self.eps_mode,
        )

    # ---- The server

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until the server has all samples so far; DeadlineExceeded or Unavailable after `timeout` seconds."""
        self._attached().flush(timeout)

    def refresh(self) -> None:
        """Reads what others have added: one call."""
        self._attached().refresh()

    def freeze(self, name: Optional[str] = None) -> Snapshot:
        """Sends all samples and makes the session refuse every later one, for good and for everybody.

        name: makes a frozen copy of the session under this name instead, and the session goes on: that is how a version
        gets a name. Returns what is frozen, with its digest.
        """
        self.flush()
        if name is None:
            run(self._service.freeze(self.name))
        else:
            run(self._service.fork(self.name, name, frozen=True))
        info = run(self._service.get(name or self.name))
        known = known_of(info)
        self.refresh()
        return self._snapshot(known.samples, known.version, info.digest)

    def close(self, timeout: Optional[float] = None) -> None:
        """Flushes, and ends the thread. Values stay readable."""
        if self._contributor is None:
            return
        contributor = self._contributor
        contributor.close(timeout)
        self._detached, self._version = contributor.view(), contributor.version
        self._contributor = None

    def __enter__(self) -> "RunningMeanStd":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "detached" if self._contributor is None else f"version {self.version}"
        return f"<normd.stats.RunningMeanStd {self.name}: {self._layout.channels} channels, {where}>"

    def _attached(self) -> Contributor:
        if self._contributor is None:
            raise InvalidArgument(
                f"{self.name} is a copy, or was closed: it has its values and no server",
                field="name",
                value=self.name,
                limit="an open RunningMeanStd",
            )
        return self._contributor

    def __getstate__(self) -> Dict[str, Any]:
        state = {key: value for key, value in self.__dict__.items() if key not in ("_contributor", "_service")}
        return {**state, "_detached": self._view(), "_version": self.version}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._contributor = self._service = None  # type: ignore[assignment]
