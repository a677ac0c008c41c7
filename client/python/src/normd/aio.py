"""The asyncio client: `normd.aio.connect()`. Its methods are those of normd.Client, with await.

    async with normd.aio.connect() as client:
        y = await client.layer_norm(x, (768,), weight, bias)
        bn = await client.session("bn1", normd.BatchNorm(64))
        y = await bn(x)

A client belongs to the event loop that it is first used on.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
)

import grpc
import grpc.aio
import numpy as np

from normd import _calls, _channel, client as blocking, session as blocking_session
from normd._arrays import A
from normd._blocking import metadata_for
from normd._core import LARGE_BYTES, Core, Moments
from normd._files import Path, Progress, normalize_file
from normd._proto import normalizer_pb2
from normd._request import CallOptions, NormalizeCall, Options, Result, SessionOptions, SpecOptions, StateResult, Step, Target
from normd._retry import CLOSED, RetryOptions
from normd._sessions import SessionInfo, SessionService, state_dict
from normd.errors import Error, Unavailable, from_rpc
from normd.session import SessionBase
from normd.specs import Shape, Spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AioTransport:
    """Two connections to one server, for the tasks of one event loop."""

    def __init__(
        self,
        target: str,
        credentials: Optional[grpc.ChannelCredentials] = None,
        token: Optional[str] = None,
        options: Sequence[_channel.ChannelOption] = (),
    ) -> None:
        self.target = target
        self._token = token
        self._credentials = credentials
        self._extra = options
        self._options = _channel.channel_options(options)
        self._channels: Dict[bool, grpc.aio.Channel] = {}
        self._methods: Dict[Tuple[str, bool], Any] = {}
        self._closing: List["asyncio.Future[None]"] = []
        self._closed = False

    def _channel(self, large: bool) -> grpc.aio.Channel:
        if self._closed:
            raise Unavailable(f"the client of {self.target} is closed", reason=CLOSED)
        if large not in self._channels:
            if self._credentials is None:
                self._channels[large] = grpc.aio.insecure_channel(self.target, self._options)
            else:
                self._channels[large] = grpc.aio.secure_channel(self.target, self._credentials, self._options)
        return self._channels[large]

    async def unary(self, method: str, request: bytes, timeout: float) -> bytes:
        large = len(request) >= LARGE_BYTES
        call = self._methods.get((method, large))
        if call is None:
            call = self._methods[method, large] = self._channel(large).unary_unary(method, None, None)
        try:
            reply: bytes = await call(request, timeout=timeout, metadata=metadata_for(request, self._token))
            return reply
        except grpc.RpcError as error:
            raise from_rpc(error, self.target) from None
        except grpc.aio.UsageError as error:  # the channel was closed under the call
            raise Unavailable(f"the client of {self.target} is closed: {error}", reason=CLOSED) from None

    async def stream(self, method: str, requests: Iterable[bytes], timeout: float) -> AsyncIterator[bytes]:
        call = self._channel(True).stream_stream(method, None, None)(
            iter(requests), timeout=timeout, metadata=metadata_for(b"", self._token)
        )
        try:
            async for reply in call:
                yield reply
        except grpc.RpcError as error:
            raise from_rpc(error, self.target) from None
        finally:
            call.cancel()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    def sibling(self, target: str) -> "AioTransport":
        return AioTransport(target, None, self._token, self._extra)

    def close_soon(self) -> None:
        self._closing.append(asyncio.ensure_future(self.close()))

    async def close(self) -> None:
        self._closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        self._methods.clear()
        for channel in channels:
            await channel.close(None)


class Client:
    """Calls of one normd server, for the tasks of one event loop. See normd.Client for every method."""

    def __init__(
        self,
        target: Optional[str] = None,
        *,
        deadline: float = 30.0,
        shared_memory: str = "auto",
        token: Optional[str] = None,
        credentials: Optional[grpc.ChannelCredentials] = None,
        options: Sequence[Tuple[str, Any]] = (),
        retry: RetryOptions = RetryOptions(),
    ) -> None:
        self._transport = AioTransport(_channel.resolve_target(target), credentials, token, options)
        self._core = Core(self._transport, deadline, retry, shared_memory)
        self._sessions = SessionService(self._core)

    @property
    def target(self) -> str:
        return self._transport.target

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._core.close()
        await self._transport.close()

    def __repr__(self) -> str:
        return f"<normd.aio.Client of {self.target}>"

    # ---- Operators

    async def layer_norm(
        self,
        x: A,
        normalized_shape: Shape,
        weight: Any = None,
        bias: Any = None,
        eps: float = 1e-5,
        **options: Unpack[Options],
    ) -> A:
        return await self._core.operate(_calls.layer_norm, x, (weight, bias), (normalized_shape, eps), options)

    async def rms_norm(
        self,
        x: A,
        normalized_shape: Shape,
        weight: Any = None,
        eps: Optional[float] = None,
        **options: Unpack[Options],
    ) -> A:
        return await self._core.operate(_calls.rms_norm, x, (weight,), (normalized_shape, eps), options)

    async def group_norm(
        self,
        x: A,
        num_groups: int,
        weight: Any = None,
        bias: Any = None,
        eps: float = 1e-5,
        *,
        layout: str = "channels_first",
        **options: Unpack[Options],
    ) -> A:
        return await self._core.operate(_calls.group_norm, x, (weight, bias), (num_groups, eps, layout), options)

    async def instance_norm(
        self,
        x: A,
        running_mean: Any = None,
        running_var: Any = None,
        weight: Any = None,
        bias: Any = None,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
        *,
        layout: str = "channels_first",
        **options: Unpack[Options],
    ) -> A:
        parameters = (weight, bias, running_mean, running_var)
        return await self._core.operate(_calls.instance_norm, x, parameters, (use_input_stats, eps, layout), options)

    async def batch_norm(
        self,
        x: A,
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
        *,
        layout: str = "channels_first",
        **options: Unpack[Options],
    ) -> A:
        parameters, attributes = (weight, bias, running_mean, running_var), (training, eps, layout)
        if training:
            return await _calls.batch_norm_step(self._core, x, parameters, attributes, momentum, options)
        return await self._core.operate(_calls.batch_norm, x, parameters, attributes, options)

    async def p_rms_norm(
        self,
        x: A,
        p: Optional[float] = None,
        weight: Any = None,
        bias: Any = None,
        eps: float = 1e-6,
        *,
        k: Optional[int] = None,
        **options: Unpack[Options],
    ) -> A:
        return await self._core.operate(_calls.p_rms_norm, x, (weight, bias), (p, k, eps), options)

    async def scale_norm(
        self, x: A, weight: Any = None, bias: Any = None, eps: float = 1e-5, **options: Unpack[Options]
    ) -> A:
        return await self._core.operate(_calls.scale_norm, x, (weight, bias), (eps,), options)

    async def lp_norm(
        self,
        x: A,
        p: float = 2.0,
        dim: Union[int, Sequence[int], None] = 1,
        eps: float = 1e-12,
        **options: Unpack[Options],
    ) -> A:
        return await self._core.operate(_calls.lp_norm, x, (), (p, dim, eps), options)

    async def power_norm(
        self,
        x: A,
        running_phi: Any = None,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        eps: float = 1e-5,
        *,
        num_groups: int = 1,
        **options: Unpack[Options],
    ) -> A:
        return await self._core.operate(_calls.power_norm, x, (weight, bias, None, running_phi), (training, eps, num_groups), options)

    # ---- Any spec, batches, moments, files

    async def normalize(
        self, spec: Spec, x: Any, weight: Any = None, bias: Any = None, **options: Unpack[SpecOptions]
    ) -> Result:
        return await self._core.normalize(_calls.normalize(spec, x, weight, bias, **options))

    def prepare(
        self, spec: Spec, x: Any, weight: Any = None, bias: Any = None, **options: Unpack[SpecOptions]
    ) -> NormalizeCall:
        return _calls.normalize(spec, x, weight, bias, **options)

    async def batch(
        self, calls: Sequence[NormalizeCall], *, timeout: Optional[float] = None
    ) -> List[Union[Result, Error]]:
        return await self._core.batch(calls, timeout)

    async def moments(self, spec: Spec, x: Any, *, mask: Any = None, timeout: Optional[float] = None) -> Moments:
        return await self._core.moments(Target(spec), x, mask, timeout)

    async def normalize_file(
        self,
        source: Path,
        target: Path,
        spec: Spec,
        weight: Any = None,
        bias: Any = None,
        *,
        progress: Progress = False,
        **options: Unpack[SpecOptions],
    ) -> Result:
        return await normalize_file(self._core, source, target, spec, weight, bias, progress, options)

    async def describe(self) -> normalizer_pb2.DescribeResponse:
        return await self._core.describe()

    # ---- Shared memory

    async def empty(self, shape: Shape, dtype: Any = "float32") -> np.ndarray[Any, np.dtype[Any]]:
        return await _calls.empty(self._core, shape, dtype)

    async def shared_array(self, x: Any) -> np.ndarray[Any, np.dtype[Any]]:
        return await _calls.shared_array(self._core, x)

    # ---- Sessions

    async def session(
        self,
        name: str,
        spec: Optional[Spec] = None,
        *,
        weight: Any = None,
        bias: Any = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl: Optional[float] = None,
        client_id: Optional[str] = None,
    ) -> "Session":
        opened = await self._sessions.open(name, spec, weight=weight, bias=bias, labels=labels, ttl=ttl)
        return Session(self.target, self._sessions, opened, client_id)

    async def sessions(self, filter: str = "") -> AsyncIterator[SessionInfo]:
        token = ""
        while True:
            page, token = await self._sessions.page(token, filter)
            for one in page:
                yield one
            if not token:
                return


class Session(SessionBase):
    """As normd.Session; what asks the server is awaited: `(await session.info()).running_mean`."""

    def __init__(
        self, target: str, service: SessionService, info: SessionInfo, client_id: Optional[str] = None
    ) -> None:
        super().__init__(target, service, info, client_id)
        self._order = asyncio.Lock()

    async def __call__(self, x: A, **options: Unpack[CallOptions]) -> A:
        y: A = (await self.normalize(x, **options)).y
        return y

    async def normalize(self, x: Any, **options: Unpack[SessionOptions]) -> Result:
        call = self._make_call(x, options)
        core = self._service.core
        if call.safe:
            return await core.normalize(call)
        async with self._order:
            call.step = self._trainer.next()
            result = await core.normalize(call)
            self.last_state = result.state
        return result

    async def moments(self, x: Any, *, mask: Any = None, timeout: Optional[float] = None) -> Moments:
        return await self._service.core.moments(self._as_target(), x, mask, timeout)

    async def commit(
        self,
        moments: Sequence[Moments],
        *,
        step: Optional[Step] = None,
        expected_version: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> StateResult:
        async with self._order:
            step = step or self._trainer.next()
            self.last_state = await self._service.commit(self.name, moments, step, expected_version, timeout)
        return self.last_state

    async def info(self) -> SessionInfo:
        self._info = await self._service.get(self.name)
        return self._info

    async def set_parameters(self, **parameters: Any) -> None:
        self._info = await self._service.set_parameters(self.name, parameters)

    async def state_dict(self) -> Dict[str, Any]:
        return state_dict(await self.info())

    async def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._info = await self._service.load(self.name, await self.info(), state)

    async def reset(self) -> None:
        self._info = await self._service.reset(self.name)

    async def fork(self, name: str) -> "Session":
        return Session(self._target, self._service, await self._service.fork(self.name, name))

    async def delete(self) -> None:
        await self._service.delete(self.name)


def connect(
    target: Optional[str] = None,
    *,
    deadline: float = 30.0,
    shared_memory: str = "auto",
    token: Optional[str] = None,
    credentials: Optional[grpc.ChannelCredentials] = None,
    options: Sequence[Tuple[str, Any]] = (),
    retry: RetryOptions = RetryOptions(),
) -> Client:
    return Client(
        target,
        deadline=deadline,
        shared_memory=shared_memory,
        token=token,
        credentials=credentials,
        options=options,
        retry=retry,
    )


def _take_docstrings(into: Any, source: Any) -> None:
    """A method without a docstring has that of the blocking class, which it is the awaited form of."""
    for name, method in vars(into).items():
        if inspect.isfunction(method) and not method.__doc__:
            method.__doc__ = getattr(getattr(source, name, None), "__doc__", None)


_take_docstrings(Client, blocking.Client)
_take_docstrings(Session, blocking_session.Session)
connect.__doc__ = blocking.connect.__doc__
