"""How calls are made and time passes: the one thing in which the blocking and the asyncio client differ."""

from __future__ import annotations

from typing import Any, AsyncGenerator, Callable, Coroutine, Iterable, Optional, Protocol, TypeVar

# Requests of at least this size use the connection for large messages, and say how large they are.
LARGE_BYTES = 256 << 10

T = TypeVar("T")


class Transport(Protocol):
    """Blocking, or on an event loop."""

    target: str
    is_secure: bool  # calls go by TLS, or by credentials of the caller's

    async def unary(self, method: str, request: bytes, timeout: float) -> bytes:
        """Raises normd.Error."""

    def stream(self, method: str, requests: Iterable[bytes], timeout: float) -> AsyncGenerator[bytes, None]:
        """Sends `requests` while the replies are read. Raises normd.Error."""

    def diagnose(self, timeout: float) -> Optional[str]:
        """What keeps this process and the server apart, in one sentence; None if that is not known. Blocks."""

    async def sleep(self, seconds: float) -> None: ...

    async def run(self, work: Callable[[], T]) -> T:
        """Runs what blocks."""

    def sibling(self, target: str) -> "Transport":
        """The same kind of transport to another target, which is on this host."""

    def close_soon(self) -> None:
        """Closes it, without waiting."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine whose transport blocks."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise RuntimeError("a coroutine over a blocking transport was suspended")
