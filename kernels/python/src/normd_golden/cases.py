"""Inputs on which normalisation kernels go wrong: each a name, a spec, and tensors made when they are asked for."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import zlib
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from normd_golden import _formats, _library, _normalize, _tensors, specs
from normd_golden._formats import Array, Format

Random = np.random.Generator
_MOST_ELEMENTS = 1 << 32  # of a case


def _normal(rng: Random, format_: Format, shape: Tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def _offset(rng: Random, format_: Format, shape: Tuple[int, ...]) -> Array:
    """A mean so far away that a sixteenth of a deviation is the last bit."""
    return 2.0 ** (format_.digits - 5) + rng.standard_normal(shape)


def _scaled(share_of_range: float) -> Callable[[Random, Format, Tuple[int, ...]], Array]:
    """Magnitudes at a place between 1 and the end of the range: 0.8 is 2^102 in float32."""

    def make(rng: Random, format_: Format, shape: Tuple[int, ...]) -> Array:
        return rng.uniform(-1, 1, shape) * 2.0 ** round(share_of_range * -format_.least_exponent)

    return make


def _one_value(rng: Random, format_: Format, shape: Tuple[int, ...]) -> Array:
    x = np.zeros(shape)
    x[..., rng.integers(shape[-1])] = 3.0
    return x


def _constant(rng: Random, format_: Format, shape: Tuple[int, ...]) -> Array:
    return np.full(shape, 1234.5678)


def _zeros(rng: Random, format_: Format, shape: Tuple[int, ...]) -> Array:
    return np.zeros(shape)


def _subnormal(rng: Random, format_: Format, shape: Tuple[int, ...]) -> Array:
    return rng.uniform(-1, 1, shape) * 2.0**format_.least_exponent


def _from_256(rng: Random, format_: Format, shape: Tuple[int, ...]) -> Array:
    """The square of 256 is more than float16 has."""
    return rng.uniform(256, 1024, shape) * rng.choice([-1, 1], shape)


def _nan(rng: Random, format_: Format, shape: Tuple[int, ...]) -> Array:
    """A NaN in the first row and an infinity in the last one, which must not spoil the others."""
    x = rng.standard_normal(shape)
    flat = x.reshape(-1, shape[-1])
    flat[0, shape[-1] // 2], flat[-1, 0] = np.nan, np.inf
    return x


_HARD: Dict[str, Callable[[Random, Format, Tuple[int, ...]], Array]] = {
    "offset": _offset,
    "large": _scaled(0.8),
    "small": _scaled(-0.8),
    "one_value": _one_value,
    "constant": _constant,
    "zeros": _zeros,
    "subnormal": _subnormal,
    "nan": _nan,
    "misaligned": _normal,
    "strided": _normal,
}
_KINDS = {"normal": _normal, "from_256": _from_256, **_HARD}


@dataclasses.dataclass(frozen=True)
class Case:
    """One input of one method; `args` are the arguments of golden.check after the candidate."""

    spec: specs.Spec
    dtype: str
    shape: Tuple[int, ...]
    kind: str
    has_weight: bool = True
    has_bias: bool = False

    @property
    def name(self) -> str:
        return f"{self.spec.method}-{self.dtype}-{'x'.join(map(str, self.shape))}-{self.kind}"

    @functools.cached_property
    def x(self) -> Any:
        format_ = _formats.BY_NAME[self.dtype]
        values = _KINDS[self.kind](self._random("x"), format_, self.shape)
        return _laid_out(self.kind, _tensors.as_array(format_, format_.round(values)))

    @functools.cached_property
    def weight(self) -> Any:
        return self._parameter("weight", 1.0) if self.has_weight else None

    @functools.cached_property
    def bias(self) -> Any:
        return self._parameter("bias", 0.0) if self.has_bias else None

    @property
    def args(self) -> Tuple[specs.Spec, Any, Any, Any]:
        return self.spec, self.x, self.weight, self.bias

    def torch(self, device: Optional[str] = None) -> Tuple[Any, Any, Any]:
        """x, weight and bias as torch tensors, strided where x is."""
        return _as_torch(self.x, device), _as_torch(self.weight, device), _as_torch(self.bias, device)

    def _random(self, what: str) -> Random:
        return np.random.default_rng(zlib.crc32(f"{self.name} {what}".encode()))

    def _parameter(self, what: str, around: float) -> Any:
        shape = _normalize.parameter_shape(self.spec, self.x)
        if not shape:
            return None
        format_ = _formats.BY_NAME[self.dtype]
        values = around + 0.25 * self._random(what).standard_normal(shape)
        return _tensors.as_array(format_, format_.round(values))


def _laid_out(kind: str, x: Any) -> Any:
    """The same values where a kernel expects them least: one element past an aligned address, or every other one."""
    if kind == "misaligned":
        memory = np.empty(x.size + 1, x.dtype)
        memory[1:] = x.reshape(-1)
        return memory[1:].reshape(x.shape)
    if kind == "strided":
        memory = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
        memory[..., ::2] = x
        return memory[..., ::2]
    return x


def _as_torch(x: Any, device: Optional[str]) -> Any:
    if x is None:
        return None
    torch: Any = sys.modules.get("torch") or __import__("torch")
    is_bfloat16 = x.dtype.name == "bfloat16"
    tensor = torch.from_numpy(x.view(np.int16) if is_bfloat16 else x)
    tensor = tensor.view(torch.bfloat16) if is_bfloat16 else tensor
    return tensor if device is None else tensor.to(device)


def _extents(shape: Any) -> Tuple[int, ...]:
    if not hasattr(shape, "__iter__"):
        raise TypeError(f"shapes has {shape!r}; each of them must be a tuple of extents")
    found = tuple(specs.whole(extent, "shapes") for extent in shape)
    if not 1 <= len(found) <= _library.MAX_RANK or min(found) < 1:
        raise ValueError(f"shapes has {found}; it must have 1 to {_library.MAX_RANK} extents of at least 1")
    if math.prod(found) > _MOST_ELEMENTS:
        raise ValueError(f"shapes has {found}; it must have at most {_MOST_ELEMENTS} elements")
    return found


def make_cases(
    spec: Union[str, specs.Spec],
    dtypes: Sequence[str] = ("float32",),
    shapes: Sequence[Tuple[int, ...]] = ((4, 1024),),
    hard: bool = True,
    bias: bool = False,
) -> List[Case]:
    """The cases of a method for every dtype and shape: ordinary data, and with `hard` where kernels go wrong."""
    found = []
    for dtype in (dtypes,) if isinstance(dtypes, str) else dtypes:
        if dtype not in _formats.BY_NAME:
            raise ValueError(f"dtypes has {dtype!r}; {', '.join(_formats.BY_NAME)} are possible")
        for shape in map(_extents, shapes):
            kinds = ["normal", *(_HARD if hard else ()), *(["from_256"] if hard and dtype == "float16" else [])]
            found += [Case(specs.as_spec(spec, shape), dtype, shape, kind, True, bias) for kind in kinds]
    return found
