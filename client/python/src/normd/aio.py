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
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from normd import _calls, _operators, client as blocking_client, session as blocking_session
from normd._arrays import A
from normd._awaiting import AioTransport
from normd._core import DEADLINE, Core, Moments
from normd._files import Path, Progress, normalize_file
from normd._operators import awaited
from normd._proto import normalizer_pb2
from normd._options import CallOptions, SessionOptions, SpecOptions, Step
from normd._request import NormalizeCall, Target
from normd._results import Result, StateResult
from normd._retry import RetryOptions
from normd._security import Access, SecurityOptions, asks_for_tls
from normd._sessions import SessionInfo, SessionService, state_dict
from normd._target import resolve_target
from normd.errors import Error
from normd.session import SessionBase
from normd.specs import Shape, Spec

if TYPE_CHECKING:
    from typing_extensions import Unpack

class Client:
    """Calls of one normd server, for the tasks of one event loop. See normd.Client for every method."""

    def __init__(
        self,
        target: Optional[str] = None,
        *,
        deadline: float = DEADLINE,
        shared_memory: str = "auto",
        options: Sequence[Tuple[str, Any]] = (),
        retry: RetryOptions = RetryOptions(),
        **security: Unpack[SecurityOptions],
    ) -> None:
        resolved = resolve_target(target, asks_for_tls(security))
        self._transport = AioTransport(resolved, Access(resolved, security), options)
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

    layer_norm = awaited(_operators.layer_norm)
    rms_norm = awaited(_operators.rms_norm)
    group_norm = awaited(_operators.group_norm)
    instance_norm = awaited(_operators.instance_norm)
    batch_norm = awaited(_operators.batch_norm)
    p_rms_norm = awaited(_operators.p_rms_norm)
    scale_norm = awaited(_operators.scale_norm)
    lp_norm = awaited(_operators.lp_norm)
    power_norm = awaited(_operators.power_norm)

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

    async def moments(
        self, spec: Spec, x: Any, *, mask: Any = None, exact: bool = False, timeout: Optional[float] = None
    ) -> Moments:
        return await self._core.moments(Target(spec), x, mask, exact, timeout)

    async def normalize_file(
        self,
        source: Path,
        target: Path,
        spec: Spec,
        weight: Any = None,
        bias: Any = None,
        *,
        progress: Progress = False,
        dtype: Optional[str] = None,
        **options: Unpack[SpecOptions],
    ) -> Result:
        return await normalize_file(self._core, source, target, spec, weight, bias, progress, dtype, options)

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
            return self._note(call, await core.normalize(call))
        async with self._order:
            call.step = self._trainer.next()
            return self._note(call, await core.normalize(call))

    async def moments(
        self, x: Any, *, mask: Any = None, exact: bool = False, timeout: Optional[float] = None
    ) -> Moments:
        return await self._service.core.moments(self._as_target(), x, mask, exact, timeout)

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
    deadline: float = DEADLINE,
    shared_memory: str = "auto",
    options: Sequence[Tuple[str, Any]] = (),
    retry: RetryOptions = RetryOptions(),
    **security: Unpack[SecurityOptions],
) -> Client:
    return Client(
        target,
        deadline=deadline,
        shared_memory=shared_memory,
        options=options,
        retry=retry,
        **security,
    )


def _take_docstrings(into: Any, source: Any) -> None:
    """A method without a docstring has that of the blocking class, which it is the awaited form of."""
    for name, method in vars(into).items():
        if inspect.isfunction(method) and not method.__doc__:
            method.__doc__ = getattr(getattr(source, name, None), "__doc__", None)


_take_docstrings(Client, blocking_client.Client)
_take_docstrings(Session, blocking_session.Session)
connect.__doc__ = blocking_client.connect.__doc__
