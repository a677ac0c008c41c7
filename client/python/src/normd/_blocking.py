"""The transport of normd.Client: gRPC's blocking calls, with bytes as messages."""

from __future__ import annotations

import threading
import time
from typing import Any, AsyncIterator, Callable, Dict, Iterable, Optional, Sequence, Tuple, TypeVar

import grpc

from normd import _channel
from normd._retry import CLOSED
from normd._transport import LARGE_BYTES
from normd._security import PLAIN, Access
from normd.errors import Error, Unavailable, from_rpc

T = TypeVar("T")

# Clients say with large requests how large they are, so that the server can refuse them before it reads them.
MESSAGE_BYTES_KEY = "normd-message-bytes"


def metadata_for(request: bytes, token: str) -> Optional[Tuple[Tuple[str, str], ...]]:
    if not token and len(request) < LARGE_BYTES:
        return None
    entries = []
    if token:
        entries.append(("authorization", f"Bearer {token}"))
    if len(request) >= LARGE_BYTES:
        entries.append((MESSAGE_BYTES_KEY, str(len(request))))
    return tuple(entries) or None


def _ignore_state(state: grpc.ChannelConnectivity) -> None:
    """Watches a connection for the watching's sake."""


class BlockingTransport:
    """Two connections to one server: one for small and one for large messages. Safe from any thread."""

    def __init__(
        self,
        target: str,
        access: Access,
        options: Sequence[_channel.ChannelOption] = (),
    ) -> None:
        self.target = target
        self.is_secure = access.is_secure
        self._access = access
        self._extra = options
        self._options = [*access.channel_options(), *_channel.channel_options(options)]
        self._lock = threading.Lock()
        self._channels: Dict[bool, grpc.Channel] = {}
        self._methods: Dict[Tuple[str, bool], Any] = {}
        self._closed = False

    def _channel(self, large: bool) -> grpc.Channel:
        """Call with the lock held."""
        if self._closed:
            raise Unavailable(f"the client of {self.target} is closed", reason=CLOSED)
        if large not in self._channels:
            credentials = self._access.credentials
            if credentials is None:
                self._channels[large] = grpc.insecure_channel(self.target, self._options)
            else:
                self._channels[large] = grpc.secure_channel(self.target, credentials, self._options)
        return self._channels[large]

    def _method(self, path: str, large: bool) -> Any:
        with self._lock:
            # No serialisers: messages are bytes already (see _wire.py).
            made = self._methods[path, large] = self._channel(large).unary_unary(path, None, None)
        return made

    async def unary(self, method: str, request: bytes, timeout: float) -> bytes:
        large = len(request) >= LARGE_BYTES
        call = self._methods.get((method, large)) or self._method(method, large)
        try:
            reply: bytes = call(request, timeout=timeout, metadata=metadata_for(request, self._access.token()))
            return reply
        except grpc.RpcError as error:
            raise self._failed(error) from None
        except ValueError as error:  # gRPC's word for a channel that was closed under the call
            raise Unavailable(f"the client of {self.target} is closed: {error}", reason=CLOSED) from None

    async def stream(self, method: str, requests: Iterable[bytes], timeout: float) -> AsyncIterator[bytes]:
        with self._lock:
            call = self._channel(True).stream_stream(method, None, None)(
                iter(requests), timeout=timeout, metadata=metadata_for(b"", self._access.token())
            )
        try:
            for reply in call:
                yield reply
        except grpc.RpcError as error:
            raise self._failed(error) from None
        finally:
            call.cancel()  # type: ignore[no-untyped-call]

    def _failed(self, error: Any) -> Error:
        failure = from_rpc(error, self.target, self._access.explain)
        if isinstance(failure, Unavailable) and self._access.renew():
            with self._lock:  # calls on the old connections go on
                self._channels.clear()
                self._methods.clear()
        return failure

    async def sleep(self, seconds: float) -> None:
        # A watcher of the connections keeps gRPC's events going. Without a call under way nobody else would, and a
        # handshake with a restarted server would wait for the next call, and time out (seen with grpcio 1.76). In a
        # short wait there is no time for that, nor for the watcher to start before the channel may be closed.
        with self._lock:
            channels = list(self._channels.values()) if seconds >= 0.05 else []
        for channel in channels:
            channel.subscribe(_ignore_state, try_to_connect=True)
        try:
            time.sleep(seconds)
        finally:
            for channel in channels:
                channel.unsubscribe(_ignore_state)

    async def run(self, work: Callable[[], T]) -> T:
        return work()

    def sibling(self, target: str) -> "BlockingTransport":
        return BlockingTransport(target, Access(target, PLAIN), self._extra)

    def close_soon(self) -> None:
        self.close()

    def separate(self) -> None:
        """In a forked child: channels of the parent are neither used nor destroyed here."""
        self._lock = threading.Lock()
        self._access.separate()
        self._inherited = (self._channels, self._methods)
        self._channels, self._methods = {}, {}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channels = list(self._channels.values())
            self._channels.clear()
            self._methods.clear()
        for channel in channels:
            channel.close()
