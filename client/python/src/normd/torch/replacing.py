"""Serves the norms of a model of torch.nn, in place, and takes it back.

A norm is not exchanged for another object: its class is. So parameters, buffers, hooks, the training flag, optimizers
that hold its parameters and modules that are used in two places stay what they are, and nothing is copied.
"""

from __future__ import annotations

import fnmatch
import re
import warnings
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Type, Union

import torch
from torch.nn import Module

from normd.torch import batch_norm, foreign, layers, pooled, running
from normd.torch._module import Served

# torch.nn's class, and the one that serves it.
_SERVED: Dict[Type[Module], Type[Any]] = {
    torch.nn.LayerNorm: layers.LayerNorm,
    torch.nn.GroupNorm: layers.GroupNorm,
    torch.nn.InstanceNorm1d: layers.InstanceNorm1d,
    torch.nn.InstanceNorm2d: layers.InstanceNorm2d,
    torch.nn.InstanceNorm3d: layers.InstanceNorm3d,
    torch.nn.BatchNorm1d: batch_norm.BatchNorm1d,
    torch.nn.BatchNorm2d: batch_norm.BatchNorm2d,
    torch.nn.BatchNorm3d: batch_norm.BatchNorm3d,
    layers.LocalRMSNorm: layers.RMSNorm,
}
_LOCAL = {served: local for local, served in _SERVED.items()}

# In eval without gradients, a TransformerEncoderLayer computes everything in one function, its norms with it, and a
# TransformerEncoder hands its layers nested tensors, if these attributes are true. They are used for nothing else.
_FAST_PATHS = (
    (torch.nn.TransformerEncoderLayer, "activation_relu_or_gelu"),
    (torch.nn.TransformerEncoder, "use_nested_tensor"),
)
_SAVED = "_normd_saved_fast_path"
# What DistributedDataParallel leaves alone: otherwise it writes the first process's buffers into those of the others
# before each forward, and what is written into buffers goes to their session.
_NOT_BROADCAST = "_ddp_params_and_buffers_to_ignore"


def replace(
    model: Module,
    client: Any = None,
    *,
    names: Optional[Iterable[str]] = None,
    filter: Optional[Callable[[str, Module], bool]] = None,
    sessions: Union[None, str, Callable[[str], str]] = None,
    process_group: Any = None,
    classes: Optional[Mapping[Type[Module], Type[Any]]] = None,
) -> List[str]:
    """Serves the norms of `model`, in place; returns their names, in the order of model.named_modules().

    Modules whose class is exactly LayerNorm, RMSNorm, GroupNorm, InstanceNorm1d to 3d or BatchNorm1d to 3d of torch.nn
    are served; subclasses are not, because their forward may differ. Other classes are with classes=. If the model has
    no served norm afterwards, a warning says what it has instead. TransformerEncoders of served norms leave
    PyTorch's fast path, which would compute the norms itself.

    Args:
      client: the normd.Client that is called; None is the default one.
      names: only modules whose names match one of these patterns (fnmatch: "encoder.layer.*.LayerNorm").
      filter: only modules for which filter(name, module) is true.
      sessions: where the running statistics of BatchNorm modules are. None: in the buffers of the modules. A prefix, or
        a function of the module's name: in sessions of the server, called "<prefix>.<name>", or what the function
        returns. A session that does not exist is created with the buffers' values; one that exists keeps its own.
      process_group: of torch.distributed; BatchNorm modules in training pool the statistics of all its processes.
      classes: which classes of the model's own are served, and as what: {LlamaRMSNorm: normd.torch.RMSNorm}, or a
        LayerNorm. Each of their modules computes an example first, and must agree with the service; its rounding, and
        whether it adds 1 to its weight, are found out by it.

    Raises ValueError, and replaces nothing, if a session's name would be invalid or that of two modules, if the group
    has no backend for the CPU, or if a module of `classes` computes something else.

        replace(model, sessions="resnet")
        optimizer.step(); ...
        restore(model)
    """
    pooled.check_group(process_group)
    classes = {} if classes is None else classes
    patterns = None if names is None else [names] if isinstance(names, str) else list(names)
    chosen = {
        name: module
        for name, module in model.named_modules()
        if (type(module) in _SERVED or type(module) in classes)
        and (patterns is None or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))
        and (filter is None or filter(name, module))
    }
    tracked = [name for name, module in chosen.items() if getattr(module, "track_running_stats", False)]
    kinds = {name: _SERVED.get(type(module)) for name, module in chosen.items()}
    tracked = [name for name in tracked if issubclass(kinds[name] or Module, batch_norm.SessionBatchNorm)]
    session_of = {} if sessions is None else _session_names(tracked, sessions)
    ways = {
        name: foreign.find_way(name, module, classes[type(module)], client)
        for name, module in chosen.items()
        if kinds[name] is None
    }
    for name, module in chosen.items():
        module.__class__ = kinds[name] or foreign.served_class(type(module))
        module.client = client
        if name in ways:
            module._way = ways[name]
        if isinstance(module, batch_norm.SessionBatchNorm):
            module._attach(session_of.get(name))
            module.process_group = process_group
    _keep_from_broadcast(model, session_of)
    for module in model.modules():
        _leave_fast_path(module)
    if not _has_served_norm(model):
        warnings.warn(_nothing_served(model, chosen_by=names is not None or filter is not None), stacklevel=2)
    return list(chosen)


def _nothing_served(model: Module, chosen_by: bool) -> str:
    said = "normd.torch.replace: the model has no norm that is served now"
    if chosen_by:
        return f"{said}; names= and filter= choose none"
    others = sorted({type(module).__name__ for module in model.modules() if "Norm" in type(module).__name__})
    if others:
        said += f"; its {', '.join(others)} are classes of their own: if they are RMSNorms or LayerNorms, name them in "
        said += "classes={...: normd.torch.RMSNorm}"
    return said


def restore(model: Module) -> List[str]:
    """Makes the served norms of `model` torch.nn's own again, in place; returns their names.

    The running statistics of sessions are fetched into the buffers first; the sessions stay. On an error of the server
    the norms that are not restored yet stay served.
    """
    restored = []
    for name, module in model.named_modules():
        local = _local_class(module)
        if local is None:
            continue
        if hasattr(module, "parametrizations"):
            raise TypeError(
                f"{name!r} has parametrizations: restore it after torch.nn.utils.parametrize.remove_parametrizations"
            )
        if isinstance(module, batch_norm.SessionBatchNorm):
            module.fetch()
        for attribute in module.SERVED:
            module.__dict__.pop(attribute, None)
        module.__class__ = local
        restored.append(name)
    _broadcast_again(model, restored)
    for module in model.modules():
        _take_fast_path(module)
    return restored


def _keep_from_broadcast(model: Module, names: Iterable[str]) -> None:
    buffers = [f"{name}.{buffer}".lstrip(".") for name in names for buffer in running.STATISTICS]
    if buffers:
        setattr(model, _NOT_BROADCAST, [*getattr(model, _NOT_BROADCAST, []), *buffers])


def _broadcast_again(model: Module, names: List[str]) -> None:
    buffers = {f"{name}.{buffer}".lstrip(".") for name in names for buffer in running.STATISTICS}
    ignored = [one for one in getattr(model, _NOT_BROADCAST, []) if one not in buffers]
    if ignored:
        setattr(model, _NOT_BROADCAST, ignored)
    else:
        model.__dict__.pop(_NOT_BROADCAST, None)


def _leave_fast_path(module: Module) -> None:
    for kind, attribute in _FAST_PATHS:
        # PyTorch before 2.0 has no use_nested_tensor: there the encoder asks its first layer.
        if isinstance(module, kind) and hasattr(module, attribute) and _has_served_norm(module):
            if _SAVED not in module.__dict__:
                setattr(module, _SAVED, getattr(module, attribute))
                setattr(module, attribute, 0)


def _take_fast_path(module: Module) -> None:
    for kind, attribute in _FAST_PATHS:
        if isinstance(module, kind) and _SAVED in module.__dict__ and not _has_served_norm(module):
            setattr(module, attribute, module.__dict__.pop(_SAVED))


def _has_served_norm(module: Module) -> bool:
    return any(isinstance(inside, Served) for inside in module.modules())


def _local_class(module: Module) -> Optional[Type[Module]]:
    """What a served module becomes; None for others, and for subclasses of served ones, which are somebody's own."""
    kind = type(module)
    if hasattr(module, "parametrizations"):  # PyTorch makes a subclass for it
        kind = kind.__bases__[0]
    return _LOCAL.get(kind) or kind.__dict__.get("LOCAL")


def _session_names(names: List[str], sessions: Union[str, Callable[[str], str]]) -> Dict[str, str]:
    found: Dict[str, str] = {}
    taken: Dict[str, str] = {}
    for name in names:
        if callable(sessions):
            session = sessions(name)
        else:
            session = re.sub(r"[^a-z0-9._-]", "-", f"{sessions}.{name}".rstrip(".").lower())
        if not re.fullmatch(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?", session):
            raise ValueError(
                f"the session of {name!r} would be {session!r}, which is not of the form "
                "[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?: pass a function as sessions="
            )
        if session in taken:
            raise ValueError(f"{taken[session]!r} and {name!r} would have the same session, {session!r}")
        found[name] = session
        taken[session] = name
    return found
