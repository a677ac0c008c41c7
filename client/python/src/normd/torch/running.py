"""The running statistics of a BatchNorm module: in its buffers, and, with a session, on the server.

In the path: batch_norm.py, whose modules are these, calls `_step` after a forward in training and `fetch` before one in
eval. The session is the truth. The buffers follow it, and what somebody writes into them is found by comparing them
with what this module put there, because a tensor can be written in ways that leave no other trace.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set

import numpy as np
import torch
from torch import Tensor

import normd
from normd._core import Moments, to_tensor
from normd._sessions import new_session
from normd._transport import run
from normd.session import Session
from normd.torch import functional
from normd.torch._module import Served

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class RunningStatistics(Served):
    """Base of SessionBatchNorm, which says what a session means."""

    SERVED: Dict[str, Any] = {
        **Served.SERVED,
        "session": None,
        "_opened": None,
        "_opened_with": None,
        "_spec_there": None,
        "_seen": None,
        "_written": None,
        "_lock": None,
    }

    session: Optional[str] = None
    _opened: Optional[Session] = None
    _opened_with: Any = None
    # eps and momentum of the session, where this module has set or compared them.
    _spec_there: Any = None
    # The values that this module has put into the buffers or found there at the beginning: others are somebody's.
    _seen: Optional[Dict[str, Tensor]] = None
    # Buffers that are newer than the session, whatever their values are.
    _written: Optional[Set[str]] = None

    def __init__(self, *args: Any, client: Any = None, session: Optional[str] = None, **kwargs: Any) -> None:
        super().__init__(*args, client=client, **kwargs)
        module: Any = self
        if session is not None and not module.track_running_stats:
            raise ValueError(f"session={session!r} needs track_running_stats=True: it keeps the running statistics")
        self._attach(session)

    def _attach(self, session: Optional[str]) -> None:
        """Takes the name of a session; the buffers are as they are, and not written since."""
        self.session = session
        self._see()

    # ---- A step

    def _step(self, moments: List[Moments]) -> None:
        if self.session is None:
            self._move_buffers(moments)
            return
        with self._alone():
            if not self._is_first() or self._open().commit(moments).applied:
                self._move_buffers(moments)
                self._see()

    def _alone(self) -> Any:
        """A lock: what another thread is about to note as seen must not look as if somebody had written it."""
        return self.__dict__.setdefault("_lock", threading.RLock())

    def _is_first(self) -> bool:
        """True in the process that writes the session."""
        raise NotImplementedError

    def _move_buffers(self, moments: List[Moments]) -> None:
        """As torch.nn does it. With a session, too: references to the buffers that somebody holds stay up to date."""
        module: Any = self
        mean, var, count = (self._statistic(name) for name in STATISTICS)
        weight = 0.0 if module.momentum is None else module.momentum
        if count is not None:
            count.add_(1)
            weight = 1.0 / int(count) if module.momentum is None else module.momentum
        if mean is not None and var is not None:
            functional.move_running(mean, var, functional.merge(moments), weight)

    def _statistic(self, name: str) -> Optional[Tensor]:
        """A running statistic as it is here now."""
        one: Optional[Tensor] = getattr(self, name) if self.session is None else self.__dict__["_buffers"].get(name)
        return one

    # ---- The session

    def _open(self) -> Session:
        """The session, with this module's eps and momentum, and with the buffers' values where they are newer."""
        with self._alone():
            return self._open_alone()

    def _open_alone(self) -> Session:
        assert self.session is not None
        client = functional.resolve(self.client)
        if self._opened is None or self._opened_with != (client, self.session):
            self._opened = self._create_or_open(client, self.session)
            self._opened_with = (client, self.session)
            self._spec_there = self._attributes()
        written = self._find_written()
        if self._is_first() and (written or self._spec_there != self._attributes()):
            self._replace(client, self._opened, written)
        return self._opened

    def _attributes(self) -> Any:
        module: Any = self
        return module.eps, module.momentum

    def _spec(self) -> normd.BatchNorm:
        module: Any = self
        return normd.BatchNorm(module.num_features, eps=module.eps, momentum=module.momentum, affine=False)

    def _create_or_open(self, client: Any, name: str) -> Session:
        spec = self._spec()
        message = new_session(spec, None, None, None, None)
        values = _plain(self._values())
        message.state.mean.CopyFrom(to_tensor(values["running_mean"], "running_mean"))
        message.state.var.CopyFrom(to_tensor(values["running_var"], "running_var"))
        message.state.num_batches = values["num_batches_tracked"]
        try:
            run(client._sessions.create(name, message))
            self._see()
        except normd.AlreadyExists:
            pass
        session: Session = client.session(name, spec)
        return session

    def _replace(self, client: Any, session: Session, written: Set[str]) -> None:
        """Makes the session anew, with this module's eps and momentum, and with the buffers that are newer."""
        spec = self._spec()
        values = _plain(self._values())
        there = session.info()
        kept = {"running_mean": there.running_mean, "running_var": there.running_var}
        state = {**kept, **{name: values[name] for name in written}}
        named = dataclasses.replace(there, spec=new_session(spec, None, None, None, None).spec)
        run(client._sessions.load(self.session, named, state))
        self._spec_there = self._attributes()
        self._see()

    @property
    def last_state(self) -> Optional[normd.StateResult]:
        """What this module's latest training step did to the session: version, applied, reason, replayed.

        None before the first one, without a session, and in a process that does not commit.
        """
        return None if self._opened is None else self._opened.last_state

    def fetch(self) -> None:
        """Copies the session's running statistics into the buffers; does nothing without a session."""
        if self.session is not None:
            with self._alone():
                self._fetch()

    def _fetch(self) -> None:
        info = self._open().info()
        there = (info.running_mean, info.running_var, np.asarray(info.num_batches))
        with torch.no_grad():
            for name, value in zip(STATISTICS, there):
                buffer = self.__dict__["_buffers"][name]
                new = torch.from_numpy(value).to(device=buffer.device, dtype=buffer.dtype)
                if not torch.equal(buffer, new):  # an unchanged one is left as autograd saw it
                    buffer.copy_(new)
        self._see()

    def _refresh(self) -> None:
        """Before the buffers are read, whoever has moved the session; what has no values has none to be replaced."""
        if self.session is not None and self._has_values():
            self.fetch()

    @contextlib.contextmanager
    def _by_itself(self) -> Iterator[Optional[str]]:
        """Leaves the session out for a while, and says its name."""
        session, self.session = self.session, None
        try:
            yield session
        finally:
            self.session = session

    # ---- The buffers

    def _values(self) -> Dict[str, Tensor]:
        """The buffers, on the CPU. ValueError if there is one to keep in a session and it has no values."""
        found: Dict[str, Tensor] = {}
        for name in STATISTICS:
            buffer = self.__dict__["_buffers"].get(name)
            if buffer is None or buffer.device.type == "meta":
                what = "None" if buffer is None else "on meta, without values"
                raise ValueError(
                    f"{name} is {what}, and session={self.session!r} keeps it: set the module's session to None first"
                )
            found[name] = buffer.detach().cpu()
        return found

    def _see(self) -> None:
        """From now on the buffers count as not written."""
        self._written = None
        if self.session is not None:
            has = self._has_values()
            self._seen = {name: value.clone() for name, value in self._values().items()} if has else None

    def _has_values(self) -> bool:
        buffers = (self.__dict__["_buffers"].get(name) for name in STATISTICS)
        return all(one is not None and one.device.type != "meta" for one in buffers)

    def _find_written(self) -> Set[str]:
        """The buffers that somebody has given a value since `_see`."""
        values, seen = self._values(), self._seen
        changed = {name for name in STATISTICS if seen and not _is_same(values[name], seen[name])}
        return changed | (self._written or set())

    # ---- torch.nn.Module

    @property
    def _buffers(self) -> Dict[str, Optional[Tensor]]:
        # What buffers(), state_dict() and to() of a model go through. nn.Module's own methods find the dict, which is
        # never exchanged, in __dict__.
        self._refresh()
        found: Dict[str, Optional[Tensor]] = self.__dict__["_buffers"]
        return found

    @_buffers.setter
    def _buffers(self, value: Dict[str, Optional[Tensor]]) -> None:
        self.__dict__["_buffers"] = value

    def __getattr__(self, name: str) -> Any:
        # nn.Module looks buffers up here. `session` is a class attribute, so this cannot recur.
        if name in STATISTICS:
            self._refresh()
        return super().__getattr__(name)  # type: ignore[misc]

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.session is None else f" by session={self.session!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in STATISTICS and self.session is not None:
            self._written = (self._written or set()) | {name}

    def _apply(self, fn: Any, *rest: Any, **options: Any) -> Any:
        """to(), half(), share_memory() and their like: other types and places of the same values write nothing."""
        with self._by_itself() as session:
            super()._apply(fn, *rest, **options)  # type: ignore[misc]
        if not self._has_values():
            self._seen = None  # on the meta device: what comes from there is nobody's value
        elif self._seen is not None and session is not None:
            for name, now in self._values().items():
                cast = self._seen[name].to(now.dtype)
                if _is_same(cast, now):
                    self._seen[name] = cast
        return self

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        given = {name for name in STATISTICS if prefix + name in state_dict}
        messages: List[str] = rest[-1]
        errors = len(messages)
        if given:
            self._refresh()  # what the state_dict does not have stays as it is now
        with self._by_itself():
            super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[misc]
        if self.session is None or len(messages) > errors:
            return  # what was loaded in spite of an error is found as every other change is
        if given:
            self._written = (self._written or set()) | given
            self._open()
        else:
            self._see()  # torch.nn has set num_batches_tracked to 0, perhaps

    def reset_running_stats(self) -> None:
        with self._by_itself():
            super().reset_running_stats()  # type: ignore[misc]
        if self.session is not None:
            self._written = set(STATISTICS)
            self._open()

    def __copy__(self) -> Any:
        if self.session is not None:
            raise TypeError(
                f"copy.copy would make two modules write session={self.session!r} from the same buffers: copy.deepcopy "
                "makes one with buffers of its own and no session"
            )
        return super().__copy__()

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        self._see()

    def _without_service(self) -> Dict[str, Any]:
        self._refresh()  # and gives the session what was written
        return super()._without_service()

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "session": self.session}


def _is_same(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())


def _plain(values: Dict[str, Tensor]) -> Dict[str, Any]:
    """As the client takes them: a session's statistics are float64, whatever type the buffers have."""
    return {name: int(one) if name == STATISTICS[2] else one.double().numpy() for name, one in values.items()}
