"""One call of Normalize: what the caller asked for, its encoding, and its results.

In the path: between the arrays of the caller and the bytes of the wire, for both clients. No gRPC.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Container, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from normd import _arrays, _wire
from normd._arrays import Operand
from normd._options import Step, seconds
from normd._proto import normalizer_pb2
from normd.errors import InvalidArgument
from normd.specs import RMSNorm, Spec, encode, enum_number, flag, number, rms_norm_eps

# {"y": 1, "h": 2, ...}
OUTPUTS = {
    name[len("OUTPUT_KIND_") :].lower(): number for name, number in normalizer_pb2.OutputKind.items() if number
}
Y, H, MOMENTS = OUTPUTS["y"], OUTPUTS["h"], OUTPUTS["moments"]
LIKE_X = (Y, H)  # outputs with the dtype and shape of x


SPEC_OPTIONS = ("eps_mode", "cast_order", "weight_offset")


def check_keywords(function: str, options: Mapping[str, Any], known: Container[str]) -> None:
    """Raises what Python raises for a keyword that a function does not have."""
    for name in options:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def split_options(options: Mapping[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The attributes of the spec, and the options of the call."""
    of_spec = {name: options[name] for name in SPEC_OPTIONS if name in options}
    return of_spec, {name: value for name, value in options.items() if name not in SPEC_OPTIONS}


@functools.lru_cache(maxsize=256)
def _tail(precision: str, device: str, validate_only: bool, want_timings: bool) -> bytes:
    message = normalizer_pb2.NormalizeRequest(validate_only=validate_only, want_timings=want_timings)
    if precision:
        message.precision = enum_number(normalizer_pb2.Precision, "PRECISION", precision, "precision")  # type: ignore
    if device:
        message.device = enum_number(normalizer_pb2.Device, "DEVICE", device, "device")  # type: ignore
    return message.SerializeToString()


@functools.lru_cache(maxsize=64)
def _residual_tail(scale: float, rounding: str) -> bytes:
    message = normalizer_pb2.Residual()
    if scale != 1:
        message.scale = scale
    if rounding:
        message.rounding = enum_number(  # type: ignore[assignment]
            normalizer_pb2.ResidualRounding, "RESIDUAL_ROUNDING", rounding, "residual_rounding"
        )
    return message.SerializeToString()


@dataclasses.dataclass
class Target:
    """What to compute: a spec, or a session's name."""

    spec: Optional[Spec] = None
    session: str = ""

    def encode(self, dtype: int) -> bytes:
        if self.session:
            name = self.session.encode()
            return b"\x12" + _wire.varint(len(name)) + name
        assert self.spec is not None
        return _spec_field(resolve_eps(self.spec, dtype))


def resolve_eps(spec: Spec, dtype: int) -> Spec:
    """The spec with RMSNorm's eps of None replaced by what torch takes for it."""
    if isinstance(spec, RMSNorm) and spec.eps is None:
        return dataclasses.replace(spec, eps=rms_norm_eps(_arrays.DTYPE_NAMES[dtype]))
    return spec


@functools.lru_cache(maxsize=1024)
def _spec_field(spec: Spec) -> bytes:
    content = encode(spec)
    return b"\x0a" + _wire.varint(len(content)) + content


@dataclasses.dataclass
class Place:
    """Where the large tensors of one attempt lie: each in shared memory, in chunks, or (absent) in the message."""

    x: Optional[_wire.SharedRange] = None
    residual: Optional[_wire.SharedRange] = None
    outputs: Dict[int, _wire.SharedRange] = dataclasses.field(default_factory=dict)
    chunked: bool = False


INLINE = Place()


@dataclasses.dataclass
class NormalizeCall:
    """One call with its arrays."""

    target: Target
    x: Operand
    training: bool = False
    parameters: Tuple[Optional[Operand], ...] = ()  # weight, bias, running_mean, running_var
    residual: Optional[Operand] = None
    residual_scale: float = 1.0
    residual_rounding: str = ""
    mask: Optional[Operand] = None
    outputs: Tuple[int, ...] = (Y,)
    precision: str = ""
    device: str = ""
    step: Optional[Step] = None
    expected_version: Optional[int] = None
    max_staleness: Optional[float] = None
    validate_only: bool = False
    want_timings: bool = False
    timeout: Optional[float] = None
    # Called with the rows that are done and their number, where a call is made in pieces.
    progress: Optional[Callable[[int, int], None]] = None
    # The caller's arrays that outputs are written into, and what the caller gets for them.
    destinations: Dict[int, np.ndarray[Any, np.dtype[Any]]] = dataclasses.field(default_factory=dict)
    returned: Dict[int, Any] = dataclasses.field(default_factory=dict)

    @property
    def safe(self) -> bool:
        """True if sending it twice changes nothing more than sending it once."""
        return not (self.training and self.target.session and self.step is None and not self.validate_only)

    def encode(self, place: Place = INLINE) -> List[_wire.Piece]:
        """The fields of the NormalizeRequest, in their order."""
        head = self.target.encode(self.x.dtype)
        pieces = [_wire.piece(head + b"\x18\x02" if self.training else head)]
        if self.parameters:
            pieces.append(self._encode_parameters())
        if self.residual is not None:
            pieces.append(self._encode_residual(self.residual, place))
        if self.mask is not None:
            pieces.append(_wire.wrap(6, self.mask.inline()))
        pieces.append(_wire.piece(*self._encode_outputs(place), self._encode_tail()))
        pieces.append(_wire.wrap(15, _tensor(self.x, place.x, place.chunked)))
        return pieces

    def _encode_parameters(self) -> _wire.Piece:
        given = [
            _wire.wrap(field, one.inline()) for field, one in enumerate(self.parameters, 1) if one is not None
        ]
        return _wire.wrap(4, _wire.concatenate(given)) if given else _wire.piece()

    def _encode_residual(self, residual: Operand, place: Place) -> _wire.Piece:
        tensor = _wire.wrap(1, _tensor(residual, place.residual, place.chunked))
        tail = _wire.piece(_residual_tail(self.residual_scale, self.residual_rounding))
        return _wire.wrap(5, _wire.concatenate([tensor, tail]))

    def _encode_outputs(self, place: Place) -> List[bytes]:
        if self.outputs == (Y,) and not place.outputs:
            return []  # y alone is what the server sends unasked
        requests = [_wire.output_request(kind, place.outputs.get(kind)) for kind in self.outputs]
        return [part for one in requests for part in _wire.wrap(7, one).parts]  # type: ignore[misc]

    def _encode_tail(self) -> bytes:
        tail = _tail(self.precision, self.device, self.validate_only, self.want_timings)
        if self.step is None and self.expected_version is None and self.max_staleness is None:
            return tail
        message = normalizer_pb2.NormalizeRequest.FromString(tail)
        if self.step is not None:
            message.step.client_id, message.step.sequence = self.step.client_id, self.step.sequence
        if self.expected_version is not None:
            message.expected_version = self.expected_version
        if self.max_staleness is not None:
            message.max_staleness.FromNanoseconds(round(self.max_staleness * 1e9))
        return message.SerializeToString()


def _tensor(tensor: Operand, where: Optional[_wire.SharedRange], chunked: bool) -> _wire.Piece:
    if where is not None:
        return _wire.shared_tensor(tensor.dtype, tensor.shape, where)
    if chunked:
        return _wire.chunked_tensor(tensor.dtype, tensor.shape, tensor.size)
    return tensor.inline()


def make_call(
    target: Target,
    x: Any,
    parameters: Sequence[Any] = (),
    *,
    training: bool = False,
    outputs: Union[str, Sequence[str]] = ("y",),
    out: Any = None,
    residual: Any = None,
    residual_scale: float = 1.0,
    residual_rounding: str = "",
    residual_out: Any = None,
    mask: Any = None,
    precision: str = "",
    device: str = "",
    timeout: Optional[float] = None,
    **rest: Any,
) -> NormalizeCall:
    """Checks what needs no server, and takes the arrays."""
    operand = _arrays.operand(x, "x")
    _arrays.check_rank(operand, "x")
    if timeout is not None:
        timeout = seconds(timeout, "timeout")
    training = flag(training, "training")
    device = getattr(device, "type", device)  # a torch.device
    call = NormalizeCall(target, operand, training, timeout=timeout, precision=precision, device=device, **rest)
    names = ("weight", "bias", "running_mean", "running_var")
    if any(one is not None for one in parameters):
        call.parameters = tuple(_arrays.parameter(one, name) for one, name in zip(parameters, names))
    if residual is not None:
        call.residual = _arrays.operand(residual, "residual")
        call.residual_scale, call.residual_rounding = number(residual_scale, "residual_scale"), residual_rounding
    if mask is not None:
        call.mask = _arrays.mask_operand(mask)
    _choose_outputs(call, (outputs,) if isinstance(outputs, str) else outputs, out, residual_out)
    return call


def _choose_outputs(call: NormalizeCall, outputs: Sequence[str], out: Any, residual_out: Any) -> None:
    unknown = [name for name in outputs if name not in OUTPUTS]
    if unknown or not outputs:
        raise InvalidArgument(
            f"outputs has {unknown[0]!r}; {', '.join(OUTPUTS)} are possible" if unknown else "outputs is empty",
            field="outputs",
            value=str(unknown[0]) if unknown else "",
            limit=", ".join(OUTPUTS),
        )
    if out is not None and out is residual_out:
        raise InvalidArgument(
            "out and residual_out are one array", field="residual_out", value="out", limit="another array"
        )
    kinds = [OUTPUTS[name] for name in outputs]
    if residual_out is not None and call.residual is None:
        raise InvalidArgument("residual_out needs a residual", field="residual_out", limit="with residual alone")
    for kind, array, name in ((Y, out, "out"), (H, residual_out, "residual_out")):
        if array is None:
            continue
        call.destinations[kind] = _arrays.output_words(array, call.x, name)
        call.returned[kind] = array
        if kind not in kinds:
            kinds.append(kind)
    call.outputs = tuple(kinds)
