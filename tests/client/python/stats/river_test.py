"""StandardScaler beside river's own on the same stream: one at a time, in batches, through a pipeline."""

import numpy as np
import pytest
from river import linear_model, preprocessing

import normd
from normd.stats.river import StandardScaler

pytestmark = pytest.mark.usefixtures("default_client")


def stream(random, n):
    """Features that come and go."""
    for number in range(n):
        x = {"speed": random.normal(5, 2), "height": random.normal(-100, 30)}
        yield x if number % 3 or number < 3 else {"height": x["height"]}


@pytest.mark.parametrize("with_std", [True, False])
def test_a_stream_is_scaled_as_by_river(name, random, with_std):
    ours, theirs = StandardScaler(name, with_std=with_std), preprocessing.StandardScaler(with_std=with_std)
    for x in stream(random, 100):
        ours.learn_one(x)
        theirs.learn_one(x)
        assert ours.transform_one(x) == pytest.approx(theirs.transform_one(x), rel=1e-11, abs=1e-11)
    ours.flush(10)
    assert ours.counts == {"speed": 67, "height": 100} == dict(theirs.counts)
    assert ours.means == pytest.approx(dict(theirs.means), rel=1e-12)
    if with_std:
        assert ours.vars == pytest.approx(dict(theirs.vars), rel=1e-12)
    ours.close()


def test_processes_share_one_stream(name, random):
    one, two = StandardScaler(name, ["height", "speed"]), StandardScaler(name)
    theirs = preprocessing.StandardScaler()
    one.flush()  # there is nothing yet
    for number, x in enumerate(stream(random, 100)):
        (one if number % 2 else two).learn_one(x)
        theirs.learn_one(x)
    for scaler in (one, two, one):
        scaler.flush(10)
        scaler.refresh()
    assert one.counts == two.counts == dict(theirs.counts), "although their first x had the features in another order"
    assert one.vars == pytest.approx(dict(theirs.vars), rel=1e-12)
    one.close()
    two.close()


def test_a_pipeline_learns_as_with_rivers_own(name, random):
    ours = StandardScaler(name) | linear_model.LogisticRegression()
    theirs = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    for x in stream(random, 60):
        for model in (ours, theirs):
            model.learn_one(x, x["height"] > -90)
    x = {"speed": 4.0, "height": -80.0}
    assert ours.predict_proba_one(x) == pytest.approx(theirs.predict_proba_one(x), rel=1e-9)
    shared = ours["StandardScaler"]
    assert shared.clone().name == name
    shared.close()


def test_another_feature_is_refused(name):
    scaler = StandardScaler(name)
    scaler.learn_one({"speed": 1.0})
    for method in (scaler.learn_one, scaler.transform_one):
        with pytest.raises(normd.InvalidArgument, match=r"x has the feature 'pace'; .* has \['speed'\]"):
            method({"speed": 1.0, "pace": 2.0})
    scaler.close()


def test_batches_with_a_large_mean_and_a_missing_value(name, random):
    """river's own takes E[x^2] - E[x]^2, and one NaN makes its variance NaN for ever."""
    pandas = pytest.importorskip("pandas", reason="tests/e2e/real_models.sh has pandas")
    ours, theirs = StandardScaler(name, ["large", "holes"]), preprocessing.StandardScaler()
    frame = pandas.DataFrame({"large": random.normal(1e8, 1, 2000), "holes": random.normal(0, 1, 2000)})
    frame.loc[7, "holes"] = np.nan
    for part in (frame[:500], frame[500:]):
        ours.learn_many(part[["holes", "large"]])
        theirs.learn_many(part)
    truth = frame.astype(np.longdouble).var(ddof=0)
    assert ours.counts == {"large": 2000, "holes": 1999}
    for feature in frame:
        assert ours.vars[feature] == pytest.approx(float(truth[feature]), rel=1e-8)
    assert abs(theirs.vars["large"] - 1) > 0.1 and np.isnan(theirs.vars["holes"])
    scaled = ours.transform_many(frame)
    assert list(scaled.columns) == ["large", "holes"]
    assert scaled["large"].std(ddof=0) == pytest.approx(1, rel=1e-6)
    ours.close()
