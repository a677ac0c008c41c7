"""Tianshou's RunningMeanStd, unmodified, beside the shared one.

Tianshou needs PyTorch 2 and much else to be imported, so that the file of its class is loaded by itself.
"""

import importlib.util
import pathlib

import numpy as np
import pytest

from normd.stats.tianshou import RunningMeanStd


@pytest.fixture(scope="module")
def theirs():
    package = pathlib.Path(importlib.util.find_spec("tianshou").origin).parent
    spec = importlib.util.spec_from_file_location("tianshou_statistics", package / "utils" / "statistics.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RunningMeanStd


@pytest.mark.parametrize("shape", [(), (3,)])
def test_batches_and_norms_are_tianshous(client, theirs, shape):
    random, name = np.random.default_rng(0), f"tianshou-{len(shape)}"
    own = theirs()
    with RunningMeanStd(name, shape, client=client, flush_samples=8) as shared:
        for n in (1, 5, 30):
            batch = random.normal(4, 2, (n, *shape))
            own.update(batch)
            shared.update(batch)
            x = random.normal(4, 200, (2, *shape))
            np.testing.assert_allclose(shared.norm(x), own.norm(x), rtol=1e-12, atol=1e-13)
        shared.flush(10)
        np.testing.assert_allclose(shared.mean, own.mean, rtol=1e-14)
        np.testing.assert_allclose(shared.var, own.var, rtol=1e-13)
        assert shared.count == own.count == 36
        assert (shared.eps, shared.clip_max) == (own.eps, own.clip_max)


def test_without_a_clip_nothing_is_clipped(client):
    with RunningMeanStd("tianshou-no-clip", client=client, clip_max=None) as shared:
        shared.update(np.array([0.0, 2.0]))
        assert shared.norm(100.0) == pytest.approx(99, rel=1e-6)
