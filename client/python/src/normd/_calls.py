"""Calls by a spec, and arrays in shared memory, for both clients."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import numpy as np

from normd import _arrays
from normd._core import Core
from normd._options import SpecOptions
from normd._request import NormalizeCall, Target, check_keywords, make_call
from normd.specs import Shape, Spec

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
