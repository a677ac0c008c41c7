"""Audits the results in an .npz file: arrays `x` and `y`, and `weight`, `bias`, `residual`, `running_mean`, `running_var`
where there are any; `spec` is the text of a spec, such as "LayerNorm(768, eps=1e-6)".
"""

from __future__ import annotations

import ast
import dataclasses
from typing import Any, Dict, Mapping, Tuple

import numpy as np

from normd_golden import specs
from normd_golden.audit._finding import MAX_ULP, Finding, judged

_OF_CALL = ("residual", "running_mean", "running_var", "mask")


def spec_of(text: str) -> specs.Spec:
    """The spec that a text such as "RMSNorm(eps=1e-6)" names: literals alone, nothing is executed."""
    kinds = {kind.__name__: kind for kind in specs.BY_METHOD.values()}
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"spec is {text!r}: {error.msg}") from None
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in kinds):
        raise ValueError(f"spec is {text!r}; it must be a call of {', '.join(sorted(kinds))}")
    arguments = [ast.literal_eval(one) for one in tree.args]
    keywords = {one.arg: ast.literal_eval(one.value) for one in tree.keywords if one.arg is not None}
    kind = kinds[tree.func.id]
    known = [field.name for field in dataclasses.fields(kind)]
    for name in keywords:
        if name not in known:
            raise ValueError(f"spec has {name}; {kind.__name__} takes {', '.join(known)}")
    return kind(*arguments, **keywords)


def audit(path: str, spec: str = "", max_ulp: float = MAX_ULP) -> Finding:
    """The finding for the file. `spec` replaces that of the file. ValueError for a file that lacks something."""
    with np.load(path, allow_pickle=False) as file:
        arrays: Dict[str, Any] = {name: file[name] for name in file.files}
    for name in ("x", "y"):
        if name not in arrays:
            raise ValueError(f"{path} has no array {name}; it must have x and y, and it has {', '.join(arrays) or 'none'}")
    text = spec or str(arrays.get("spec", ""))
    if not text:
        raise ValueError(f"{path} has no spec; give one, such as --spec='LayerNorm(768)'")
    given, rest = _arguments(arrays)
    return judged(f"{path} {text}", max_ulp, arrays["y"], spec_of(text), arrays["x"], *given, **rest)


def _arguments(arrays: Mapping[str, Any]) -> Tuple[Tuple[Any, Any], Dict[str, Any]]:
    rest = {name: arrays[name] for name in _OF_CALL if name in arrays}
    if "training" in arrays:
        rest["training"] = bool(arrays["training"])
    return (arrays.get("weight"), arrays.get("bias")), rest
