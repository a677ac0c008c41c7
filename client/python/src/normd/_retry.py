"""Which failed calls are sent again, and when: the rules of the C++ client (client/cpp/retry.h).

Only decisions are made here: no clock, no sleep, no gRPC.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Optional

from normd.errors import WRONG_PEER, Error, ResourceExhausted, Unavailable

# The reason of errors about a client that was closed, which no retry opens.
CLOSED = "CLIENT_CLOSED"

MAX_ATTEMPTS = 5
PATIENT_BACKOFF = 1.0  # seconds at most between the tries to reach a server that is not there


@dataclasses.dataclass(frozen=True)
class RetryOptions:
    """When a call that is safe to repeat is sent again; `max_attempts=1` never does."""

    # The first one included. None: 5; but while nobody answers at the server's address, as many as the deadline has time
    # for, where the caller gave a deadline or timeout or the server has answered this client before.
    max_attempts: Optional[int] = None
    # For a call that was refused for want of room: the server is there and says when to come back.
    max_attempts_for_room: int = 8
    initial_backoff: float = 0.1  # seconds before the second attempt
    max_backoff: float = 5.0
    multiplier: float = 2.0
    jitter: float = 0.2
    # The budget that all calls of a client share: each retry takes a token, each success gives a part of one back, and
    # while half of the tokens or more are gone nothing is retried.
    budget_tokens: float = 100.0
    budget_return: float = 0.1


class RetryBudget:
    """Keeps a client from keeping an overloaded server down. Safe from any thread."""

    def __init__(self, options: RetryOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._tokens = options.budget_tokens

    def note_success(self) -> None:
        if self._tokens >= self._options.budget_tokens:
            return  # a full budget, the usual case, needs no lock
        with self._lock:
            self._tokens = min(self._options.budget_tokens, self._tokens + self._options.budget_return)

    def take(self) -> bool:
        """True if a retry may be sent now; takes its token."""
        with self._lock:
            if self._options.budget_tokens == 0:
                return True
            if self._tokens <= self._options.budget_tokens / 2:
                return False
            self._tokens -= 1
            return True


def next_wait(
    options: RetryOptions, error: Error, attempt: int, remaining: float, uniform: float, patient: bool = False
) -> Optional[float]:
    """Seconds before the attempt after number `attempt` (the first is 1); None if the error is final.

    UNAVAILABLE is retried, and so is RESOURCE_EXHAUSTED that says when to come back; without that it is a limit, such
    as a message too large, and waiting moves no limit. patient: the server is not there, and may come.
    """
    has_room_later = isinstance(error, ResourceExhausted) and error.retry_after is not None
    attempts = MAX_ATTEMPTS if options.max_attempts is None else options.max_attempts
    patient = patient and options.max_attempts is None
    if patient:
        attempts = attempt + 1
    if has_room_later and attempts > 1:
        attempts = max(attempts, options.max_attempts_for_room)
    if (
        error.reason in (CLOSED, WRONG_PEER)
        or attempt >= attempts
        or not (has_room_later or isinstance(error, Unavailable))
    ):
        return None
    backoff = min(
        options.initial_backoff * options.multiplier ** (attempt - 1),
        min(options.max_backoff, PATIENT_BACKOFF if patient else options.max_backoff),
    )
    wait = backoff * (1 - options.jitter + 2 * options.jitter * uniform)
    if error.retry_after is not None:
        wait = max(wait, error.retry_after)
    return wait if wait < remaining else None
