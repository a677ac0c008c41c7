"""A Scaler node of ONNX with exported attributes: onnxruntime, ONNX's reference, numpy and the formula agree."""

import dataclasses

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from normd.stats import RunningMeanStd, export


@pytest.fixture
def snapshot(client):
    random = np.random.default_rng(0)
    with RunningMeanStd("onnx", (3,), client=client, clip=2.0) as stats:
        stats.update(random.normal([3, -40, 0], [1, 20, 1e-3], (500, 3)))
        yield stats.snapshot()
    client.session("onnx").delete()


def model_of(snapshot):
    """A Scaler node, and a Clip node behind it."""
    attributes = export.onnx_scaler(dataclasses.replace(snapshot, clip=None))
    nodes = [
        helper.make_node("Scaler", ["x"], ["scaled"], domain="ai.onnx.ml", **attributes),
        helper.make_node("Clip", ["scaled", "low", "high"], ["y"]),
    ]
    limits = [helper.make_tensor(name, TensorProto.FLOAT, [], [sign * snapshot.clip])
              for name, sign in (("low", -1), ("high", 1))]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 3]) for name in "xy")
    graph = helper.make_graph(nodes, "normalize", [x], [y], limits)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.checker.check_model(model)
    return model


def test_a_scaler_node_computes_what_a_snapshot_does(snapshot):
    model = model_of(snapshot)
    x = np.random.default_rng(1).normal([3, -40, 0], [1, 20, 1e-3], (1000, 3)).astype(np.float32)
    expected = snapshot.normalize(x.astype(np.float64))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for y in (session.run(None, {"x": x})[0], ReferenceEvaluator(model).run(None, {"x": x})[0]):
        # Rounding the mean to float32 costs half an ulp of it, in deviations: 1.9e-6 / 20 at -40, 1.2e-7 / 1 at 3.
        np.testing.assert_allclose(y, expected, rtol=1e-6, atol=3e-7)
        assert abs(y).max() == 2.0
