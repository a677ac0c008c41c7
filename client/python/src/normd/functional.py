"""The operators as functions, on a client that is made at first use: `normd.layer_norm(x, (768,), weight, bias)`.

`client=` names another client. The default one is `normd.connect()`'s, so $NORMD_SERVER chooses its server.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from normd._arrays import A
from normd._options import Options
from normd.client import Client, connect
from normd.specs import Shape

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _DefaultClient:
    """The client of calls that name none: a user's interpreter has one, as it has one random generator."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Optional[Client] = None

    def get(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = connect()
            return self._client

    def set(self, client: Optional[Client]) -> None:
        with self._lock:
            self._client = client


_default = _DefaultClient()


def default_client() -> Client:
    """The client of the functions here; made at the first use."""
    return _default.get()


def set_default_client(client: Optional[Client]) -> None:
    """Makes `client` the default one; None: the next use makes a new one. The old one is not closed."""
    _default.set(client)


def layer_norm(
    x: A,
    normalized_shape: Shape,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    client: Optional[Client] = None,
    **options: Unpack[Options],
) -> A:
    return (client or default_client()).layer_norm(x, normalized_shape, weight, bias, eps, **options)


def rms_norm(
    x: A,
    normalized_shape: Shape,
    weight: Any = None,
    eps: Optional[float] = None,
    *,
    client: Optional[Client] = None,
    **options: Unpack[Options],
) -> A:
    return (client or default_client()).rms_norm(x, normalized_shape, weight, eps, **options)


def group_norm(
    x: A,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    layout: str = "channels_first",
    client: Optional[Client] = None,
    **options: Unpack[Options],
) -> A:
    return (client or default_client()).group_norm(x, num_groups, weight, bias, eps, layout=layout, **options)


def instance_norm(
    x: A,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    layout: str = "channels_first",
    client: Optional[Client] = None,
    **options: Unpack[Options],
) -> A:
    return (client or default_client()).instance_norm(
        x, running_mean, running_var, weight, bias, use_input_stats, momentum, eps, layout=layout, **options
    )


def batch_norm(
    x: A,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    layout: str = "channels_first",
    client: Optional[Client] = None,
    **options: Unpack[Options],
) -> A:
    return (client or default_client()).batch_norm(
        x, running_mean, running_var, weight, bias, training, momentum, eps, layout=layout, **options
    )


def p_rms_norm(
    x: A,
    p: Optional[float] = None,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-6,
    *,
    k: Optional[int] = None,
    client: Optional[Client] = None,
    **options: Unpack[Options],
) -> A:
    return (client or default_client()).p_rms_norm(x, p, weight, bias, eps, k=k, **options)


def scale_norm(
    x: A,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    client: Optional[Client] = None,
    **options: Unpack[Options],
) -> A:
    return (client or default_client()).scale_norm(x, weight, bias, eps, **options)


def lp_norm(
    x: A,
    p: float = 2.0,
    dim: Union[int, Sequence[int], None] = 1,
    eps: float = 1e-12,
    *,
    client: Optional[Client] = None,
    **options: Unpack[Options],
) -> A:
    return (client or default_client()).lp_norm(x, p, dim, eps, **options)


def power_norm(
    x: A,
    running_phi: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    eps: float = 1e-5,
    *,
    num_groups: int = 1,
    client: Optional[Client] = None,
    **options: Unpack[Options],
) -> A:
    return (client or default_client()).power_norm(
        x, running_phi, weight, bias, training, eps, num_groups=num_groups, **options
    )


for _function in (
    layer_norm, rms_norm, group_norm, instance_norm, batch_norm, p_rms_norm, scale_norm, lp_norm, power_norm
):  # fmt: skip
    _function.__doc__ = getattr(Client, _function.__name__).__doc__
