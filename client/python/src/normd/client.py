"""The blocking client: `normd.connect()`.

    with normd.connect() as client:
        y = client.layer_norm(x, (768,), weight, bias)

Shapes are those of torch.nn.functional; x is a numpy array or a torch tensor, and y is what x is. Errors are
subclasses of `normd.Error`, which name field, value and limit. Every call may raise Unavailable (no server answers),
DeadlineExceeded, and ResourceExhausted (no room, or beyond a limit of the server).

"Training" means running statistics: there is no backward pass. normd.torch has modules with local gradients.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from normd import _calls, _operators
from normd._blocking import BlockingTransport
from normd._core import DEADLINE, Core, Moments
from normd._files import Path, Progress, normalize_file
from normd._operators import blocking
from normd._options import SpecOptions
from normd._proto import normalizer_pb2
from normd._request import NormalizeCall, Target
from normd._results import Result
from normd._retry import RetryOptions
from normd._security import Access, SecurityOptions, asks_for_tls
from normd._sessions import SessionInfo, SessionService
from normd._target import resolve_target
from normd._transport import run
from normd.errors import Error
from normd.session import Session
from normd.specs import Shape, Spec

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Client:
    """Calls of one normd server. Safe from any number of threads: make one and share it.

    It connects at the first call, and again by itself. Close it, or use it in a `with` statement.
    """

    def __init__(
        self,
        target: Optional[str] = None,
        *,
        deadline: float = DEADLINE,
        shared_memory: str = "auto",
        options: Sequence[Tuple[str, Any]] = (),
        retry: RetryOptions = RetryOptions(),
        **security: Unpack[SecurityOptions],
    ) -> None:
        resolved = resolve_target(target, asks_for_tls(security))
        self._transport = BlockingTransport(resolved, Access(resolved, security), options)
        self._core = Core(self._transport, deadline, retry, shared_memory)
        self._sessions = SessionService(self._core)
        _clients.add(self)

    @property
    def target(self) -> str:
        """The server that is called, as "host:port" or "unix:/path"."""
        return self._transport.target

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections and gives up shared memory; arrays in it stay. Calls after it raise `Unavailable`."""
        self._core.close()
        self._transport.close()

    def __repr__(self) -> str:
        return f"<normd.Client of {self.target}>"

    # ---- Operators

    layer_norm = blocking(_operators.layer_norm)
    rms_norm = blocking(_operators.rms_norm)
    group_norm = blocking(_operators.group_norm)
    instance_norm = blocking(_operators.instance_norm)
    batch_norm = blocking(_operators.batch_norm)
    p_rms_norm = blocking(_operators.p_rms_norm)
    scale_norm = blocking(_operators.scale_norm)
    lp_norm = blocking(_operators.lp_norm)
    power_norm = blocking(_operators.power_norm)

    # ---- Any spec, batches, moments

    def normalize(
        self, spec: Spec, x: Any, weight: Any = None, bias: Any = None, **options: Unpack[SpecOptions]
    ) -> Result:
        """Normalises x as `spec` says, and returns all that was asked for: `SpecOptions` has the keywords."""
        return run(self._core.normalize(_calls.normalize(spec, x, weight, bias, **options)))

    def prepare(
        self, spec: Spec, x: Any, weight: Any = None, bias: Any = None, **options: Unpack[SpecOptions]
    ) -> NormalizeCall:
        """A call for `batch`: the arguments of `normalize`."""
        return _calls.normalize(spec, x, weight, bias, **options)

    def batch(self, calls: Sequence[NormalizeCall], *, timeout: Optional[float] = None) -> List[Union[Result, Error]]:
        """Several calls in one message, of any shapes and methods. One Result or Error for each, in order.

            calls = [client.prepare(normd.LayerNorm(768), x) for x in xs]
            for result in client.batch(calls): ...
        """
        return run(self._core.batch(calls, timeout))

    def moments(
        self, spec: Spec, x: Any, *, mask: Any = None, exact: bool = False, timeout: Optional[float] = None
    ) -> Moments:
        """Count, mean and M2 of the statistics groups of x, as float64 arrays of the groups' shape ([C] of BatchNorm).

        exact: with the exact sums of each group, of which these are the nearest values (`Session.commit`).

        InvalidArgument where the spec does not fit x, or has no exact sums.
        """
        return run(self._core.moments(Target(spec), x, mask, exact, timeout))

    def normalize_file(
        self,
        source: Path,
        target: Path,
        spec: Spec,
        weight: Any = None,
        bias: Any = None,
        *,
        progress: Progress = False,
        dtype: Optional[str] = None,
        **options: Unpack[SpecOptions],
    ) -> Result:
        """Normalises the array of the .npy file `source` into the .npy file `target`, by memory map.

        Methods whose rows (axis 0) are independent go a few rows at a time, and so take files of any size; others up to
        the server's max_tensor_bytes. A file in Fortran order or in the other byte order is read into memory as a
        whole.

        dtype: "bfloat16" for a file of elements of two bytes without a name, as ml_dtypes' are saved; the result is such a
        file, too. progress: True shows a bar (of tqdm, where that is installed); a function is called with the rows that are done
        and their number. `target` appears when it is whole. Options of `normalize`.
        """
        return run(normalize_file(self._core, source, target, spec, weight, bias, progress, dtype, options))

    def describe(self) -> normalizer_pb2.DescribeResponse:
        """The methods, devices, limits and numerics of the server."""
        return run(self._core.describe())

    # ---- Shared memory

    def empty(self, shape: Shape, dtype: Any = "float32") -> np.ndarray[Any, np.dtype[Any]]:
        """An array in memory that the server shares, with whatever values are there: calls neither send nor copy it.

        dtype: float32, float16, float64 or bfloat16 (ml_dtypes). The results of calls with such an x are such arrays,
        too. Arrays below 128 KiB are sent nevertheless, which is faster. Where memory cannot be shared the array is an
        ordinary one (shared_memory="on": FailedPrecondition). For torch: torch.from_numpy(client.empty(shape)). While a
        call uses an array, leave it alone.
        """
        return run(_calls.empty(self._core, shape, dtype))

    def shared_array(self, x: Any) -> np.ndarray[Any, np.dtype[Any]]:
        """A copy of x in memory that the server shares: see `empty`."""
        return run(_calls.shared_array(self._core, x))

    # ---- Sessions

    def session(
        self,
        name: str,
        spec: Optional[Spec] = None,
        *,
        weight: Any = None,
        bias: Any = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl: Optional[float] = None,
        client_id: Optional[str] = None,
    ) -> Session:
        """The session `name`, used like a module of torch.nn.

        With `spec` the session is created unless it exists; FailedPrecondition if it exists with another spec. Without
        `spec` it must exist (NotFound). weight, bias, labels and ttl (seconds) are those of a session that is created.
        client_id names this trainer in the ids of its training steps; by default it is random, and new for each call.
        """
        opened = run(self._sessions.open(name, spec, weight=weight, bias=bias, labels=labels, ttl=ttl))
        return Session(self.target, self._sessions, opened, client_id)

    def sessions(self, filter: str = "") -> Iterator[SessionInfo]:
        """The sessions of the server in the order of their names; filter: 'key=value AND key=value' on labels."""
        token = ""
        while True:
            page, token = run(self._sessions.page(token, filter))
            yield from page
            if not token:
                return


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _separate_after_fork() -> None:
    """A forked child of this process gets connections of its own, and memory that it does not share."""
    for client in list(_clients):
        client._transport.separate()
        client._core.separate()


# A hook stays for ever, so there is one for all clients.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_separate_after_fork)


def connect(
    target: Optional[str] = None,
    *,
    deadline: float = DEADLINE,
    shared_memory: str = "auto",
    options: Sequence[Tuple[str, Any]] = (),
    retry: RetryOptions = RetryOptions(),
    **security: Unpack[SecurityOptions],
) -> Client:
    """A client of the server at `target`.

    target: "host:port", "host" for port 8001, "unix:/path" or "/path". None: $NORMD_SERVER, else the local Unix socket of this user's server
        ($XDG_RUNTIME_DIR/normd.sock or /tmp/normd-<uid>/normd.sock) if one answers there, else 127.0.0.1:8001.
    deadline: seconds for each call, its retries included. If you give one, a server that is not there is waited for.
    shared_memory: "auto" passes large tensors through memory shared with a server on this host: one that is called by
        its Unix socket, or one on the loopback interface that says where its socket is. "off" sends all tensors; "on"
        is "auto", but `Client.empty` raises where memory cannot be shared.
    security: tls, ca, certificate, key, server_name, token, token_file and credentials, which `SecurityOptions`
        explains: TLS and who the caller is. A token in plain text over TCP is refused (InvalidArgument), and so are
        files that cannot be used, by name.
    options: further options of the gRPC channel.
    retry: which failed calls are sent again.

    Connecting is left to the first call, so a server that is not there shows then (Unavailable).
    """
    return Client(
        target,
        deadline=deadline,
        shared_memory=shared_memory,
        options=options,
        retry=retry,
        **security,
    )
