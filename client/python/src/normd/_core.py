"""What both clients do with a call: retries, limits, results.

The coroutines here wait for nothing but their Transport. With the asyncio transport they are ordinary coroutines; with
the blocking one they never suspend, and `run` gets their result without an event loop. So there is one text of every
call, and only the calling differs.
"""

from __future__ import annotations

import dataclasses
import random
import time
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Coroutine,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Type,
    TypeVar,
)

import numpy as np
from google.rpc import status_pb2

from normd import _arrays, _wire
from normd._proto import normalizer_pb2, tensor_pb2
from normd._request import LIKE_X, NormalizeCall, Place, Result, Target
from normd._retry import RetryBudget, RetryOptions, next_wait
from normd.errors import Error, Internal, InvalidArgument, from_status



NORMALIZER = "/normd.v1.Normalizer/"
SESSIONS = "/normd.v1.Sessions/"

# Requests of at least this size use the connection for large messages, and say how large they are.
LARGE_BYTES = 256 << 10
# Requests up to this size are sent without asking for the server's limit: gRPC's own default, few servers set less.
UNASKED_BYTES = 4 << 20

T = TypeVar("T")


class Transport(Protocol):
    """How calls are made and time passes: blocking, or on an event loop."""

    target: str

    async def unary(self, method: str, request: bytes, timeout: float) -> bytes:
        """Raises normd.Error."""

    def stream(self, method: str, requests: Iterable[bytes], timeout: float) -> AsyncIterator[bytes]:
        """Sends `requests` while the replies are read. Raises normd.Error."""

    async def sleep(self, seconds: float) -> None: ...

    async def run(self, work: Callable[[], T]) -> T:
        """Runs what blocks."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine whose transport blocks."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise RuntimeError("a coroutine over a blocking transport was suspended")


@dataclasses.dataclass(frozen=True)
class Moments:
    """Count, mean and M2 (the sum of squared deviations) of statistics groups, as float64 arrays.

    Those of several parts of the data are merged by `Session.commit`.
    """

    count: np.ndarray[Any, np.dtype[np.float64]]
    mean: np.ndarray[Any, np.dtype[np.float64]]
    m2: np.ndarray[Any, np.dtype[np.float64]]

    def to_proto(self) -> normalizer_pb2.Moments:
        return normalizer_pb2.Moments(count=to_tensor(self.count), mean=to_tensor(self.mean), m2=to_tensor(self.m2))

    @staticmethod
    def from_proto(message: normalizer_pb2.Moments) -> "Moments":
        return Moments(*(from_tensor(one) for one in (message.count, message.mean, message.m2)))


def to_tensor(array: Any, field: str = "tensor") -> tensor_pb2.Tensor:
    """A small array as a message."""
    one = _arrays.parameter(array, field)
    assert one is not None
    return tensor_pb2.Tensor(dtype=one.dtype, shape=one.shape, data=one.words.tobytes())  # type: ignore[arg-type]


def from_tensor(message: tensor_pb2.Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    """A small message as an array; bf16 widened to float32."""
    words = np.frombuffer(message.data, _arrays.WORDS[message.dtype]).reshape(tuple(message.shape))
    if message.dtype == _arrays.BF16:
        return (words.astype(np.uint32) << 16).view(np.float32)
    return words.copy()


class Core:
    """Calls to one server. Safe from any thread, or for any task of one event loop, as its transport is."""

    def __init__(self, transport: Transport, deadline: float, retry: RetryOptions) -> None:
        self.transport = transport
        self.deadline = deadline
        self.retry = retry
        self.budget = RetryBudget(retry)
        self._describe: Optional[normalizer_pb2.DescribeResponse] = None

    async def call(self, method: str, request: bytes, safe: bool, timeout: Optional[float] = None) -> bytes:
        """The reply's bytes, after retries if `safe`."""
        end = time.monotonic() + (self.deadline if timeout is None else timeout)
        attempt = 1
        while True:
            try:
                reply = await self.transport.unary(method, request, end - time.monotonic())
            except Error as error:
                if not safe:
                    raise
                wait = next_wait(self.retry, error, attempt, end - time.monotonic(), random.random())
                if wait is None or not self.budget.take():
                    raise
                await self.transport.sleep(wait)
                attempt += 1
            else:
                self.budget.note_success()
                return reply

    async def message(self, method: str, request: Any, reply: Type[T], safe: bool, timeout: Optional[float] = None) -> T:
        """A call whose messages are small."""
        data = await self.call(method, request.SerializeToString(), safe, timeout)
        parsed: T = reply.FromString(data)  # type: ignore[attr-defined]
        return parsed

    async def describe(self) -> normalizer_pb2.DescribeResponse:
        found = await self.message(
            NORMALIZER + "Describe", normalizer_pb2.DescribeRequest(), normalizer_pb2.DescribeResponse, True
        )
        self._describe = found
        return found

    async def limits(self) -> normalizer_pb2.Limits:
        """Asked for once."""
        return (self._describe or await self.describe()).limits

    async def normalize(self, call: NormalizeCall) -> Result:
        request = _wire.join(call.encode())
        data = await self.call(NORMALIZER + "Normalize", request, call.safe, call.timeout)
        return make_result(call, _wire.read_reply(data))

    async def batch(self, calls: Sequence[NormalizeCall], timeout: Optional[float]) -> List[Any]:
        """A Result or an Error for each call."""
        items = [_wire.wrap(1, _wire.concatenate(call.encode())) for call in calls]
        safe = all(call.safe for call in calls)
        data = await self.call(NORMALIZER + "BatchNormalize", _wire.join(items), safe, timeout)
        answers = _wire.read_batch(data)
        if len(answers) != len(calls):
            raise Internal(f"the server answered {len(answers)} of {len(calls)} items")
        return [_batch_item(call, data, status, where) for call, (status, where) in zip(calls, answers)]

    async def moments(self, target: Target, x: Any, mask: Any, timeout: Optional[float]) -> Moments:
        operand = _arrays.operand(x, "x")
        _arrays.check_rank(operand, "x")
        pieces = [_wire.piece(target.encode(operand.dtype))]
        if mask is not None:
            pieces.append(_wire.wrap(6, _arrays.mask_operand(mask).inline()))
        pieces.append(_wire.wrap(15, operand.inline()))
        data = await self.call(NORMALIZER + "ComputeMoments", _wire.join(pieces), True, timeout)
        return Moments.from_proto(normalizer_pb2.ComputeMomentsResponse.FromString(data).moments)


def _batch_item(call: NormalizeCall, data: bytes, status: bytes, where: Any) -> Any:
    if status:
        parsed = status_pb2.Status.FromString(status)
        if parsed.code != 0:
            return from_status(parsed)
    if where is None:
        return Internal("the server's reply to an item of the batch is empty")
    return make_result(call, _wire.read_reply(data, *where))


def make_result(
    call: NormalizeCall,
    reply: _wire.Reply,
    elsewhere: Mapping[int, np.ndarray[Any, np.dtype[Any]]] = {},
) -> Result:
    """The result of a reply; `elsewhere` has the outputs that came outside of its bytes."""
    arrays: Dict[int, Any] = {}
    for output in reply.outputs:
        words = elsewhere.get(output.kind)
        if words is None:
            words = _arrays.take_output(reply.data, output.offset, output.dtype, output.shape)
        if output.kind in call.destinations:
            if words is not call.destinations[output.kind]:
                np.copyto(call.destinations[output.kind].view(words.dtype), words)
            arrays[output.kind] = call.returned[output.kind]
        elif output.kind in LIKE_X or output.dtype == call.x.dtype:
            arrays[output.kind] = call.x.restore(words)
        else:
            arrays[output.kind] = call.x.restore_plain(words)
    moments = None if reply.moments is None else Moments.from_proto(reply.moments)
    return Result(call, reply, arrays, moments)
