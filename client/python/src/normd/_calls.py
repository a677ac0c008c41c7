"""The operators as calls: from arguments as torch.nn.functional has them to a NormalizeCall, for both clients."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, FrozenSet, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from normd import _arrays, specs
from normd._core import Core
from normd._options import Options, SpecOptions
from normd._request import SPEC_OPTIONS, NormalizeCall, Target, check_keywords, make_call, split_options
from normd.errors import InvalidArgument
from normd.specs import Shape, Spec

Given = Mapping[str, Any]


Parameters = Tuple[Any, ...]


def _make(
    operator: str, spec: Any, attributes: Given, x: Any, parameters: Sequence[Any], options: Given, **rest: Any
) -> NormalizeCall:
    check_keywords(operator, options, _keywords(spec))
    of_spec, of_call = split_options(options)
    return make_call(Target(spec(**attributes, **of_spec)), x, parameters, **of_call, **rest)


@functools.lru_cache(maxsize=None)
def _keywords(spec: Any) -> FrozenSet[str]:
    """Those of an operator: its spec may have fewer attributes than others."""
    attributes = {field.name for field in dataclasses.fields(spec)}
    return frozenset(Options.__annotations__) - (set(SPEC_OPTIONS) - attributes)


# Each operator takes x, the arrays beside it, its other arguments as a tuple, and the keywords of every operator.


def layer_norm(x: Any, parameters: Parameters, attributes: Tuple[Shape, float], options: Given) -> NormalizeCall:
    shape, eps = attributes
    return _make("layer_norm", specs.LayerNorm, {"normalized_shape": shape, "eps": eps}, x, parameters, options)


def rms_norm(
    x: Any, parameters: Parameters, attributes: Tuple[Shape, Optional[float]], options: Given
) -> NormalizeCall:
    shape, eps = attributes
    return _make("rms_norm", specs.RMSNorm, {"normalized_shape": shape, "eps": eps}, x, parameters, options)


def group_norm(x: Any, parameters: Parameters, attributes: Tuple[int, float, str], options: Given) -> NormalizeCall:
    num_groups, eps, layout = attributes
    given = {"num_groups": num_groups, "eps": eps, "layout": layout}
    return _make("group_norm", specs.GroupNorm, given, x, parameters, options)


def instance_norm(
    x: Any, parameters: Parameters, attributes: Tuple[bool, float, str], options: Given
) -> NormalizeCall:
    use_input_stats, eps, layout = attributes
    if not use_input_stats:
        # With given statistics InstanceNorm and BatchNorm are the same formula.
        return batch_norm(x, parameters, (False, eps, layout), options, "instance_norm")
    if parameters[2] is not None or parameters[3] is not None:
        raise InvalidArgument(
            "running_mean and running_var are given with use_input_stats=True: running statistics that move with x are "
            'kept by a session, client.session("name", normd.InstanceNorm(C, track_running_stats=True))',
            field="running_mean",
            value="given",
            limit="absent with use_input_stats=True",
        )
    return _make("instance_norm", specs.InstanceNorm, {"eps": eps, "layout": layout}, x, parameters, options)


def batch_norm(
    x: Any,
    parameters: Parameters,
    attributes: Tuple[bool, float, str],
    options: Given,
    operator: str = "batch_norm",
) -> NormalizeCall:
    training, eps, layout = attributes
    moves = training and (parameters[2] is not None or parameters[3] is not None)
    return _make(
        operator,
        specs.BatchNorm,
        {"eps": eps, "layout": layout},
        x,
        parameters[:2] if training else parameters,
        options,
        training=training,
        outputs=("y", "moments") if moves else ("y",),
    )


async def batch_norm_step(
    core: Core, x: Any, parameters: Parameters, attributes: Tuple[bool, float, str], momentum: float, options: Given
) -> Any:
    """batch_norm in training: y, after which running statistics of the caller's move as in torch."""
    call = batch_norm(x, parameters, attributes, options)
    mean, var = parameters[2:]
    is_last = specs.is_channels_last(attributes[2])
    channels = call.x.shape[-1 if is_last else 1] if len(call.x.shape) > 1 else 0  # the server refuses rank 1
    for running, name in ((mean, "running_mean"), (var, "running_var")):
        if running is not None and channels:
            _arrays.check_running(running, channels, name)
    result = await core.normalize(call)
    if result.moments is not None and result.moments.count.any():  # an empty batch moves nothing, as in torch
        n = np.maximum(result.moments.count, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            unbiased = np.where(n > 1, result.moments.m2 / (n - 1), np.nan)
        for running, new in ((mean, result.moments.mean), (var, unbiased)):
            if running is not None:
                _move(running, new, momentum)
    return result.y


def _move(running: Any, new: np.ndarray[Any, np.dtype[Any]], momentum: float) -> None:
    if isinstance(running, np.ndarray):
        running[...] = (1 - momentum) * running.astype(np.float64) + momentum * new
    else:  # a torch tensor, whose own arithmetic is in place
        running.copy_((1 - momentum) * running.double() + momentum * running.new_tensor(new).double())


def p_rms_norm(
    x: Any, parameters: Parameters, attributes: Tuple[Optional[float], Optional[int], float], options: Given
) -> NormalizeCall:
    p, k, eps = attributes
    return _make("p_rms_norm", specs.PRMSNorm, {"p": p, "k": k, "eps": eps}, x, parameters, options)


def scale_norm(x: Any, parameters: Parameters, attributes: Tuple[float], options: Given) -> NormalizeCall:
    return _make("scale_norm", specs.ScaleNorm, {"eps": attributes[0]}, x, parameters, options)


def lp_norm(
    x: Any, parameters: Parameters, attributes: Tuple[float, Union[int, Sequence[int], None], float], options: Given
) -> NormalizeCall:
    p, dim, eps = attributes
    return _make("lp_norm", specs.LpNorm, {"p": p, "dim": dim, "eps": eps}, x, parameters, options)


def power_norm(x: Any, parameters: Parameters, attributes: Tuple[bool, float, int], options: Given) -> NormalizeCall:
    training, eps, num_groups = attributes
    return _make(
        "power_norm",
        specs.PowerNorm,
        {"eps": eps, "num_groups": num_groups},
        x,
        parameters[:2] if training else parameters,
        options,
        training=training,
    )


_NORMALIZE_KEYWORDS = frozenset(SpecOptions.__annotations__) | {"progress"}  # the last one is normalize_file's


def normalize(
    spec: Spec,
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    running_mean: Any = None,
    running_var: Any = None,
    **options: Any,
) -> NormalizeCall:
    check_keywords("normalize", options, _NORMALIZE_KEYWORDS)
    return make_call(Target(spec), x, (weight, bias, running_mean, running_var), **options)


def _parse_dtype(dtype: Any) -> Tuple[int, Optional["np.dtype[Any]"]]:
    """The number of a dtype, and the type of bfloat16 arrays."""
    if str(dtype) == "bfloat16" or getattr(dtype, "__name__", "") == "bfloat16":
        import ml_dtypes

        return _arrays.BF16, np.dtype(ml_dtypes.bfloat16)
    return _arrays.operand(np.empty(0, dtype), "array").dtype, None


async def empty(core: Core, shape: Shape, dtype: Any) -> np.ndarray[Any, np.dtype[Any]]:
    code, bfloat16 = _parse_dtype(dtype)
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    words = await core.empty(extents, code)
    return words if bfloat16 is None else words.view(bfloat16)


async def shared_array(core: Core, x: Any) -> np.ndarray[Any, np.dtype[Any]]:
    found = _arrays.operand(x, "x")
    words = await core.empty(found.shape, found.dtype)
    np.copyto(words, found.words)
    result: np.ndarray[Any, np.dtype[Any]] = np.asarray(found.restore(words))
    return result
