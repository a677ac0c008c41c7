"""StandardScaler beside scikit-learn's own on the same rows: one process, several, weights, NaN, names, pipelines."""

import pickle
import threading

import numpy as np
import pytest
from sklearn import preprocessing
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import normd
from normd.stats.sklearn import StandardScaler

pytestmark = pytest.mark.usefixtures("default_client")


def assert_same(ours, theirs, x):
    for attribute in ("mean_", "var_", "scale_", "n_samples_seen_"):
        our, their = getattr(ours, attribute), getattr(theirs, attribute)
        if their is None:
            assert our is None, attribute
        else:
            np.testing.assert_allclose(our, their, rtol=1e-12, atol=1e-13, err_msg=attribute)
            assert np.shape(our) == np.shape(their), attribute
    y = ours.transform(x)
    assert y.dtype == theirs.transform(x).dtype
    far = 2e-6 if y.dtype == np.float32 else 1e-12  # an ulp of float32 at -200 is 1.5e-5, and a deviation 30
    np.testing.assert_allclose(y, theirs.transform(x), rtol=far, atol=far)
    np.testing.assert_allclose(ours.inverse_transform(y), theirs.inverse_transform(y), rtol=far, atol=far)


@pytest.mark.parametrize("options", [
    {}, {"with_mean": False}, {"with_std": False}, {"with_mean": False, "with_std": False}])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_rows_in_parts(name, random, options, dtype):
    x = random.normal([5, -200, 0], [2, 30, 1], (100, 3)).astype(dtype)
    ours, theirs = StandardScaler(name, **options), preprocessing.StandardScaler(**options)
    for part in np.split(x.astype(np.float64), [1, 40, 41]):
        assert ours.partial_fit(part) is ours
        theirs.partial_fit(part)
    ours.flush(10)
    if options == {"with_mean": False, "with_std": False}:
        assert ours.mean_ is None and ours.var_ is None and ours.n_samples_seen_ == 100
        np.testing.assert_array_equal(ours.transform(x), x)
    else:
        assert_same(ours, theirs, x)
    ours.close()


def test_a_feature_that_is_constant_has_scale_one(name):
    x = np.array([[1e8, 0, 3], [1e8, 0, 4]]) + np.array([0.1, 0, 0])
    theirs = preprocessing.StandardScaler().fit(np.repeat(x, 50, 0))
    ours = StandardScaler(name).fit(np.repeat(x, 50, 0))
    assert ours.scale_.tolist() == theirs.scale_.tolist() == [1, 1, 0.5]
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-14)
    ours.close()


def test_nan_is_no_sample_and_infinity_is_refused(name, random):
    x = random.normal(3, 2, (50, 3))
    x[::3, 1] = np.nan
    x[5:20, 2] = np.nan
    ours, theirs = StandardScaler(name), preprocessing.StandardScaler()
    for part in (x[:10], x[10:]):
        ours.partial_fit(part)
        theirs.partial_fit(part)
    ours.flush(10)
    assert ours.n_samples_seen_.tolist() == theirs.n_samples_seen_.tolist() == [50, 33, 35]
    assert_same(ours, theirs, x)
    with pytest.raises(ValueError, match="infinity"):
        ours.partial_fit([[np.inf, 0, 0]])
    ours.close()


def test_a_part_without_a_sample_of_a_feature_leaves_it_alone(name):
    scaler = StandardScaler(name).partial_fit([[1.0, np.nan], [3.0, np.nan]]).partial_fit([[2.0, 5.0]])
    assert scaler.mean_.tolist() == [2, 5], "scikit-learn's own mean is NaN for ever"
    assert scaler.n_samples_seen_.tolist() == [3, 1]
    scaler.close()


def test_weights_count_rows_more_often(name, random):
    x, weights = random.normal(3, 2, (50, 2)), random.uniform(0, 3, 50)
    x[7, 1], weights[9] = np.nan, 0
    ours, theirs = StandardScaler(name), preprocessing.StandardScaler()
    for part in (slice(0, 20), slice(20, 50)):
        ours.partial_fit(x[part], sample_weight=weights[part])
        theirs.partial_fit(x[part], sample_weight=weights[part])
    ours.flush(10)
    assert_same(ours, theirs, x)
    with pytest.raises(ValueError, match="at least 0"):
        ours.partial_fit(x[:1], sample_weight=[-1])
    ours.close()


def test_four_producers_who_redeliver_are_one_scaler(name, random, client, monkeypatch):
    """Every third answer is lost on its way, so that the client or the sending thread sends the rows again."""
    unary, answers = client._transport.unary, 0

    async def lossy(method, request, timeout):
        nonlocal answers
        reply = await unary(method, request, timeout)
        answers += method.endswith("/CommitMoments")
        if method.endswith("/CommitMoments") and answers % 3 == 0:
            raise (normd.Unavailable if answers % 2 else normd.DeadlineExceeded)("the answer is lost")
        return reply

    monkeypatch.setattr(client._transport, "unary", lossy)
    x = random.normal([5, -3], [1, 5], (4, 500, 2))

    def produce(rows):
        scaler = StandardScaler(name, flush_samples=50)
        for part in np.split(rows, 20):
            scaler.partial_fit(part).flush(30)
        scaler.close()

    threads = [threading.Thread(target=produce, args=(rows,)) for rows in x]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    theirs = preprocessing.StandardScaler().fit(x.reshape(-1, 2))
    ours = StandardScaler(name)  # another process, which has seen nothing itself
    assert answers > 80 and ours.n_samples_seen_ == 2000
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-12)
    np.testing.assert_allclose(ours.transform(x[0]), theirs.transform(x[0]), rtol=1e-12, atol=1e-12)
    ours.close()


def test_a_pipeline_fits_once_and_its_clones_share(name, random):
    x, y = random.normal(3, 2, (40, 2)), random.normal(0, 1, 40)
    pipeline = make_pipeline(StandardScaler(name), Ridge()).fit(x, y)
    expected = make_pipeline(preprocessing.StandardScaler(), Ridge()).fit(x, y).predict(x)
    np.testing.assert_allclose(pipeline.predict(x), expected, rtol=1e-9)
    pipeline[0].flush(10)
    with pytest.raises(normd.FailedPrecondition, match="has 40.0 samples, which fit would forget"):
        pipeline.fit(x, y)
    other = clone(pipeline[0])
    assert other.get_params() == pipeline[0].get_params() and other.name == name
    np.testing.assert_array_equal(other.transform(x), pipeline[0].transform(x))
    other.close()
    loaded = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_allclose(loaded.predict(x), expected, rtol=1e-9)
    with pytest.raises(normd.InvalidArgument, match="no server"):
        loaded[0].flush()
    pipeline[0].close()


def test_names_of_columns_are_the_sessions_and_others_are_refused(name, client, random):
    pandas = pytest.importorskip("pandas", reason="tests/e2e/real_models.sh has pandas")
    x = pandas.DataFrame(random.normal(3, 2, (9, 2)), columns=["speed", "height"])
    scaler = StandardScaler(name).fit(x)
    assert scaler.feature_names_in_.tolist() == ["speed", "height"] == scaler.get_feature_names_out().tolist()
    assert scaler.n_features_in_ == 2
    scaler.set_output(transform="pandas")
    assert list(scaler.transform(x).columns) == ["speed", "height"]
    with pytest.raises(ValueError, match="feature names"):
        scaler.transform(x.rename(columns={"speed": "pace"}))
    scaler.close()
    assert client.session(name).info().channel_names == ("speed", "height")
    with pytest.raises(normd.FailedPrecondition, match="channel_names"):
        StandardScaler(name).partial_fit(x[["height", "speed"]])
    knowing = StandardScaler(name)
    knowing.transform(x)
    assert knowing.feature_names_in_.tolist() == ["speed", "height"]
    knowing.close()


def test_without_samples_there_is_nothing_to_transform_with(name, client):
    with pytest.raises(NotFittedError):
        StandardScaler(name).transform([[1.0]])
    with pytest.raises(normd.NotFound):
        client.session(name)


def test_frozen_statistics_are_final(name, random):
    x = random.normal(3, 2, (9, 2))
    scaler = StandardScaler(name).fit(x)
    scaler.freeze()
    scaler.transform(x)
    with pytest.raises(normd.FailedPrecondition, match="is frozen"):
        scaler.partial_fit(x).flush(10)
