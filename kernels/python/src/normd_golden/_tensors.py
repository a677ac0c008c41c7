"""Arrays of the caller as dense memory in this process, and results back as what the caller uses.

numpy arrays, torch tensors, jax and other arrays with `__array__` or `__dlpack__`, and lists are taken; tensors of a
GPU are copied. A result has the type of x: a torch tensor for a torch tensor, else a numpy array.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, NamedTuple, Optional, Tuple

import numpy as np

from normd_golden import _formats, _library
from normd_golden._formats import Array, Format

_DLPACK_CPU = (1, 0)
_DLPACK_HOST = (1, 3, 11, 13)  # kinds of memory that the CPU reads: its own, pinned for CUDA and ROCm, and managed
_POSSIBLE = "float32, float16, bfloat16 and float64 are possible"


class Operand(NamedTuple):
    """A tensor: its type, and C-contiguous words of the caller's memory or of a copy."""

    format: Format
    words: Array
    restore: Callable[[Format, Array], Any]  # makes what the caller gets from words of a format

    @property
    def shape(self) -> Tuple[int, ...]:
        return self.words.shape

    def widened(self) -> Array:
        return self.format.widen(self.words)

    def like(self, format_: Format, words: Array) -> Operand:
        return Operand(format_, np.ascontiguousarray(words).reshape(words.shape), self.restore)

    def tensor(self) -> _library.Tensor:
        """The struct of golden.h, which borrows the words."""
        out = _library.Tensor(self.words.ctypes.data, self.format.code, self.words.ndim)
        out.shape[: self.words.ndim] = self.words.shape
        return out


def operand(x: Any, name: str) -> Operand:
    """`x` as a tensor; `name` is the argument's, for errors."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _from_torch(x, name, torch)
    if x is None:
        raise TypeError(f"{name} is None; give an array")
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask would be lost; fill it first")
    if isinstance(x, np.ndarray):
        return _from_numpy(np.asarray(x), name)
    return _from_numpy(_as_numpy(x, name), name)


def _as_numpy(x: Any, name: str) -> Array:
    """An array of another library, or a list. cupy's `__array__` refuses, and jax's copies from any device."""
    has_dlpack = hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")
    if hasattr(x, "__array__") or not has_dlpack:
        try:
            return np.asarray(x)
        except Exception as error:
            if not has_dlpack:
                what = f"a {type(x).__name__} that numpy cannot read ({error})"
                raise TypeError(f"{name} is {what}; give an array") from error
    return _by_dlpack(x, name)


def _by_dlpack(x: Any, name: str) -> Array:
    """An array that numpy does not know, copied by its own library where it lies on a device."""
    device = tuple(x.__dlpack_device__())
    try:
        return np.asarray(np.from_dlpack(x if device[0] in _DLPACK_HOST else _CopyOnCpu(x)))
    except Exception as error:
        why = f"cannot be read by DLPack from device {device}: {error}"
        raise TypeError(f"{name} {why}; copy it to the CPU, which is device (1, 0)") from error


class _CopyOnCpu:
    """What asks a library for its array on the CPU, for releases of numpy that do not."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def __dlpack__(self, **options: Any) -> Any:
        return self._x.__dlpack__(**{**options, "dl_device": _DLPACK_CPU})

    def __dlpack_device__(self) -> Tuple[int, int]:
        return _DLPACK_CPU


def as_array(format_: Format, words: Array) -> Any:
    """Words as the array that numpy users know."""
    if not format_.is_bfloat16:
        return words
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError("a bfloat16 result needs ml_dtypes or torch: pip install ml_dtypes") from None
    return words.view(ml_dtypes.bfloat16)


def _from_numpy(x: Array, name: str) -> Operand:
    for format_ in _formats.FORMATS:
        if format_.is_bfloat16:
            matches = x.dtype.name == "bfloat16" and x.dtype.itemsize == 2
            native = x.dtype.newbyteorder("=")
        else:
            native = format_.words
            matches = x.dtype.newbyteorder("=") == native
        if matches:
            if x.ndim > _library.MAX_RANK:
                raise ValueError(f"{name} has rank {x.ndim}; at most {_library.MAX_RANK} is possible")
            return Operand(format_, _dense(x, native, name).view(format_.words), as_array)
    raise TypeError(f"{name} has dtype {x.dtype}; {_POSSIBLE}")


def _dense(x: Array, dtype: Any, name: str) -> Array:
    """The elements one by one in the order of the machine's bytes."""
    try:
        return np.ascontiguousarray(x, dtype=dtype).reshape(x.shape)
    except MemoryError:
        need = f"a dense copy needs {x.nbytes} bytes, which there are not"
        raise ValueError(f"{name} has shape {list(x.shape)}; {need}") from None


def _from_torch(x: Any, name: str, torch: Any) -> Operand:
    _check_torch(x, name, torch)
    device = x.device
    x = x.detach().cpu().contiguous().resolve_conj().resolve_neg()

    def restore(format_: Format, words: Array) -> Any:
        if format_.is_bfloat16:
            tensor = torch.from_numpy(words.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(words)
        return tensor if device.type == "cpu" else tensor.to(device)

    if x.dtype == torch.bfloat16:
        return Operand(_formats.BF16, x.view(torch.int16).numpy().view(np.uint16), restore)
    plain = _from_numpy(x.numpy(), name)
    return Operand(plain.format, plain.words, restore)


def _check_torch(x: Any, name: str, torch: Any) -> None:
    """Refuses tensors whose elements do not lie in memory one by one, or are of a type that numpy lacks."""
    if x.device.type == "meta":
        raise TypeError(f"{name} lies on the device meta, which has no elements; give a tensor of the CPU or a GPU")
    if x.is_quantized:
        raise TypeError(f"{name} is quantized ({x.dtype}); give a tensor of numbers, such as its dequantize()")
    if getattr(x, "is_nested", False):
        raise TypeError(f"{name} is a nested tensor; give a dense one, such as its to_padded_tensor(0.0)")
    if x.layout != torch.strided:
        raise TypeError(f"{name} is sparse ({x.layout}); give a dense tensor, such as its to_dense()")
    if x.dtype.is_floating_point and x.dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        raise TypeError(f"{name} has dtype {x.dtype}; {_POSSIBLE}")
    if x.dim() > _library.MAX_RANK:
        raise ValueError(f"{name} has rank {x.dim()}; at most {_library.MAX_RANK} is possible")


def parameter(x: Any, name: str) -> Optional[Operand]:
    """A weight or bias; one number counts as an array of one."""
    if x is None:
        return None
    found = operand(np.array([x]) if isinstance(x, float) else x, name)
    return found if found.words.ndim else Operand(found.format, found.words.reshape(1), found.restore)


def statistics(x: Any, name: str) -> Optional[Array]:
    """A running mean or variance as float64."""
    found = parameter(x, name)
    return None if found is None else np.ascontiguousarray(found.widened()).reshape(-1)


def mask_bytes(mask: Any) -> Optional[Array]:
    """A mask of booleans or bytes, one a position."""
    if mask is None:
        return None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(mask, torch.Tensor):
        mask = mask.cpu().numpy()
    mask = _as_numpy(mask, "mask")
    if mask.dtype != np.bool_ and mask.dtype != np.uint8:
        raise TypeError(f"mask has dtype {mask.dtype}; bool and uint8 are possible")
    return np.ascontiguousarray(mask).view(np.uint8).reshape(mask.shape)
