"""The calls of the service normd.v1.Sessions, for both clients."""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
import socket
import threading
import uuid
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar

import numpy as np
from google.protobuf import empty_pb2

from normd import _arrays
from normd._core import SESSIONS, Core, Moments, from_tensor, to_tensor
from normd._proto import norm_pb2, normalizer_pb2, sessions_pb2
from normd._options import Step, seconds
from normd._request import resolve_eps
from normd._results import StateResult, enum_name, to_dataclass
from normd.errors import AlreadyExists, FailedPrecondition, InvalidArgument
from normd.specs import BatchNorm, InstanceNorm, PowerNorm, Spec

Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, eq=False)
class SessionInfo:
    """A session as the server has it. Tensors are None in lists, and where the method does not have them."""

    name: str  # without "sessions/"
    uid: str  # new for every creation
    version: int  # + 1 for every applied update
    method: str
    spec: norm_pb2.NormSpec
    num_channels: int
    labels: Mapping[str, str]
    durability: str
    create_time: datetime.datetime
    update_time: datetime.datetime
    expire_time: Optional[datetime.datetime]
    num_batches: int = 0
    running_mean: Optional[Array] = None
    running_var: Optional[Array] = None
    running_phi: Optional[Array] = None
    weight: Optional[Array] = None
    bias: Optional[Array] = None
    # Of a session that counts samples (BatchNorm(weighting="samples")).
    count: Optional[Array] = None
    m2: Optional[Array] = None  # the sum of squared deviations from the mean
    min: Optional[Array] = None  # inf while there is no sample, nan where it is not known
    max: Optional[Array] = None
    channel_names: Sequence[str] = ()
    frozen: bool = False  # takes no change but its deletion
    digest: str = ""  # SHA-256 of spec, parameters, state and names of channels

    @property
    def has_state(self) -> bool:
        """Whether training moves it: of BatchNorm, PowerNorm, and InstanceNorm that tracks running statistics."""
        if self.method == "instance_norm":
            return bool(self.spec.instance_norm.track_running_statistics)
        return self.method in ("batch_norm", "power_norm")

    def __str__(self) -> str:
        """A line for each attribute."""
        lines = [f"session {self.name}: {self.method}, version {self.version}, {self.num_batches} batches"]
        spec = _flat(getattr(self.spec, self.method)) if self.method else {}
        lines.append("  " + ", ".join(f"{name} {value}" for name, value in spec.items()))
        for name in ("num_channels", "running_mean", "running_var", "running_phi", "weight", "bias", "labels"):
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                value = np.array2string(value, threshold=8, edgeitems=2, precision=5, max_line_width=10**6)
            if value:
                lines.append(f"  {name}: {value}")
        expires = "" if self.expire_time is None else f", expires {self.expire_time:%Y-%m-%d %H:%M:%S} UTC"
        lines.append(f"  created {self.create_time:%Y-%m-%d %H:%M:%S} UTC{expires}, durability {self.durability}")
        return "\n".join(lines)


def resource_name(name: str) -> str:
    """ "bn1" and "sessions/bn1" are the same session."""
    return name if name.startswith("sessions/") else f"sessions/{name}"


def from_message(message: sessions_pb2.Session) -> SessionInfo:
    def tensor(of: Any, field: str) -> Optional[Array]:
        return from_tensor(getattr(of, field)) if of.HasField(field) else None

    expires = message.HasField("expire_time")
    return SessionInfo(
        name=message.name[len("sessions/") :],
        uid=message.uid,
        version=message.version,
        method=message.spec.WhichOneof("method") or "",
        spec=message.spec,
        num_channels=message.num_channels,
        labels=dict(message.labels),
        durability=enum_name(message.DESCRIPTOR.fields_by_name["durability"].enum_type, message.durability),
        create_time=message.create_time.ToDatetime(datetime.timezone.utc),
        update_time=message.update_time.ToDatetime(datetime.timezone.utc),
        expire_time=message.expire_time.ToDatetime(datetime.timezone.utc) if expires else None,
        num_batches=message.state.num_batches,
        running_mean=tensor(message.state, "mean"),
        running_var=tensor(message.state, "var"),
        running_phi=tensor(message.state, "phi"),
        weight=tensor(message.parameters, "weight"),
        bias=tensor(message.parameters, "bias"),
        count=tensor(message.state, "count"),
        m2=tensor(message.state, "m2"),
        min=tensor(message.state, "min"),
        max=tensor(message.state, "max"),
        channel_names=tuple(message.channel_names),
        frozen=message.frozen,
        digest=message.digest,
    )


# The defaults of attributes that a spec may leave out: eps and eps_mode by method (proto/normd/v1/norm.proto).
_INSIDE, _ADD = norm_pb2.EPS_MODE_INSIDE_SQRT, norm_pb2.EPS_MODE_ADD_TO_ROOT
_EPS_DEFAULTS = {
    "batch_norm": (1e-5, _INSIDE),
    "layer_norm": (1e-5, _INSIDE),
    "instance_norm": (1e-5, _INSIDE),
    "group_norm": (1e-5, _INSIDE),
    "rms_norm": (1e-6, _INSIDE),
    "p_rms_norm": (1e-6, _INSIDE),
    "scale_norm": (1e-5, _ADD),
    "lp_norm": (0.0, _ADD),
    "power_norm": (1e-5, _INSIDE),
}


def resolved(spec: norm_pb2.NormSpec) -> norm_pb2.NormSpec:
    """The spec with its defaults written out, so that two of the same meaning are equal."""
    out = norm_pb2.NormSpec()
    out.CopyFrom(spec)
    method = out.WhichOneof("method")
    if method is None:
        return out
    message = getattr(out, method)
    eps, mode = _EPS_DEFAULTS[method]
    if not message.HasField("eps"):
        message.eps = eps
    message.eps_mode = message.eps_mode or mode
    if method != "lp_norm":
        message.cast_order = message.cast_order or norm_pb2.CAST_ORDER_AFFINE_THEN_CAST
        if not message.HasField("weight_offset"):
            message.weight_offset = 0
    if method == "batch_norm" or (method == "instance_norm" and message.track_running_statistics):
        _resolve_running(message.running)
    if method == "power_norm":
        for name, value in (("alpha_fwd", 0.9), ("warmup_iters", 10000), ("num_groups", 1)):
            if not message.HasField(name):
                setattr(message, name, value)
    if method == "p_rms_norm":
        message.k_rounding = message.k_rounding or norm_pb2.K_ROUNDING_CEIL
    return out


def _resolve_running(running: norm_pb2.RunningStatistics) -> None:
    running.weighting = running.weighting or norm_pb2.WEIGHTING_STEPS
    if running.weighting == norm_pb2.WEIGHTING_SAMPLES:
        for name, value in (("prior_count", 0.0), ("prior_mean", 0.0), ("prior_variance", 1.0), ("decay", 1.0)):
            if not running.HasField(name):
                setattr(running, name, value)
        running.variance = running.variance or norm_pb2.RUNNING_VARIANCE_BIASED
        running.normalize_with = running.normalize_with or norm_pb2.NORMALIZE_WITH_RUNNING
        running.nan_policy = running.nan_policy or norm_pb2.NAN_POLICY_PROPAGATE
        return
    running.momentum_of = running.momentum_of or norm_pb2.MOMENTUM_OF_NEW
    running.variance = running.variance or norm_pb2.RUNNING_VARIANCE_UNBIASED
    running.single_value = running.single_value or norm_pb2.SINGLE_VALUE_REFUSE
    if not running.cumulative and not running.HasField("momentum"):
        running.momentum = 0.1 if running.momentum_of == norm_pb2.MOMENTUM_OF_NEW else 0.9


def differing(there: SessionInfo, here: sessions_pb2.Session) -> List[Tuple[str, str, str]]:
    """The attributes in which a session and one that is asked for differ: name, value there, value here."""
    if there.method != here.spec.WhichOneof("method"):
        return [("method", there.method, here.spec.WhichOneof("method") or "")]
    ours, theirs = (_flat(getattr(resolved(spec), there.method)) for spec in (here.spec, there.spec))
    ours["num_channels"], theirs["num_channels"] = str(here.num_channels), str(there.num_channels)
    ours["channel_names"], theirs["channel_names"] = str(list(here.channel_names)), str(list(there.channel_names))
    names = sorted(ours.keys() | theirs.keys())
    pairs = [(name, theirs.get(name, "absent"), ours.get(name, "absent")) for name in names]
    return [one for one in pairs if one[1] != one[2]]


def _flat(message: Any) -> Dict[str, str]:
    """The fields that are set, by name, as text; enums as this package names them."""
    out: Dict[str, str] = {}
    for field, value in message.ListFields():
        if field.message_type is not None:
            out.update(_flat(value))
        elif field.enum_type is not None:
            out[field.name] = enum_name(field.enum_type, value)
        else:
            out[field.name] = str(list(value)) if isinstance(value, Sequence) else str(value)
    return out


class SessionService:
    """The session calls over one Core."""

    def __init__(self, core: Core) -> None:
        self.core = core

    async def open(
        self,
        name: str,
        spec: Optional[Spec],
        *,
        weight: Any = None,
        bias: Any = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl: Optional[float] = None,
        channel_names: Sequence[str] = (),
    ) -> SessionInfo:
        """Creates the session or opens the one that exists, which must have the same spec and names of channels."""
        if spec is None:
            return await self.get(name)
        message = new_session(spec, weight, bias, labels, ttl)
        message.channel_names.extend(channel_names)
        try:
            return await self.create(name, message)
        except AlreadyExists:
            found = await self.get(name)
        differences = differing(found, message)
        if differences:
            text = "; ".join(f"{name} is {there} there, and {here} here" for name, there, here in differences)
            raise FailedPrecondition(
                f"{resource_name(name)} exists with another spec: {text}. Open it without a spec, delete it, or choose "
                "another name",
                field=differences[0][0],
                value=differences[0][2],
                limit=differences[0][1],
                reason="SPEC_DIFFERS",
            )
        return found

    async def create(self, name: str, message: sessions_pb2.Session) -> SessionInfo:
        request = sessions_pb2.CreateSessionRequest(session_id=resource_name(name)[len("sessions/") :], session=message)
        # Creating under an id of the caller's is safe to repeat: a second try is told that the session exists, and
        # `open` takes it.
        await self.core.message(SESSIONS + "CreateSession", request, sessions_pb2.Session, True)
        return await self.get(name)

    async def get(self, name: str, newer_than_version: Optional[int] = None) -> SessionInfo:
        """The session; without tensors if its version is not above `newer_than_version`."""
        request = sessions_pb2.GetSessionRequest(
            name=resource_name(name), view=sessions_pb2.SESSION_VIEW_FULL, newer_than_version=newer_than_version
        )
        return from_message(await self.core.message(SESSIONS + "GetSession", request, sessions_pb2.Session, True))

    async def page(self, token: str, filter: str) -> Tuple[List[SessionInfo], str]:
        request = sessions_pb2.ListSessionsRequest(page_token=token, filter=filter)
        reply = await self.core.message(SESSIONS + "ListSessions", request, sessions_pb2.ListSessionsResponse, True)
        return [from_message(one) for one in reply.sessions], reply.next_page_token

    async def set_parameters(self, name: str, parameters: Mapping[str, Any]) -> SessionInfo:
        """Replaces weight, bias or both; the version rises by 1."""
        request = sessions_pb2.UpdateSessionRequest()
        request.session.name = resource_name(name)
        for field, value in parameters.items():
            if value is not None:
                getattr(request.session.parameters, field).CopyFrom(to_tensor(value, field))
            request.update_mask.paths.append(f"parameters.{field}")
        return from_message(await self._once("UpdateSession", request, sessions_pb2.Session))

    async def reset(self, name: str) -> SessionInfo:
        request = sessions_pb2.ResetSessionRequest(name=resource_name(name))
        return from_message(await self._once("ResetSession", request, sessions_pb2.Session))

    async def freeze(self, name: str) -> SessionInfo:
        """Makes the session refuse every change but its deletion, for good."""
        request = sessions_pb2.UpdateSessionRequest()
        request.session.name, request.session.frozen = resource_name(name), True
        request.update_mask.paths.append("frozen")
        return from_message(await self._once("UpdateSession", request, sessions_pb2.Session))

    async def fork(self, name: str, new_name: str, frozen: bool = False) -> SessionInfo:
        new_id = resource_name(new_name)[len("sessions/") :]
        request = sessions_pb2.ForkSessionRequest(name=resource_name(name), session_id=new_id, frozen=frozen)
        await self._once("ForkSession", request, sessions_pb2.Session)
        return await self.get(new_name)

    async def delete(self, name: str) -> None:
        request = sessions_pb2.DeleteSessionRequest(name=resource_name(name))
        await self._once("DeleteSession", request, empty_pb2.Empty)

    async def _once(self, method: str, request: Any, reply: Type[T]) -> T:
        """A call that is not safe to repeat.

        Connections that a restart of the server broke are found by a call before it, which is safe to repeat.
        """
        await self.core.describe()
        return await self.core.message(SESSIONS + method, request, reply, False)

    async def commit(
        self,
        name: str,
        moments: Sequence[Moments],
        step: Step,
        expected_version: Optional[int],
        timeout: Optional[float],
    ) -> StateResult:
        if timeout is not None:
            timeout = seconds(timeout, "timeout")
        request = sessions_pb2.CommitMomentsRequest(
            session=resource_name(name), moments=[one.to_proto() for one in moments], expected_version=expected_version
        )
        request.step.client_id, request.step.sequence = step.client_id, step.sequence
        reply = await self.core.message(
            SESSIONS + "CommitMoments", request, normalizer_pb2.StateResult, True, timeout
        )
        result: StateResult = to_dataclass(StateResult, reply)
        return result

    async def contribute(
        self, name: str, moments: normalizer_pb2.Moments, step: Step, channel_names: Sequence[str] = ()
    ) -> normalizer_pb2.StateResult:
        """Commits the moments of one worker and returns what became of them, with the merged state.

        Safe to repeat with the same step.
        """
        request = sessions_pb2.CommitMomentsRequest(
            session=resource_name(name), moments=[moments], channel_names=channel_names, want_state=True
        )
        request.step.client_id, request.step.sequence = step.client_id, step.sequence
        return await self.core.message(SESSIONS + "CommitMoments", request, normalizer_pb2.StateResult, True)

    async def load(self, name: str, info: SessionInfo, state: Mapping[str, Any]) -> SessionInfo:
        """Replaces the session by one with this state_dict: the contract has no change of a running state."""
        state = _in_torchs_names(state)
        _check_state(info, state)
        kept = {"weight": info.weight, "bias": info.bias, "num_batches_tracked": info.num_batches}
        message = sessions_pb2.Session(spec=info.spec, num_channels=info.num_channels, labels=dict(info.labels))
        if info.expire_time is not None:
            message.ttl.FromTimedelta(info.expire_time - info.update_time)
        _set_state(message, {**kept, **state})
        # A state that the server refuses must not cost the session: it is tried under another name first.
        trial = f"{info.name[:40].rstrip('._-')}-{uuid.uuid4().hex[:12]}"
        tried = sessions_pb2.Session()
        tried.CopyFrom(message)
        tried.ttl.FromSeconds(TRIAL_SECONDS)
        await self.create(trial, tried)
        await self.delete(trial)
        await self.delete(name)
        return await self.create(name, message)


RUNNING_KEYS = ("running_mean", "running_var", "running_phi")
STATE_KEYS = ("weight", "bias", *RUNNING_KEYS, "num_batches_tracked")
TRIAL_SECONDS = 60  # after which a trial that was not deleted, because the process ended, is gone


# What other programs call the entries of a state_dict.
OTHER_NAMES = {
    "gamma": "weight",
    "scale": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "moving_var": "running_var",
    "mean": "running_mean",
    "var": "running_var",
    "variance": "running_var",
    "_mean": "running_mean",
    "_variance": "running_var",
}


def _in_torchs_names(state: Mapping[str, Any]) -> Dict[str, Any]:
    """The state_dict with torch's names."""
    out: Dict[str, Any] = {}
    for name, value in state.items():
        key = OTHER_NAMES.get(name, name)
        if key in out:
            raise InvalidArgument(
                f"the state_dict has {key!r} twice, as {name!r} and by another name; leave one of them out",
                field="state_dict",
                value=str(name),
                limit="one of them",
            )
        if isinstance(value, (list, tuple, int)) and not isinstance(value, bool) and key != "num_batches_tracked":
            value = np.asarray(value, np.float64)
        out[key] = value
    return out


def _check_state(info: SessionInfo, state: Mapping[str, Any]) -> None:
    needed = [key for key in RUNNING_KEYS if getattr(info, key) is not None]
    missing = [key for key in needed if state.get(key) is None]
    if missing:
        raise InvalidArgument(
            f"the state_dict has no {missing[0]!r}; {' and '.join(needed)} are needed, because the session has them",
            field="state_dict",
            value=f"without {missing[0]}",
            limit=", ".join(needed),
        )
    unknown = [key for key in state if key not in STATE_KEYS]
    if unknown:
        raise InvalidArgument(
            f"the state_dict has {unknown[0]!r}; {', '.join(STATE_KEYS)} are possible",
            field="state_dict",
            value=str(unknown[0]),
            limit=", ".join(STATE_KEYS),
        )


def _set_state(message: sessions_pb2.Session, state: Mapping[str, Any]) -> None:
    for key in ("weight", "bias"):
        if state.get(key) is not None:
            getattr(message.parameters, key).CopyFrom(to_tensor(_values_of(state[key], key), key))
    for key, field in (("running_mean", "mean"), ("running_var", "var"), ("running_phi", "phi")):
        if state.get(key) is not None:
            # bfloat16, too, which numpy does not know
            values = from_tensor(to_tensor(_values_of(state[key], key), key))
            getattr(message.state, field).CopyFrom(to_tensor(values.astype(np.float64), key))
    if message.HasField("state"):
        message.state.num_batches = int(state["num_batches_tracked"])


def _values_of(value: Any, field: str) -> Any:
    """An array of a state_dict. A tensor of torch may be on any device, and may be a Parameter."""
    if not hasattr(value, "detach"):
        return value
    if value.device.type == "meta":
        raise InvalidArgument(
            f"{field} is on the meta device, without values; load them first, or pass a state_dict that has them",
            field=field,
            value="meta",
            limit="a device with values",
        )
    return value.detach().cpu()


def new_session(
    spec: Spec, weight: Any, bias: Any, labels: Optional[Mapping[str, str]], ttl: Optional[float]
) -> sessions_pb2.Session:
    """The message of a session that is to be created."""
    if isinstance(spec, BatchNorm) and not spec.track_running_stats:
        raise InvalidArgument(
            "a BatchNorm session keeps running statistics; without them call client.batch_norm(..., training=True)",
            field="track_running_stats",
            value="False",
            limit="True",
        )
    if isinstance(spec, (BatchNorm, PowerNorm)) and spec.num_features < 1:
        raise InvalidArgument(
            f"num_features is {spec.num_features}; a session needs the number of channels, at least 1",
            field="num_features",
            value=str(spec.num_features),
            limit="at least 1",
        )
    message = sessions_pb2.Session(
        spec=resolve_eps(spec, _arrays.F32).to_proto(), num_channels=spec.num_channels, labels=dict(labels or {})
    )
    if isinstance(spec, (BatchNorm, InstanceNorm, PowerNorm)) and spec.affine and spec.num_features:
        # As torch.nn: an affine layer starts with a weight of ones and a bias of zeros.
        weight = np.ones(spec.num_features, np.float32) if weight is None else weight
        bias = np.zeros(spec.num_features, np.float32) if bias is None else bias
    if weight is not None:
        message.parameters.weight.CopyFrom(to_tensor(weight, "weight"))
    if bias is not None:
        message.parameters.bias.CopyFrom(to_tensor(bias, "bias"))
    if ttl is not None:
        message.ttl.FromNanoseconds(round(ttl * 1e9))
    return message


class Trainer:
    """Gives the training steps of one Session object their ids. Safe from any thread."""

    def __init__(self, client_id: Optional[str]) -> None:
        self._is_ours = client_id is None
        self._process = os.getpid()
        self.client_id = _random_client_id() if client_id is None else client_id
        self._sequence = 0
        self._lock = threading.Lock()

    def next(self) -> Step:
        with self._lock:
            if self._is_ours and os.getpid() != self._process:
                # A forked child is another trainer; its steps must not look like those of its parent.
                self.client_id, self._process, self._sequence = _random_client_id(), os.getpid(), 0
            self._sequence += 1
            return Step(self.client_id, self._sequence)


def _random_client_id() -> str:
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:60]
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


def state_dict(info: SessionInfo) -> Dict[str, Any]:
    """With the names of torch.nn; running statistics are float64, the state's own bits."""
    entries = {
        "weight": info.weight,
        "bias": info.bias,
        "running_mean": info.running_mean,
        "running_var": info.running_var,
        "running_phi": info.running_phi,
    }
    found: Dict[str, Any] = {key: value for key, value in entries.items() if value is not None}
    if info.running_mean is not None or info.running_phi is not None:
        found["num_batches_tracked"] = np.asarray(info.num_batches, np.int64)
    return found
