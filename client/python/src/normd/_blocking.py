"""The transport of normd.Client: gRPC's blocking calls, with bytes as messages."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
import weakref
from typing import Any, AsyncGenerator, Callable, Dict, Iterable, Optional, Sequence, Tuple, TypeVar

import grpc

from normd import _channel
from normd._retry import CLOSED
from normd._transport import LARGE_BYTES
from normd._security import PLAIN, Access
from normd.errors import WRONG_PEER, Error, Unavailable, from_rpc

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
        self._options = [*access.channel_options(), *_channel.channel_options(target, options)]
        self._lock = threading.Lock()
        self._channels: Dict[bool, grpc.Channel] = {}
        self._made: "weakref.WeakSet[grpc.Channel]" = weakref.WeakSet()  # those with calls under way among them
        self._methods: Dict[Tuple[str, bool], Tuple[grpc.Channel, Any]] = {}
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
            self._made.add(self._channels[large])
        return self._channels[large]

    def _method(self, path: str, large: bool) -> Tuple[grpc.Channel, Any]:
        with self._lock:
            channel = self._channel(large)
            # No serialisers: messages are bytes already (see _wire.py).
            made = self._methods[path, large] = (channel, channel.unary_unary(path, None, None))
        return made

    async def unary(self, method: str, request: bytes, timeout: float) -> bytes:
        large = len(request) >= LARGE_BYTES
        channel, call = self._methods.get((method, large)) or self._method(method, large)
        try:
            reply: bytes = call(request, timeout=timeout, metadata=metadata_for(request, self._access.token()))
            return reply
        except grpc.RpcError as error:
            raise self._failed(error, method, channel, large) from None
        except ValueError as error:  # gRPC's word for a channel that was closed under the call
            raise Unavailable(f"the client of {self.target} is closed: {error}", reason=CLOSED) from None

    async def stream(self, method: str, requests: Iterable[bytes], timeout: float) -> AsyncGenerator[bytes, None]:
        with self._lock:
            channel = self._channel(True)
            call = channel.stream_stream(method, None, None)(
                iter(requests), timeout=timeout, metadata=metadata_for(b"", self._access.token())
            )
        try:
            for reply in call:
                yield reply
        except grpc.RpcError as error:
            raise self._failed(error, method, channel, True) from None
        finally:
            call.cancel()  # type: ignore[no-untyped-call]
            # Until gRPC's thread has seen the call's end: an interpreter that ends before it would wait for ever.
            with contextlib.suppress(grpc.RpcError):
                collections.deque(call, 0)

    def _failed(self, error: Any, method: str, channel: grpc.Channel, large: bool) -> Error:
        failure = from_rpc(error, self.target, method, self._access.explain, _channel.proxy_variable(self.target))
        if isinstance(failure, Unavailable) and not failure.has_details:
            # The next call connects anew, and waits for that; on this channel it would fail while gRPC waits before it
            # connects again. Calls that are under way here go on. (A watcher of the channel would make gRPC hurry, too,
            # but one that is not gone when the interpreter ends keeps it from ending.)
            everything = self._access.renew()
            if everything and failure.reason == WRONG_PEER:
                failure.reason = ""  # another try may find the two agreed
            with self._lock:
                for size in (large, not large) if everything else (large,):
                    if everything or self._channels.get(size) is channel:
                        self._forget(size)
        return failure

    def _forget(self, large: bool) -> None:
        """Leaves a channel to the calls that are under way there. Call with the lock held."""
        self._channels.pop(large, None)
        for key in [one for one in self._methods if one[1] == large]:
            del self._methods[key]

    def diagnose(self, timeout: float) -> Optional[str]:
        return self._access.diagnose(timeout)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

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
        self._inherited = (self._channels, self._methods, list(self._made))
        self._channels, self._methods, self._made = {}, {}, weakref.WeakSet()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channels = list(self._made)
            self._channels.clear()
            self._methods.clear()
        for channel in channels:
            channel.close()
