"""Which failed calls are sent again, and when: the rules of the C++ client (client/cpp/retry.h).

Only decisions are made here: no clock, no sleep, no gRPC.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Optional

from normd.errors import Error, ResourceExhausted, Unavailable


# The reason of errors about a client that was closed, which no retry opens.
CLOSED = "CLIENT_CLOSED"


@dataclasses.dataclass(frozen=True)
class RetryOptions:
    """When a call that is safe to repeat is sent again; `max_attempts=1` never does."""

    max_attempts: int = 5  # the first one included
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
    options: RetryOptions, error: Error, attempt: int, remaining: float, uniform: float
) -> Optional[float]:
    """Seconds before the attempt after number `attempt` (the first is 1); None if the error is final.

    UNAVAILABLE is retried, and so is RESOURCE_EXHAUSTED that says when to come back; without that it is a limit, such
    as a message too large, and waiting moves no limit.
    """
    has_room_later = isinstance(error, ResourceExhausted) and error.retry_after is not None
    attempts = options.max_attempts
    if has_room_later and attempts > 1:
        attempts = max(attempts, options.max_attempts_for_room)
    if error.reason == CLOSED or attempt >= attempts or not (has_room_later or isinstance(error, Unavailable)):
        return None
    backoff = min(options.initial_backoff * options.multiplier ** (attempt - 1), options.max_backoff)
    wait = backoff * (1 - options.jitter + 2 * options.jitter * uniform)
    if error.retry_after is not None:
        wait = max(wait, error.retry_after)
    return wait if wait < remaining else None
