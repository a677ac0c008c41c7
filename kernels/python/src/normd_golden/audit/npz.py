"""Audits the results in an .npz file: arrays `x` and `y`, and the other arguments of golden.check by their names where
there are any (`weight`, `bias`, `residual`, ...); `spec` is the text of a spec, such as "LayerNorm(768, eps=1e-6)".
"""

from __future__ import annotations

import ast
import dataclasses
import zipfile
import zlib
from typing import Any, Dict, Mapping, Tuple

import numpy as np

from normd_golden import specs
from normd_golden._normalize import OF_CALL, OF_STATE
from normd_golden.audit._finding import MAX_ULP, Finding, judged

_KNOWN = ("x", "y", "spec", "weight", "bias", *OF_CALL, *OF_STATE)


def spec_of(text: str) -> specs.Spec:
    """The spec that a text such as "RMSNorm(eps=1e-6)" names: literals alone, nothing is executed."""
    kinds = {kind.__name__: kind for kind in specs.BY_METHOD.values()}
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"spec is {text!r}: {error.msg}") from None
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in kinds):
        raise ValueError(f"spec is {text!r}; it must be a call of {', '.join(sorted(kinds))}")
    arguments = [ast.literal_eval(one) for one in tree.args]  # ValueError for more than literals
    keywords = {one.arg: ast.literal_eval(one.value) for one in tree.keywords if one.arg is not None}
    kind = kinds[tree.func.id]
    known = [field.name for field in dataclasses.fields(kind)]
    for name in keywords:
        if name not in known:
            raise ValueError(f"spec has {name}; {kind.__name__} takes {', '.join(known)}")
    try:
        return kind(*arguments, **keywords)
    except TypeError as error:
        raise ValueError(f"spec is {text!r}: {error}") from None


def _arrays(path: str) -> Dict[str, Any]:
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("it holds one array without a name")
        with file:
            return {name: file[name] for name in file.files}
    except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is no .npz file that can be read: {error}") from None


def audit(path: str, spec: str = "", max_ulp: float = MAX_ULP) -> Finding:
    """The finding for the file. `spec` replaces that of the file. ValueError for a file that lacks something."""
    arrays = _arrays(path)
    for name in ("x", "y"):
        if name not in arrays:
            raise ValueError(f"{path} has no array {name}; it must have x and y, and it has {', '.join(arrays) or 'none'}")
    for name in arrays:
        if name not in _KNOWN:
            raise ValueError(f"{path} has an array {name}; {', '.join(_KNOWN)} are possible")
    text = spec or str(arrays.get("spec", ""))
    if not text:
        raise ValueError(f"{path} has no spec; give one, such as --spec='LayerNorm(768)'")
    given, rest = _arguments(arrays)
    try:
        return judged(f"{path} {text}", max_ulp, arrays["y"], spec_of(text), arrays["x"], *given, **rest)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None


def _arguments(arrays: Mapping[str, Any]) -> Tuple[Tuple[Any, Any], Dict[str, Any]]:
    rest = {name: _value(arrays[name]) for name in OF_CALL + OF_STATE if name in arrays}
    return (arrays.get("weight"), arrays.get("bias")), rest


def _value(array: Any) -> Any:
    """A number or a word is kept as an array without axes."""
    return array.item() if array.ndim == 0 else array
