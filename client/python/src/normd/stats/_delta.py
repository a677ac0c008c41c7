"""What one process has added to shared statistics and the server has not acknowledged, and what both know together.

Only samples since the last contribution are ever sent, so a restored checkpoint, a fork or a copy counts nothing twice.
Thread-compatible; `Contributor` locks.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional, Tuple

from normd._options import Step
from normd.stats._samples import Array, Samples

# How many elements of batches wait to be reduced together, which costs little more than one of them alone. 256 KiB.
GATHERED_ELEMENTS = 32_768


@dataclasses.dataclass(frozen=True)
class Rule:
    """How the session merges a contribution: `decay` and `max_count` of its RunningStatistics."""

    decay: float = 1.0
    max_count: Optional[float] = None

    def merged(self, state: Samples, contribution: Samples) -> Samples:
        """What the server makes of both."""
        return state.merged(self.moving(state, contribution), self.decay)

    def moving(self, state: Samples, contribution: Samples) -> Samples:
        """The contribution in the channels of the state that still move."""
        return contribution if self.max_count is None else contribution.where(state.count < self.max_count)


@dataclasses.dataclass
class Known:
    """The server's state at a version."""

    samples: Samples
    version: int


class Gathered:
    """Batches that were added and not yet reduced, each of a range of C channels."""

    def __init__(self, channels: int, skip_nan: bool = False) -> None:
        self._channels, self._skip_nan = channels, skip_nan
        self._batches: List[Tuple[Array, slice]] = []
        self._rows: Dict[int, int] = {}  # by the first channel of the range
        self.elements = 0

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: Array, where: slice) -> None:
        self._batches.append((batch, where))
        self._rows[where.start] = self._rows.get(where.start, 0) + len(batch)
        self.elements += batch.size

    @property
    def most(self) -> int:
        """No channel has more samples here, unless ranges with different beginnings overlap."""
        return max(self._rows.values(), default=0)

    def samples(self, first: int = 0, extremes: bool = True) -> Samples:
        """Those of the batches from this one on, of which there is one at least. extremes: as of `Samples.of`."""
        batch, _ = self._batches[first]
        if first == len(self._batches) - 1 and batch.shape[1] == self._channels:
            return Samples.of_all([batch], self._skip_nan, extremes)
        ranges: Dict[Tuple[int, int], List[Array]] = {}
        for batch, where in self._batches[first:]:
            ranges.setdefault((where.start, where.stop), []).append(batch)
        if list(ranges) == [(0, self._channels)]:
            return Samples.of_all(ranges[0, self._channels], self._skip_nan, extremes)
        together = Samples.none(self._channels)
        for (start, stop), batches in ranges.items():
            samples = Samples.of_all(batches, self._skip_nan, extremes)
            together = together.merged(samples.placed(slice(start, stop), self._channels))
        together.has_extremes = extremes
        return together


class Ledger:
    """The server's state, the contribution that is on its way, and the samples after it.

    Batches are gathered and reduced together: `add_batch` costs a copy. Who reads after each batch, as an environment
    does, pays for reducing that one into the view. skip_nan: as of `Samples.of_all`.
    """

    def __init__(self, known: Known, rule: Rule = Rule(), skip_nan: bool = False) -> None:
        self._known, self._rule, self._skip_nan = known, rule, skip_nan
        self._channels = len(known.samples.count)
        self._sent: Optional[Samples] = None
        self._step: Optional[Step] = None
        self._pending = Samples.none(self._channels)
        self._gathered = self._no_batches()  # later than `_pending`
        self._newer: Optional[Known] = None  # seen while a contribution, which it may hold, is on its way
        self._view: Optional[Samples] = None
        self._base = known.samples  # the part of the view that the server has, or is on its way
        self._viewed = 0  # how many gathered batches are part of it
        self._looked = 0  # and how many are part of its extremes

    @property
    def version(self) -> int:
        """The newest version of the server's state that is part of `view`."""
        return self._known.version

    @property
    def pending_samples(self) -> float:
        """The most samples of any channel that were not sent yet."""
        return self._pending.most + self._gathered.most

    @property
    def is_settled(self) -> bool:
        """Whether the server has acknowledged everything."""
        return self._sent is None and self._pending.is_empty and not self._gathered

    def view(self, extremes: bool = True) -> Samples:
        """The server's state and all of the own samples. extremes: whether min and max are up to date."""
        if self._view is None:
            self._base = self._known.samples
            if self._sent is not None:
                self._base = self._rule.merged(self._base, self._sent)
            self._view = self._base if self._pending.is_empty else self._rule.merged(self._base, self._pending)
            self._viewed = self._looked = 0
        if self._viewed < len(self._gathered):
            looks = extremes and self._looked == self._viewed
            view = self._view.merged(self._moving(self._viewed, looks), self._rule.decay)
            self._view = view if view.each is not None else view.evened()
            self._viewed = len(self._gathered)
            self._looked = self._viewed if looks else self._looked
        if extremes and self._looked < len(self._gathered):
            self._view = self._view.with_extremes_of(self._moving(self._looked, True))
            self._looked = len(self._gathered)
        return self._view

    def _moving(self, first: int, extremes: bool) -> Samples:
        """The gathered batches from this one on, in the channels that they move."""
        # With what is pending they will be one contribution, which moves the channels that the base lets it move.
        return self._rule.moving(self._base, self._gathered.samples(first, extremes))

    def add(self, samples: Samples) -> None:
        self._reduce()
        self._pending = self._pending.merged(samples, self._rule.decay)
        self._view = None

    def add_batch(self, batch: Array, where: slice) -> None:
        """Adds the samples of [N, a range of channels], which is the ledger's from now on."""
        self._gathered.add(batch, where)
        # A sample's weight depends on the batches after its own, so that these are not put together.
        if self._rule.decay != 1 or self._gathered.elements >= GATHERED_ELEMENTS:
            self._reduce()

    def emptied(self) -> "Ledger":
        """The same state of the server, and no own samples."""
        return Ledger(self._known, self._rule, self._skip_nan)

    def _no_batches(self) -> Gathered:
        return Gathered(self._channels, self._skip_nan)

    def _reduce(self) -> None:
        if not self._gathered:
            return
        samples = self._gathered.samples()
        self._pending = self._pending.merged(samples, self._rule.decay)
        if self._viewed < len(self._gathered):
            self._view = None
        elif self._view is not None and self._looked < self._viewed:
            self._view = self._view.with_extremes_of(self._rule.moving(self._base, samples))
        self._gathered, self._viewed, self._looked = self._no_batches(), 0, 0

    def take(self, new_step: Step) -> Optional[Tuple[Samples, Step]]:
        """What is to be sent, and under which id: that of the first try until it is answered. None: nothing."""
        if self._sent is None:
            self._reduce()
            if self._pending.is_empty:
                return None
            self._sent, self._step = self._pending, new_step
            self._pending = Samples.none(self._channels)
            self._view = None  # what is added from now on is another contribution
        assert self._step is not None
        return self._sent, self._step

    def acknowledge(self, state: Optional[Known]) -> None:
        """The contribution was applied; `state`, if the server still has one, holds it."""
        if state is None:
            assert self._sent is not None
            state = Known(self._rule.merged(self._known.samples, self._sent), self._known.version)
        self._sent = self._step = None
        self._known = state
        newer, self._newer = self._newer, None
        if newer is not None:
            self.see(newer)
        self._view = None

    def see(self, state: Known) -> None:
        """The server's state as somebody has read it."""
        if self._sent is not None:
            self._newer = state
        elif state.version > self._known.version:
            self._known, self._view = state, None
