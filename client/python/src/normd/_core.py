"""What both clients do with a call: retries, limits, results.

The coroutines here wait for nothing but their Transport. With the asyncio transport they are ordinary coroutines; with
the blocking one they never suspend, and `_transport.run` gets their result without an event loop. So there is one text
of every call, and only the calling differs.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from typing import (
    Any,
    Awaitable,
    Callable,
    Container,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
)

import numpy as np
from google.protobuf.message import DecodeError

from normd import _arrays, _chunks, _wire
from normd._proto import normalizer_pb2, status_pb2, tensor_pb2
from normd._target import is_loopback, unix_path
from normd._options import seconds
from normd._request import LIKE_X, MOMENTS, OUTPUTS, NormalizeCall, Target
from normd._results import Result
from normd._retry import CLOSED, RetryBudget, RetryOptions, next_wait
from normd._sharing import SHARED_BYTES, SharedCall, Sharing, is_supported
from normd._templates import Template, Templates
from normd._transport import Transport
from normd.errors import (
    NOT_CONNECTED,
    DataLoss,
    Error,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
    from_status,
)

NORMALIZER = "/normd.v1.Normalizer/"
NORMALIZE = NORMALIZER + "Normalize"
SESSIONS = "/normd.v1.Sessions/"

# ComputeMomentsRequest.want_exact.
WANT_EXACT = _wire.key(7, 0) + b"\x01"

# Requests up to this size are sent without asking for the server's limit: gRPC's own default, few servers set less.
UNASKED_BYTES = 4 << 20

# Larger arrays are normalised some rows at a time, where rows are independent: a piece neither needs a large region nor
# blocks a connection for long.
PIECES_BYTES = 64 << 20
PIECE_BYTES = 16 << 20


class NotGiven(float):
    """A deadline, or what is left of one, that the caller did not choose."""


DEADLINE = NotGiven(30.0)

# Seconds for finding out why there is no connection, though a call's deadline be over.
SHORTEST_DIAGNOSIS, LONGEST_DIAGNOSIS = 0.3, 2.0

T = TypeVar("T")
MakeCall = Callable[[Any, Tuple[Any, ...], Any, Mapping[str, Any]], NormalizeCall]


@dataclasses.dataclass(frozen=True)
class Moments:
    """Count, mean and M2 (the sum of squared deviations) of statistics groups, as float64 arrays.

    Those of several parts of the data are merged by `Session.commit`.

    exact: the exact sums that they are the nearest values of, as bytes for `Session.commit`; None where they were not
    asked for.
    """

    count: np.ndarray[Any, np.dtype[np.float64]]
    mean: np.ndarray[Any, np.dtype[np.float64]]
    m2: np.ndarray[Any, np.dtype[np.float64]]
    exact: Optional[bytes] = None

    def to_proto(self) -> normalizer_pb2.Moments:
        return normalizer_pb2.Moments(
            count=to_tensor(self.count), mean=to_tensor(self.mean), m2=to_tensor(self.m2), exact=self.exact
        )

    @staticmethod
    def from_proto(message: normalizer_pb2.Moments) -> "Moments":
        exact = message.exact if message.HasField("exact") else None
        return Moments(from_tensor(message.count), from_tensor(message.mean), from_tensor(message.m2), exact)


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


class Local(NamedTuple):
    """A way to a server on this host, and the memory shared with it."""

    sharing: Sharing
    transport: Transport


class Core:
    """Calls to one server. Safe from any thread, or for any task of one event loop, as its transport is."""

    def __init__(self, transport: Transport, deadline: float, retry: RetryOptions, shared_memory: str) -> None:
        if shared_memory not in ("auto", "on", "off"):
            raise InvalidArgument(
                f"shared_memory is {shared_memory!r}; auto, on and off are possible",
                field="shared_memory",
                value=str(shared_memory),
                limit="auto, on, off",
            )
        self.transport = transport
        self.shared_memory = shared_memory
        self._lock = threading.Lock()
        self._local: Optional[Local] = None
        self._is_remote = False  # True: the server shares no memory with this process
        self._closed = False
        self._templates = Templates()
        self.deadline = seconds(deadline, "deadline")
        self._has_deadline = not isinstance(deadline, NotGiven)
        self._answered = False  # by the server, at any time
        self.retry = retry
        self.budget = RetryBudget(retry)
        self._describe: Optional[normalizer_pb2.DescribeResponse] = None

    async def call(self, method: str, request: bytes, safe: bool, timeout: Optional[float] = None) -> bytes:
        """The reply's bytes, after retries if `safe`."""
        return await self._retry(lambda left: self.transport.unary(method, request, left), safe, timeout)

    async def _retry(self, send: Callable[[float], Awaitable[T]], safe: bool, timeout: Optional[float]) -> T:
        given = self._has_deadline or (timeout is not None and not isinstance(timeout, NotGiven))
        end = time.monotonic() + (self.deadline if timeout is None else timeout)
        attempt = 1
        while True:
            try:
                reply = await send(end - time.monotonic())
            except Error as error:
                wait = None
                patient = error.reason == NOT_CONNECTED and (given or self._answered)
                if safe:
                    wait = next_wait(self.retry, error, attempt, end - time.monotonic(), random.random(), patient)
                # The budget is for servers that are there.
                if wait is None or not (patient or self.budget.take()):
                    raise await self._diagnosed(error, end - time.monotonic()) from None
                await self.transport.sleep(wait)
                attempt += 1
            else:
                self._answered = True
                self.budget.note_success()
                return reply

    async def _diagnosed(self, error: Error, left: float) -> Error:
        """An error without a server's word, with what is wrong if that can be found out."""
        if isinstance(error, Unavailable) and error.grpc_text and not error.has_details:
            seconds = min(max(left, SHORTEST_DIAGNOSIS), LONGEST_DIAGNOSIS)
            said = await self.transport.run(lambda: self.transport.diagnose(seconds))
            if said is not None:
                error.message = f"{said} ({error.grpc_text})"
                error.args = (error.message,)
        return error

    async def message(
        self, method: str, request: Any, reply: Type[T], safe: bool, timeout: Optional[float] = None
    ) -> T:
        """A call whose messages are small."""
        data = await self.call(method, request.SerializeToString(), safe, timeout)
        parsed: T = self._read(lambda: reply.FromString(data))  # type: ignore[attr-defined]
        return parsed

    def _read(self, read: Callable[[], T]) -> T:
        """What `read` makes of a reply."""
        try:
            return read()
        except (DecodeError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            if isinstance(error, Error):
                raise
            raise DataLoss(
                f"the reply of {self.transport.target} is none of normd's ({type(error).__name__}: {error}): another "
                "program answers there, or the reply is damaged",
                reason="BAD_REPLY",
            ) from None

    async def describe(self, timeout: Optional[float] = None) -> normalizer_pb2.DescribeResponse:
        found = await self.message(
            NORMALIZER + "Describe", normalizer_pb2.DescribeRequest(), normalizer_pb2.DescribeResponse, True, timeout
        )
        self._describe = found
        return found

    async def limits(self, timeout: Optional[float]) -> normalizer_pb2.Limits:
        """Asked for once."""
        return (self._describe or await self.describe(timeout)).limits

    async def operate(
        self, make: MakeCall, x: Any, parameters: Tuple[Any, ...], attributes: Any, options: Mapping[str, Any]
    ) -> Any:
        """y of an operator: make(x, parameters, attributes, options) is its call."""
        out = options.get("out")
        is_plain = not options or (len(options) == 1 and Templates.is_like(out, x))
        key = Templates.key(make, x, parameters, attributes) if is_plain else None
        template = None if key is None else self._templates.get(key)
        if template is not None and self._is_sent(x.nbytes):
            data = await self.call(NORMALIZE, template.encode(x, parameters), True)
            y = template.decode(data, out)
            if y is not None:
                return y
        call = make(x, parameters, attributes, options)
        result = await self.normalize(call)
        if key is not None and self._is_sent(x.nbytes):
            if template is None:
                template = Template(call, x, parameters)
                self._templates.add(key, template)
            template.learn(result.reply)
        return result.y

    def _is_sent(self, size: int) -> bool:
        """True if a tensor of this size goes in one message, whatever the server's limits are."""
        return size < SHARED_BYTES or (size < UNASKED_BYTES // 2 and (self._is_remote or self.shared_memory == "off"))

    async def normalize(self, call: NormalizeCall) -> Result:
        """The call by the way that suits its size and the server: see _sharing.py and _chunks.py."""
        end = None if call.timeout is None else time.monotonic() + call.timeout
        if call.x.size > PIECES_BYTES and _chunks.can_be_cut(call) and not self._is_in_shared_memory(call):
            return await self._normalize_in_pieces(call, PIECE_BYTES, end)
        return await self._normalize_whole(call, end)

    def _is_in_shared_memory(self, call: NormalizeCall) -> bool:
        return self._local is not None and self._local.sharing.has(call.x)

    async def _normalize_in_pieces(self, call: NormalizeCall, piece_bytes: int, end: Optional[float]) -> Result:
        """Some rows at a time: by `end`, or without it by a deadline for each piece."""
        _chunks.prepare_destinations(call)
        total = call.x.shape[0]
        rows = _chunks.rows_per_piece(call, piece_bytes)
        for start in range(0, total, rows):
            result = await self._normalize_whole(_chunks.cut(call, start, min(start + rows, total)), end)
            if call.progress is not None:
                call.progress(min(start + rows, total), total)
        return Result(result.reply, dict(call.returned), None)

    async def _normalize_whole(self, call: NormalizeCall, given_end: Optional[float]) -> Result:
        end = NotGiven(time.monotonic() + self.deadline) if given_end is None else given_end
        if call.x.size >= SHARED_BYTES:
            result = await self._normalize_shared(call, end)
            if result is not None:
                return result
        size = _chunks.message_bytes(call)
        if size > UNASKED_BYTES:
            limits = await self.limits(_left(end))
            if size > limits.max_message_bytes > 0:
                if _chunks.can_be_cut(call) and call.x.shape[0] > 1:
                    return await self._normalize_in_pieces(call, min(PIECE_BYTES, limits.max_message_bytes), given_end)
                return await self._normalize_in_chunks(call, limits, end)
        request = _wire.join(call.encode())
        data = await self.call(NORMALIZE, request, call.safe, _left(end))
        return self._read(lambda: make_result(call, _wire.read_reply(data)))

    async def _normalize_in_chunks(self, call: NormalizeCall, limits: normalizer_pb2.Limits, end: float) -> Result:
        """One call on a stream of its own."""
        size = _chunks.chunk_bytes(limits)

        async def attempt(timeout: float) -> Result:
            joiner = _chunks.Joiner(call)
            requests = _chunks.messages(call, size)
            replies = self.transport.stream(NORMALIZER + "NormalizeStream", requests, timeout)
            try:
                async for message in replies:
                    self._read(lambda: joiner.take(message))
            finally:
                await replies.aclose()  # now, not when the collector finds it
            if not joiner.complete or joiner.reply is None:
                raise DataLoss("reply in chunks: the stream ended before the last one")
            reply = joiner.reply
            return self._read(lambda: make_result(call, reply, joiner.outputs, LIKE_X))

        return await self._retry(attempt, call.safe, _left(end))

    async def _normalize_shared(self, call: NormalizeCall, end: float) -> Optional[Result]:
        """The call with its tensors in shared memory; None if they are to be sent."""
        local = await self.local(_left(end))
        if local is None:
            return None
        shared = await self.transport.run(lambda: local.sharing.begin(call))
        if shared is None:
            return None
        request = _wire.join(call.encode(shared.place))
        try:
            data = await local.transport.unary(NORMALIZE, request, _left(end))
        except BaseException as error:
            shared.note(error)
            if not isinstance(error, Error) or not self._may_be_sent(call, shared, local, error):
                raise
            return None
        finally:
            local.sharing.end(shared)
        self.budget.note_success()
        return self._read(lambda: make_result(call, _wire.read_reply(data), shared.outputs, shared.kept))

    def _may_be_sent(self, call: NormalizeCall, shared: SharedCall, local: Local, error: Error) -> bool:
        """After a failure: whether the tensors may be sent instead. x may be gone where y replaces it."""
        if shared.is_to_be_sent(error):
            return True
        if isinstance(error, Unavailable) and local.transport is not self.transport:
            self._forget(local)
        has_room_later = isinstance(error, ResourceExhausted) and error.retry_after is not None
        return (isinstance(error, Unavailable) or has_room_later) and call.safe and not shared.in_place

    async def local(self, timeout: Optional[float] = None) -> Optional[Local]:
        """The way to the server that shares memory; None if it is on another host, or does not share."""
        if self._closed:
            raise Unavailable(f"the client of {self.transport.target} is closed", reason=CLOSED)
        if self.shared_memory == "off" or self._is_remote or not is_supported():
            return None
        if self._local is None:
            found = await self._find_local(NotGiven(self.deadline) if timeout is None else timeout)
            with self._lock:
                if self._local is None:
                    self._local = found
                elif found is not None and found.transport is not self.transport:
                    found.transport.close_soon()
        return self._local

    async def _find_local(self, timeout: float) -> Optional[Local]:
        target = self.transport.target
        path = unix_path(target)
        if path:
            return Local(Sharing(path), self.transport)
        # Over TLS the server has proved its name and knows the caller; a socket proves nothing, and makes another caller
        # of this one.
        if is_loopback(target) and not self.transport.is_secure:
            # A server that is reached over TCP says where its Unix socket is. The same process must answer there.
            described = await self.describe(timeout)
            if described.unix_socket and described.server_uid:
                transport = self.transport.sibling(f"unix:{described.unix_socket}")
                if await self._has_uid(transport, described.server_uid, timeout):
                    return Local(Sharing(described.unix_socket), transport)
                transport.close_soon()
        self._is_remote = True
        return None

    async def _has_uid(self, transport: Transport, uid: str, timeout: float) -> bool:
        try:
            reply = await transport.unary(NORMALIZER + "Describe", b"", timeout)
        except Error:
            return False
        return self._read(lambda: normalizer_pb2.DescribeResponse.FromString(reply)).server_uid == uid

    def _forget(self, local: Local) -> None:
        with self._lock:
            if self._local is local:
                self._local = None
        local.sharing.close()
        local.transport.close_soon()

    async def empty(self, shape: Tuple[int, ...], dtype: int) -> np.ndarray[Any, np.dtype[Any]]:
        """Words in shared memory; ordinary ones where there is none, unless it must be."""
        words = _arrays.WORDS[dtype]
        local = await self.local()
        if local is not None:
            try:
                return await self.transport.run(lambda: local.sharing.empty(shape, words))
            except Error:
                if self.shared_memory == "on":
                    raise
        elif self.shared_memory == "on":
            raise FailedPrecondition(
                f"shared memory: {self.transport.target} is not a server on this host that shares memory",
                field="shared_memory",
                value="on",
                limit="a server of this host, with a Unix socket",
            )
        return np.empty(shape, words)

    def close(self) -> None:
        """Gives up the regions. Arrays in them stay as they are."""
        self._closed = True
        local = self._local
        if local is not None:
            self._forget(local)

    def separate(self) -> None:
        """In a forked child: see Sharing.separate."""
        self._lock = threading.Lock()
        self.budget = RetryBudget(self.retry)
        local, self._local = self._local, None
        if local is not None:
            local.sharing.separate()
            self._inherited = local  # gRPC's objects of the parent are neither used nor destroyed here

    async def batch(self, calls: Sequence[NormalizeCall], timeout: Optional[float]) -> List[Any]:
        """A Result or an Error for each call."""
        if timeout is not None:
            timeout = seconds(timeout, "timeout")
        items = [_wire.wrap(1, _wire.concatenate(call.encode())) for call in calls]
        safe = all(call.safe for call in calls)
        data = await self.call(NORMALIZER + "BatchNormalize", _wire.join(items), safe, timeout)
        answers = self._read(lambda: _wire.read_batch(data))
        if len(answers) != len(calls):
            raise Internal(f"the server answered {len(answers)} of {len(calls)} items")
        found = zip(calls, answers)
        return [self._read(lambda: _batch_item(call, data, *answer)) for call, answer in found]

    async def moments(self, target: Target, x: Any, mask: Any, exact: bool, timeout: Optional[float]) -> Moments:
        if timeout is not None:
            timeout = seconds(timeout, "timeout")
        operand = _arrays.operand(x, "x")
        _arrays.check_rank(operand, "x")
        pieces = [_wire.piece(target.encode(operand.dtype))]
        if mask is not None:
            pieces.append(_wire.wrap(6, _arrays.mask_operand(mask).inline()))
        if exact:
            pieces.append(_wire.piece(WANT_EXACT))
        pieces.append(_wire.wrap(15, operand.inline()))
        data = await self.call(NORMALIZER + "ComputeMoments", _wire.join(pieces), True, timeout)
        return self._read(lambda: Moments.from_proto(normalizer_pb2.ComputeMomentsResponse.FromString(data).moments))


def _left(end: float) -> float:
    """Seconds until then."""
    return type(end)(max(end - time.monotonic(), 0.0))


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
    kept: Container[int] = (),
) -> Result:
    """The result of a reply.

    `elsewhere` has the outputs that came outside of its bytes. Those in `kept` are the caller's from now on, the others
    are copied.
    """
    arrays: Dict[int, Any] = {}
    for output in reply.outputs:
        words = elsewhere.get(output.kind)
        if words is None:
            words = _arrays.take_output(reply.data, output.offset, output.dtype, output.shape)
        elif output.kind not in call.destinations and output.kind not in kept:
            words = words.copy()
        if output.kind in call.destinations:
            if words is not call.destinations[output.kind]:
                np.copyto(call.destinations[output.kind], words)
            arrays[output.kind] = call.returned[output.kind]
        elif output.kind in LIKE_X or output.dtype == call.x.dtype:
            arrays[output.kind] = call.x.restore(words)
        else:
            arrays[output.kind] = call.x.restore_plain(words)
    if not call.validate_only:
        _check_outputs(call, reply)
    moments = None if reply.moments is None else Moments.from_proto(reply.moments)
    return Result(reply, arrays, moments)


def _check_outputs(call: NormalizeCall, reply: _wire.Reply) -> None:
    """ValueError unless the reply has what was asked for."""
    shapes = {output.kind: (output.dtype, output.shape) for output in reply.outputs}
    for kind in call.outputs:
        if kind != MOMENTS and kind not in shapes or kind == MOMENTS and reply.moments is None:
            raise ValueError(f"it has no {next(name for name, number in OUTPUTS.items() if number == kind)}")
        if kind in LIKE_X and shapes[kind] != (call.x.dtype, call.x.shape):
            raise ValueError("its array is not as x is")
