"""Which server a target names.

What gRPC would take for something else is refused with what to write instead: gRPC calls port 443 where none is given,
and looks a URL or a path up as a host's name.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
from typing import NoReturn, Optional, Tuple

from normd.errors import InvalidArgument

DEFAULT_PORT = 8001
DEFAULT_TARGET = f"127.0.0.1:{DEFAULT_PORT}"
FORMS = "host:port, unix:/path or /path"

_GRPC_SCHEMES = ("ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds", "google-c2p")  # which gRPC takes as they are


def resolve_target(target: Optional[str], by_tcp: bool) -> str:
    """`target`, else $NORMD_SERVER, else this user's local socket if a server answers there, else 127.0.0.1:8001.

    by_tcp: no socket is looked for.
    """
    if isinstance(target, os.PathLike):
        return f"unix:{os.path.abspath(target)}"
    if target is not None and not isinstance(target, str):
        _refuse("target", target, "it must be a string")
    for source, text in (("target", target or ""), ("NORMD_SERVER", os.environ.get("NORMD_SERVER", ""))):
        if text.strip():
            return parse(text.strip(), source)
    if by_tcp or not hasattr(os, "getuid"):  # without it this is no Unix
        return DEFAULT_TARGET
    path = local_socket()
    return f"unix:{path}" if answers(path) else DEFAULT_TARGET


def _refuse(source: str, value: object, said: str) -> NoReturn:
    raise InvalidArgument(f"{source} is {value!r}; {said}: {FORMS}", field="target", value=str(value), limit=FORMS)


def parse(text: str, source: str = "target") -> str:
    """The target as gRPC takes it, with a port. InvalidArgument for what names no server."""
    if text.startswith("/"):
        return f"unix:{text}"
    scheme, colon, rest = text.partition(":")
    if colon and scheme.lower() in _GRPC_SCHEMES:
        return text
    if colon and scheme.lower() == "dns":
        start = len(text) - len(text.rsplit("/", 1)[-1]) if "/" in text else len("dns:")
        return text[:start] + _with_port(text[start:], source, text)
    if "://" in text:
        place = rest[2:].split("/", 1)[0].rsplit("@", 1)[-1]
        tls = ", with tls=True or ca=" if scheme.lower() in ("https", "grpcs") else ""
        _refuse(source, text, f"a URL is no target, call it {place or DEFAULT_TARGET!r}{tls}")
    if "/" in text or (text.endswith(".sock") and not os.path.dirname(text)):
        _refuse(source, text, f"if it is a Unix socket, write 'unix:{os.path.abspath(os.path.expanduser(text))}'")
    return _with_port(text, source, text)


def _with_port(place: str, source: str, whole: str) -> str:
    """host:port; the port of normd where there is none."""
    if re.search(r"[\s,]", place):
        _refuse(source, whole, "it must name one host, without spaces and commas; write")
    host, port = split(place)
    if port is None and host.count(":") > 1 and not host.startswith("["):
        if re.search(r":\d{4,5}$", host) or not _is_ip(host):
            _refuse(source, whole, "an IPv6 address stands in brackets, as in '[::1]:8001'; write")
        host = f"[{host}]"
    if not host or host.isdigit():
        _refuse(
            source, whole, f"it names no host; write '127.0.0.1:{host if host.isdigit() else port or DEFAULT_PORT}' or"
        )
    if port is None:
        return f"{host}:{DEFAULT_PORT}"
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
        _refuse(source, whole, f"its port is {port!r}, which is no number from 1 to 65535; write")
    return place


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
        return True
    except ValueError:
        return False


def split(place: str) -> Tuple[str, Optional[str]]:
    """Host, with the brackets of an IPv6 address, and port of "host:port"; None where there is no port."""
    if place.startswith("["):
        host, bracket, rest = place.partition("]")
        return host + bracket, rest[1:] if rest.startswith(":") else None
    if place.count(":") > 1:
        return place, None
    host, colon, port = place.partition(":")
    return host, port if colon else None


def host_of(target: str) -> str:
    """The host that a target of parse() names, in lower case and without brackets; "" for a Unix socket and the like."""
    scheme, colon, rest = target.partition(":")
    if colon and scheme.lower() in ("ipv4", "ipv6", "dns"):
        target = rest.rsplit("/", 1)[-1]
    elif colon and scheme.lower() in _GRPC_SCHEMES:
        return ""
    return split(target)[0].strip("[]").lower()


def address_of(target: str) -> Optional[Tuple[str, int]]:
    """Host and port that a program may connect to; None for what gRPC alone can find, and for Unix sockets."""
    host, port = host_of(target), target.rsplit(":", 1)[-1]
    return (host, int(port)) if host and port.isdigit() and "," not in target else None


def is_loopback(target: str) -> bool:
    """True for the loopback interface of this host."""
    host = host_of(target).rstrip(".")
    if host in ("localhost", "ip6-localhost", "ip6-loopback") or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def is_unix(target: str) -> bool:
    return target.startswith(("unix:", "unix-abstract:"))


def unix_path(target: str) -> str:
    """The path of a "unix:" target; "" for other targets."""
    if not target.startswith("unix:"):
        return ""
    path = target[len("unix:") :]
    return path[2:] if path.startswith("///") else path


def local_socket() -> str:
    """Where a server of this user listens by default."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/normd-{os.getuid()}"
    return os.path.join(folder, "normd.sock")


def answers(path: str) -> bool:
    """True if `path` is a socket that belongs to this user, and a program accepts connections there.

    /tmp is everybody's: a socket of another user is not trusted with this user's tensors.
    """
    try:
        found = os.lstat(path)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            probe.connect(path)
        return True
    except OSError:
        return False
