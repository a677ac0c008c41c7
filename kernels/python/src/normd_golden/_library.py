"""The shared library and its C interface (golden.h), by ctypes: one call normalises tensors in this process."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Optional, Type

MAX_RANK = 8
ERROR_BYTES = 1024


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_RANK),
    ]


class Spec(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("method", "eps_mode", "cast_order", "layout", "k_rounding")),
        *((name, ctypes.c_int32) for name in ("has_eps", "has_p", "affine_per_group")),
        *((name, ctypes.c_double) for name in ("eps", "weight_offset", "p")),
        *((name, ctypes.c_int64) for name in ("k", "num_groups")),
        *((name, ctypes.c_int32) for name in ("normalized_rank", "num_axes")),
        *((name, ctypes.c_int64 * MAX_RANK) for name in ("normalized_shape", "axes")),
    ]


class Call(ctypes.Structure):
    _fields_ = [
        ("spec", Spec),
        ("training", ctypes.c_int32),
        ("residual_rounding", ctypes.c_int32),
        *((name, Tensor) for name in ("x", "weight", "bias", "residual")),
        ("residual_scale", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("given_mean", "given_variance")),
        ("num_given", ctypes.c_int64),
        ("mask", ctypes.c_void_p),
        ("num_positions", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("y", "h", "mean", "inverse_std")),
    ]


class PlanInfo(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("nearest", "statistics_dtype", "statistics_rank", "parameter_rank")),
        *((name, ctypes.c_int64 * MAX_RANK) for name in ("statistics_shape", "parameter_shape")),
        ("k", ctypes.c_int64),
    ]


class ExactValues(ctypes.Structure):
    _fields_ = [
        ("elements", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("low", "bound")),
    ]


def _load() -> ctypes.CDLL:
    # A checkout has no library beside its modules: NORMD_GOLDEN_LIBRARY names the one of a build folder.
    named = os.environ.get("NORMD_GOLDEN_LIBRARY")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).with_name("libnormd_golden.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"normd_golden cannot load its library {path}: {error}") from error
    sizes = (("normd_golden_call_bytes", Call), ("normd_golden_plan_info_bytes", PlanInfo))
    if not all(_has_size(library, function, kind) for function, kind in sizes):
        raise ImportError(f"{path} is of another version of normd_golden: install both anew")
    return library


def _has_size(library: ctypes.CDLL, function: str, kind: Type[ctypes.Structure]) -> bool:
    """Whether the library's struct is as large as the one of this module; not in a library without the function."""
    size_of = getattr(library, function, None)
    if size_of is None:
        return False
    size_of.restype = ctypes.c_size_t
    return bool(size_of() == ctypes.sizeof(kind))


_library: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    """The library, which the first call loads."""
    global _library
    if _library is None:
        _library = _load()
    return _library


def plan(call: Call) -> PlanInfo:
    """What `call` will write; ValueError where the call is wrong."""
    info = PlanInfo()
    _do("normd_golden_plan", call, info)
    return info


def run(call: Call) -> None:
    _do("normd_golden_run", call)


def exact(call: Call, values: ExactValues) -> None:
    _do("normd_golden_exact", call, values)


def _do(function: str, *structs: ctypes.Structure) -> None:
    """Calls the function of golden.h; ValueError with its sentence where it refuses."""
    error = ctypes.create_string_buffer(ERROR_BYTES)
    if getattr(library(), function)(*map(ctypes.byref, structs), error, ctypes.c_size_t(ERROR_BYTES)):
        raise ValueError(_sentence(error.value))


def _sentence(error: bytes) -> str:
    """The library's words with the names of arguments instead of the paths of normd's messages."""
    text = error.decode("utf-8", "replace").replace("parameters.", "")
    if text.startswith("spec."):
        text = text[len("spec.") :]
        method, dot, rest = text.partition(".")
        text = rest if dot and method.endswith("_norm") else text
    return text
