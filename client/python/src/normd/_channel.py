"""Which server to call, and with which options of gRPC."""

from __future__ import annotations

import os
import socket
import stat
from typing import Any, List, Optional, Sequence, Tuple

from normd.errors import InvalidArgument

DEFAULT_TARGET = "127.0.0.1:8001"

ChannelOption = Tuple[str, Any]


def resolve_target(target: Optional[str], by_tcp: bool) -> str:
    """`target`, else $NORMD_SERVER, else this user's local socket if a server answers there, else 127.0.0.1:8001.

    by_tcp: no socket is looked for.
    """
    if target is not None and not isinstance(target, str):
        raise InvalidArgument(
            f"target is {target!r}; it must be a string: host:port, unix:/path or /path",
            field="target",
            value=str(target),
            limit="host:port, unix:/path or /path",
        )
    target = target or os.environ.get("NORMD_SERVER", "")
    if target:
        return f"unix:{target}" if target.startswith("/") else target
    if by_tcp or not hasattr(os, "getuid"):  # without it this is no Unix
        return DEFAULT_TARGET
    path = local_socket()
    return f"unix:{path}" if answers(path) else DEFAULT_TARGET


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


def unix_path(target: str) -> str:
    """The path of a "unix:" target; "" for other targets."""
    if not target.startswith("unix:"):
        return ""
    path = target[len("unix:") :]
    return path[2:] if path.startswith("///") else path


def is_loopback(target: str) -> bool:
    host = target.rsplit(":", 1)[0].strip("[]")
    return host == "localhost" or host == "::1" or host.startswith("127.")


def channel_options(extra: Sequence[ChannelOption]) -> List[ChannelOption]:
    return [
        # The server's limit applies; gRPC's own would refuse replies over 4 MiB.
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        # Every channel has a connection of its own, so that a small call does not wait behind a large one.
        ("grpc.use_local_subchannel_pool", 1),
        # gRPC's retries would keep a copy of every request; this package has its own.
        ("grpc.enable_retries", 0),
        # A restarted server is found again within the retries of one call.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 500),
        *extra,
    ]
