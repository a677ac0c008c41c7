"""The operators as functions, on a client that is made at first use: `normd.layer_norm(x, (768,), weight, bias)`.

`client=` names another client. The default one is `normd.connect()`'s, so $NORMD_SERVER chooses its server.
"""

from __future__ import annotations

import threading
from typing import Optional

from normd import _operators
from normd._operators import of_package
from normd.client import Client, connect


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


layer_norm = of_package(_operators.layer_norm, default_client)
rms_norm = of_package(_operators.rms_norm, default_client)
group_norm = of_package(_operators.group_norm, default_client)
instance_norm = of_package(_operators.instance_norm, default_client)
batch_norm = of_package(_operators.batch_norm, default_client)
p_rms_norm = of_package(_operators.p_rms_norm, default_client)
scale_norm = of_package(_operators.scale_norm, default_client)
lp_norm = of_package(_operators.lp_norm, default_client)
power_norm = of_package(_operators.power_norm, default_client)
