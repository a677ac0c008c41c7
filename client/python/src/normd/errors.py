"""Errors of this package: one class for each kind of failure, with the field, value and limit that the server named.

    try:
        normd.layer_norm(x, (768,))
    except normd.InvalidArgument as error:
        print(error.field, error.value, error.limit)

Every class derives from `Error` and, where Python has a fitting class, from that one too: `except ValueError` catches
`InvalidArgument`, `except TimeoutError` catches `DeadlineExceeded`.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterable, Optional, Tuple, Type

import grpc
from google.protobuf.message import DecodeError

from normd._proto import error_details_pb2, status_pb2

# The reasons of an Unavailable that no server wrote. Nobody answers at the address, perhaps not yet:
NOT_CONNECTED = "NOT_CONNECTED"
# Somebody does, who speaks another protocol, or has or wants another certificate:
WRONG_PEER = "WRONG_PEER"
# gRPC's words for the first.
_ABSENT = re.compile(r"refused|no such file|timeout|timed out|unreachable|no route", re.IGNORECASE)

DETAILS_KEY = "grpc-status-details-bin"
REQUEST_ID_KEY = "x-request-id"


class Error(Exception):
    """Base of all errors of this package."""

    #: The name of the gRPC status code, for example "INVALID_ARGUMENT".
    code: str = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        value: str = "",
        limit: str = "",
        reason: str = "",
        retry_after: Optional[float] = None,
        request_id: str = "",
        has_details: bool = False,
    ) -> None:
        super().__init__(message)
        #: What was said, in one sentence.
        self.message = message
        #: The path of the request's field that is wrong, for example "spec.layer_norm.eps"; "" if there is none.
        self.field = field
        #: The value of that field, as text.
        self.value = value
        #: What is possible, as text.
        self.limit = limit
        #: The reason as a constant, for example "OUT_OF_RANGE".
        self.reason = reason
        #: Seconds after which the server asks to be called again; None if it does not.
        self.retry_after = retry_after
        #: What the server's logs and traces call the call; "" if no server answered. Quote it when you report an error.
        self.request_id = request_id
        #: True if the server itself wrote the error: it was done with the request then.
        self.has_details = has_details
        #: What gRPC said; "" if the error did not come by gRPC.
        self.grpc_text = ""

    def __str__(self) -> str:
        return self.message


class InvalidArgument(Error, ValueError):
    """The request is wrong, and will be wrong again: `field`, `value` and `limit` say how."""

    code = "INVALID_ARGUMENT"


class OutOfRange(Error, ValueError):
    """A value is outside of what the object has."""

    code = "OUT_OF_RANGE"


class NotFound(Error, KeyError):
    """There is no such session or region."""

    code = "NOT_FOUND"
    __str__ = Error.__str__  # KeyError would print the quoted message


class AlreadyExists(Error):
    """A session with this id exists."""

    code = "ALREADY_EXISTS"


class FailedPrecondition(Error):
    """The server is not in the state that the call needs, for example it has no CUDA device."""

    code = "FAILED_PRECONDITION"


class Aborted(Error):
    """The session has another version than `expected_version`."""

    code = "ABORTED"


class PermissionDenied(Error, PermissionError):
    """The caller may not do this."""

    code = "PERMISSION_DENIED"


class Unauthenticated(Error, PermissionError):
    """The caller is not known: a token or a certificate is missing or wrong."""

    code = "UNAUTHENTICATED"


class ResourceExhausted(Error):
    """The server has no room. With `retry_after` it may have room later; without, a limit was crossed."""

    code = "RESOURCE_EXHAUSTED"


class Unavailable(Error, ConnectionError):
    """No server answered."""

    code = "UNAVAILABLE"


class DeadlineExceeded(Error, TimeoutError):
    """The answer did not come in time. Whether the call was carried out is not known."""

    code = "DEADLINE_EXCEEDED"


class Cancelled(Error):
    """The call was cancelled."""

    code = "CANCELLED"


class DataLoss(Error):
    """Stored or sent bytes are damaged."""

    code = "DATA_LOSS"


class Unimplemented(Error, NotImplementedError):
    """The server does not have this call: another program, or an older version."""

    code = "UNIMPLEMENTED"


class Internal(Error):
    """A bug of the server or of this package."""

    code = "INTERNAL"


def _subclasses() -> Iterable[Type[Error]]:
    return Error.__subclasses__()


_BY_NUMBER: dict[int, Tuple[str, Type[Error]]] = {
    code.value[0]: (code.name, next((kind for kind in _subclasses() if kind.code == code.name), Error))
    for code in grpc.StatusCode
}


def from_status(status: status_pb2.Status) -> Error:
    """The error that a google.rpc.Status describes."""
    name, kind = _BY_NUMBER.get(status.code, ("UNKNOWN", Error))
    found: dict[str, Any] = {"has_details": bool(status.details)}
    for detail in status.details:
        found.update(_read_detail(detail))
    for key in ("value", "limit"):
        if key in found:
            found[key] = _in_our_words(found[key])
    error = kind(_in_our_words(status.message) or name, **found)
    error.code = name
    return error


# Names of the contract that callers of this package write in lower case and without the prefix.
_ENUM_VALUES = re.compile(
    r"\b(?:DEVICE|PRECISION|EPS_MODE|CAST_ORDER|LAYOUT|RESIDUAL_ROUNDING|K_ROUNDING)_([A-Z0-9_]+)\b"
)


def _in_our_words(text: str) -> str:
    return _ENUM_VALUES.sub(lambda found: found.group(1).lower(), text)


def _read_detail(detail: Any) -> dict[str, Any]:
    bad, info, retry = error_details_pb2.BadRequest(), error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    if detail.Unpack(bad):
        return {"field": bad.field_violations[0].field} if bad.field_violations else {}
    if detail.Unpack(info):
        return {"reason": info.reason, "value": info.metadata.get("value", ""), "limit": info.metadata.get("limit", "")}
    if detail.Unpack(retry):
        return {"retry_after": retry.retry_delay.seconds + retry.retry_delay.nanos * 1e-9}
    return {}


def from_rpc(error: Any, target: str, method: str, explain: Callable[[str], Optional[str]], proxy: str = "") -> Error:
    """The error of a call that gRPC ended: `error` is a grpc.RpcError with code(), details() and trailing metadata.

    explain: says why there is no connection, from gRPC's words; None if it does not know either. proxy: the environment
    variable that names the proxy on the way to the target.
    """
    number, text = error.code().value[0], error.details() or ""
    status, request_id = status_pb2.Status(code=number, message=text), ""
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY:
            try:
                status = status_pb2.Status.FromString(value)
            except DecodeError:
                pass  # the plain message stays
        elif key == REQUEST_ID_KEY:
            request_id = value
    reason = ""
    if not status.details and not request_id:  # normd gives both
        status.message, reason = _in_other_words(error.code(), text, target, method, explain, proxy)
    failure = from_status(status)
    failure.request_id, failure.reason = request_id, failure.reason or reason
    failure.grpc_text = text
    return failure


def _in_other_words(
    code: grpc.StatusCode, text: str, target: str, method: str, explain: Callable[[str], Optional[str]], proxy: str
) -> Tuple[str, str]:
    """The message and the reason of an error that gRPC wrote, or another server."""
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{target} did not answer before the deadline: {text}", ""
    if code == grpc.StatusCode.UNIMPLEMENTED:
        return f"{target} has no {method[1:]}: it is another gRPC server than normd, or an older normd ({text})", ""
    if code == grpc.StatusCode.UNKNOWN:
        return f"{target} failed, which may be another server than normd: {text}", ""
    if code != grpc.StatusCode.UNAVAILABLE:
        return text, ""
    # What gRPC says when HTTP/1.1 answers a connection of HTTP/2.
    if "http1.x server" in text:
        return f"{target} speaks HTTP/1.1: that is normd's admin port, or another program ({text})", WRONG_PEER
    why = explain(text)
    if why is not None:
        return f"{why} ({text})", WRONG_PEER
    if "resol" in text:
        said = f"the name of {target} is not known here, or no name server answers: see how it is written ({text})"
    elif proxy:
        said = (
            f"no answer from {target} by way of the proxy that {proxy} names: put its host into no_proxy to call it directly, or "
            f"see whether the proxy lets the port through ({text})"
        )
    else:
        said = (
            f"no answer from {target}: is normd running there? Start it, or name another server by target= or "
            f"NORMD_SERVER ({text})"
        )
    return said, NOT_CONNECTED if _ABSENT.search(text) else ""
