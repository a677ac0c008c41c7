"""What one process has added to shared statistics and the server has not acknowledged, and what both know together.

Only samples since the last contribution are ever sent, so a restored checkpoint, a fork or a copy counts nothing twice.
Thread-compatible; `Contributor` locks.
"""

from __future__ import annotations

import dataclasses
from typing import Optional, Tuple

from normd._options import Step
from normd.stats._samples import Samples


@dataclasses.dataclass
class Known:
    """The server's state at a version."""

    samples: Samples
    version: int


class Ledger:
    """The server's state, the contribution that is on its way, and the samples after it."""

    def __init__(self, known: Known, decay: float = 1.0) -> None:
        self._known, self._decay = known, decay
        self._channels = len(known.samples.count)
        self._sent: Optional[Samples] = None
        self._step: Optional[Step] = None
        self._pending = Samples.none(self._channels)
        self._newer: Optional[Known] = None  # seen while a contribution, which it may hold, is on its way
        self._view: Optional[Samples] = None

    @property
    def version(self) -> int:
        """The newest version of the server's state that is part of `view`."""
        return self._known.version

    @property
    def pending_samples(self) -> float:
        """The most samples of any channel that were not sent yet."""
        return float(self._pending.count.max())

    @property
    def is_settled(self) -> bool:
        """Whether the server has acknowledged everything."""
        return self._sent is None and self._pending.is_empty

    def view(self) -> Samples:
        """The server's state and all of the own samples."""
        if self._view is None:
            view = self._known.samples
            if self._sent is not None:
                view = view.merged(self._sent, self._decay)
            self._view = view if self._pending.is_empty else view.merged(self._pending, self._decay)
        return self._view

    def add(self, samples: Samples) -> None:
        self._pending = self._pending.merged(samples, self._decay)
        self._view = None

    def take(self, new_step: Step) -> Optional[Tuple[Samples, Step]]:
        """What is to be sent, and under which id: that of the first try until it is answered. None: nothing."""
        if self._sent is None:
            if self._pending.is_empty:
                return None
            self._sent, self._step = self._pending, new_step
            self._pending = Samples.none(self._channels)
        assert self._step is not None
        return self._sent, self._step

    def acknowledge(self, state: Optional[Known]) -> None:
        """The contribution was applied; `state`, if the server still has one, holds it."""
        if state is None:
            assert self._sent is not None
            state = Known(self._known.samples.merged(self._sent, self._decay), self._known.version)
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
