"""BatchNorm1d, 2d and 3d of torch.nn, computed by the service, with running statistics in buffers or in a session.

In the path: functional.py does the calls, running.py keeps the session and the buffers together, pooled.py has the
statistics of several processes, _module.py is the common base.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch
from torch import Tensor

from normd._core import Moments
from normd.torch import functional, pooled
from normd.torch.running import RunningStatistics


class SessionBatchNorm(RunningStatistics):
    """What BatchNorm1d, 2d and 3d share; beside the arguments of torch.nn's they take

    client: the normd.Client that is called; None is the default one.
    session: the name of the session that keeps the running statistics; None: the buffers keep them, as in torch.nn.
    process_group: of torch.distributed; training then uses the statistics of the batches of all its processes together.
      Its backend must serve tensors on the CPU, as gloo does; else ValueError.

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
      - running_mean, running_var, num_batches_tracked, buffers() and state_dict() fetch the session's values: each is a
        call, as fetch() is. A tensor that was got so follows this module's own steps, but not those of others.
      - What is written into the buffers, by assignment, in place, by load_state_dict() or by reset_running_stats(), and
        other values of momentum and eps, replace the session by one with the new values: load_state_dict() and
        reset_running_stats() at once, the others at the module's next use. Do not do it while others train. With a
        process_group what the first process writes counts.
      - copy.deepcopy gives a module without a session, with the values of this moment in its buffers.
    """

    SERVED: Dict[str, Any] = {**RunningStatistics.SERVED, "process_group": None}

    process_group: Any = None

    def __init__(
        self,
        *args: Any,
        client: Any = None,
        session: Optional[str] = None,
        process_group: Any = None,
        **kwargs: Any,
    ) -> None:
        pooled.check_group(process_group)
        super().__init__(*args, client=client, session=session, **kwargs)
        self.process_group = process_group

    def _serve(self, input: Tensor) -> Tensor:
        module: Any = self
        module._check_input_dim(input)
        if module.training:
            return self._train(input)
        self.fetch()
        mean, var = self._statistic("running_mean"), self._statistic("running_var")
        by_batch = mean is None and var is None
        return functional.batch_norm(
            input, mean, var, module.weight, module.bias, by_batch, 0.0, module.eps, client=self.client
        )

    def _train(self, input: Tensor) -> Tensor:
        module: Any = self
        tracked = module.track_running_stats
        mean, var = (self._statistic(name) if tracked else None for name in ("running_mean", "running_var"))
        functional.check_channels(input, mean, var, module.weight, module.bias)
        moments: List[Moments] = []
        if self.process_group is None:
            y = functional.train_batch_norm(input, module.weight, module.bias, module.eps, self.client, moments)
        else:
            y = pooled.train_batch_norm(
                input, module.weight, module.bias, module.eps, self.client, self.process_group, moments
            )
        if tracked:
            self._step(moments)
        return y

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        clone = super().__deepcopy__(memo)
        clone.process_group = self.process_group  # shared, as the client is
        return clone

    def _is_first(self) -> bool:
        return self.process_group is None or torch.distributed.get_rank(self.process_group) == 0


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
