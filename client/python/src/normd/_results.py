"""What calls return: Result, and the messages in it as plain dataclasses."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, Optional

from normd import _wire
from normd._proto import normalizer_pb2
from normd._request import OUTPUTS, H, Y

if TYPE_CHECKING:
    from normd._core import Moments


@dataclasses.dataclass(frozen=True)
class Applied:
    """How a call was computed: the attributes that were used, with defaults resolved."""

    method: str
    eps: float
    eps_mode: str
    cast_order: str
    mode: str
    precision: str
    rounding: str
    device: str
    kernel: str
    numerics: str
    session_version: int
    k: int
    layout: str
    momentum_of: str
    momentum: float
    variance: str
    residual_rounding: str
    weight_offset: float
    k_rounding: str
    device_fallback: bool


@dataclasses.dataclass(frozen=True)
class StateResult:
    """What a call did to a session.

    applied is False, and the state unchanged, for reason "non_finite" (the batch's statistics hold NaN or Inf),
    "inference" and "validate_only". replayed: this step was applied before, and nothing was applied now.
    """

    version: int
    epoch: str
    applied: bool
    reason: str
    replayed: bool
    durability: str
    num_batches: int
    output_available: bool


def to_dataclass(kind: Any, message: Any) -> Any:
    """A message as the dataclass of the same fields; enums become the lower-case end of their names."""
    values: Dict[str, Any] = {}
    fields = message.DESCRIPTOR.fields_by_name
    for field in dataclasses.fields(kind):
        value = getattr(message, field.name)
        enum = fields[field.name].enum_type
        values[field.name] = value if enum is None else enum_name(enum, value)
    return kind(**values)


def enum_name(enum: Any, number: int) -> str:
    """ "inside_sqrt" for EPS_MODE_INSIDE_SQRT: the name without the prefix that all of the enum's names have."""
    prefix = enum.values_by_number[0].name[: -len("UNSPECIFIED")]
    value = enum.values_by_number.get(number)
    return str(number) if value is None else value.name[len(prefix) :].lower()


class Result:
    """What a call returned; an output that was not asked for is None.

    y, h: as x. mean, inv_std: one number for each statistics group, float32 (float64 for float64). moments: a
    `normd.Moments`. applied: how it was computed. state: what became of the session, None without one.
    """

    def __init__(self, reply: _wire.Reply, arrays: Dict[int, Any], moments: Optional[Moments]) -> None:
        self.reply, self._arrays = reply, arrays
        self.moments = moments

    @property
    def y(self) -> Any:
        """The normalised array: `out` where it was given."""
        return self._arrays.get(Y)

    @property
    def h(self) -> Any:
        """x + residual_scale * residual."""
        return self._arrays.get(H)

    @property
    def mean(self) -> Any:
        return self._arrays.get(OUTPUTS["mean"])

    @property
    def inv_std(self) -> Any:
        """1 / D, the reciprocal of the divisor."""
        return self._arrays.get(OUTPUTS["inv_std"])

    @property
    def applied(self) -> Applied:
        applied: Applied = to_dataclass(Applied, self.reply.read_applied())
        return applied

    @property
    def state(self) -> Optional[StateResult]:
        state = self.reply.read_state()
        return None if state is None else to_dataclass(StateResult, state)

    @property
    def timings(self) -> normalizer_pb2.Timings:
        """Nanoseconds on the server by phase; zeros unless want_timings was given."""
        return self.reply.read_timings()

    def __repr__(self) -> str:
        applied = self.applied
        return f"<normd.Result of {applied.method} by {applied.kernel}>"
