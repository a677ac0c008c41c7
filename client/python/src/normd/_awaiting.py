"""The transport of normd.aio.Client: gRPC's asyncio calls, with bytes as messages."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncGenerator, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar

import grpc
import grpc.aio

from normd import _channel
from normd._blocking import metadata_for
from normd._retry import CLOSED
from normd._transport import LARGE_BYTES
from normd._security import PLAIN, Access
from normd.errors import WRONG_PEER, Error, Unavailable, from_rpc

T = TypeVar("T")


class AioTransport:
    """Two connections to one server, for the tasks of one event loop."""

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
        self._channels: Dict[bool, grpc.aio.Channel] = {}
        self._methods: Dict[Tuple[str, bool], Any] = {}
        self._closing: List["asyncio.Future[None]"] = []
        self._closed = False

    def _channel(self, large: bool) -> grpc.aio.Channel:
        if self._closed:
            raise Unavailable(f"the client of {self.target} is closed", reason=CLOSED)
        if large not in self._channels:
            credentials = self._access.credentials
            if credentials is None:
                self._channels[large] = grpc.aio.insecure_channel(self.target, self._options)
            else:
                self._channels[large] = grpc.aio.secure_channel(self.target, credentials, self._options)
        return self._channels[large]

    async def unary(self, method: str, request: bytes, timeout: float) -> bytes:
        large = len(request) >= LARGE_BYTES
        call = self._methods.get((method, large))
        if call is None:
            call = self._methods[method, large] = self._channel(large).unary_unary(method, None, None)
        try:
            reply: bytes = await call(request, timeout=timeout, metadata=metadata_for(request, self._access.token()))
            return reply
        except grpc.RpcError as error:
            raise self._failed(error, method) from None
        except grpc.aio.UsageError as error:  # the channel was closed under the call
            raise Unavailable(f"the client of {self.target} is closed: {error}", reason=CLOSED) from None

    async def stream(self, method: str, requests: Iterable[bytes], timeout: float) -> AsyncGenerator[bytes, None]:
        call = self._channel(True).stream_stream(method, None, None)(
            iter(requests), timeout=timeout, metadata=metadata_for(b"", self._access.token())
        )
        try:
            async for reply in call:
                yield reply
        except grpc.RpcError as error:
            raise self._failed(error, method) from None
        finally:
            call.cancel()

    def _failed(self, error: Any, method: str) -> Error:
        failure = from_rpc(error, self.target, method, self._access.explain, _channel.proxy_variable(self.target))
        if isinstance(failure, Unavailable) and self._access.renew():
            self._channels.clear()  # calls on the old connections go on
            self._methods.clear()
            if failure.reason == WRONG_PEER:
                failure.reason = ""  # another try may find the two agreed
        return failure

    def diagnose(self, timeout: float) -> Optional[str]:
        return self._access.diagnose(timeout)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    def sibling(self, target: str) -> "AioTransport":
        return AioTransport(target, Access(target, PLAIN), self._extra)

    def close_soon(self) -> None:
        self._closing.append(asyncio.ensure_future(self.close()))

    async def close(self) -> None:
        self._closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        self._methods.clear()
        for channel in channels:
            await channel.close(None)
