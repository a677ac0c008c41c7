"""A layer that lives on the server, used like a module of torch.nn: `Client.session`.

    bn = client.session("bn1", normd.BatchNorm(64))
    bn.train()
    y = bn(x)                     # from the batch's statistics; the running statistics move
    bn.eval()
    y = bn(x)                     # from the running statistics
    bn.running_mean, bn.version

Training moves running statistics; there is no backward pass.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence

from normd._arrays import A
from normd._core import Moments
from normd._options import CallOptions, SessionOptions, Step
from normd._request import NormalizeCall, Target, check_keywords, make_call
from normd._results import Result, StateResult
from normd._sessions import Array, SessionInfo, SessionService, Trainer, resource_name, state_dict
from normd._transport import run

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class SessionBase:
    """What the blocking and the asyncio Session share."""

    def __init__(
        self, target: str, service: SessionService, info: SessionInfo, client_id: Optional[str] = None
    ) -> None:
        self._target = target
        self._service = service
        self._info = info
        self._trainer = Trainer(client_id)
        #: True after train(): calls are training steps. A new object is in training, as a module of torch is.
        self.training = True
        #: What the latest training step or commit of this object did; None before.
        self.last_state: Optional[StateResult] = None

    @property
    def name(self) -> str:
        """The session's id."""
        return self._info.name

    @property
    def client_id(self) -> str:
        """This trainer in the ids of its training steps."""
        return self._trainer.client_id

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Session {self.name}: {self._info.method} at {self._target}>"

    def train(self, mode: bool = True) -> Self:
        """Makes later calls training steps (mode False: inference). Returns the session."""
        self.training = mode
        return self

    def eval(self) -> Self:
        """Makes later calls inference, from the running statistics. Returns the session."""
        return self.train(False)

    def _make_call(self, x: Any, options: Mapping[str, Any]) -> NormalizeCall:
        check_keywords("Session.normalize", options, SessionOptions.__annotations__)
        # A method without a running state is the same in training.
        training = self.training and self._info.has_state
        return make_call(self._as_target(), x, training=training, **options)

    def _note(self, call: NormalizeCall, result: Result) -> Result:
        if call.step is not None:
            self.last_state = result.state
        return result

    def _as_target(self) -> Target:
        return Target(session=resource_name(self.name))


class Session(SessionBase):
    """One session of a server. Safe from any thread; training steps of one object go one after another.

    Each training step has an id, so that it is sent again after a lost reply and counts once.
    """

    def __init__(
        self, target: str, service: SessionService, info: SessionInfo, client_id: Optional[str] = None
    ) -> None:
        super().__init__(target, service, info, client_id)
        # The server takes the steps of one client in the order of their numbers.
        self._order = threading.Lock()

    def __call__(self, x: A, **options: Unpack[CallOptions]) -> A:
        """y of x, [N, C, *] for a session with channels first.

        A method without running statistics (LayerNorm, ...) has one result. Of the others, in training the batch's
        statistics are used and the session moves by one step; if they hold NaN or Inf, y does,
        too, and the state stays (`last_state.reason`). Otherwise the running statistics are used.
        """
        y: A = self.normalize(x, **options).y
        return y

    def normalize(self, x: Any, **options: Unpack[SessionOptions]) -> Result:
        """A call of the session with all that was asked for: `Result.state` says what became of the session."""
        call = self._make_call(x, options)
        core = self._service.core
        if call.safe:  # inference, or a step that has an id already
            return self._note(call, run(core.normalize(call)))
        with self._order:
            call.step = self._trainer.next()
            return self._note(call, run(core.normalize(call)))

    # ---- Pooled training

    def moments(
        self, x: Any, *, mask: Any = None, exact: bool = False, timeout: Optional[float] = None
    ) -> Moments:
        """Count, mean and M2 of each channel of x, for `commit`. Nothing is applied.

        exact: with the exact sums of each channel. A step of which all moments have them leaves the same state, bit for
        bit, however its rows were cut into parts and in whatever order the parts are given:

            bn.commit([bn.moments(rows[40:], exact=True), bn.moments(rows[:40], exact=True)])
        """
        return run(self._service.core.moments(self._as_target(), x, mask, exact, timeout))

    def commit(
        self,
        moments: Sequence[Moments],
        *,
        step: Optional[Step] = None,
        expected_version: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> StateResult:
        """Merges the moments of several workers and applies them as one training step, exactly once.

        step: the same id for every try of the same step, if another process may repeat it.
        """
        with self._order:
            self.last_state = run(
                self._service.commit(self.name, moments, step or self._trainer.next(), expected_version, timeout)
            )
        return self.last_state

    # ---- State

    def info(self) -> SessionInfo:
        """The session as it is on the server now: one call."""
        self._info = run(self._service.get(self.name))
        return self._info

    @property
    def version(self) -> int:
        """+ 1 for every applied update. This and the properties below ask the server."""
        return self.info().version

    @property
    def running_mean(self) -> Optional[Array]:
        """[C], float64; None for a method without."""
        return self.info().running_mean

    @property
    def running_var(self) -> Optional[Array]:
        """[C], float64; None for a method without."""
        return self.info().running_var

    @property
    def running_phi(self) -> Optional[Array]:
        """[C], float64, of PowerNorm; None for other methods."""
        return self.info().running_phi

    @property
    def num_batches_tracked(self) -> int:
        """The training steps that were applied."""
        return self.info().num_batches

    @property
    def weight(self) -> Optional[Array]:
        return self.info().weight

    @property
    def bias(self) -> Optional[Array]:
        return self.info().bias

    def set_parameters(self, **parameters: Any) -> None:
        """Replaces weight=, bias= or both; None removes one. The version rises by 1."""
        self._info = run(self._service.set_parameters(self.name, parameters))

    def state_dict(self) -> Dict[str, Any]:
        """Weight, bias, running_mean, running_var and num_batches_tracked, with the names of torch.nn.

        Running statistics are float64, the state's own bits.
        """
        return state_dict(self.info())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes a state_dict, which needs the running statistics that the session has (else InvalidArgument).

        Weight, bias and num_batches_tracked stay as they are where the state_dict does not have them.
        The session is deleted and made anew with its spec and this state: version 0, a new uid, no step ids. Do not
        call it while others train.
        """
        self._info = run(self._service.load(self.name, self.info(), state))

    def reset(self) -> None:
        """Puts the running state back to its initial values; the version rises by 1."""
        self._info = run(self._service.reset(self.name))

    def fork(self, name: str) -> "Session":
        """A new session with the spec, parameters, labels and state of this one, at version 0."""
        return Session(self._target, self._service, run(self._service.fork(self.name, name)))

    def delete(self) -> None:
        """Deletes the session on the server."""
        run(self._service.delete(self.name))
