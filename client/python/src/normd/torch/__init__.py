"""The norms of torch.nn, computed by a normd server.

    import normd.torch

    norm = normd.torch.LayerNorm(768)                 # instead of torch.nn.LayerNorm(768)
    y = norm(x)

    normd.torch.replace(model)                        # every norm of a model, in place
    y = model(x)
    normd.torch.restore(model)                        # torch.nn's own again, with the current values

Modules are those of torch.nn in everything but forward: constructor, parameters, buffers, state_dict, isinstance; their
repr says `served`. The server is that of `client=`, by default normd.default_client(). `normd.torch.functional` has the
functions.

Gradients. The service has no backward pass. A forward pass that needs gradients calls the service for y, and PyTorch
computes the gradients locally from the saved x, as for its own norm: training works, and its backward costs what a
local forward and backward of the norm cost. Second derivatives and torch.func.grad work; torch.func.vmap and
forward-mode derivatives raise RuntimeError.

Running statistics of BatchNorm are in the module's buffers, or, with session=, in a session of the server, where every
training step counts once, even if the server is killed on the way. With process_group= several processes train on
their batches together.

Tensors are on the CPU, float32, float16, bfloat16 or float64; others raise ValueError or TypeError.

Modules can be deep-copied and pickled: a copy has the same client, an unpickled module the default one. Under
torch.compile they run outside of the compiled graph. torch.jit.script, torch.jit.trace and symbolic tracing raise
TypeError or RuntimeError: restore the model first. One case escapes: a TransformerEncoderLayer whose norms were put in
by hand computes them itself in eval without gradients (PyTorch's fast path); `replace` turns that path off.
"""

from normd.torch import functional
from normd.torch.batch_norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from normd.torch.layers import GroupNorm, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LayerNorm, RMSNorm
from normd.torch.replacing import replace, restore

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "RMSNorm",
    "functional",
    "replace",
    "restore",
]
