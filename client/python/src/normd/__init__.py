"""normd: normalisation of tensors by a normd server, from numpy and torch.

    import normd
    y = normd.layer_norm(x, (768,), weight, bias, eps=1e-5)

Operators have the names, arguments and defaults of torch.nn.functional. `connect` makes a client of a server,
`Client.session` a layer whose running statistics live there. "Training" means running statistics: normd has no
backward pass and computes no gradients.
"""

from normd._core import Moments
from normd._request import Applied, CallOptions, NormalizeCall, Options, Result, StateResult, Step
from normd._retry import RetryOptions
from normd._sessions import SessionInfo
from normd.client import Client, connect
from normd.errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)
from normd.functional import (
    batch_norm,
    default_client,
    group_norm,
    instance_norm,
    layer_norm,
    lp_norm,
    p_rms_norm,
    power_norm,
    rms_norm,
    scale_norm,
    set_default_client,
)
from normd.session import Session
from normd.specs import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LpNorm,
    PowerNorm,
    PRMSNorm,
    RMSNorm,
    ScaleNorm,
    Spec,
)

__all__ = [name for name in dir() if not name.startswith("_")]
