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

from normd import _calls
from normd._arrays import A
from normd._blocking import BlockingTransport
from normd._core import DEADLINE, Core, Moments
from normd._files import Path, Progress, normalize_file
from normd._options import Options, SpecOptions, add_keywords
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

    def layer_norm(
        self,
        x: A,
        normalized_shape: Shape,
        weight: Any = None,
        bias: Any = None,
        eps: float = 1e-5,
        **options: Unpack[Options],
    ) -> A:
        """y = (x - mean) / sqrt(variance + eps) * weight + bias over the trailing axes `normalized_shape`.

        x, y: [*, *normalized_shape]; weight, bias: normalized_shape.
        InvalidArgument where x does not end in normalized_shape, or a parameter has another shape.
        """
        return run(self._core.operate(_calls.layer_norm, x, (weight, bias), (normalized_shape, eps), options))

    def rms_norm(
        self,
        x: A,
        normalized_shape: Shape,
        weight: Any = None,
        eps: Optional[float] = None,
        **options: Unpack[Options],
    ) -> A:
        """y = x / sqrt(mean(x^2) + eps) * weight over the trailing axes `normalized_shape`.

        x, y: [*, *normalized_shape]; weight: normalized_shape. eps None, as in torch: 2^-23, for float64
        2^-52.
        InvalidArgument where x does not end in normalized_shape, or weight has another shape.
        """
        return run(self._core.operate(_calls.rms_norm, x, (weight,), (normalized_shape, eps), options))

    def group_norm(
        self,
        x: A,
        num_groups: int,
        weight: Any = None,
        bias: Any = None,
        eps: float = 1e-5,
        *,
        layout: str = "channels_first",
        **options: Unpack[Options],
    ) -> A:
        """y = (x - mean) / sqrt(variance + eps) * weight + bias for each sample and group of C / num_groups channels.

        x, y: [N, C, *] (layout="channels_last": [N, *, C]); weight, bias: [C]. InvalidArgument where num_groups does
        not divide C, or a parameter has another length.
        """
        return run(self._core.operate(_calls.group_norm, x, (weight, bias), (num_groups, eps, layout), options))

    def instance_norm(
        self,
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
        **options: Unpack[Options],
    ) -> A:
        """y = (x - mean) / sqrt(variance + eps) * weight + bias for each sample and channel, over the spatial axes.

        x, y: [N, C, *] (layout="channels_last": [N, *, C]); the rest: [C]. With use_input_stats=False the given running
        statistics are used instead of those of x. Running statistics that move with x are kept by a session:
        InvalidArgument where they are given together with use_input_stats=True, and `momentum` has no effect.
        InvalidArgument, too, where a parameter has another length.
        """
        parameters = (weight, bias, running_mean, running_var)
        return run(self._core.operate(_calls.instance_norm, x, parameters, (use_input_stats, eps, layout), options))

    def batch_norm(
        self,
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
        **options: Unpack[Options],
    ) -> A:
        """y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel.

        x, y: [N, C, *] (layout="channels_last": [N, *, C]); the rest: [C]. training=False uses the given running
        statistics, both of which are needed. training=True uses those of the batch, and then moves running_mean and
        running_var, where given, in place, as torch does: (1 - momentum) * old + momentum * new, the variance unbiased.
        A `session` keeps them on the server instead, where every step counts once. InvalidArgument where a parameter
        has another length, statistics are missing, or those that are to move are no writable array of floats.
        """
        parameters, attributes = (weight, bias, running_mean, running_var), (training, eps, layout)
        if training:
            return run(_calls.batch_norm_step(self._core, x, parameters, attributes, momentum, options))
        return run(self._core.operate(_calls.batch_norm, x, parameters, attributes, options))

    def p_rms_norm(
        self,
        x: A,
        p: Optional[float] = None,
        weight: Any = None,
        bias: Any = None,
        eps: float = 1e-6,
        *,
        k: Optional[int] = None,
        **options: Unpack[Options],
    ) -> A:
        """y = x / sqrt(mean of the first k x^2 + eps) * weight + bias over the d elements of the last axis.

        x, y: [*, d]; weight, bias: [d]. Either p in (0, 1], for k = p * d rounded up, or k itself. InvalidArgument
        where p or k is out of range, both or neither are given, or a parameter has another length.
        """
        return run(self._core.operate(_calls.p_rms_norm, x, (weight, bias), (p, k, eps), options))

    def scale_norm(
        self, x: A, weight: Any = None, bias: Any = None, eps: float = 1e-5, **options: Unpack[Options]
    ) -> A:
        """y = x / (|x| + eps) * weight + bias over the last axis, |x| the L2 norm.

        x, y: [*, d]; weight, bias: one number each, InvalidArgument otherwise.
        """
        return run(self._core.operate(_calls.scale_norm, x, (weight, bias), (eps,), options))

    def lp_norm(
        self,
        x: A,
        p: float = 2.0,
        dim: Union[int, Sequence[int], None] = 1,
        eps: float = 1e-12,
        **options: Unpack[Options],
    ) -> A:
        """y = x / max(|x|_p, eps) over `dim`, one axis or several: torch.nn.functional.normalize.

        x, y: any shape of 1 to 8 axes. p: from 1 on; math.inf divides by the largest |x|. InvalidArgument where p is
        smaller, or dim is no axis of x.
        """
        return run(self._core.operate(_calls.lp_norm, x, (), (p, dim, eps), options))

    def power_norm(
        self,
        x: A,
        running_phi: Any = None,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        eps: float = 1e-5,
        *,
        num_groups: int = 1,
        **options: Unpack[Options],
    ) -> A:
        """PowerNorm: x over the root mean square of its group, over sqrt(phi + eps), * weight + bias.

        x, y: [T, B, C] or [B, C]; running_phi, weight, bias: [C]. Inference divides by running_phi (phi of a session);
        training=True is the first step of a new state. InvalidArgument where num_groups does not divide C, or a
        parameter has another length or is missing.
        """
        parameters, attributes = (weight, bias, None, running_phi), (training, eps, num_groups)
        return run(self._core.operate(_calls.power_norm, x, parameters, attributes, options))

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

    def moments(self, spec: Spec, x: Any, *, mask: Any = None, timeout: Optional[float] = None) -> Moments:
        """Count, mean and M2 of the statistics groups of x, as float64 arrays of the groups' shape ([C] of BatchNorm).

        InvalidArgument where the spec does not fit x.
        """
        return run(self._core.moments(Target(spec), x, mask, timeout))

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


for _operator in (
    Client.layer_norm, Client.rms_norm, Client.group_norm, Client.instance_norm, Client.batch_norm, Client.p_rms_norm,
    Client.scale_norm, Client.lp_norm, Client.power_norm
):  # fmt: skip
    add_keywords(_operator)

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
