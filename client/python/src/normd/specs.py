"""What to compute: one frozen dataclass for each method, used for sessions and for `Client.normalize`.

Names and defaults are those of torch.nn where torch has the module. kernels/README.md of the repository has the formula
of every method, and says what `eps_mode`, `cast_order` and `weight_offset` mean.

    bn = client.session("bn1", normd.BatchNorm(64, momentum=0.01))
    result = client.normalize(normd.LayerNorm(768), x, weight, bias, outputs=("y", "mean", "inv_std"))

"Training" means running statistics: there is no backward pass.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import operator
from typing import Any, Callable, Dict, Iterable, Optional, Sequence, Tuple, Union

from normd._proto import norm_pb2
from normd.errors import InvalidArgument

Shape = Union[int, Sequence[int]]

_LAYOUTS = {"NCHW": "channels_first", "NCL": "channels_first", "NHWC": "channels_last", "NLC": "channels_last"}


def enum_number(enum: Any, prefix: str, value: str, field: str) -> int:
    """The number of "inside_sqrt" in EpsMode, whose names begin with EPS_MODE_."""
    name = f"{prefix}_{str(value).upper()}"
    if name not in enum.keys() or name.endswith("_UNSPECIFIED"):
        possible = ", ".join(key[len(prefix) + 1 :].lower() for key in enum.keys() if not key.endswith("_UNSPECIFIED"))
        raise InvalidArgument(
            f"{field} is {value!r}; {possible} are possible", field=field, value=str(value), limit=possible
        )
    return int(enum.Value(name))


def _layout(value: str) -> int:
    return enum_number(norm_pb2.Layout, "LAYOUT", _LAYOUTS.get(value, value), "layout")


def is_channels_last(layout: str) -> bool:
    return _LAYOUTS.get(layout, layout) == "channels_last"


def _extents(shape: Shape, field: str) -> Tuple[int, ...]:
    is_one = not isinstance(shape, Iterable) or getattr(shape, "ndim", None) == 0  # numpy's integers and 0-d arrays
    try:
        return tuple(_integer(one) for one in ((shape,) if is_one else shape))  # type: ignore[union-attr]
    except TypeError:
        raise InvalidArgument(
            f"{field} is {shape!r}; it must be an integer or a sequence of integers",
            field=field,
            value=str(shape),
            limit="integers",
        ) from None


def _integer(value: Any) -> int:
    """The value of an integer of any kind; TypeError for others, and for booleans, which are none here."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        raise TypeError
    return operator.index(value)


def number(value: Any, field: str) -> float:
    """A number of the caller's; neither text nor a boolean, which Python would take for one."""
    is_scalar = isinstance(value, numbers.Real) or getattr(value, "ndim", None) == 0  # those of numpy and torch, too
    if not is_scalar or isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        raise InvalidArgument(
            f"{field} is {value!r}; it must be a number", field=field, value=str(value), limit="a number"
        )
    return float(value)


def integer(value: Any, field: str) -> int:
    """An integer of the caller's, of any kind."""
    try:
        return _integer(value)
    except TypeError:
        raise InvalidArgument(
            f"{field} is {value!r}; it must be an integer", field=field, value=str(value), limit="an integer"
        ) from None


def flag(value: Any, field: str) -> bool:
    """True or False, numpy's among them."""
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise InvalidArgument(
            f"{field} is {value!r}; it must be True or False", field=field, value=str(value), limit="True or False"
        )
    return bool(value)


# The kinds of attributes, whichever spec they belong to.
_CHECKS: Dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("eps", "weight_offset", "momentum", "p", "alpha_fwd", "prior_count", "prior_mean"), number),
    **dict.fromkeys(("prior_variance", "decay", "max_count"), number),
    **dict.fromkeys(("num_groups", "num_features", "k", "warmup_iters"), integer),
    **dict.fromkeys(("affine", "track_running_stats", "accept_non_finite", "affine_per_group"), flag),
}


@dataclasses.dataclass(frozen=True)
class Spec:
    """Base of all specs."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check = _CHECKS.get(field.name)
            value = getattr(self, field.name)
            if check is not None and value is not None:
                object.__setattr__(self, field.name, check(value, field.name))

    def to_proto(self) -> norm_pb2.NormSpec:
        """The message normd.v1.NormSpec."""
        raise NotImplementedError

    @property
    def num_channels(self) -> int:
        """C of a method with running state, which a session must know; 0 for the others."""
        return 0

    def _common(self, message: Any) -> None:
        """Sets the attributes that all methods have."""
        eps, mode = getattr(self, "eps", None), getattr(self, "eps_mode", None)
        order, offset = getattr(self, "cast_order", None), getattr(self, "weight_offset", 0.0)
        if eps is not None:
            message.eps = eps
        if mode is not None:
            message.eps_mode = enum_number(norm_pb2.EpsMode, "EPS_MODE", mode, "eps_mode")
        if order is not None:
            message.cast_order = enum_number(norm_pb2.CastOrder, "CAST_ORDER", order, "cast_order")
        if offset:
            message.weight_offset = offset


def _set_extents(message: Any, normalized_shape: Optional[Shape], axes: Optional[Sequence[int]]) -> None:
    """Sets the axes that are normalised together, in a message that has both ways to name them."""
    message.normalized_shape.extend(normalized_shape or ())
    message.axes.extend(axes or ())
    message.SetInParent()


@dataclasses.dataclass(frozen=True)
class LayerNorm(Spec):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias over the trailing axes, or over the listed `axes`.

    weight and bias have the shape `normalized_shape`, or the extents of `axes`.
    """

    normalized_shape: Optional[Shape] = None
    eps: float = 1e-5
    axes: Optional[Sequence[int]] = None
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _freeze(self, "normalized_shape", "axes")

    def to_proto(self) -> norm_pb2.NormSpec:
        out = norm_pb2.NormSpec()
        _set_extents(out.layer_norm, self.normalized_shape, self.axes)
        self._common(out.layer_norm)
        return out


def rms_norm_eps(dtype: Any) -> float:
    """The eps that RMSNorm's None stands for: torch's, the machine epsilon of the type that torch computes in.

    That is float64 for float64, and float32 for the others, float16 and bfloat16 included (torch 2.7 and later). dtype:
    a dtype of numpy or torch, or its name.
    """
    return 2.0**-52 if str(dtype).endswith("float64") else 2.0**-23


@dataclasses.dataclass(frozen=True)
class RMSNorm(Spec):
    """y = x / sqrt(mean(x^2) + eps) * weight over the trailing axes, the listed `axes`, or the last axis.

    eps None is torch's default: 2^-23, the machine epsilon of float32, and 2^-52 for a float64 x outside of sessions.
    """

    normalized_shape: Optional[Shape] = None
    eps: Optional[float] = None
    axes: Optional[Sequence[int]] = None
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _freeze(self, "normalized_shape", "axes")

    def to_proto(self) -> norm_pb2.NormSpec:
        out = norm_pb2.NormSpec()
        _set_extents(out.rms_norm, self.normalized_shape, self.axes)
        self._common(out.rms_norm)
        return out


@dataclasses.dataclass(frozen=True)
class GroupNorm(Spec):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each sample and group of C / num_groups channels.

    x is [N, C, *] (or [N, *, C] with layout="channels_last"); weight and bias are [C], or [num_groups] with
    affine_per_group.
    """

    num_groups: int
    eps: float = 1e-5
    layout: str = "channels_first"
    affine_per_group: bool = False
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0

    def to_proto(self) -> norm_pb2.NormSpec:
        out = norm_pb2.NormSpec()
        message = out.group_norm
        message.num_groups, message.layout = self.num_groups, _layout(self.layout)  # type: ignore[assignment]
        message.affine_per_group = self.affine_per_group
        self._common(message)
        return out


@dataclasses.dataclass(frozen=True)
class _Running(Spec):
    """What BatchNorm and InstanceNorm share: how running statistics move."""

    num_features: int = 0
    eps: float = 1e-5
    momentum: Optional[float] = 0.1
    affine: bool = True
    track_running_stats: bool = True
    layout: str = "channels_first"
    momentum_of: Optional[str] = None
    running_variance: Optional[str] = None
    single_value: Optional[str] = None
    accept_non_finite: bool = False
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0
    clip: Optional[float] = None

    @property
    def num_channels(self) -> int:
        return self.num_features if self.track_running_stats else 0

    def _running(self, message: norm_pb2.RunningStatistics) -> None:
        if self.momentum is None:
            message.cumulative = True  # as in torch: the plain mean over all batches
        else:
            message.momentum = self.momentum
        if self.momentum_of is not None:
            message.momentum_of = enum_number(  # type: ignore[assignment]
                norm_pb2.MomentumOf, "MOMENTUM_OF", self.momentum_of, "momentum_of"
            )
        if self.running_variance is not None:
            message.variance = enum_number(  # type: ignore[assignment]
                norm_pb2.RunningVariance, "RUNNING_VARIANCE", self.running_variance, "running_variance"
            )
        if self.single_value is not None:
            message.single_value = enum_number(  # type: ignore[assignment]
                norm_pb2.SingleValue, "SINGLE_VALUE", self.single_value, "single_value"
            )
        message.accept_non_finite = self.accept_non_finite
        if self.clip is not None:
            message.clip = self.clip


@dataclasses.dataclass(frozen=True)
class BatchNorm(_Running):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel, as torch.nn.BatchNorm1d to 3d.

    x is [N, C, *] (or [N, *, C] with layout="channels_last"), weight and bias are [C]. In training the statistics are
    those of the batch, in inference the running ones. `momentum` is the weight of the new value (momentum_of="old":
    of the old one), None the plain mean over all batches. `affine` only says whether a session is made with a weight of
    ones and a bias of zeros where none are given. `num_features` is needed for sessions alone. `clip` limits y to
    [-clip, clip], after weight and bias.

    weighting="samples", for sessions alone: the running statistics are those of all samples that the session has seen,
    each counted once. They begin with `prior_count` samples (0) of prior_mean (0) and prior_variance (1); `decay` (1) is
    what the weight of a sample is multiplied by for each sample of a later batch, where those of one batch weigh alike;
    a channel whose count has reached `max_count` moves no more. running_variance is "biased" then, unless given, and y of a training step is made with the statistics after it
    (normalize_with="batch": with its own). nan_policy="skip": a NaN is no sample, and its y is NaN; the default
    "propagate" skips its channel. `momentum`, `momentum_of`, `single_value` and `accept_non_finite` have no place there.
    """

    weighting: str = "steps"
    prior_count: Optional[float] = None
    prior_mean: Optional[float] = None
    prior_variance: Optional[float] = None
    decay: Optional[float] = None
    max_count: Optional[float] = None
    normalize_with: Optional[str] = None
    nan_policy: Optional[str] = None

    def _samples(self, message: norm_pb2.RunningStatistics) -> None:
        for name in ("prior_count", "prior_mean", "prior_variance", "decay", "max_count"):
            value = getattr(self, name)
            if value is not None:
                setattr(message, name, value)
        if self.normalize_with is not None:
            message.normalize_with = enum_number(  # type: ignore[assignment]
                norm_pb2.NormalizeWith, "NORMALIZE_WITH", self.normalize_with, "normalize_with"
            )
        if self.nan_policy is not None:
            message.nan_policy = enum_number(  # type: ignore[assignment]
                norm_pb2.NanPolicy, "NAN_POLICY", self.nan_policy, "nan_policy"
            )
        weighting = enum_number(norm_pb2.Weighting, "WEIGHTING", self.weighting, "weighting")
        if weighting == norm_pb2.WEIGHTING_STEPS:
            return  # as without the field, which older servers do not know
        message.weighting = weighting  # type: ignore[assignment]
        if self.momentum == BatchNorm.momentum:
            message.ClearField("momentum")  # the default, which nobody gave

    def to_proto(self) -> norm_pb2.NormSpec:
        out = norm_pb2.NormSpec()
        out.batch_norm.layout = _layout(self.layout)  # type: ignore[assignment]
        self._running(out.batch_norm.running)
        self._samples(out.batch_norm.running)
        self._common(out.batch_norm)
        return out


@dataclasses.dataclass(frozen=True)
class InstanceNorm(_Running):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each sample and channel, over the spatial axes.

    x is [N, C, *] (or [N, *, C] with layout="channels_last"), weight and bias are [C]. With track_running_stats, for
    sessions alone, training moves running statistics and inference uses them.
    """

    affine: bool = False
    track_running_stats: bool = False

    def to_proto(self) -> norm_pb2.NormSpec:
        out = norm_pb2.NormSpec()
        out.instance_norm.layout = _layout(self.layout)  # type: ignore[assignment]
        out.instance_norm.track_running_statistics = self.track_running_stats
        if self.track_running_stats:
            self._running(out.instance_norm.running)
        self._common(out.instance_norm)
        return out


@dataclasses.dataclass(frozen=True)
class PRMSNorm(Spec):
    """y = x / sqrt(mean of the first k x^2 + eps) * weight + bias over the last axis; exactly one of p and k is given.

    k = p * d, rounded up (k_rounding="floor": down). weight and bias are [d].
    """

    p: Optional[float] = None
    k: Optional[int] = None
    eps: float = 1e-6
    k_rounding: Optional[str] = None
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0

    def to_proto(self) -> norm_pb2.NormSpec:
        out = norm_pb2.NormSpec()
        message = out.p_rms_norm
        if self.p is not None:
            message.p = self.p
        if self.k is not None:
            message.k = self.k
        if self.k_rounding is not None:
            message.k_rounding = enum_number(  # type: ignore[assignment]
                norm_pb2.KRounding, "K_ROUNDING", self.k_rounding, "k_rounding"
            )
        self._common(message)
        return out


@dataclasses.dataclass(frozen=True)
class ScaleNorm(Spec):
    """y = x / (|x| + eps) * weight + bias over the last axis, |x| the L2 norm; weight and bias are one number each."""

    eps: float = 1e-5
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0

    def to_proto(self) -> norm_pb2.NormSpec:
        out = norm_pb2.NormSpec()
        self._common(out.scale_norm)
        return out


@dataclasses.dataclass(frozen=True)
class LpNorm(Spec):
    """y = x / max(norm, eps) over one axis or several, as torch.nn.functional.normalize. There are no parameters."""

    p: float = 2.0
    dim: Optional[Shape] = 1
    eps: float = 1e-12
    eps_mode: Optional[str] = "clamp_root"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim is not None and not isinstance(self.dim, int):
            _freeze(self, "dim")

    def to_proto(self) -> norm_pb2.NormSpec:
        out = norm_pb2.NormSpec()
        message = out.lp_norm
        if math.isfinite(self.p) and float(self.p).is_integer() and self.p >= 1:
            message.order = int(self.p)
        else:
            message.p = self.p
        if isinstance(self.dim, int):
            message.axis = self.dim
        elif self.dim is not None:
            message.axes.extend(self.dim)
        self._common(message)
        return out


@dataclasses.dataclass(frozen=True)
class PowerNorm(Spec):
    """PowerNorm of Shen et al. 2020: no mean is subtracted, and phi, a running quadratic mean, divides.

    x is [T, B, C] or [B, C]; weight, bias and phi are [C]. `num_features` is needed for sessions alone.
    """

    num_features: int = 0
    eps: float = 1e-5
    alpha_fwd: float = 0.9
    warmup_iters: int = 10000
    num_groups: int = 1
    affine: bool = True
    accept_non_finite: bool = False
    cast_order: Optional[str] = None
    weight_offset: float = 0.0

    @property
    def num_channels(self) -> int:
        return self.num_features

    def to_proto(self) -> norm_pb2.NormSpec:
        out = norm_pb2.NormSpec()
        message = out.power_norm
        message.alpha_fwd, message.warmup_iters, message.num_groups = self.alpha_fwd, self.warmup_iters, self.num_groups
        message.accept_non_finite = self.accept_non_finite
        self._common(message)
        return out


def _freeze(spec: Spec, *names: str) -> None:
    """Makes shapes tuples, so that a spec can be hashed."""
    for name in names:
        value = getattr(spec, name)
        if value is not None:
            object.__setattr__(spec, name, _extents(value, name))


@functools.lru_cache(maxsize=1024)
def encode(spec: Spec) -> bytes:
    """The bytes of the spec's NormSpec."""
    return spec.to_proto().SerializeToString(deterministic=True)
