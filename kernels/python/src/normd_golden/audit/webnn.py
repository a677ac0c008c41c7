"""Audits WebNN's conformance tests: a file of web-platform-tests (webnn/conformance_tests/*.js), or its tests as JSON.

    [{"name": ..., "graph": {"inputs": {...}, "operators": [{"name": "batchNormalization", ...}], "expectedOutputs": {...}}}]

or {"tests": [...]} of those. A graph may have one norm (batchNormalization, instanceNormalization, layerNormalization)
and activations after it.
"""

from __future__ import annotations

import json
import math
from typing import Any, Callable, Dict, Iterator, List, Mapping

import numpy as np

from normd_golden import _formats, specs
from normd_golden._exact import exact
from normd_golden._formats import Array
from normd_golden.audit import _javascript
from normd_golden.audit._finding import MAX_ULP, Finding, judged_values, skipped

_MOST_ELEMENTS = 1 << 26  # of a tensor, whose file may be short: one number stands for all elements
_DTYPES = {"float32": _formats.F32, "float16": _formats.F16}
_each: Callable[[Callable[[float], float]], Any] = lambda function: np.vectorize(function, otypes=[float])  # noqa: E731
# What may follow the norm, in float64: within 2^-50 of the real number, where a float32 is 2^-24.
_ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "gelu": lambda x: x / 2 * _each(math.erfc)(-x / math.sqrt(2)),
    "identity": lambda x: x,
}


class Unknown(ValueError):
    """What this audit cannot judge."""


def tests_of(text: str, path: str = "") -> List[Dict[str, Any]]:
    """The tests of a file. ValueError if there are none."""
    if path.endswith(".json") or text.lstrip().startswith(("{", "[")):
        try:
            given = json.loads(text)
        except RecursionError:
            raise ValueError(f"{path or 'the text'} is nested too deeply") from None
        lists = [given.get("tests") if isinstance(given, dict) else given]
    else:
        lists = list(_javascript.arrays(text))
    tests = (test for one in lists if isinstance(one, list) for test in one if isinstance(test, dict))
    found = [test for test in tests if "graph" in test and "name" in test]
    if not found:
        raise ValueError(f"{path or 'the text'} has no test with a name and a graph")
    return found


def audit(text: str, path: str = "", max_ulp: float = MAX_ULP) -> Iterator[Finding]:
    """A finding for each test of the file."""
    for test in tests_of(text, path):
        try:
            yield _audited(test["name"], test["graph"], max_ulp)
        except Unknown as why:
            yield skipped(test["name"], str(why))
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            yield skipped(test["name"], f"{type(error).__name__}: {error}")


def _audited(name: str, graph: Mapping[str, Any], max_ulp: float) -> Finding:
    tensors = {key: _tensor(one) for key, one in graph["inputs"].items()}
    values: Dict[str, Array] = {}  # results so far, in float64
    for operator in graph["operators"]:
        arguments = {key: value for one in operator["arguments"] for key, value in one.items()}
        values[_output(operator)] = _result(operator["name"], arguments, tensors, values)
    if len(graph["expectedOutputs"]) != 1:
        raise Unknown(f"it has {len(graph['expectedOutputs'])} outputs")
    (output, expected), = graph["expectedOutputs"].items()
    format_ = _format(expected)
    return judged_values(name, max_ulp, format_, _tensor(expected), values[output])


def _result(name: str, arguments: Dict[str, Any], tensors: Dict[str, Array], values: Dict[str, Array]) -> Array:
    source = arguments["input"]
    options = arguments.get("options") or {}
    if name in _NORMS and source in tensors:
        return _NORMS[name](tensors[source], arguments, options, tensors)
    if name in _ACTIVATIONS and source in values and not options:
        return _ACTIVATIONS[name](values[source])
    raise Unknown(f"{name} after a norm, or with these options, is not known here")


def _output(operator: Mapping[str, Any]) -> str:
    outputs = operator["outputs"]
    return str(outputs if isinstance(outputs, str) else outputs[0])


def _format(given: Mapping[str, Any]) -> _formats.Format:
    name = given["descriptor"]["dataType"]
    if name not in _DTYPES:
        raise Unknown(f"dataType {name} is no floating-point type")
    return _DTYPES[name]


def _tensor(given: Mapping[str, Any]) -> Array:
    descriptor = given["descriptor"]
    shape = descriptor.get("shape", descriptor.get("dimensions", []))
    if math.prod(shape) > _MOST_ELEMENTS:
        raise Unknown(f"shape {shape} has more than {_MOST_ELEMENTS} elements")
    values = np.asarray(given["data"], np.float64)
    if values.ndim == 0 or values.size == 1:
        values = np.full(shape, float(values.reshape(-1)[0]))
    return _format(given).round(values).reshape(shape)


def _parameter(options: Dict[str, Any], name: str, tensors: Dict[str, Array]) -> Any:
    return tensors[options[name]] if options.get(name) is not None else None


def _batch(x: Array, arguments: Dict[str, Any], options: Dict[str, Any], tensors: Dict[str, Array]) -> Array:
    axis = options.get("axis", 1)
    moved = np.moveaxis(x[np.newaxis], axis + 1, 1)
    high = exact(
        specs.BatchNorm(eps=options.get("epsilon", 1e-5)), np.ascontiguousarray(moved),
        _parameter(options, "scale", tensors), _parameter(options, "bias", tensors),
        running_mean=tensors[arguments["mean"]], running_var=tensors[arguments["variance"]], training=False,
    ).high  # fmt: skip
    return np.moveaxis(high, 1, axis + 1)[0]


def _instance(x: Array, arguments: Dict[str, Any], options: Dict[str, Any], tensors: Dict[str, Array]) -> Array:
    layout = "channels_last" if options.get("layout", "nchw") == "nhwc" else "channels_first"
    spec = specs.InstanceNorm(eps=options.get("epsilon", 1e-5), layout=layout)
    return exact(spec, x, _parameter(options, "scale", tensors), _parameter(options, "bias", tensors)).high


def _layer(x: Array, arguments: Dict[str, Any], options: Dict[str, Any], tensors: Dict[str, Array]) -> Array:
    axes = tuple(options.get("axes", range(1, x.ndim)))
    if not axes:
        raise Unknown("without axes there is nothing to normalise")
    spec = specs.LayerNorm(axes=axes, eps=options.get("epsilon", 1e-5))
    return exact(spec, x, _parameter(options, "scale", tensors), _parameter(options, "bias", tensors)).high


_NORMS: Mapping[str, Callable[..., Array]] = {
    "batchNormalization": _batch,
    "instanceNormalization": _instance,
    "layerNormalization": _layer,
}
