"""The keywords of calls, and the identity of a training step."""

from __future__ import annotations

import dataclasses
import inspect
import numbers
from typing import Any, Optional, Sequence, TypedDict, Union

from normd.errors import InvalidArgument

LONGEST = 1e9  # seconds: 31 years; gRPC's clock overflows later


def seconds(value: Any, field: str) -> float:
    """A deadline or timeout of the caller's, checked."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 < value <= LONGEST:  # False for NaN, too
        raise InvalidArgument(
            f"{field} is {value!r}; it must be a number of seconds above 0 and at most {LONGEST:.0e}",
            field=field,
            value=str(value),
            limit=f"above 0, at most {LONGEST:.0e}",
        )
    return float(value)


@dataclasses.dataclass(frozen=True)
class Step:
    """The identity of a training step: it is applied once, however often it is sent. `sequence` rises."""

    client_id: str
    sequence: int


class CallOptions(TypedDict, total=False):
    """Keywords of every call.

    out: an array of x's dtype and shape that y is written into; it is also what is returned. x itself: in place.
    residual: an array r of x's shape; h = x + residual_scale * r is normalised instead of x (a post-norm block).
    residual_scale: 1 if absent.
    residual_rounding: "round_first" (default; h is rounded to x's dtype first) or "keep_wide".
    residual_out: an array that h is written into, which may be `residual` itself (a pre-norm block keeps its stream
        there).
    mask: BatchNorm and PowerNorm: booleans or bytes, in the shape of x without the channel axis; where they are False,
        positions are left out of the statistics, but are normalised, too.
    precision: "exact" (default: the nearest values, so equal bits everywhere) or "fast".
    device: "auto" (default), "cpu" or "cuda".
    timeout: seconds for this call and its retries, and for all pieces together of an array that goes in pieces; the
        client's deadline, which holds without it, is one for each piece.
    """

    out: Any
    residual: Any
    residual_scale: float
    residual_rounding: str
    residual_out: Any
    mask: Any
    precision: str
    device: str
    timeout: float


class ResultOptions(CallOptions, total=False):
    """Keywords of calls that return a Result.

    outputs: of "y", "h", "mean", "inv_std", "moments"; ("y",) if absent.
    validate_only: checks everything, computes nothing.
    want_timings: fills Result.timings.
    """

    outputs: Union[str, Sequence[str]]
    validate_only: bool
    want_timings: bool


class SpecOptions(ResultOptions, total=False):
    """Keywords of `Client.normalize`.

    running_mean, running_var: [C], for BatchNorm inference; phi as running_var for PowerNorm inference.
    training: BatchNorm and PowerNorm: the statistics of x are used.
    """

    running_mean: Any
    running_var: Any
    training: bool


class SessionOptions(ResultOptions, total=False):
    """Keywords of `Session.normalize`.

    step: an id of the caller's for this training step; by default the session's object numbers its steps.
    expected_version: Aborted if the session has another version.
    max_staleness: seconds; inference may use a version that is up to so old.
    """

    step: Optional[Step]
    expected_version: Optional[int]
    max_staleness: Optional[float]


def add_keywords(function: Any) -> None:
    """Lists the keywords of every operator in the help of one."""
    lists = [inspect.cleandoc(one.__doc__ or "").partition("\n\n")[2] for one in (CallOptions, Options)]
    text = inspect.cleandoc(function.__doc__)
    function.__doc__ = "\n".join([text, "", "Keywords of every operator:", "", *lists])


class Options(CallOptions, total=False):
    """Keywords of every operator: those of a call, and the attributes that torch.nn.functional does not have.

    eps_mode: "inside_sqrt", "add_to_root" or "clamp_root": where eps enters the divisor.
    cast_order: "affine_then_cast" (default) or "cast_then_affine" (LLaMA, ONNX), for float16 and bfloat16.
    weight_offset: 1 adds one to the weight (Gemma).
    client: of the functions of the package, which are no methods: the client that is called, not the default one.
    """

    client: Any
    eps_mode: Optional[str]
    cast_order: Optional[str]
    weight_offset: float
