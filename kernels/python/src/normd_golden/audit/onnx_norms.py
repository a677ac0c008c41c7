"""Audits ONNX: what the node tests of the installed onnx package expect, and what its reference evaluator, or another
runtime, makes of inputs on which kernels go wrong.

Of the operators BatchNormalization (inference), InstanceNormalization, GroupNormalization (from opset 21),
LayerNormalization, RMSNormalization and LpNormalization.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from normd_golden import cases, specs
from normd_golden._formats import Array
from normd_golden.audit._finding import MAX_ULP, Finding, judged, skipped

Runner = Callable[[Any, Dict[str, Array]], List[Array]]  # a model and its inputs by name -> its outputs
_OPSET = 23


class Call(NamedTuple):
    """A node as a call of golden.check: spec, x, weight, bias and the rest."""

    spec: specs.Spec
    x: Array
    weight: Optional[Array] = None
    bias: Optional[Array] = None
    rest: Mapping[str, Any] = {}


def _trailing(attributes: Mapping[str, Any], x: Array) -> Tuple[int, ...]:
    axis = attributes.get("axis", -1)
    return tuple(x.shape[axis:])


def _epsilon(attributes: Mapping[str, Any]) -> float:
    return attributes.get("epsilon", _f32(1e-5))


def _layer(attributes: Mapping[str, Any], x: Array, weight: Array, bias: Optional[Array] = None) -> Call:
    shape = _trailing(attributes, x)
    spec = specs.LayerNorm(shape, eps=_epsilon(attributes))
    return Call(spec, x, np.broadcast_to(weight, shape), None if bias is None else np.broadcast_to(bias, shape))


def _rms(attributes: Mapping[str, Any], x: Array, weight: Array) -> Call:
    shape = _trailing(attributes, x)
    return Call(specs.RMSNorm(shape, eps=_epsilon(attributes)), x, np.broadcast_to(weight, shape))


def _batch(attributes: Mapping[str, Any], x: Array, weight: Array, bias: Array, mean: Array, var: Array) -> Call:
    if attributes.get("training_mode", 0):
        raise ValueError("its outputs are those of training, the running statistics included")
    spec = specs.BatchNorm(eps=_epsilon(attributes))
    return Call(spec, x, weight, bias, {"running_mean": mean, "running_var": var, "training": False})


def _instance(attributes: Mapping[str, Any], x: Array, weight: Array, bias: Array) -> Call:
    return Call(specs.InstanceNorm(eps=_epsilon(attributes)), x, weight, bias)


def _group(attributes: Mapping[str, Any], x: Array, weight: Array, bias: Array) -> Call:
    if weight.shape[0] != x.shape[1]:
        raise ValueError("opset 18 has a weight for each group")
    return Call(specs.GroupNorm(attributes["num_groups"], eps=_epsilon(attributes)), x, weight, bias)


def _lp(attributes: Mapping[str, Any], x: Array) -> Call:
    return Call(specs.LpNorm(attributes.get("p", 2), attributes.get("axis", -1), eps=0.0), x)


def _f32(value: float) -> float:
    """An attribute of ONNX is a float32."""
    return float(np.float32(value))


_CALLS: Mapping[str, Callable[..., Call]] = {
    "BatchNormalization": _batch,
    "InstanceNormalization": _instance,
    "GroupNormalization": _group,
    "LayerNormalization": _layer,
    "RMSNormalization": _rms,
    "LpNormalization": _lp,
}


def node_tests(max_ulp: float = MAX_ULP) -> Iterator[Finding]:
    """A finding for each node test of the installed onnx package that has one of the operators as its only node."""
    from onnx.backend.test import loader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the tests' own arithmetic
        tests = loader.load_model_tests(kind="node")
    for test in tests:
        nodes: Sequence[Any] = test.model.graph.node if test.model is not None else ()
        if len(nodes) == 1 and nodes[0].op_type in _CALLS and not nodes[0].domain:
            for inputs, outputs in test.data_sets:
                yield _node_finding(test.name, nodes[0], inputs, outputs, max_ulp)


def _node_finding(name: str, node: Any, inputs: Sequence[Any], outputs: Sequence[Any], max_ulp: float) -> Finding:
    try:
        call = _call(node, [np.asarray(one) for one in inputs])
        return judged(name, max_ulp, np.asarray(outputs[0]), call.spec, call.x, call.weight, call.bias, **call.rest)
    except (TypeError, ValueError) as why:
        return skipped(name, str(why))


def _call(node: Any, inputs: Sequence[Array]) -> Call:
    from onnx import helper

    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    return _CALLS[node.op_type](attributes, *inputs)


# ---- A runtime on hard inputs


def reference(model: Any, inputs: Dict[str, Array]) -> List[Array]:
    """onnx's own evaluator."""
    from onnx.reference import ReferenceEvaluator

    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, inputs)


def runtime(model: Any, inputs: Dict[str, Array]) -> List[Array]:
    """ONNX Runtime on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


# The operators that have no state, as spec and attributes.
_HARD: Mapping[str, Tuple[specs.Spec, Mapping[str, Any], bool]] = {
    "LayerNormalization": (specs.LayerNorm(256, eps=_f32(1e-5)), {"axis": -1}, True),
    "RMSNormalization": (specs.RMSNorm(256, eps=_f32(1e-5)), {"axis": -1}, False),
    "LpNormalization": (specs.LpNorm(2, -1, eps=0.0), {"axis": -1, "p": 2}, False),
}


def hard_cases(run: Runner, name: str, max_ulp: float = MAX_ULP) -> Iterator[Finding]:
    """A finding for each operator, type and kind of input: what `run` makes of it."""
    for operator, (spec, attributes, has_bias) in _HARD.items():
        for case in cases.make_cases(spec, ("float32", "float16"), ((256, 256),), True, has_bias):
            label = f"{name} {operator} {case.dtype} {list(case.shape)} {case.kind}"
            if isinstance(spec, specs.LpNorm) and case.kind in ("zeros", "constant"):
                continue  # ONNX does not say what 0 / 0 is
            given = {"x": case.x, "w": case.weight, "b": case.bias}
            inputs = {key: np.ascontiguousarray(one) for key, one in given.items() if one is not None}
            try:
                y = run(model(operator, inputs, attributes), inputs)[0]
            except ImportError:
                raise
            except Exception as error:  # noqa: BLE001, a runtime may refuse in ways of its own
                yield skipped(label, f"{type(error).__name__}: {error}".splitlines()[0])
                continue
            if y.dtype != case.x.dtype:
                yield skipped(label, f"it returns {y.dtype}")
                continue
            yield judged(label, max_ulp, y, *case.args)


def model(operator: str, inputs: Mapping[str, Array], attributes: Mapping[str, Any], domain: str = "") -> Any:
    """A model of one node with the inputs in this order. `domain`: of the operator, "" for ONNX itself."""
    from onnx import helper

    node = helper.make_node(operator, list(inputs), ["y"], domain=domain, **attributes)
    kinds = {name: helper.np_dtype_to_tensor_dtype(x.dtype) for name, x in inputs.items()}
    infos = [helper.make_tensor_value_info(name, kinds[name], x.shape) for name, x in inputs.items()]
    out = helper.make_tensor_value_info("y", kinds["x"], inputs["x"].shape)
    graph = helper.make_graph([node], "norm", infos, [out])
    opsets = [helper.make_opsetid("", _OPSET)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
