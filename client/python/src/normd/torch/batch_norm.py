"""BatchNorm1d, 2d and 3d of torch.nn, computed by the service, with running statistics in buffers or in a session.

In the path: functional.py does the calls, pooled.py the statistics of several processes, _module.py is the common base.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

import torch
from torch import Tensor

import normd
from normd._core import Moments, to_tensor
from normd._sessions import new_session
from normd._transport import run
from normd.session import Session
from normd.torch import functional, pooled
from normd.torch._module import Served

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class SessionBatchNorm(Served):
    """What BatchNorm1d, 2d and 3d share; beside the arguments of torch.nn's they take

    client: the normd.Client that is called; None is the default one.
    session: the name of the session that keeps the running statistics; None: the buffers keep them, as in torch.nn.
    process_group: of torch.distributed; training then uses the statistics of the batches of all its processes together.

    With a session:
      - The session is opened at the first use. It is created, with the buffers' values, if it does not exist; one that
        exists keeps its own, and must have the same eps, momentum and number of features (FailedPrecondition).
      - A forward in training computes y and the batch's moments, then commits the moments as one training step. The
        step has an id: it is sent again after a lost reply, and counts once. Where all retries fail, Unavailable is
        raised, and whether the step counted is seen from num_batches_tracked later. With a process_group the first
        process commits the moments of all of them, and the others see the step when its forward has returned. A batch
        whose statistics hold NaN or Inf moves nothing (torch.nn's would hold NaN from then on): see last_state.
      - A forward in eval fetches the session's newest statistics, whoever trained them, and uses this module's weight
        and bias, which are never given to the session.
      - running_mean, running_var, num_batches_tracked and state_dict() fetch the session's values if this module has
        trained since; fetch() always does. buffers() alone does not: call fetch() before it.
      - load_state_dict() and reset_running_stats() replace the session by one with the new values: do not call them
        while others train.
      - copy.deepcopy gives a module without a session, with the values of this moment in its buffers.
    """

    SERVED: Dict[str, Any] = {
        "client": None,
        "session": None,
        "process_group": None,
        "_opened": None,
        "_opened_with": None,
        "_fetch_needed": False,
        "_store_needed": False,
    }

    session: Optional[str] = None
    process_group: Any = None
    _opened: Optional[Session] = None
    _opened_with: Any = None
    # The session has moved since the buffers were read; the buffers have moved since the session was written.
    _fetch_needed = False
    _store_needed = False

    def __init__(
        self,
        *args: Any,
        client: Any = None,
        session: Optional[str] = None,
        process_group: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, client=client, **kwargs)
        self.session = session
        self.process_group = process_group
        if session is not None and not self.track_running_stats:
            raise ValueError(f"session={session!r} needs track_running_stats=True: it keeps the running statistics")

    # ---- Forward

    def _serve(self, input: Tensor) -> Tensor:
        module: Any = self
        module._check_input_dim(input)
        if input.size(1) != module.num_features:
            raise ValueError(f"x has {input.size(1)} channels; the module has num_features={module.num_features}")
        if not module.training and module.track_running_stats:
            return self._infer(input)
        moments: List[Moments] = []
        if self.process_group is None or not module.training:
            y = functional.train_batch_norm(input, module.weight, module.bias, module.eps, self.client, moments)
        else:
            y = pooled.train_batch_norm(
                input, module.weight, module.bias, module.eps, self.client, self.process_group, moments
            )
        if module.training and module.track_running_stats:
            self._step(moments)
        return y

    def _step(self, moments: List[Moments]) -> None:
        if self.session is not None:
            if self.process_group is None or torch.distributed.get_rank(self.process_group) == 0:
                self._open().commit(moments)
            self._fetch_needed = True
            return
        module: Any = self
        module.num_batches_tracked.add_(1)
        weight = 1.0 / int(module.num_batches_tracked) if module.momentum is None else module.momentum
        functional.move_running(module.running_mean, module.running_var, functional.merge(moments), weight)

    def _infer(self, input: Tensor) -> Tensor:
        module: Any = self
        self.fetch()
        return functional.batch_norm(
            input,
            module.running_mean,
            module.running_var,
            module.weight,
            module.bias,
            False,
            0.0,
            module.eps,
            client=self.client,
        )

    # ---- The session

    def _open(self) -> Session:
        """The session, with the buffers' values if they are newer."""
        assert self.session is not None
        client = functional.resolve(self.client)
        if self._opened is None or self._opened_with != (client, self.session):
            self._opened = self._create_or_open(client, self.session)
            self._opened_with = (client, self.session)
        if self._store_needed:
            self._opened.load_state_dict(self._values())
            self._store_needed = False
        return self._opened

    def _create_or_open(self, client: Any, name: str) -> Session:
        module: Any = self
        spec = normd.BatchNorm(module.num_features, eps=module.eps, momentum=module.momentum, affine=False)
        message = new_session(spec, None, None, None, None)
        values = self._values()
        message.state.mean.CopyFrom(to_tensor(values["running_mean"], "running_mean"))
        message.state.var.CopyFrom(to_tensor(values["running_var"], "running_var"))
        message.state.num_batches = values["num_batches_tracked"]
        try:
            run(client._sessions.create(name, message))
            self._store_needed = False
        except normd.AlreadyExists:
            self._fetch_needed = True
        return client.session(name, spec)

    def _values(self) -> Dict[str, Any]:
        mean, var, count = (self._buffers[name] for name in _STATISTICS)
        return {
            "running_mean": mean.double().numpy(),
            "running_var": var.double().numpy(),
            "num_batches_tracked": int(count),
        }

    @property
    def last_state(self) -> Optional[normd.StateResult]:
        """What this module's latest training step did to the session: version, applied, reason, replayed.

        None before the first one, without a session, and in a process that does not commit.
        """
        return None if self._opened is None else self._opened.last_state

    def fetch(self) -> None:
        """Copies the session's running statistics into the buffers; does nothing without a session."""
        if self.session is None or not self.track_running_stats:
            return
        info = self._open().info()
        buffers = self._buffers
        buffers["running_mean"].copy_(torch.from_numpy(info.running_mean))
        buffers["running_var"].copy_(torch.from_numpy(info.running_var))
        buffers["num_batches_tracked"].fill_(info.num_batches)
        self._fetch_needed = False

    def _fetch_if_needed(self) -> None:
        if self._fetch_needed:
            self.fetch()

    # ---- torch.nn.Module

    def __getattr__(self, name: str) -> Any:
        # nn.Module looks buffers up here. `_fetch_needed` is a class attribute, so this cannot recur.
        if name in _STATISTICS:
            self._fetch_if_needed()
        return super().__getattr__(name)  # type: ignore[misc]

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self._fetch_if_needed()
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[misc]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        given = any(prefix + name in state_dict for name in _STATISTICS)
        if given:
            self._fetch_if_needed()  # what the state_dict does not have stays as it is now
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[misc]
        if given:
            self._replace_session()
        else:
            self._fetch_needed = self.session is not None  # torch.nn has set num_batches_tracked to 0, perhaps

    def reset_running_stats(self) -> None:
        super().reset_running_stats()  # type: ignore[misc]
        self._replace_session()

    def _replace_session(self) -> None:
        """After the buffers have changed."""
        if self.session is not None:
            self._fetch_needed, self._store_needed = False, True
            self._open()

    def _without_service(self) -> Dict[str, Any]:
        self._fetch_if_needed()
        return super()._without_service()

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "session": self.session}


class BatchNorm1d(SessionBatchNorm, torch.nn.BatchNorm1d):
    """torch.nn.BatchNorm1d, computed by the service; SessionBatchNorm has the arguments beside those of torch.nn.

    x: [N, C] or [N, C, L]; weight, bias, running_mean, running_var: [C]. Errors: see normd.torch.functional; ValueError
    for one value per channel in training.
    """


class BatchNorm2d(SessionBatchNorm, torch.nn.BatchNorm2d):
    """torch.nn.BatchNorm2d, computed by the service; SessionBatchNorm has the arguments beside those of torch.nn.

    x: [N, C, H, W]; weight, bias, running_mean, running_var: [C]. Errors: as BatchNorm1d.

        bn = normd.torch.BatchNorm2d(64, session="stem.bn1")
        y = bn(torch.randn(8, 64, 16, 16))      # one training step of the session
        bn.eval()
        y = bn(torch.randn(1, 64, 16, 16))      # from the session's running statistics
        bn.running_mean                         # fetched
    """


class BatchNorm3d(SessionBatchNorm, torch.nn.BatchNorm3d):
    """torch.nn.BatchNorm3d, computed by the service; SessionBatchNorm has the arguments beside those of torch.nn.

    x: [N, C, D, H, W]; weight, bias, running_mean, running_var: [C]. Errors: as BatchNorm1d.
    """
