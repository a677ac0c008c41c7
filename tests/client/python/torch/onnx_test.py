"""What a snapshot exports, a Scaler node of ONNX and a C header, computes what numpy does from the same numbers."""

import ctypes
import dataclasses
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from normd.stats import RunningMeanStd, export


MEANS, DEVIATIONS = [3, -40, 0], [1, 20, 1e-3]
# What is computed from a frozen version, and must have the same bits.
ROWS = 1_000_000


@pytest.fixture
def snapshot(client):
    """That of a frozen session."""
    random = np.random.default_rng(0)
    with RunningMeanStd("onnx", (3,), client=client, clip=2.0) as stats:
        stats.update(random.normal(MEANS, DEVIATIONS, (500, 3)))
        frozen = stats.freeze()
        assert frozen.digest == client.session("onnx").info().digest != ""
        yield frozen
    client.session("onnx").delete()


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(MEANS, DEVIATIONS, (ROWS, 3))


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


def run_in_onnxruntime(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def test_onnxruntime_computes_the_bits_of_its_formula_in_float32(snapshot, x):
    attributes = export.onnx_scaler(dataclasses.replace(snapshot, clip=None))
    offset, scale = (np.array(attributes[name], np.float32) for name in ("offset", "scale"))
    x = x.astype(np.float32)
    expected = np.clip((x - offset) * scale, np.float32(-2), np.float32(2))
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(run_in_onnxruntime(model_of(snapshot), x), expected)


def test_a_scaler_node_computes_what_a_snapshot_does(snapshot, x):
    model = model_of(snapshot)
    x = x.astype(np.float32)
    expected = snapshot.normalize(x.astype(np.float64))
    for y in (run_in_onnxruntime(model, x), ReferenceEvaluator(model).run(None, {"x": x})[0]):
        # Rounding the mean to float32 costs half an ulp of it, in deviations: 1.9e-6 / 20 at -40, 1.2e-7 / 1 at 3.
        np.testing.assert_allclose(y, expected, rtol=1e-6, atol=3e-7)
        assert abs(y).max() == 2.0


def test_a_c_header_computes_the_bits_of_numpy(snapshot, x, tmp_path):
    (tmp_path / "rows.h").write_text(export.c_header(snapshot, "rows"), encoding="utf-8")
    (tmp_path / "rows.c").write_text(
        '#include "rows.h"\n'
        "void normalize(const double *x, double *y, long rows) {\n"
        "    for (long row = 0; row < rows; ++row) rows_normalize(x + row * rows_SIZE, y + row * rows_SIZE);\n"
        "}\n",
        encoding="utf-8",
    )
    library = tmp_path / "rows.so"
    subprocess.run(["gcc", "-std=c99", "-O2", "-shared", "-fPIC", tmp_path / "rows.c", "-o", library], check=True)
    y = np.empty_like(x)
    pointers = (ctypes.c_void_p(array.ctypes.data) for array in (x, y))
    ctypes.CDLL(str(library)).normalize(*pointers, ctypes.c_long(len(x)))
    np.testing.assert_array_equal(y, snapshot.normalize(x))
    assert abs(y).max() == 2.0
