"""normd.stats with `decay` and `max_count`: the server, and whoever contributes to it, weigh samples alike."""

import numpy as np
import pytest

import normd
from normd.stats import RunningMeanStd
from normd.stats._delta import Known, Ledger, Rule
from normd.stats._samples import Samples

FIELDS = ("count", "mean", "m2")


def of(*values):
    return Samples.of(np.array([[value] for value in values], float))


def weighed(batches, decay, prior_count):
    """By definition: a sample's weight is decay to the number of samples in later batches. (count, mean, variance)."""
    values = [np.zeros(1, np.longdouble), *(np.asarray(batch, np.longdouble) for batch in batches)]
    later = np.cumsum([0] + [len(batch) for batch in batches[::-1]])[::-1]
    weights = [np.full(len(one), np.longdouble(decay) ** int(n)) for one, n in zip(values, later)]
    weights[0] *= prior_count  # of the prior, whose mean is 0 and whose variance is 1
    values, weights, prior = np.concatenate(values), np.concatenate(weights), weights[0][0]
    count = weights.sum()
    mean = (weights * values).sum() / count
    return count, mean, ((weights * (values - mean) ** 2).sum() + prior) / count


def assert_close(stats, expected):
    for field, value in zip(("count", "mean", "var"), expected):
        np.testing.assert_allclose(getattr(stats, field), float(value), rtol=1e-13, err_msg=field)


# ---- decay


def test_a_delta_of_several_batches_decays_what_came_before_it_as_they_would_one_by_one():
    batches = [(4, 2), (0,), (8, 1, 1), (3,)]
    one_by_one = Samples.none(1)
    for batch in batches:
        one_by_one = one_by_one.merged(of(*batch), 0.5)
    for cut in range(len(batches) + 1):
        parts = [Samples.none(1), Samples.none(1)]
        for index, batch in enumerate(batches):
            parts[index >= cut] = parts[index >= cut].merged(of(*batch), 0.5)
        together = parts[0].merged(parts[1], 0.5)
        for field in FIELDS:
            np.testing.assert_allclose(getattr(together, field), getattr(one_by_one, field), rtol=1e-15, err_msg=field)


def test_what_is_pending_is_counted_in_samples_and_not_in_their_weights():
    ledger = Ledger(Known(Samples.none(2), 0), Rule(decay=0.5))
    for _ in range(100):
        ledger.add_batch(np.array([[1.0, 2.0]]), slice(0, 2))
    assert ledger.pending_samples == 100
    sent, _ = ledger.take("step")
    assert sent.samples.tolist() == [100, 100] and sent.count[0] == pytest.approx(2)


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.9999])
def test_the_server_and_its_clients_agree_however_often_samples_are_sent(client, name, random, decay):
    batches = [random.normal(3, 2, 1 + step % 5) for step in range(60)]
    expected = weighed(batches, decay, prior_count=1)
    for every in (1, 7, 100):
        own = f"{name}-{every}"
        with RunningMeanStd(own, client=client, prior_count=1, decay=decay, flush_seconds=3600) as stats:
            for step, batch in enumerate(batches, start=1):
                stats.update(batch)
                if step % every == 0:
                    stats.flush(10)
            assert_close(stats, expected)  # of the own samples, which the server does not have yet
            stats.flush(10)
            assert_close(stats, expected)
        info = client.session(own).info()
        assert info.version == -(-60 // every)
        assert_close(RunningMeanStd(own, client=client, prior_count=1, decay=decay), expected)


def test_values_one_by_one_with_a_decay(client, name):
    with RunningMeanStd(name, client=client, prior_count=0, decay=0.5, flush_seconds=3600) as stats:
        for value in (0.0, 0.0, 8.0):
            stats.update(value)
    info = client.session(name).info()
    assert (info.version, info.count[0]) == (1, 1.75)
    assert info.running_mean[0] == pytest.approx(4.5714286)


def test_channels_without_samples_do_not_decay(client, name, random):
    rows = random.normal(3, 2, (20, 2))
    rows[::3, 1] = np.nan
    options = {"client": client, "prior_count": 1, "decay": 0.9, "skip_nan": True, "flush_seconds": 3600}
    with RunningMeanStd(name, (2,), **options) as stats:
        for row in rows:
            stats.update(row)
    info = client.session(name).info()
    for channel in range(2):
        present = rows[~np.isnan(rows[:, channel]), channel]
        count, mean, _ = weighed([[value] for value in present], 0.9, prior_count=1)
        assert info.count[channel] == pytest.approx(float(count), rel=1e-13)
        assert info.running_mean[channel] == pytest.approx(float(mean), rel=1e-13)


# ---- max_count


def test_a_channel_that_has_its_count_moves_no_more_in_any_view():
    ledger = Ledger(Known(of(1, 3, 5), 1), Rule(max_count=4))
    ledger.add(of(7))
    ledger.add_batch(np.array([[9.0]]), slice(0, 1))
    assert ledger.view().count[0] == 5, "one contribution, which counts wholly"
    ledger.take("step")
    ledger.add_batch(np.array([[100.0]]), slice(0, 1))
    assert ledger.view().count[0] == 5 and ledger.view().mean[0] == 5
    ledger.acknowledge(None)
    assert ledger.view().count[0] == 5 and ledger.view().max[0] == 9


def test_the_server_moves_as_the_view_says_it_does(client, name, random):
    options = {"client": client, "prior_count": 0, "max_count": 10, "flush_seconds": 3600}
    with RunningMeanStd(name, **options) as stats:
        first, last, late = random.normal(0, 1, 8), random.normal(0, 1, 5), random.normal(50, 1, 3)
        for batch in (first, last, late):
            stats.update(batch)
            shown = (stats.count, stats.mean, stats.var)
            stats.flush(10)
            np.testing.assert_allclose((stats.count, stats.mean, stats.var), shown, rtol=1e-14)
        kept = np.concatenate([first, last])
        assert stats.count == 13 and stats.mean == pytest.approx(kept.mean(), rel=1e-13)
    stats.update(late)  # closed: it has its values, and the rule
    assert stats.count == 13
    info = client.session(name).info()
    assert info.count[0] == 13 and info.running_mean[0] == pytest.approx(kept.mean(), rel=1e-13)


def test_a_limit_is_part_of_the_session(client, name):
    RunningMeanStd(name, client=client, max_count=100).close()
    with pytest.raises(normd.Error, match="max_count is 100.0 there"):
        RunningMeanStd(name, client=client)
    with pytest.raises(normd.InvalidArgument, match="max_count is 0"):
        RunningMeanStd(f"{name}-0", client=client, max_count=0)
