"""The thread that sends a process's samples to the server and learns what others have added."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from typing import Optional

import numpy as np

from normd._core import from_tensor, to_tensor
from normd._options import Step
from normd._proto import normalizer_pb2
from normd._retry import CLOSED
from normd._sessions import SessionInfo, SessionService, Trainer
from normd._transport import run
from normd.errors import WRONG_PEER, DeadlineExceeded, Error, ResourceExhausted, Unavailable
from normd.stats._delta import Known, Ledger
from normd.stats._samples import FIELDS, Array, Samples

# Between tries while no server answers; doubled from the first to the last.
FIRST_PAUSE, LAST_PAUSE = 0.1, 5.0
# Between two contributions, at least: one takes as much of Python as a dozen steps of an environment, which share its
# lock.
LEAST_SECONDS = 0.2
# What the end of a process waits for a server that takes its last samples.
SECONDS_AT_EXIT = 10.0


def known_of(info: SessionInfo) -> Known:
    assert info.count is not None and info.running_mean is not None and info.m2 is not None
    assert info.min is not None and info.max is not None
    return Known(Samples(info.count, info.running_mean, info.m2, info.min, info.max).evened(), info.version)


def _known_of_reply(reply: normalizer_pb2.StateResult) -> Optional[Known]:
    if not reply.HasField("state"):
        return None
    state = reply.state
    fields = {field: from_tensor(getattr(state, field)) for field in FIELDS}
    return Known(Samples(each=None, has_extremes=True, **fields).evened(), reply.state_version)


def _message_of(samples: Samples) -> normalizer_pb2.Moments:
    # A channel without samples may have anything but what no number is.
    def finite(values: Array) -> Array:
        return np.where(samples.count > 0, values, 0.0)

    return normalizer_pb2.Moments(
        count=to_tensor(samples.count),
        mean=to_tensor(finite(samples.mean)),
        m2=to_tensor(finite(samples.m2)),
        min=to_tensor(finite(samples.min)),
        max=to_tensor(finite(samples.max)),
        samples=None if samples.samples is None else to_tensor(samples.samples),
    )


def _least_sequence() -> int:
    # Once a session has forgotten contributors, which it does after some 66,000, it takes from one that it does not
    # know only steps above all of theirs. Milliseconds since 1970 are above those of all who sent earlier, because
    # nobody sends a thousand contributions a second. The clocks of contributors to such a session must agree.
    return time.time_ns() // 1_000_000


def _is_temporary(error: Error) -> bool:
    """Whether the same contribution may be taken later."""
    if error.reason in (CLOSED, WRONG_PEER):
        return False
    return isinstance(error, (Unavailable, DeadlineExceeded, ResourceExhausted))


class Contributor:
    """Safe from any thread. The thread begins with the first samples, and ends with `close`."""

    def __init__(
        self, service: SessionService, name: str, ledger: Ledger, flush_samples: int, flush_seconds: float
    ) -> None:
        self._service, self._name = service, name
        self._flush_samples, self._flush_seconds = flush_samples, flush_seconds
        self._trainer = Trainer(None)
        self._last_sequence = 0
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._ledger = ledger
        self._thread: Optional[threading.Thread] = None
        self._asked = False  # somebody waits for a flush
        self._waits = False  # the thread waits for enough samples
        self._closing = False
        self._failure: Optional[Exception] = None  # for good: the server refuses what is sent, or the thread has failed
        self._trouble: Optional[Error] = None  # of the last try
        _open.add(self)

    # ---- Of the caller's thread

    @property
    def version(self) -> int:
        with self._changed:
            return self._ledger.version

    def view(self, extremes: bool = True) -> Samples:
        """The statistics with the own samples. extremes: whether min and max are up to date."""
        with self._changed:
            return self._ledger.view(extremes)

    def seen(self, extremes: bool = True) -> Known:
        """As `view`, and the version of the server's state in it."""
        with self._changed:
            return Known(self._ledger.view(extremes), self._ledger.version)

    def add(self, samples: Samples) -> None:
        with self._changed:
            self._check()
            self._ledger.add(samples)
            self._wake()

    def add_batch(self, batch: Array, where: slice) -> None:
        with self._changed:
            self._check()
            self._ledger.add_batch(batch, where)
            self._wake()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        """Has samples sent if there are enough."""
        if self._thread is None:
            self._start()
        elif self._waits and self._ledger.pending_samples >= self._flush_samples:
            self._changed.notify_all()

    def flush(self, timeout: Optional[float]) -> None:
        """Waits until the server has acknowledged all samples so far."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._asked = True
            if self._thread is None:
                self._start()
            self._changed.notify_all()
            while not self._ledger.is_settled and self._failure is None:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise self._trouble or DeadlineExceeded(
                        f"the samples were not acknowledged within {timeout} s; they are kept and sent again",
                        field="timeout",
                        value=str(timeout),
                    )
                self._changed.wait(left)
            if self._failure is not None:
                raise self._failure

    def refresh(self) -> None:
        """Reads the server's state."""
        self._learn()

    def close(self, timeout: Optional[float]) -> None:
        with self._changed:
            settled = self._ledger.is_settled and self._failure is None
        try:
            if not settled:
                self.flush(timeout)
        finally:
            with self._changed:
                self._closing = True
                self._changed.notify_all()
            if self._thread is not None:
                self._thread.join()
            _open.discard(self)

    def separate(self) -> None:
        """In a forked child: what its parent has not sent is its parent's to send."""
        self._changed = threading.Condition()
        self._ledger = self._ledger.emptied()
        self._thread, self._asked, self._waits = None, False, False

    # ---- Of the own thread

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"normd.stats {self._name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while self._wait_for_work():
            try:
                self._send_or_learn()
                pause = FIRST_PAUSE
            except Exception as error:
                with self._changed:
                    # Whatever ends the thread: who waits for it must learn of that.
                    if not isinstance(error, Error) or not _is_temporary(error):
                        self._failure = error
                        self._changed.notify_all()
                        return
                    self._trouble = error
                    self._changed.wait_for(lambda: self._closing, pause)
                pause = min(2 * pause, LAST_PAUSE)

    def _wait_for_work(self) -> bool:
        """Until there are enough samples, or they are old enough, or somebody waits. False: the object is closed."""
        rest = min(LEAST_SECONDS, self._flush_seconds)
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._asked, rest)
            self._waits = True
            self._changed.wait_for(
                lambda: self._closing or self._asked or self._ledger.pending_samples >= self._flush_samples,
                self._flush_seconds - rest,
            )
            self._waits = False
            self._asked = self._asked and not self._ledger.is_settled
            return not self._closing

    def _next_step(self) -> Step:
        self._last_sequence = max(self._last_sequence + 1, _least_sequence())
        return Step(self._trainer.next().client_id, self._last_sequence)

    def _send_or_learn(self) -> None:
        with self._changed:
            contribution = self._ledger.take(self._next_step()) if not self._ledger.is_settled else None
            if contribution is None:
                self._changed.notify_all()  # there was nothing that could be sent, such as samples that are not finite
        if contribution is None:
            return self._learn()
        samples, step = contribution
        reply = run(self._service.contribute(self._name, _message_of(samples), step))
        with self._changed:
            self._ledger.acknowledge(_known_of_reply(reply))
            self._trouble = None
            self._changed.notify_all()

    def _learn(self) -> None:
        info = run(self._service.get(self._name, newer_than_version=self.version))
        if info.count is None:
            return
        with self._changed:
            self._ledger.see(known_of(info))


_open: "weakref.WeakSet[Contributor]" = weakref.WeakSet()


def _flush_all() -> None:
    for contributor in list(_open):
        try:
            contributor.close(SECONDS_AT_EXIT)
        except Exception as error:
            print(f"normd.stats: the last samples of {contributor._name} were not taken: {error}", file=sys.stderr)


def _separate_all() -> None:
    for contributor in list(_open):
        contributor.separate()


atexit.register(_flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_separate_all)
