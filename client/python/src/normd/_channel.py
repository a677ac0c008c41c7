"""With which options of gRPC a server is called, and by way of which proxy."""

from __future__ import annotations

import ipaddress
import os
from typing import Any, List, Sequence, Tuple

from normd._target import host_of, is_loopback, is_unix

ChannelOption = Tuple[str, Any]

# In the order in which gRPC looks at them. It knows no others: not HTTP_PROXY, and not all_proxy.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_NO_PROXIES = ("no_grpc_proxy", "no_proxy")
_ENABLE_PROXY = "grpc.enable_http_proxy"


def channel_options(target: str, extra: Sequence[ChannelOption]) -> List[ChannelOption]:
    options = [
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
    if is_direct(target) and _ENABLE_PROXY not in dict(extra):
        options.append((_ENABLE_PROXY, 0))
    return options


def is_direct(target: str) -> bool:
    """True for a server of this host: no proxy has a way there, whatever the environment says."""
    return is_unix(target) or is_loopback(target)


def proxy_variable(target: str) -> str:
    """The environment variable whose proxy gRPC calls instead of the target; "" if it calls the target itself."""
    if is_direct(target):
        return ""
    found = next((name for name in _PROXIES if os.environ.get(name)), "")
    exceptions = next((os.environ[name] for name in _NO_PROXIES if os.environ.get(name)), "")
    host = host_of(target)
    return "" if any(_covers(one.strip(), host) for one in exceptions.split(",")) else found


def _covers(exception: str, host: str) -> bool:
    """As gRPC reads an entry of no_proxy: the end of a name, or a network."""
    if not exception:
        return False
    if host.endswith(exception.lower()):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(exception, strict=False)
    except (ValueError, TypeError):
        return False
