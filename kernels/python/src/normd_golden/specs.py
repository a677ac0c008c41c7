"""What to compute: one frozen dataclass for each method, with the names and defaults of torch.nn where torch has them.

    golden.check(y, golden.RMSNorm(eps=1e-6, cast_order="cast_then_affine"), x, weight)

kernels/README.md of normd's repository has the formula of every method. `eps_mode` says how eps enters the divisor:
"inside_sqrt" sqrt(S + eps), "add_to_root" sqrt(S) + eps, "clamp_root" max(sqrt(S), eps). `cast_order` says when y is
rounded to the type of x: "affine_then_cast" once, after weight and bias; "cast_then_affine" before them, and again
after each. `weight_offset` (0 or 1) is added to a weight that is given.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, ClassVar, Dict, Mapping, Optional, Sequence, Tuple, Type, Union

import numpy as np

from normd_golden import _library

Shape = Union[int, Sequence[int]]

_ENUMS: Mapping[str, Mapping[str, int]] = {
    "eps_mode": {"inside_sqrt": 1, "add_to_root": 2, "clamp_root": 3},
    "cast_order": {"affine_then_cast": 1, "cast_then_affine": 2},
    "k_rounding": {"ceil": 1, "floor": 2},
    "layout": {"channels_first": 1, "channels_last": 2, "NCHW": 1, "NCL": 1, "NHWC": 2, "NLC": 2},
    "residual_rounding": {"round_first": 1, "keep_wide": 2},
}


def enum_number(field: str, value: str) -> int:
    """The number of "inside_sqrt" as an eps_mode."""
    known = _ENUMS[field]
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{field} is {value!r}; {', '.join(known)} are possible")
    return known[value]


def whole(value: Any, field: str) -> int:
    """A whole number that golden.h can hold."""
    if isinstance(value, bool):
        raise TypeError(f"{field} is {value!r}; it must be a whole number")
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"{field} is {value!r}; it must be a whole number") from None
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"{field} is {_shown(found)}; it must be a whole number of 64 bits")
    return found


def _shown(value: Any) -> str:
    """A number for an error: one of many digits by their count, which Python may refuse to print."""
    bits = abs(value).bit_length() if isinstance(value, int) else 0
    return f"a number of {bits} bits" if bits > 128 else str(value)


def extents(value: Optional[Shape], field: str) -> Tuple[int, ...]:
    """One whole number or several as a tuple; () for None."""
    if value is None:
        return ()
    one = not hasattr(value, "__iter__") or getattr(value, "ndim", None) == 0
    found = tuple(whole(each, field) for each in ((value,) if one else value))  # type: ignore[union-attr]
    if not found:
        raise ValueError(f"{field} is {value!r}; it must have at least one value")
    if len(found) > _library.MAX_RANK:
        raise ValueError(f"{field} has {len(found)} values; at most {_library.MAX_RANK} are possible")
    return found


def flag(value: Any, field: str) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{field} is {value!r}; it must be True or False")
    return bool(value)


def number(value: Any, field: str) -> float:
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise TypeError(f"{field} is {value!r}; it must be a number")
    try:
        return float(value)
    except TypeError:
        raise TypeError(f"{field} is {value!r}; it must be a number") from None
    except OverflowError:
        raise ValueError(f"{field} is {_shown(value)}; it must be at most the largest float64") from None


@dataclasses.dataclass(frozen=True)
class Spec:
    """Base of all specs."""

    method: ClassVar[str] = ""
    code: ClassVar[int] = 0  # of golden.h

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and str(field.type).startswith("Optional"):
                continue
            if field.name in ("eps", "weight_offset", "p"):
                object.__setattr__(self, field.name, number(value, field.name))
            elif field.name in ("num_groups", "k"):
                object.__setattr__(self, field.name, whole(value, field.name))
            elif field.name in ("normalized_shape", "axes", "dim"):
                object.__setattr__(self, field.name, extents(value, field.name))
            elif field.name in _ENUMS:
                enum_number(field.name, value)

    def __str__(self) -> str:
        """As it may be written: without what has its default."""
        fields = ((field, getattr(self, field.name)) for field in dataclasses.fields(self))
        given = (f"{field.name}={value!r}" for field, value in fields if value != field.default)
        return f"{type(self).__name__}({', '.join(given)})"

    def eps_for(self, is_f64: bool) -> float:
        """The eps in use for an x of this type."""
        return float(getattr(self, "eps"))

    def fill(self, out: _library.Spec, is_f64: bool) -> None:
        """Writes the struct of golden.h."""
        out.method = self.code
        out.has_eps, out.eps = 1, self.eps_for(is_f64)
        for name in ("eps_mode", "cast_order", "k_rounding", "layout"):
            value = getattr(self, name, None)
            setattr(out, name, 0 if value is None else enum_number(name, value))
        out.weight_offset = getattr(self, "weight_offset", 0.0)
        out.num_groups = self._positive("num_groups", 1)
        out.affine_per_group = bool(getattr(self, "affine_per_group", False))
        shape = extents(getattr(self, "normalized_shape", None), "normalized_shape")
        axes = extents(getattr(self, "axes", None), "axes")
        out.normalized_rank, out.num_axes = len(shape), len(axes)
        out.normalized_shape[: len(shape)], out.axes[: len(axes)] = shape, axes

    def _positive(self, field: str, default: int) -> int:
        """0 stands for the default in golden.h, and is refused where a caller gives it."""
        value = getattr(self, field, default)
        if value is not None and value < 1:
            raise ValueError(f"{field} is {value}; it must be at least 1")
        return int(value or 0)

    @property
    def casts_first(self) -> bool:
        return getattr(self, "cast_order", None) == "cast_then_affine"


@dataclasses.dataclass(frozen=True)
class LayerNorm(Spec):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias over the trailing axes, or over the listed `axes`."""

    method: ClassVar[str] = "layer_norm"
    code: ClassVar[int] = 2
    normalized_shape: Optional[Shape] = None
    eps: float = 1e-5
    axes: Optional[Sequence[int]] = None
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0


@dataclasses.dataclass(frozen=True)
class RMSNorm(Spec):
    """y = x / sqrt(mean(x^2) + eps) * weight over the trailing axes, the listed `axes`, or the last axis.

    eps None is torch's default: 2^-23, the machine epsilon of float32, and 2^-52 for a float64 x.
    """

    method: ClassVar[str] = "rms_norm"
    code: ClassVar[int] = 5
    normalized_shape: Optional[Shape] = None
    eps: Optional[float] = None
    axes: Optional[Sequence[int]] = None
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0

    def eps_for(self, is_f64: bool) -> float:
        return self.eps if self.eps is not None else 2.0**-52 if is_f64 else 2.0**-23


@dataclasses.dataclass(frozen=True)
class GroupNorm(Spec):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each sample and group of C / num_groups channels."""

    method: ClassVar[str] = "group_norm"
    code: ClassVar[int] = 4
    num_groups: int = 1
    eps: float = 1e-5
    layout: str = "channels_first"
    affine_per_group: bool = False
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0


@dataclasses.dataclass(frozen=True)
class InstanceNorm(Spec):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each sample and channel, over the spatial axes."""

    method: ClassVar[str] = "instance_norm"
    code: ClassVar[int] = 3
    eps: float = 1e-5
    layout: str = "channels_first"
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0


@dataclasses.dataclass(frozen=True)
class BatchNorm(Spec):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel, of given or of the batch's statistics."""

    method: ClassVar[str] = "batch_norm"
    code: ClassVar[int] = 1
    eps: float = 1e-5
    layout: str = "channels_first"
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0


@dataclasses.dataclass(frozen=True)
class PRMSNorm(Spec):
    """y = x / sqrt(mean of the first k x^2 + eps) * weight + bias over the last axis; one of p and k is given."""

    method: ClassVar[str] = "p_rms_norm"
    code: ClassVar[int] = 6
    p: Optional[float] = None
    k: Optional[int] = None
    eps: float = 1e-6
    k_rounding: Optional[str] = None
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0

    def fill(self, out: _library.Spec, is_f64: bool) -> None:
        super().fill(out, is_f64)
        out.k = self._positive("k", 0) if self.k is not None else 0
        out.has_p, out.p = int(self.p is not None), self.p if self.p is not None else 0.0


@dataclasses.dataclass(frozen=True)
class ScaleNorm(Spec):
    """y = x / (|x| + eps) * weight + bias over the last axis, |x| the L2 norm; weight and bias are one number each."""

    method: ClassVar[str] = "scale_norm"
    code: ClassVar[int] = 7
    eps: float = 1e-5
    eps_mode: Optional[str] = None
    cast_order: Optional[str] = None
    weight_offset: float = 0.0


@dataclasses.dataclass(frozen=True)
class LpNorm(Spec):
    """y = x / max(norm, eps) over one axis or several, as torch.nn.functional.normalize. There are no parameters."""

    method: ClassVar[str] = "lp_norm"
    code: ClassVar[int] = 8
    p: float = 2.0
    dim: Optional[Shape] = 1
    eps: float = 1e-12
    eps_mode: Optional[str] = "clamp_root"

    def fill(self, out: _library.Spec, is_f64: bool) -> None:
        super().fill(out, is_f64)
        axes = extents(self.dim, "dim")
        out.num_axes, out.axes[: len(axes)] = len(axes), axes
        out.has_p, out.p = 1, self.p


@dataclasses.dataclass(frozen=True)
class PowerNorm(Spec):
    """x over the root mean square of its group of channels, over sqrt(phi + eps), * weight + bias."""

    method: ClassVar[str] = "power_norm"
    code: ClassVar[int] = 9
    num_groups: int = 1
    eps: float = 1e-5
    cast_order: Optional[str] = None
    weight_offset: float = 0.0


_CLASSES: Tuple[Type[Spec], ...] = (
    BatchNorm, LayerNorm, InstanceNorm, GroupNorm, RMSNorm, PRMSNorm, ScaleNorm, LpNorm, PowerNorm
)  # fmt: skip
# The methods that subtract a mean.
CENTRED = (LayerNorm, GroupNorm, InstanceNorm, BatchNorm)
BY_METHOD: Dict[str, Type[Spec]] = {one.method: one for one in _CLASSES}


def as_spec(spec: Union[str, Spec], shape: Sequence[int] = ()) -> Spec:
    """A spec as it is, or the one of a method's name with its defaults: LayerNorm over the last axis of `shape`."""
    if isinstance(spec, str):
        if spec not in BY_METHOD:
            raise ValueError(f"spec is {spec!r}; a Spec and {', '.join(BY_METHOD)} are possible")
        if spec == "p_rms_norm":
            return PRMSNorm(p=1.0)
        return BY_METHOD[spec]() if spec != "layer_norm" or not shape else LayerNorm(shape[-1])
    if isinstance(spec, type) and issubclass(spec, Spec):
        raise TypeError(f"spec is the class {spec.__name__}; give one of it, such as {spec.__name__}()")
    if not isinstance(spec, Spec):
        raise TypeError(f"spec is a {type(spec).__name__}; a Spec and {', '.join(BY_METHOD)} are possible")
    return spec


def all_axes(spec: LpNorm, rank: int) -> LpNorm:
    """LpNorm with dim=None, which stands for all axes, as torch has it."""
    return dataclasses.replace(spec, dim=tuple(range(rank))) if spec.dim is None and rank > 0 else spec


def channel_axis(spec: Spec, rank: int) -> int:
    """The axis of an x's channels: the last one for methods without a layout."""
    is_last = getattr(spec, "layout", "channels_last") in ("channels_last", "NHWC", "NLC")
    return rank - 1 if is_last else 1
