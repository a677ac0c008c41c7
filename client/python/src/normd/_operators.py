"""The operators, each written once: its arguments, as torch.nn.functional has them, its help, and the call it makes.

`normd.Client`, `normd.aio.Client` and the functions of the package have the same operators with the same arguments:
`blocking`, `awaited` and `of_package` make their forms of these. An operator here returns an Operation, which a client
runs on its Core. A new operator is one function here, and a line in each of the three.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import (
    TYPE_CHECKING, Any, Callable, Coroutine, FrozenSet, Mapping, Optional, Protocol, Sequence, Tuple, Union,
)  # fmt: skip

import numpy as np

from normd import _arrays, specs
from normd._arrays import A
from normd._core import Core
from normd._options import Options, add_keywords
from normd._request import SPEC_OPTIONS, NormalizeCall, Target, check_keywords, make_call, split_options
from normd._transport import run
from normd.errors import InvalidArgument
from normd.specs import Shape

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec, Unpack

    P = ParamSpec("P")

Operation = Callable[[Core], Coroutine[Any, Any, A]]
Given = Mapping[str, Any]
Parameters = Tuple[Any, ...]


class HasCore(Protocol):
    """A client."""

    _core: Core


# ---- The forms of an operator

_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
_CLIENT = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)


def blocking(operator: Callable[P, Operation[A]]) -> Callable[Concatenate[Any, P], A]:
    """A method of normd.Client."""

    def method(self: HasCore, *args: P.args, **kwargs: P.kwargs) -> A:
        return run(operator(*args, **kwargs)(self._core))

    return _finish(method, operator, before=[_SELF])


def awaited(operator: Callable[P, Operation[A]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, A]]:
    """A method of normd.aio.Client."""

    async def method(self: HasCore, *args: P.args, **kwargs: P.kwargs) -> A:
        return await operator(*args, **kwargs)(self._core)

    return _finish(method, operator, before=[_SELF])


def of_package(operator: Callable[P, Operation[A]], default_client: Callable[[], Any]) -> Callable[P, A]:
    """A function of the package, whose keyword `client` names another client than the default one."""

    def function(*args: P.args, **kwargs: P.kwargs) -> A:
        client: Any = kwargs.pop("client", None)
        return getattr(client or default_client(), operator.__name__)(*args, **kwargs)

    return _finish(function, operator, after=[_CLIENT])


def _finish(form: Any, operator: Any, before: Sequence[Any] = (), after: Sequence[Any] = ()) -> Any:
    """Gives a form of an operator the operator's name, help and arguments, and its own."""
    functools.update_wrapper(form, operator)
    del form.__wrapped__  # whose arguments are not those of the form
    signature = inspect.signature(operator)
    *arguments, options = signature.parameters.values()
    form.__signature__ = signature.replace(parameters=[*before, *arguments, *after, options], return_annotation="A")
    return form


# ---- From arguments to a NormalizeCall: makers get x, the arrays beside it, the other arguments and the keywords


def _operation(make: Any, x: A, parameters: Parameters, attributes: Tuple[Any, ...], options: Given) -> Operation[A]:
    return lambda core: core.operate(make, x, parameters, attributes, options)


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
    return frozenset(Options.__annotations__) - (set(SPEC_OPTIONS) - attributes) - {"client"}


def _maker(operator: str, spec: Any, *names: str) -> Callable[..., NormalizeCall]:
    """Of an operator whose other arguments are attributes of its spec."""

    def make(x: Any, parameters: Parameters, attributes: Tuple[Any, ...], options: Given) -> NormalizeCall:
        return _make(operator, spec, dict(zip(names, attributes)), x, parameters, options)

    return make


_make_layer_norm = _maker("layer_norm", specs.LayerNorm, "normalized_shape", "eps")
_make_rms_norm = _maker("rms_norm", specs.RMSNorm, "normalized_shape", "eps")
_make_group_norm = _maker("group_norm", specs.GroupNorm, "num_groups", "eps", "layout")
_make_p_rms_norm = _maker("p_rms_norm", specs.PRMSNorm, "p", "k", "eps")
_make_scale_norm = _maker("scale_norm", specs.ScaleNorm, "eps")
_make_lp_norm = _maker("lp_norm", specs.LpNorm, "p", "dim", "eps")


def _make_instance_norm(
    x: Any, parameters: Parameters, attributes: Tuple[bool, float, str], options: Given
) -> NormalizeCall:
    use_input_stats, eps, layout = attributes
    if not use_input_stats:
        # With given statistics InstanceNorm and BatchNorm are the same formula.
        return _make_batch_norm(x, parameters, (False, eps, layout), options, "instance_norm")
    if parameters[2] is not None or parameters[3] is not None:
        raise InvalidArgument(
            "running_mean and running_var are given with use_input_stats=True: running statistics that move with x are "
            'kept by a session, client.session("name", normd.InstanceNorm(C, track_running_stats=True))',
            field="running_mean",
            value="given",
            limit="absent with use_input_stats=True",
        )
    return _make("instance_norm", specs.InstanceNorm, {"eps": eps, "layout": layout}, x, parameters, options)


def _make_batch_norm(
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


def _make_power_norm(
    x: Any, parameters: Parameters, attributes: Tuple[bool, float, int], options: Given
) -> NormalizeCall:
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


async def _batch_norm_step(
    core: Core, x: Any, parameters: Parameters, attributes: Tuple[bool, float, str], momentum: float, options: Given
) -> Any:
    """batch_norm in training: y, after which running statistics of the caller's move as in torch."""
    call = _make_batch_norm(x, parameters, attributes, options)
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


# ---- The operators


def layer_norm(
    x: A,
    normalized_shape: Shape,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    **options: Unpack[Options],
) -> Operation[A]:
    """y = (x - mean) / sqrt(variance + eps) * weight + bias over the trailing axes `normalized_shape`.

    x, y: [*, *normalized_shape]; weight, bias: normalized_shape.
    InvalidArgument where x does not end in normalized_shape, or a parameter has another shape.
    """
    return _operation(_make_layer_norm, x, (weight, bias), (normalized_shape, eps), options)


def rms_norm(
    x: A,
    normalized_shape: Shape,
    weight: Any = None,
    eps: Optional[float] = None,
    **options: Unpack[Options],
) -> Operation[A]:
    """y = x / sqrt(mean(x^2) + eps) * weight over the trailing axes `normalized_shape`.

    x, y: [*, *normalized_shape]; weight: normalized_shape. eps None, as in torch: 2^-23, for float64
    2^-52.
    InvalidArgument where x does not end in normalized_shape, or weight has another shape.
    """
    return _operation(_make_rms_norm, x, (weight,), (normalized_shape, eps), options)


def group_norm(
    x: A,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    layout: str = "channels_first",
    **options: Unpack[Options],
) -> Operation[A]:
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each sample and group of C / num_groups channels.

    x, y: [N, C, *] (layout="channels_last": [N, *, C]); weight, bias: [C]. InvalidArgument where num_groups does
    not divide C, or a parameter has another length.
    """
    return _operation(_make_group_norm, x, (weight, bias), (num_groups, eps, layout), options)


def instance_norm(
    x: A,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    layout: str = "channels_first",
    **options: Unpack[Options],
) -> Operation[A]:
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each sample and channel, over the spatial axes.

    x, y: [N, C, *] (layout="channels_last": [N, *, C]); the rest: [C]. With use_input_stats=False the given running
    statistics are used instead of those of x. Running statistics that move with x are kept by a session:
    InvalidArgument where they are given together with use_input_stats=True, and `momentum` has no effect.
    InvalidArgument, too, where a parameter has another length.
    """
    parameters = (weight, bias, running_mean, running_var)
    return _operation(_make_instance_norm, x, parameters, (use_input_stats, eps, layout), options)


def batch_norm(
    x: A,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    layout: str = "channels_first",
    **options: Unpack[Options],
) -> Operation[A]:
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel.

    x, y: [N, C, *] (layout="channels_last": [N, *, C]); the rest: [C]. training=False uses the given running
    statistics, both of which are needed. training=True uses those of the batch, and then moves running_mean and
    running_var, where given, in place, as torch does: (1 - momentum) * old + momentum * new, the variance unbiased.
    A `session` keeps them on the server instead, where every step counts once. InvalidArgument where a parameter
    has another length, statistics are missing, or those that are to move are no writable array of floats.
    """
    parameters, attributes = (weight, bias, running_mean, running_var), (training, eps, layout)
    if training:
        return lambda core: _batch_norm_step(core, x, parameters, attributes, momentum, options)
    return _operation(_make_batch_norm, x, parameters, attributes, options)


def p_rms_norm(
    x: A,
    p: Optional[float] = None,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-6,
    *,
    k: Optional[int] = None,
    **options: Unpack[Options],
) -> Operation[A]:
    """y = x / sqrt(mean of the first k x^2 + eps) * weight + bias over the d elements of the last axis.

    x, y: [*, d]; weight, bias: [d]. Either p in (0, 1], for k = p * d rounded up, or k itself. InvalidArgument
    where p or k is out of range, both or neither are given, or a parameter has another length.
    """
    return _operation(_make_p_rms_norm, x, (weight, bias), (p, k, eps), options)


def scale_norm(
    x: A, weight: Any = None, bias: Any = None, eps: float = 1e-5, **options: Unpack[Options]
) -> Operation[A]:
    """y = x / (|x| + eps) * weight + bias over the last axis, |x| the L2 norm.

    x, y: [*, d]; weight, bias: one number each, InvalidArgument otherwise.
    """
    return _operation(_make_scale_norm, x, (weight, bias), (eps,), options)


def lp_norm(
    x: A,
    p: float = 2.0,
    dim: Union[int, Sequence[int], None] = 1,
    eps: float = 1e-12,
    **options: Unpack[Options],
) -> Operation[A]:
    """y = x / max(|x|_p, eps) over `dim`, one axis or several: torch.nn.functional.normalize.

    x, y: any shape of 1 to 8 axes. p: from 1 on; math.inf divides by the largest |x|. InvalidArgument where p is
    smaller, or dim is no axis of x.
    """
    return _operation(_make_lp_norm, x, (), (p, dim, eps), options)


def power_norm(
    x: A,
    running_phi: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    eps: float = 1e-5,
    *,
    num_groups: int = 1,
    **options: Unpack[Options],
) -> Operation[A]:
    """PowerNorm: x over the root mean square of its group, over sqrt(phi + eps), * weight + bias.

    x, y: [T, B, C] or [B, C]; running_phi, weight, bias: [C]. Inference divides by running_phi (phi of a session);
    training=True is the first step of a new state. InvalidArgument where num_groups does not divide C, or a
    parameter has another length or is missing.
    """
    parameters, attributes = (weight, bias, None, running_phi), (training, eps, num_groups)
    return _operation(_make_power_norm, x, parameters, attributes, options)


for _operator in (
    layer_norm, rms_norm, group_norm, instance_norm, batch_norm, p_rms_norm, scale_norm, lp_norm, power_norm
):  # fmt: skip
    add_keywords(_operator)
