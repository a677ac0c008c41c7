"""normd: normalisation of tensors by a normd server, from numpy and torch.

    import normd
    y = normd.layer_norm(x, (768,), weight, bias, eps=1e-5)

Operators have the names, arguments and defaults of torch.nn.functional. `connect` makes a client of a server,
`Client.session` a layer whose running statistics live there. "Training" means running statistics: the service has no
backward pass. `import normd.torch` has modules of torch.nn whose gradients PyTorch computes locally.
"""

import os
from typing import Any

# gRPC's threads may hold locks when a program forks, and its child would then wait for ever to make a connection. With
# this, which gRPC reads when it is imported, they rest while the program forks.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")

from normd import aio
from normd._core import Moments
from normd._options import CallOptions, Options, ResultOptions, SessionOptions, SpecOptions, Step
from normd._path import OpenPath
from normd._request import NormalizeCall
from normd._results import Applied, Result, StateResult
from normd._retry import RetryOptions
from normd._security import SecurityOptions
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

__path__ = OpenPath(__path__, __name__)

__all__ = [
    "Aborted",
    "aio",
    "AlreadyExists",
    "Applied",
    "batch_norm",
    "BatchNorm",
    "CallOptions",
    "Cancelled",
    "Client",
    "connect",
    "DataLoss",
    "DeadlineExceeded",
    "default_client",
    "Error",
    "FailedPrecondition",
    "group_norm",
    "GroupNorm",
    "instance_norm",
    "InstanceNorm",
    "Internal",
    "InvalidArgument",
    "layer_norm",
    "LayerNorm",
    "lp_norm",
    "LpNorm",
    "Moments",
    "NormalizeCall",
    "NotFound",
    "Options",
    "OutOfRange",
    "p_rms_norm",
    "PermissionDenied",
    "power_norm",
    "PowerNorm",
    "PRMSNorm",
    "ResourceExhausted",
    "Result",
    "ResultOptions",
    "RetryOptions",
    "rms_norm",
    "RMSNorm",
    "scale_norm",
    "ScaleNorm",
    "SecurityOptions",
    "Session",
    "SessionInfo",
    "SessionOptions",
    "set_default_client",
    "Spec",
    "SpecOptions",
    "StateResult",
    "Step",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        import importlib.metadata

        return importlib.metadata.version("normd")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
