"""Test data for conformance suites, with the nearest values as what they expect.

    generate.onnx_test("test_rms_normalization_hard", golden.RMSNorm(256, eps=2.0**-17), x, weight)  # a folder
    generate.webnn_test("layerNormalization 4D", golden.LayerNorm(axes=(1, 2, 3)), x)             # a dict for JSON

Of the specs that the two standards have, in the order of casts affine_then_cast.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

import numpy as np

from normd_golden import _normalize, specs
from normd_golden._formats import Array
from normd_golden.audit import onnx_norms

_RUNNING = ("running_mean", "running_var")


class _Call(NamedTuple):
    """The arrays of a call in the order of the standards: x, weight, bias, mean, variance; and y."""

    inputs: Dict[str, Array]
    y: Array


def _called(spec: specs.Spec, x: Any, weight: Any, bias: Any, rest: Mapping[str, Any]) -> _Call:
    known = _RUNNING if isinstance(spec, specs.BatchNorm) else ()
    for name in rest:
        if name not in known:
            raise ValueError(f"{name} is given; {type(spec).__name__} takes {' and '.join(known) or 'nothing beside bias'} here")
    if isinstance(spec, specs.BatchNorm):
        rest = {**rest, "training": False}
    if spec.casts_first or getattr(spec, "eps_mode", None) not in (None, "inside_sqrt"):
        raise ValueError(f"spec is {spec}; neither standard has its eps_mode or cast_order")
    if getattr(spec, "weight_offset", 0):
        raise ValueError(f"spec is {spec}; neither standard has a weight_offset")
    if isinstance(spec, specs.BatchNorm) and any(rest.get(name) is None for name in _RUNNING):
        raise ValueError("running_mean and running_var are None; the standards' batch normalization takes both")
    y = _normalize.normalize(spec, x, weight, bias, **rest).y
    given = {"x": x, "weight": weight, "bias": bias, "mean": rest.get("running_mean"), "variance": rest.get("running_var")}
    return _Call({name: np.asarray(one) for name, one in given.items() if one is not None}, np.asarray(y))


def _eps(spec: specs.Spec, x: Array) -> float:
    """An attribute of ONNX is a float32: an eps that is none would be another one there."""
    eps = spec.eps_for(x.dtype == np.float64)
    if float(np.float32(eps)) != eps:
        raise ValueError(f"eps is {eps!r}; ONNX keeps float32, so give float(numpy.float32({eps!r}))")
    return eps


def _trailing_axis(spec: Any, x: Array) -> int:
    if spec.axes is not None:
        raise ValueError(f"axes is {spec.axes}; ONNX normalises trailing axes: give normalized_shape")
    return -len(specs.extents(spec.normalized_shape, "normalized_shape") or (1,))


def _onnx_node(spec: specs.Spec, x: Array) -> Tuple[str, Dict[str, Any]]:
    if isinstance(spec, (specs.LayerNorm, specs.RMSNorm)):
        operator = "LayerNormalization" if isinstance(spec, specs.LayerNorm) else "RMSNormalization"
        return operator, {"axis": _trailing_axis(spec, x), "epsilon": _eps(spec, x)}
    if getattr(spec, "layout", "channels_first") not in ("channels_first", "NCHW", "NCL"):
        raise ValueError(f"layout is {spec.layout}; ONNX has channels_first")  # type: ignore[attr-defined]
    if isinstance(spec, specs.BatchNorm):
        return "BatchNormalization", {"epsilon": _eps(spec, x)}
    if isinstance(spec, specs.InstanceNorm):
        return "InstanceNormalization", {"epsilon": _eps(spec, x)}
    if isinstance(spec, specs.GroupNorm):
        return "GroupNormalization", {"epsilon": _eps(spec, x), "num_groups": spec.num_groups}
    raise ValueError(f"spec is {spec}; ONNX has Layer, RMS, Batch, Instance and GroupNormalization")


def onnx_test(folder: str, spec: specs.Spec, x: Any, weight: Any, bias: Any = None, **rest: Any) -> None:
    """Writes model.onnx and test_data_set_0 of a node test. rest: running_mean and running_var of a BatchNorm.

    The operator's own inputs are required: weight, and for Batch-, Instance- and GroupNormalization bias. ValueError for
    a spec that ONNX does not have. Needs the onnx package.
    """
    import onnx
    from onnx import numpy_helper

    call = _called(spec, x, weight, bias, rest)
    operator, attributes = _onnx_node(spec, call.inputs["x"])
    needs_bias = operator not in ("LayerNormalization", "RMSNormalization")
    for name in ("weight", "bias") if needs_bias else ("weight",):
        if name not in call.inputs:
            raise ValueError(f"{name} is None; {operator} needs it")
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    onnx.save(onnx_norms.model(operator, call.inputs, attributes), os.path.join(folder, "model.onnx"))
    files = [(f"input_{at}", name, one) for at, (name, one) in enumerate(call.inputs.items())]
    for file, name, array in [*files, ("output_0", "y", call.y)]:
        with open(os.path.join(data, f"{file}.pb"), "wb") as out:
            out.write(numpy_helper.from_array(array, name).SerializeToString())


# ---- WebNN

_WEBNN_DTYPES = ("float32", "float16")


def webnn_test(name: str, spec: specs.Spec, x: Any, weight: Any = None, bias: Any = None, **rest: Any) -> Dict[str, Any]:
    """A test as WebNN's conformance tests have it: a dict that JSON can write. rest: as for onnx_test."""
    call = _called(spec, x, weight, bias, rest)
    if call.y.dtype.name not in _WEBNN_DTYPES:
        raise ValueError(f"x has dtype {call.y.dtype.name}; WebNN has {', '.join(_WEBNN_DTYPES)}")
    operator, options = _webnn_operator(spec, call.inputs["x"])
    names = {key: f"{operator}{key.capitalize()}" for key in call.inputs}
    arguments: List[Dict[str, Any]] = [{"input": names["x"]}]
    arguments += [{key: names[key]} for key in ("mean", "variance") if key in names]
    for key, option in (("weight", "scale"), ("bias", "bias")):
        if key in names:
            options[option] = names[key]
    arguments.append({"options": options})
    graph = {
        "inputs": {names[key]: _webnn_tensor(one) for key, one in call.inputs.items()},
        "operators": [{"name": operator, "arguments": arguments, "outputs": "output"}],
        "expectedOutputs": {"output": _webnn_tensor(call.y)},
    }
    return {"name": name, "graph": graph}


def _webnn_operator(spec: specs.Spec, x: Array) -> Tuple[str, Dict[str, Any]]:
    eps = spec.eps_for(False)
    last = getattr(spec, "layout", "channels_first") not in ("channels_first", "NCHW", "NCL")
    if isinstance(spec, specs.LayerNorm):
        count = len(specs.extents(spec.normalized_shape, "normalized_shape"))
        axes = list(specs.extents(spec.axes, "axes")) or list(range(x.ndim - count, x.ndim))
        return "layerNormalization", {"axes": [axis % x.ndim for axis in axes], "epsilon": eps}
    if isinstance(spec, specs.InstanceNorm) and x.ndim == 4:
        return "instanceNormalization", {"layout": "nhwc" if last else "nchw", "epsilon": eps}
    if isinstance(spec, specs.BatchNorm):
        return "batchNormalization", {"axis": x.ndim - 1 if last else 1, "epsilon": eps}
    raise ValueError(f"spec is {spec} of rank {x.ndim}; WebNN has layer, batch, and instance normalization of rank 4")


def _webnn_tensor(array: Array) -> Dict[str, Any]:
    """Values with as many digits as tell them from their neighbours; those that JSON lacks are refused."""
    if not np.isfinite(array).all():
        raise ValueError("a tensor has a NaN or an infinity, which JSON cannot express")
    values = [float(str(one)) for one in array.reshape(-1)]
    return {"data": values, "descriptor": {"shape": list(array.shape), "dataType": array.dtype.name}}
