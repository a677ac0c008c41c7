"""Calls that are safe to repeat survive a server that is killed, and training steps count once."""

import threading
import time

import numpy as np
import pytest

import normd
from normd._retry import RetryBudget, next_wait

X = np.arange(32, dtype=np.float32).reshape(4, 8)


class Lossy:
    """Fails the calls of a client's transport, and counts them: before they are sent, or after they were answered."""

    def __init__(self, client, monkeypatch, method, failures, error=None, answered=False):
        self.sent = 0
        unary = client._transport.unary

        async def lossy(path, request, timeout):
            if not path.endswith(method):
                return await unary(path, request, timeout)
            self.sent += 1
            failing = self.sent <= failures
            reply = await unary(path, request, timeout) if answered or not failing else b""
            if failing:
                raise error or normd.Unavailable("the answer is lost")
            return reply

        monkeypatch.setattr(client._transport, "unary", lossy)


def test_a_call_bridges_a_kill_and_a_restart(own_server):
    with normd.connect(own_server.unix) as client:
        expected = client.layer_norm(X, 8)
        own_server.kill()
        starter = threading.Timer(0.3, own_server.start)
        starter.start()
        np.testing.assert_array_equal(client.layer_norm(X, 8), expected)
        starter.join()


def test_a_server_that_was_gone_for_seconds_is_found_by_one_call(own_server):
    with normd.connect(own_server.unix) as client:
        expected = client.layer_norm(X, 8)
        own_server.kill()
        for _ in range(8):  # gRPC waits longer after each failure to connect
            # On a busy machine the time may be over before the connection is refused.
            with pytest.raises((normd.Unavailable, normd.DeadlineExceeded)):
                client.layer_norm(X, 8, timeout=0.4)
        own_server.start()
        np.testing.assert_array_equal(client.layer_norm(X, 8), expected)


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


def test_a_step_that_was_applied_before_its_reply_was_lost_is_replayed(server, random, monkeypatch):
    x = random.standard_normal((8, 3)).astype(np.float32)
    with normd.connect(server.unix) as client:
        bn = client.session("lost-reply", normd.BatchNorm(3))
        bn(x)
        lossy = Lossy(client, monkeypatch, "/Normalize", 1, answered=True)
        first, mean = bn(x), bn.running_mean
        assert lossy.sent == 2 and bn.last_state.replayed and bn.num_batches_tracked == 2
        bn(x)
        assert not bn.last_state.replayed and bn.num_batches_tracked == 3
        np.testing.assert_array_equal(bn(x), first)
        assert not np.array_equal(bn.running_mean, mean)
        bn.delete()


def test_a_step_whose_deadline_ended_counts_once_when_its_caller_sends_it_again(own_server, random):
    """Whether the server took the first one up while it was stopped is not known: it may be replayed or not."""
    x = random.standard_normal((8, 3)).astype(np.float32)
    with normd.connect(own_server.unix) as client:
        bn = client.session("late-reply", normd.BatchNorm(3))
        step = normd.Step(bn.client_id, 1)
        own_server.pause()
        with pytest.raises(normd.DeadlineExceeded):
            bn.normalize(x, step=step, timeout=0.2)
        own_server.resume()
        bn.normalize(x, step=step)
        assert bn.num_batches_tracked == 1
        assert bn.normalize(x, step=step).state.replayed and bn.num_batches_tracked == 1


def test_a_step_without_an_id_is_not_sent_twice(own_server):
    from normd._request import Target, make_call

    assert not make_call(Target(session="sessions/a"), X, training=True).safe
    assert make_call(Target(session="sessions/a"), X, training=True, step=normd.Step("me", 1)).safe
    assert make_call(Target(session="sessions/a"), X).safe
    assert make_call(Target(normd.BatchNorm()), X, training=True).safe


def test_remembered_calls_follow_the_retry_options(server, monkeypatch):
    """The second call of a kind is made of remembered bytes; it is retried as the first one is."""
    with normd.connect(server.unix, retry=normd.RetryOptions(max_attempts=1)) as client:
        client.layer_norm(X, 8)
        lossy = Lossy(client, monkeypatch, "/Normalize", 1)
        with pytest.raises(normd.Unavailable):
            client.layer_norm(X, 8)
        assert lossy.sent == 1
    with normd.connect(server.unix, retry=normd.RetryOptions(initial_backoff=0.001)) as client:
        expected = client.layer_norm(X, 8)
        lossy = Lossy(client, monkeypatch, "/Normalize", 5)
        with pytest.raises(normd.Unavailable):
            client.layer_norm(X, 8)
        assert lossy.sent == 5
        lossy = Lossy(client, monkeypatch, "/Normalize", 2)
        np.testing.assert_array_equal(client.layer_norm(X, 8), expected)
        assert lossy.sent == 3


def test_remembered_calls_take_from_the_budget_and_give_back_to_it(server, monkeypatch):
    retry = normd.RetryOptions(initial_backoff=0.001, budget_tokens=4, budget_return=1)
    with normd.connect(server.unix, retry=retry) as client:
        client.layer_norm(X, 8)
        with monkeypatch.context() as patched:
            lossy = Lossy(client, patched, "/Normalize", 100)
            with pytest.raises(normd.Unavailable):
                client.layer_norm(X, 8)
            assert lossy.sent == 3  # two tokens, and half of them are gone
        for _ in range(2):
            client.layer_norm(X, 8)
        lossy = Lossy(client, monkeypatch, "/Normalize", 2)
        client.layer_norm(X, 8)
        assert lossy.sent == 3


def test_a_remembered_call_ends_by_the_deadline(own_server):
    with normd.connect(own_server.unix, deadline=0.5) as client:
        client.layer_norm(X, 8)
        own_server.pause()
        start = time.monotonic()
        with pytest.raises(normd.DeadlineExceeded):
            client.layer_norm(X, 8)
        assert time.monotonic() - start < 3


@pytest.mark.parametrize("way", ["tcp", "unix", "unix off"])
def test_a_timeout_bounds_the_questions_before_the_call_too(own_server, way):
    """Before its first large call a client asks the server for its socket, or its limits."""
    x = np.ones((2048, 1024), np.float32)
    target = own_server.tcp if way == "tcp" else own_server.unix
    with normd.connect(target, deadline=20, shared_memory="off" if way == "unix off" else "auto") as client:
        client.layer_norm(X, 8)  # connects
        own_server.pause()
        start = time.monotonic()
        with pytest.raises(normd.DeadlineExceeded):
            client.layer_norm(x, 1024, timeout=0.5)
        assert time.monotonic() - start < 5


@pytest.mark.parametrize("operation", ["set_parameters", "reset", "fork", "delete"])
def test_what_is_not_safe_to_repeat_finds_a_server_that_was_restarted(own_server, operation):
    with normd.connect(own_server.unix) as client:
        session = client.session("kept", normd.BatchNorm(3))
        own_server.kill()
        with pytest.raises(normd.Unavailable):
            client.layer_norm(X, 8, timeout=0.05)  # now gRPC waits before it connects again
        own_server.start()
        arguments = {"set_parameters": ((), {"weight": np.full(3, 2.0)}), "fork": (("copy",), {})}
        positional, named = arguments.get(operation, ((), {}))
        getattr(session, operation)(*positional, **named)
        names = {one.name for one in client.sessions()}
        assert names == {"fork": {"kept", "copy"}, "delete": set()}.get(operation, {"kept"})


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
