"""One normalisation: arguments of the caller to the call of golden.h, and its outputs back."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from normd_golden import _formats, _library, _tensors, specs
from normd_golden._formats import Array
from normd_golden._tensors import Operand
from normd_golden.specs import Spec

# Keywords of `arguments`, of all methods and of those with running statistics.
OF_CALL = ("residual", "residual_scale", "residual_rounding", "mask")
OF_STATE = ("running_mean", "running_var", "training")
_OUTPUTS = ("y", "h", "mean", "inv_std")


class Result(NamedTuple):
    """The outputs of a normalisation, None where not asked for."""

    y: Any
    h: Any  # x + residual_scale * residual; None without a residual
    mean: Any
    inv_std: Any  # 1 / divisor
    rounding: str  # of y: "NEAREST", or "BOUNDED": within 1 ulp, of float64 within 4


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The arguments of one normalisation, read once."""

    spec: Spec
    x: Operand
    weight: Optional[Operand] = None
    bias: Optional[Operand] = None
    residual: Optional[Operand] = None
    residual_scale: float = 1.0
    residual_rounding: str = "round_first"
    running_mean: Optional[Array] = None
    running_var: Optional[Array] = None
    training: bool = False
    mask: Optional[Array] = None

    def call(self) -> _library.Call:
        """The struct, which borrows from these arguments."""
        call = _library.Call()
        self.spec.fill(call.spec, self.x.format is _formats.F64)
        call.training = self.training
        call.residual_rounding = specs.enum_number("residual_rounding", self.residual_rounding)
        call.residual_scale = self.residual_scale
        for name in ("x", "weight", "bias", "residual"):
            value: Optional[Operand] = getattr(self, name)
            if value is not None:
                setattr(call, name, value.tensor())
        if self.running_var is not None:
            call.given_variance, call.num_given = self.running_var.ctypes.data, self.running_var.size
            call.given_mean = None if self.running_mean is None else self.running_mean.ctypes.data
        if self.mask is not None:
            call.mask, call.num_positions = self.mask.ctypes.data, self.mask.size
        return call

    def widened(self) -> Arguments:
        """The same numbers with x as float64, so that y is the nearest float64. h, where rounded, is x already."""
        x, residual = self.x, self.residual
        if residual is not None and self.residual_rounding == "round_first":
            h = run(self, ("h",)).h
            assert h is not None
            x, residual = h, None
        if residual is not None:
            residual = residual.like(_formats.F64, residual.widened())
        wide = x.like(_formats.F64, x.widened())
        spec = self.spec
        if getattr(spec, "eps", 0.0) is None:  # RMSNorm's default depends on the type
            spec = dataclasses.replace(spec, eps=spec.eps_for(self.x.format is _formats.F64))  # type: ignore[call-arg]
        return dataclasses.replace(self, spec=spec, x=wide, residual=residual)


class Words(NamedTuple):
    """The outputs as operands."""

    y: Optional[Operand]
    h: Optional[Operand]
    mean: Optional[Operand]
    inv_std: Optional[Operand]
    is_nearest: bool


def arguments(spec: Union[str, Spec], x: Any, weight: Any = None, bias: Any = None, **rest: Any) -> Arguments:
    """The arguments as tensors. `training` None: the statistics of x where none are given.

    With `training` the running statistics are left aside, as torch does, whose update of them is no result here.
    """
    for name in rest:
        if name not in OF_CALL + OF_STATE:
            raise TypeError(f"{name} is no argument; {', '.join(OF_CALL + OF_STATE)} are possible")
    return _read(spec, x, weight, bias, **rest)


def _read(
    spec: Union[str, Spec],
    x: Any,
    weight: Any,
    bias: Any,
    *,
    residual: Any = None,
    residual_scale: float = 1.0,
    residual_rounding: Optional[str] = "round_first",
    running_mean: Any = None,
    running_var: Any = None,
    training: Optional[bool] = None,
    mask: Any = None,
) -> Arguments:
    read = _tensors.operand(x, "x")
    spec = specs.as_spec(spec, read.shape)
    if isinstance(spec, specs.LpNorm):
        spec = specs.all_axes(spec, len(read.shape))
    _check_takes(spec, running_mean, running_var)
    mean, var = _tensors.statistics(running_mean, "running_mean"), _tensors.statistics(running_var, "running_var")
    if mean is not None and (var is None or mean.size != var.size):
        other = 0 if var is None else var.size
        raise ValueError(f"running_mean has {mean.size} values; running_var must have as many, and has {other}")
    if mean is None and var is not None and isinstance(spec, specs.BatchNorm):
        raise ValueError("running_mean is missing; give it with running_var")
    is_training = var is None if training is None else specs.flag(training, "training")
    scale = specs.number(residual_scale, "residual_scale")
    if residual is None and scale != 1:
        raise ValueError(f"residual_scale is {scale}; give the residual that it scales")
    return Arguments(
        spec=spec,
        x=read,
        weight=_tensors.parameter(weight, "weight"),
        bias=_tensors.parameter(bias, "bias"),
        residual=None if residual is None else _tensors.operand(residual, "residual"),
        residual_scale=scale,
        residual_rounding=_rounding(residual_rounding),
        running_mean=None if is_training else mean,
        running_var=None if is_training else var,
        training=is_training,
        mask=_mask(mask, spec, read.shape),
    )


def _rounding(value: Optional[str]) -> str:
    """None is the default, as it is for the attributes of specs."""
    if value is None:
        return "round_first"
    specs.enum_number("residual_rounding", value)
    return value


def _mask(mask: Any, spec: Spec, shape: Tuple[int, ...]) -> Optional[Array]:
    """A mask of the shape of x without its channels, or flat, of which golden.h sees the count alone."""
    found = _tensors.mask_bytes(mask)
    takes_mask = isinstance(spec, (specs.BatchNorm, specs.PowerNorm))
    if found is None or not takes_mask or found.ndim == 1:
        return found
    channel = specs.channel_axis(spec, len(shape))
    positions = (*shape[:channel], *shape[channel + 1 :])
    if found.shape != positions:
        must = f"it must have {list(positions)}, that of x without channels, or be flat"
        raise ValueError(f"mask has shape {list(found.shape)}; {must}")
    return found


def _check_takes(spec: Spec, running_mean: Any, running_var: Any) -> None:
    """Refuses statistics that the method would not look at."""
    has_mean = isinstance(spec, specs.BatchNorm)
    takes = (
        ("running_mean", running_mean, has_mean),
        ("running_var", running_var, has_mean or spec.method == "power_norm"),
    )
    for name, value, is_taken in takes:
        if value is not None and not is_taken:
            raise ValueError(f"{name} is given, but {spec.method} takes none; leave it out")


def _plan(given: Arguments, call: _library.Call) -> _library.PlanInfo:
    try:
        return _library.plan(call)
    except ValueError as error:
        if isinstance(given.spec, specs.LpNorm):  # whose axes are torch's dim
            raise ValueError(str(error).replace("axes", "dim")) from None
        raise


def run(given: Arguments, outputs: Sequence[str] = ("y",)) -> Words:
    """Computes the named outputs. ValueError where the arguments do not fit."""
    call = given.call()
    info = _plan(given, call)
    made = {}
    if "y" in outputs:
        made["y"] = given.x.like(given.x.format, np.empty(given.x.shape, given.x.format.words))
        call.y = made["y"].words.ctypes.data
    if "h" in outputs and given.residual is not None:
        made["h"] = given.x.like(given.x.format, np.empty(given.x.shape, given.x.format.words))
        call.h = made["h"].words.ctypes.data
    format_ = _formats.BY_CODE[info.statistics_dtype]
    shape = tuple(info.statistics_shape[: info.statistics_rank])
    for name, field in (("mean", "mean"), ("inv_std", "inverse_std")):
        if name in outputs:
            made[name] = given.x.like(format_, np.empty(shape, format_.words))
            setattr(call, field, made[name].words.ctypes.data)
    if given.x.words.size or not made.keys() <= {"y", "h"}:  # there may be many groups without any element
        _library.run(call)
    y, h, mean, inv_std = (made.get(name) for name in _OUTPUTS)
    return Words(y, h, mean, inv_std, bool(info.nearest))


def parameter_shape(spec: Union[str, Spec], x: Any) -> Tuple[int, ...]:
    """The shape of weight and bias for an x; () where the method takes none."""
    given = arguments(spec, x, training=True)
    info = _plan(given, given.call())
    return tuple(info.parameter_shape[: info.parameter_rank])


def partial_length(given: Arguments) -> int:
    """pRMSNorm's k; 0 for other methods."""
    return int(_plan(given, given.call()).k)


def normalize(
    spec: Union[str, Spec],
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    outputs: Sequence[str] = ("y",),
    **rest: Any,
) -> Result:
    """The nearest values of `outputs`, of "y", "h", "mean" and "inv_std".

    rest: residual, residual_scale, residual_rounding ("round_first" or "keep_wide"), running_mean, running_var
    (BatchNorm; PowerNorm's phi is running_var), training, mask.

        golden.normalize(golden.LayerNorm(768), x, w, b, outputs=("y", "inv_std")).inv_std

    ValueError or TypeError, naming argument, value and limit, where something does not fit.
    """
    if isinstance(outputs, str) or not hasattr(outputs, "__iter__") or not set(outputs) <= set(_OUTPUTS):
        raise ValueError(f"outputs is {outputs!r}; a tuple of {', '.join(_OUTPUTS)} is possible")
    found = run(arguments(spec, x, weight, bias, **rest), outputs)
    arrays = (found.y, found.h, found.mean, found.inv_std)
    y, h, mean, inv_std = (None if one is None else one.restore(one.format, one.words) for one in arrays)
    return Result(y, h, mean, inv_std, "NEAREST" if found.is_nearest else "BOUNDED")
