"""normd.stats: every sample counts once, whoever contributes, and whatever happens to them and to the server."""

import copy
import multiprocessing
import os
import pickle
import threading
import time

import numpy as np
import pytest

import normd
from normd.stats import RunningMeanStd
from normd.stats._delta import Known, Ledger, Rule
from normd.stats._samples import Samples


def assert_holds(stats, samples, prior_count=1e-4):
    """Whether the statistics are those of exactly these samples and the prior."""
    values = np.concatenate([np.asarray(one, np.longdouble).reshape(-1, *np.shape(stats.mean)) for one in samples])
    count = len(values) + np.longdouble(prior_count)
    mean = values.sum(0) / count
    m2 = ((values - mean) ** 2).sum(0) + prior_count * (1 + mean**2)
    np.testing.assert_allclose(stats.count, float(count), rtol=1e-15)
    np.testing.assert_allclose(stats.mean, mean.astype(float), rtol=1e-12)
    np.testing.assert_allclose(stats.var, (m2 / count).astype(float), rtol=1e-12)


# ---- Arithmetic


def test_samples_merge_like_the_server_does(random):
    parts = [random.normal(3, 2, (n, 2)) for n in (1, 5, 30)]
    merged = Samples.none(2)
    for part in parts:
        merged = merged.merged(Samples.of(part))
    whole = np.concatenate(parts)
    np.testing.assert_array_equal(merged.count, [36, 36])
    np.testing.assert_allclose(merged.mean, whole.mean(0), rtol=1e-15)
    np.testing.assert_allclose(merged.variance(1.0), whole.var(0), rtol=1e-14)
    np.testing.assert_array_equal(merged.min, whole.min(0))
    np.testing.assert_array_equal(merged.max, whole.max(0))


def test_decay_weighs_later_samples_more():
    merged = Samples.none(1)
    for value in (0.0, 0.0, 8.0):
        merged = merged.merged(Samples.of(np.array([[value]])), 0.5)
    assert merged.count[0] == 1.75 and merged.mean[0] == pytest.approx(8 / 1.75)


def test_a_contribution_is_shown_once_whatever_is_read_while_it_is_on_its_way():
    def of(*values):
        return Samples.of(np.array([[value] for value in values], float))

    ledger = Ledger(Known(Samples.none(1), 0))
    ledger.add(of(1, 3))
    sent, step = ledger.take("first")
    ledger.add(of(5))
    assert ledger.view().count[0] == 3
    assert ledger.take("second") == (sent, "first"), "one at a time, under the id of the first try"
    ledger.see(Known(of(1, 3, 100), 2))  # somebody reads a version that holds it
    assert ledger.view().count[0] == 3
    ledger.acknowledge(Known(of(1, 3), 1))
    assert ledger.version == 2 and ledger.view().count[0] == 4
    sent, step = ledger.take("second")
    assert (sent.count[0], step) == (1, "second")
    ledger.acknowledge(None)  # applied, and the session has gone
    assert ledger.is_settled and ledger.view().count[0] == 4


def batches_of(random):
    """Small and large ones, of [n, 3]: reduced row by row, channel by channel, and beyond what is gathered."""
    return [random.normal(5, 2, (n, 3)) for n in (1, 7, 1, 300, 20_000, 2)]


@pytest.mark.parametrize("reads", ["nothing", "moments", "extremes", "both in turn"])
def test_batches_that_are_reduced_together_are_those_that_were_added(random, reads):
    ledger, batches = Ledger(Known(Samples.none(3), 0)), batches_of(random)
    for index, batch in enumerate(batches):
        ledger.add_batch(batch.copy(), slice(0, 3))
        if reads != "nothing":
            view = ledger.view(extremes=reads == "extremes" or (reads == "both in turn" and index % 2 == 1))
            np.testing.assert_allclose(view.mean, np.concatenate(batches[: index + 1]).mean(0), rtol=1e-14)
    whole = np.concatenate(batches)
    for samples in (ledger.view(), ledger.take("step")[0]):
        np.testing.assert_array_equal(samples.count, [len(whole)] * 3)
        np.testing.assert_allclose(samples.mean, whole.mean(0), rtol=1e-14)
        np.testing.assert_allclose(samples.m2, whole.var(0) * len(whole), rtol=1e-12)
        np.testing.assert_array_equal([samples.min, samples.max], [whole.min(0), whole.max(0)])
    assert ledger.pending_samples == 0


@pytest.mark.filterwarnings("ignore:invalid value")  # numpy's, of inf - inf
def test_a_batch_that_is_not_finite_takes_no_other_with_it():
    ledger = Ledger(Known(Samples.none(2), 0))
    for batch in ([[1, 2]], [[np.nan, 4]], [[5, np.inf]]):
        ledger.add_batch(np.array(batch, float), slice(0, 2))
    assert ledger.view().count.tolist() == [2, 2] and ledger.view().mean.tolist() == [3, 3]
    assert ledger.take("step")[0].count.tolist() == [2, 2]


def test_ranges_of_channels_are_gathered_side_by_side():
    ledger = Ledger(Known(Samples.none(3), 0))
    ledger.add_batch(np.array([[1.0, 2], [3, 4]]), slice(0, 2))
    ledger.add_batch(np.array([[9.0]]), slice(2, 3))
    assert ledger.view().count.tolist() == [2, 2, 1] and ledger.pending_samples == 2
    ledger.add_batch(np.array([[7.0]]), slice(2, 3))
    assert ledger.view().each == 2 and ledger.view().mean.tolist() == [2, 3, 8]


def test_extremes_are_those_of_all_batches_whenever_somebody_looks():
    ledger = Ledger(Known(Samples.none(3), 0), skip_nan=True)
    pair, single = slice(0, 2), slice(2, 3)
    for where, row in ((pair, [1, -2]), (single, [9]), (pair, [np.nan, 8]), (single, [7])):
        ledger.add_batch(np.array([row], float), where)
        ledger.view(extremes=False)
    assert ledger.view().min.tolist() == [1, -2, 7] and ledger.view().max.tolist() == [1, 8, 9]
    ledger.add_batch(np.array([[0.0, 50.0]]), pair)
    ledger.view(extremes=False)
    sent, _ = ledger.take("step")
    assert sent.min.tolist() == [0, -2, 7] and ledger.view().max.tolist() == sent.max.tolist() == [1, 50, 9]


def test_with_a_decay_every_batch_is_weighed_by_those_after_it():
    ledger = Ledger(Known(Samples.none(1), 0), Rule(decay=0.5))
    for value in (0.0, 0.0, 8.0):
        ledger.add_batch(np.array([[value]]), slice(0, 1))
    assert ledger.view().count[0] == 1.75 and ledger.view().mean[0] == pytest.approx(8 / 1.75)


# ---- With a server


def test_contributions_rest_unless_somebody_waits(client, name, monkeypatch):
    monkeypatch.setattr(normd.stats._contributor, "LEAST_SECONDS", 1e5)
    with RunningMeanStd(name, (), client=client, flush_samples=1, flush_seconds=1e6) as stats:
        for value in range(100):
            stats.update([value])
        assert stats.count == pytest.approx(100.0001) and client.session(name).info().num_batches == 0
        stats.flush(10)
        assert client.session(name).info().num_batches == 1


def test_a_new_contributor_begins_above_all_earlier_ones(client, name):
    """What a session that has forgotten contributors asks of those it does not know."""
    began = time.time_ns() // 1_000_000
    with RunningMeanStd(name, (), client=client) as stats:
        first = stats._contributor._next_step()
    assert began < first.sequence <= time.time_ns() // 1_000_000 + 1


def test_what_is_shown_is_the_own_samples_at_once_and_everybodys_after_a_flush(client, name, random):
    one, two = (RunningMeanStd(name, (3,), client=client) for _ in range(2))
    first, second = random.normal(5, 2, (10, 3)), random.normal(-1, 1, (7, 3))
    one.update(first)
    two.update(second)
    assert_holds(one, [first])
    one.flush(10)
    two.flush(10)
    one.refresh()
    for stats in (one, two):
        assert_holds(stats, [first, second])
        stats.close()
    info = client.session(name).info()
    assert info.count[0] == pytest.approx(17.0001) and info.num_batches == 2
    np.testing.assert_array_equal(info.min, np.concatenate([first, second]).min(0))


def test_many_threads_and_processes_lose_nothing(server, client, name):
    def contribute(seed):
        random = np.random.default_rng(seed)
        for _ in range(20):
            shared.update(random.normal(seed, 1, (5, 2)))

    shared = RunningMeanStd(name, 2, client=client, flush_samples=16, flush_seconds=0.01)
    threads = [threading.Thread(target=contribute, args=(seed,)) for seed in range(4)]
    processes = [
        multiprocessing.get_context("spawn").Process(target=_contribute, args=(server.unix, name, 10 + seed))
        for seed in range(3)
    ]
    for one in threads + processes:
        one.start()
    for one in threads + processes:
        one.join()
    shared.flush(30)
    shared.refresh()
    seeds = [*range(4), *range(10, 13)]
    samples = []
    for seed in seeds:
        random = np.random.default_rng(seed)
        samples += [random.normal(seed, 1, (5, 2)) for _ in range(20)]
    assert_holds(shared, samples)
    shared.close()


def _contribute(target, name, seed):
    random = np.random.default_rng(seed)
    with normd.connect(target) as client, RunningMeanStd(name, 2, client=client, flush_samples=16) as stats:
        for _ in range(20):
            stats.update(random.normal(seed, 1, (5, 2)))


def test_a_server_that_is_killed_delays_and_loses_nothing(own_server, random):
    with normd.connect(own_server.unix) as client:
        stats = RunningMeanStd("killed", 2, client=client, flush_seconds=0.05)
        samples = []
        for _ in range(4):
            samples.append(random.normal(2, 3, (50, 2)))
            stats.update(samples[-1])
            own_server.kill()
            samples.append(random.normal(2, 3, (50, 2)))
            stats.update(samples[-1])
            with pytest.raises((normd.Unavailable, normd.DeadlineExceeded)):
                stats.flush(0.2)
            own_server.start()
            stats.flush(30)
        assert_holds(stats, samples)
        with normd.connect(own_server.unix) as other:
            assert other.session("killed").info().count[0] == pytest.approx(400.0001, rel=1e-15)
        stats.close()


def test_a_thread_that_fails_is_reported_to_whoever_waits_for_it(client, name, monkeypatch):
    def fail(*arguments):
        raise MemoryError("nothing is left")

    stats = RunningMeanStd(name, 1, client=client, flush_seconds=60)
    monkeypatch.setattr(stats._contributor._service, "contribute", fail)
    stats.update([[1.0]])
    for call in (lambda: stats.flush(20), lambda: stats.update([[1.0]]), lambda: stats.close(20)):
        with pytest.raises(MemoryError, match="nothing is left"):
            call()


def test_a_fork_counts_only_its_own_samples(client, name, random):
    stats = RunningMeanStd(name, 1, client=client, flush_seconds=60)
    before, child, after = (random.normal(0, 1, (n, 1)) for n in (10, 20, 30))
    stats.update(before)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            stats.update(child)
            stats.flush(20)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    stats.update(after)
    stats.flush(20)
    stats.refresh()
    assert_holds(stats, [before, child, after])
    stats.close()


def test_copies_have_the_values_and_count_nothing(client, name, random):
    stats = RunningMeanStd(name, 2, client=client)
    samples = random.normal(0, 1, (10, 2))
    stats.update(samples)
    for other in (pickle.loads(pickle.dumps(stats)), copy.deepcopy(stats)):
        assert_holds(other, [samples])
        other.update(samples)
        assert_holds(other, [samples, samples])
        with pytest.raises(normd.InvalidArgument, match="it has its values and no server"):
            other.flush()
    stats.flush(10)
    assert client.session(name).info().count[0] == pytest.approx(10.0001)
    stats.close()
    assert_holds(stats, [samples])


def test_a_snapshot_stays_and_normalises(client, name, random):
    with RunningMeanStd(name, (2,), client=client, clip=1.5) as stats:
        stats.update(random.normal(10, 3, (100, 2)))
        snapshot = stats.snapshot()
        x = np.array([[10, 10], [1000, -1000]], np.float32)
        y = snapshot.normalize(x)
        assert y.dtype == np.float32 and y[1].tolist() == [1.5, -1.5]
        np.testing.assert_allclose(y[0], (x[0] - snapshot.mean) / np.sqrt(snapshot.var + 1e-8), rtol=1e-6)
        np.testing.assert_allclose(snapshot.denormalize(y[0]), x[0], rtol=1e-6)
        stats.update(random.normal(-10, 3, (100, 2)))
        np.testing.assert_array_equal(snapshot.normalize(x), y)
        assert not np.array_equal(stats.normalize(x), y)


@pytest.mark.parametrize("eps_mode, divisor", [
    ("inside_sqrt", lambda var: np.sqrt(var + 0.25)),
    ("add_to_root", lambda var: np.sqrt(var) + 0.25),
    ("clamp_root", lambda var: np.maximum(np.sqrt(var), 0.25)),
])
def test_epsilon_goes_where_eps_mode_says(client, name, random, eps_mode, divisor):
    rows = random.normal(3, [2, 0.01], (50, 2))
    options = {"client": client, "epsilon": 0.25, "eps_mode": eps_mode, "variance": "unbiased", "prior_count": 0}
    with RunningMeanStd(name, 2, **options) as stats:
        stats.update(rows)
        stats.flush(10)
        np.testing.assert_allclose(stats.var, rows.var(0, ddof=1), rtol=1e-12)
        expected = (rows - rows.mean(0)) / divisor(rows.var(0, ddof=1))
        np.testing.assert_allclose(stats.normalize(rows), expected, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(stats.denormalize(expected), rows, rtol=1e-12)
        session = client.session(name).eval()  # the server's own y has the same divisor
        np.testing.assert_allclose(session(rows), expected, rtol=1e-11, atol=1e-13)


def test_dict_observations_are_one_session_with_named_channels(client, name, random):
    batch = {"position": random.normal(0, 1, (4, 2)), "speed": random.normal(9, 1, (4,))}
    with RunningMeanStd(name, {"position": (2,), "speed": ()}, client=client) as stats:
        stats.update(batch)
        stats.flush(10)
        np.testing.assert_allclose(stats.mean["position"], batch["position"].sum(0) / 4.0001, rtol=1e-12)
        assert stats.mean["speed"].shape == ()
        assert stats.normalize(batch)["speed"].shape == (4,)
        with pytest.raises(normd.InvalidArgument, match="'position', 'speed'.* are needed"):
            stats.update({"position": batch["position"]})
        with pytest.raises(normd.InvalidArgument, match=r"batch\['position'\] has shape \[4, 3\]"):
            stats.update({**batch, "position": np.zeros((4, 3))})
        with pytest.raises(normd.InvalidArgument, match="must have equally many"):
            stats.update({**batch, "speed": np.zeros(3)})
    assert client.session(name).info().channel_names == ("position/0", "position/1", "speed")


def test_frozen_statistics_refuse_samples_and_have_a_digest(client, name, random):
    stats = RunningMeanStd(name, 2, client=client)
    stats.update(random.normal(0, 1, (5, 2)))
    frozen = stats.freeze()
    assert len(frozen.digest) == 64 and frozen.digest == client.session(name).info().digest
    stats.update(random.normal(0, 1, (5, 2)))
    with pytest.raises(normd.FailedPrecondition, match="is frozen"):
        stats.flush(10)
    with pytest.raises(normd.FailedPrecondition, match="is frozen"):
        stats.update(random.normal(0, 1, (5, 2)))
    with pytest.raises(normd.FailedPrecondition):
        stats.close()


def test_a_version_gets_a_name_and_the_statistics_go_on(client, name, random):
    first, later = random.normal(0, 1, (5, 2)), random.normal(9, 1, (5, 2))
    with RunningMeanStd(name, 2, client=client) as stats:
        stats.update(first)
        frozen = stats.freeze(f"{name}-1")
        stats.update(later)
        stats.flush(10)
        assert_holds(stats, [first, later])
    assert_holds(frozen, [first])
    with RunningMeanStd(f"{name}-1", 2, client=client) as named:
        assert_holds(named, [first])
        assert client.session(f"{name}-1").info().digest == frozen.digest
    client.session(f"{name}-1").delete()


def test_another_shape_or_prior_under_the_same_name_is_refused(client, name):
    RunningMeanStd(name, 2, client=client).close()
    with pytest.raises(normd.FailedPrecondition, match="num_channels is 2 there, and 3 here"):
        RunningMeanStd(name, 3, client=client)
    with pytest.raises(normd.FailedPrecondition, match="prior_count is 0.0001 there, and 1.0 here"):
        RunningMeanStd(name, 2, client=client, prior_count=1)


@pytest.mark.parametrize("arguments, message", [
    ({"shape": (0,)}, "has no element"),
    ({"shape": (-1,)}, "integers of at least 0"),
    ({"shape": 2, "clip": 0}, "clip is 0"),
    ({"shape": 2, "flush_seconds": 0}, "must be above 0"),
    ({"shape": 2, "eps_mode": "added"}, "eps_mode is 'added'; it must be one of inside_sqrt, add_to_root, clamp_root"),
    ({"shape": 2, "variance": "n-1"}, "variance is 'n-1'; it must be one of biased, unbiased"),
])
def test_bad_arguments_are_refused_before_a_session_is_made(client, arguments, message):
    with pytest.raises(normd.InvalidArgument, match=message):
        RunningMeanStd("st-bad", client=client, **arguments)
    with pytest.raises(normd.NotFound):
        client.session("st-bad")


def test_samples_that_are_not_finite_leave_their_channel_alone(client, name):
    with RunningMeanStd(name, 2, client=client) as stats:
        stats.update([[1.0, 2.0], [3.0, np.nan]])
        np.testing.assert_allclose(stats.mean, [4 / 2.0001, 0])
        stats.flush(10)
        info = client.session(name).info()
        np.testing.assert_allclose(info.count, [2.0001, 0.0001])
        stats.update([[np.nan, np.nan]])
        start = time.monotonic()
        stats.flush(30)
        assert time.monotonic() - start < 15, "a flush of nothing waits for nobody"
        assert client.session(name).info().num_batches == 1


def test_a_batch_is_the_callers_after_an_update(client, name):
    with RunningMeanStd(name, 1, client=client) as stats:
        batch = np.array([[3.0]])
        stats.update(batch)
        batch[:] = 1000
        assert_holds(stats, [[[3.0]]])


def test_update_from_moments_is_update(client, name, random):
    samples = random.normal(4, 2, (50, 2))
    with RunningMeanStd(name, 2, client=client) as stats:
        stats.update_from_moments(samples.mean(0), samples.var(0), 50)
        stats.flush(10)
        assert_holds(stats, [samples])
        assert np.isnan(stats.snapshot().min).all()
