"""Statistics in other formats: the numbers that these say, beside the numbers of a snapshot's normalize."""

import ctypes
import dataclasses
import json
import subprocess

import numpy as np
import pytest

import normd
from normd.stats import Snapshot, export


def snapshot_of(rows, *, keys=None, epsilon=1e-8, clip=None):
    """The statistics of rows [N, C], or of N rows of each key."""
    fields = {
        "mean": lambda x: x.mean(0),
        "var": lambda x: x.var(0),
        "count": lambda x: np.full(x.shape[1:], len(x) + 1e-4),
        "min": lambda x: x.min(0),
        "max": lambda x: x.max(0),
    }
    values = {
        name: {key: of(rows[key]) for key in keys} if keys else of(rows) for name, of in fields.items()
    }
    return Snapshot(**values, version=7, digest="ab" * 32, epsilon=epsilon, clip=clip)


@pytest.fixture
def robot(random):
    return {"state": random.normal([3, -40, 0], [1, 20, 1e-3], (50, 3)), "effort": random.normal(0, 9, (50,))}


# ---- C


@pytest.mark.parametrize("clip", [None, 1.25])
def test_a_c_header_normalises_with_the_same_bits(random, tmp_path, clip):
    snapshot = snapshot_of(random.normal([1e6, 0, -3], [1e-3, 1e9, 2], (100, 3)), clip=clip)
    (tmp_path / "arm.h").write_text(export.c_header(snapshot, "arm"))
    (tmp_path / "arm.c").write_text("""#include "arm.h"
        void normalize(const double* x, double* y, int rows) {
            for (int i = 0; i < rows; ++i) arm_normalize(x + i * arm_SIZE, y + i * arm_SIZE);
        }
        const char* digest(void) { return arm_DIGEST; }
        int version(void) { return arm_VERSION; }""")
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-std=c99", "-shared", "-fPIC", "arm.c", "-o", "arm.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "arm.so"))
    x = random.normal([1e6, 0, -3], [1e-3, 1e9, 2], (100_000, 3))
    x[0] = [np.nan, np.inf, -np.inf]
    y = np.empty_like(x)
    library.normalize(x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), len(x))
    np.testing.assert_array_equal(y, snapshot.normalize(x))
    library.digest.restype = ctypes.c_char_p
    assert (library.digest().decode(), library.version()) == (snapshot.digest, 7)


def test_a_c_header_is_of_one_array_and_has_a_name_for_c(robot):
    snapshot = snapshot_of(robot, keys=robot)
    assert "#define state_SIZE 3" in export.c_header(snapshot, "state", "state")
    for key in (None, "states"):
        with pytest.raises(normd.InvalidArgument, match=r"one of \['effort', 'state'\] must be chosen"):
            export.c_header(snapshot, "state", key)
    with pytest.raises(normd.InvalidArgument, match="C identifier"):
        export.c_header(snapshot, "so100/joint", "state")


# ---- LeRobot


def lerobot_normalize(stats, key, x):
    """LeRobot's MEAN_STD."""
    return (x - np.array(stats[key]["mean"])) / (np.array(stats[key]["std"]) + 1e-8)


def test_lerobots_stats_go_through_json_and_back(robot):
    snapshot = snapshot_of(robot, keys=robot)
    stats = json.loads(json.dumps(export.to_lerobot(snapshot)))
    assert stats["state"]["count"] == [50] and len(stats["effort"]["mean"]) == 1
    back = export.from_lerobot(stats, ["state", "effort"])
    for key, rows in robot.items():
        x = rows.reshape(50, -1)
        expected = snapshot.normalize(robot)[key].reshape(50, -1)
        np.testing.assert_allclose(lerobot_normalize(stats, key, x), expected, rtol=0.01 if key == "state" else 1e-8)
        np.testing.assert_allclose(back.normalize({**robot, key: x})[key], lerobot_normalize(stats, key, x), rtol=1e-12)
        np.testing.assert_array_equal(back.min[key], x.min(0))
    assert export.to_lerobot(back) == stats


def test_a_feature_that_is_constant_is_divided_by_what_lerobot_divides_by():
    stats = {"gripper": {"mean": [1.0], "std": [0.0], "min": [1.0], "max": [1.0], "count": [9]}}
    x = np.array([[1.0 + 1e-6]])
    y = export.from_lerobot(stats, ["gripper"]).normalize({"gripper": x})["gripper"]
    np.testing.assert_allclose(y, lerobot_normalize(stats, "gripper", x), rtol=1e-12)


def test_a_key_or_a_number_that_is_missing_is_an_error(robot):
    snapshot = snapshot_of(robot, keys=robot)
    stats = export.to_lerobot(snapshot)
    with pytest.raises(normd.InvalidArgument, match=r"the key 'action' is not there; \['effort', 'state'\] are"):
        export.from_lerobot(stats, ["state", "action"])
    del stats["state"]["std"]
    with pytest.raises(normd.InvalidArgument, match="'state' has no std"):
        export.from_lerobot(stats, ["state"])
    plain = snapshot_of(robot["state"])
    with pytest.raises(normd.InvalidArgument, match="a key must be given"):
        export.to_lerobot(plain)
    assert list(export.to_lerobot(plain, "state")) == ["state"]
    with pytest.raises(normd.InvalidArgument, match="have the keys"):
        export.to_lerobot(snapshot, "state")
    with pytest.raises(normd.InvalidArgument, match="min and max of 'state' are not known"):
        export.to_lerobot(dataclasses.replace(plain, min=np.full(3, np.nan)), "state")
    with pytest.raises(normd.InvalidArgument, match="elements without samples"):
        export.to_lerobot(dataclasses.replace(plain, count=np.array([1.0, 0, 1])), "state")
    with pytest.raises(normd.InvalidArgument, match="different counts"):
        export.to_lerobot(dataclasses.replace(plain, count=np.array([1.0, 2, 1])), "state")


# ---- ONNX: what a Scaler node computes with these attributes is in tests/client/python/torch/onnx_test.py


def test_attributes_of_a_scaler_are_the_formula(random):
    rows = random.normal([3, -40, 0], [1, 20, 1e-3], (50, 3))
    snapshot = snapshot_of(rows, epsilon=1e-5)
    attributes = export.onnx_scaler(snapshot)
    y = (rows - attributes["offset"]) * attributes["scale"]
    np.testing.assert_allclose(y, snapshot.normalize(rows), rtol=1e-4, atol=1e-5)
    with pytest.raises(normd.InvalidArgument, match="clip is 5.0, and a Scaler node has none"):
        export.onnx_scaler(dataclasses.replace(snapshot, clip=5.0))
