"""Calls that are safe to repeat survive a server that is killed, and training steps count once."""

import threading
import time

import numpy as np
import pytest

import normd
from normd._retry import RetryBudget, next_wait

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def test_a_call_bridges_a_kill_and_a_restart(own_server):
    with normd.connect(own_server.unix) as client:
        expected = client.layer_norm(X, 8)
        own_server.kill()
        starter = threading.Timer(0.3, own_server.start)
        starter.start()
        np.testing.assert_array_equal(client.layer_norm(X, 8), expected)
        starter.join()


def test_every_training_step_counts_once_though_the_server_is_killed_under_them(own_server, random):
    batches = [random.standard_normal((8, 3)).astype(np.float32) for _ in range(120)]
    with normd.connect(own_server.unix) as client:
        undisturbed = client.session("undisturbed", normd.BatchNorm(3))
        for x in batches:
            undisturbed(x)
        expected = undisturbed.running_mean
        bn = client.session("disturbed", normd.BatchNorm(3))
        done = threading.Event()

        def disturb():
            for _ in range(3):
                if done.wait(0.05):
                    return
                own_server.kill()
                own_server.start()

        killer = threading.Thread(target=disturb)
        killer.start()
        try:
            for x in batches:
                bn(x)
                time.sleep(0.002)
        finally:  # or the thread would start a server after the test
            done.set()
            killer.join()
        assert bn.num_batches_tracked == len(batches)
        np.testing.assert_array_equal(bn.running_mean, expected)


def test_a_step_that_was_applied_before_its_reply_was_lost_is_replayed(own_server, random):
    """The server is stopped when the step may already be with it; the second try, after the deadline, counts once."""
    x = random.standard_normal((8, 3)).astype(np.float32)
    with normd.connect(own_server.unix) as client:
        bn = client.session("lost-reply", normd.BatchNorm(3))
        step = normd.Step(bn.client_id, 1)
        own_server.pause()
        with pytest.raises(normd.DeadlineExceeded):
            bn.normalize(x, step=step, timeout=0.2)
        own_server.resume()
        bn.normalize(x, step=step)
        assert bn.num_batches_tracked == 1


def test_a_step_without_an_id_is_not_sent_twice(own_server):
    from normd._request import Target, make_call

    assert not make_call(Target(session="sessions/a"), X, training=True).safe
    assert make_call(Target(session="sessions/a"), X, training=True, step=normd.Step("me", 1)).safe
    assert make_call(Target(session="sessions/a"), X).safe
    assert make_call(Target(normd.BatchNorm()), X, training=True).safe


def test_waits_grow_and_respect_the_server_and_the_deadline():
    options = normd.RetryOptions(initial_backoff=0.1, multiplier=2, jitter=0.2)
    lost = normd.Unavailable("gone")
    assert next_wait(options, lost, 1, 10, 0.5) == pytest.approx(0.1)
    assert next_wait(options, lost, 3, 10, 0.5) == pytest.approx(0.4)
    assert next_wait(options, lost, 1, 10, 0.0) == pytest.approx(0.08)
    assert next_wait(options, lost, 1, 0.05, 0.5) is None
    assert next_wait(options, lost, 5, 10, 0.5) is None
    full = normd.ResourceExhausted("full", retry_after=1.5)
    assert next_wait(options, full, 7, 10, 0.5) == pytest.approx(5.0)
    assert next_wait(options, full, 1, 10, 0.5) == 1.5
    assert next_wait(options, normd.ResourceExhausted("too large"), 1, 10, 0.5) is None
    assert next_wait(options, normd.InvalidArgument("wrong"), 1, 10, 0.5) is None
    assert next_wait(normd.RetryOptions(max_attempts=1), full, 1, 10, 0.5) is None


def test_a_budget_ends_retries_until_calls_succeed_again():
    budget = RetryBudget(normd.RetryOptions(budget_tokens=4, budget_return=1))
    assert [budget.take() for _ in range(3)] == [True, True, False]
    budget.note_success()
    assert budget.take() and not budget.take()
