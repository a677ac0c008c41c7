"""Why there is no connection, found out by asking the server's address once more without gRPC.

gRPC's words differ from version to version and seldom tell who is wrong: a server that resets a connection may speak
TLS, or none, may be full, or may be another program. Called when a call fails for good, in at most a few seconds. A
server behind a proxy is not asked.
"""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Callable, Optional, Union

from normd._channel import proxy_variable
from normd._target import address_of, unix_path

# How a client of HTTP/2 begins: the preface and an empty SETTINGS frame.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
_FRAME_HEAD = 9
_SETTINGS, _GOAWAY = 4, 7
_TLS_ALERT = b"\x15\x03"
_GOAWAY_SECONDS = 0.2  # in which a server that has begun to speak says that it will not serve
_SHOWN = 40  # bytes of what another program said

_FULL = (
    "closes new connections without a word: it may have as many as its max_connections or max_connections_per_peer "
    "allow (close other clients, or share one), or be another program"
)
_NO_TLS = "speaks no TLS and was called by it: leave tls, ca and the like out"

Heard = Union[bytes, OSError]


def diagnose(
    target: str, is_secure: bool, make_context: Callable[[], Optional[ssl.SSLContext]], name: str, timeout: float
) -> Optional[str]:
    """One sentence on the server at `target`; None if there is nothing to say beyond what gRPC says.

    make_context: how TLS is spoken, None where that is not known. name: the one in the server's certificate.
    """
    if proxy_variable(target) or not (unix_path(target) or address_of(target)):
        return None
    try:
        said = _of_tls(target, make_context(), name, timeout) if is_secure else _of_plain_text(target, timeout)
    except OSError:
        return None  # nobody is there: gRPC's own words tell
    return said and f"{target} {said}"


def _connect(target: str, timeout: float) -> socket.socket:
    address = address_of(target)
    if address is not None:
        return socket.create_connection(address, timeout)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(timeout)
    try:
        made.connect(unix_path(target))
    except OSError:
        made.close()
        raise
    return made


def _hear(connection: socket.socket) -> Heard:
    """What the other side says to a client of HTTP/2: b"" if it closes, an OSError if it resets or is silent."""
    heard = b""
    try:
        connection.sendall(_PREFACE)
        while len(heard) < 4096 and _goaway(heard) is None:
            part = connection.recv(4096)
            if not part:
                break
            heard += part
            connection.settimeout(_GOAWAY_SECONDS)
            if not heard.startswith(b"\0") or heard[3:4] != bytes((_SETTINGS,)):
                break
    except OSError as error:
        return heard or error
    return heard


def _goaway(heard: bytes) -> Optional[str]:
    """The reason in a GOAWAY frame; None if there is none."""
    at = 0
    while at + _FRAME_HEAD <= len(heard):
        size = int.from_bytes(heard[at : at + 3], "big")
        content = heard[at + _FRAME_HEAD : at + _FRAME_HEAD + size]
        if heard[at + 3] == _GOAWAY and len(content) == size >= 8:
            code = struct.unpack(">I", content[4:8])[0]
            return content[8:].decode(errors="replace") or f"HTTP/2 error {code}"
        at += _FRAME_HEAD + size
    return None


def _is_http2(heard: Heard) -> bool:
    return isinstance(heard, bytes) and heard[3:4] == bytes((_SETTINGS,))


def _of_plain_text(target: str, timeout: float) -> Optional[str]:
    with _connect(target, min(timeout, 1)) as connection:
        heard = _hear(connection)
    if _is_http2(heard) and isinstance(heard, bytes):
        reason = _goaway(heard)
        return reason and f"ended the connection: {reason}"
    if isinstance(heard, TimeoutError) or isinstance(heard, socket.timeout):
        return "takes connections but says nothing: it hangs, or is another program"
    if isinstance(heard, OSError) or not heard or heard.startswith(_TLS_ALERT):
        if _takes_tls(target, timeout):
            return "speaks TLS and was called in plain text: give tls=True, or ca= with its root certificate"
        return _FULL
    if heard.startswith(b"HTTP/1."):
        return "speaks HTTP/1.1: that is normd's admin port, or another program; call the port of gRPC, 8001 by default"
    return f"is another program than normd, which speaks no HTTP/2: it said {heard[:_SHOWN]!r}"


def _takes_tls(target: str, timeout: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with _connect(target, min(timeout, 1)) as connection, context.wrap_socket(connection):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _of_tls(target: str, context: Optional[ssl.SSLContext], name: str, timeout: float) -> Optional[str]:
    heard: Heard = OSError()
    refusal: Optional[ssl.SSLError] = None
    if context is not None:
        context.set_alpn_protocols(["h2"])
        try:
            with _connect(target, min(timeout, 1)) as raw, context.wrap_socket(raw, server_hostname=name) as connection:
                heard = _hear(connection)
                if _is_http2(heard) and isinstance(heard, bytes):
                    reason = _goaway(heard)
                    return reason and f"ended the connection: {reason}"
            refusal = heard if isinstance(heard, ssl.SSLError) else None
            return _of_client_certificate(refusal)
        except ssl.SSLCertVerificationError as error:
            return _of_certificate(error)
        except ssl.SSLError as error:
            refusal = error
        except (ConnectionError, socket.timeout):
            pass
    plain = _of_silence(target, timeout)
    if plain is not None or refusal is None:
        return plain
    return f"and this client agree on no TLS ({refusal.reason or refusal})"


def _of_silence(target: str, timeout: float) -> Optional[str]:
    """After a handshake that failed: whether it is because the server speaks no TLS."""
    with _connect(target, min(timeout, 1)) as connection:
        heard = _hear(connection)
    if isinstance(heard, bytes) and heard and not heard.startswith(_TLS_ALERT):
        return _NO_TLS if _is_http2(heard) else f"{_NO_TLS}; it is normd's admin port, or another program"
    return _FULL if heard == b"" or isinstance(heard, ConnectionError) else None


def _of_certificate(error: ssl.SSLCertVerificationError) -> str:
    said = error.verify_message
    if "mismatch" in said:
        return "has a certificate for other names: call it by one of them, or give server_name"
    if "expired" in said:
        return "has a certificate that has expired"
    if "not yet valid" in said:
        return "has a certificate that is not yet valid: compare the clocks"
    return f"has a certificate that does not come from the root certificates of ca ({said})"


def _of_client_certificate(error: Optional[ssl.SSLError]) -> str:
    said = "" if error is None else f" ({error.reason})"
    return (
        "closed the connection after the handshake: it may ask for a client certificate (certificate= and key=), or "
        f"refuse the one that is given{said}"
    )
