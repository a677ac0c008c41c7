"""Everything at the same time, by one peer."""

import contextlib
import threading
import time

import wire
from callers import REQUEST, Connection, Ended, PoliteCaller
from costly import MIB, SMALL_BUDGET, create_large_session, open_call, send_trailers, streams_of
from trial import attack

BUDGET_MIB, FULL_BUDGET_MIB = 48, 288
HELD_SECONDS = 1.0  # how long connections stay that hold something


def hold(stack, trial, stop):
    """A connection that `stack` closes at its end, after a moment."""
    connection = stack.enter_context(Connection(trial.server, window=0, receive_buffer=4096))
    stack.callback(stop.wait, HELD_SECONDS)
    return connection


def commas(connection):
    for stream in streams_of(8):
        connection.send(open_call(stream, extra=wire.literal(b"x" * 7990 + b"-bin", b"," * 7990)))


def trailers(connection):
    send_trailers(connection, "open", 2)


def shut_windows(connection):
    call = wire.message(wire.stream_request(1, REQUEST)) * 400
    for stream in streams_of(8):
        connection.send(open_call(stream, wire.NORMALIZE_STREAM) + wire.frame(wire.DATA, 0, stream, call))


def unread_replies(connection):
    get = wire.message(wire.get_session_request("large"))
    connection.send(wire.settings((wire.INITIAL_WINDOW_SIZE, wire.MAX_WINDOW)))
    connection.send(wire.window_update(0, wire.MAX_WINDOW - wire.DEFAULT_WINDOW))
    for stream in streams_of(8):
        connection.send(open_call(stream, wire.GET_SESSION, timeout="300m"))
        connection.send(wire.frame(wire.DATA, wire.END_STREAM, stream, get))


def half_messages(connection):
    for stream in streams_of(8):
        connection.send(open_call(stream) + wire.frame(
            wire.DATA, 0, stream, wire.message(b"\x7a" + bytes(16000), announced=5 * MIB)))


def headers_without_end(connection):
    fields = b"".join(wire.literal(f"k{at}", "v" * 1900) for at in range(7))
    connection.send(wire.frame(wire.HEADERS, 0, 1, wire.fields() + fields))


def batches(connection):
    batch = wire.message(wire.bytes_field(1, b"") * 4096)
    for stream in streams_of(8):
        connection.send(open_call(stream, wire.BATCH_NORMALIZE) + wire.frame(wire.DATA, wire.END_STREAM, stream, batch))


PARTS = (commas, trailers, shut_windows, unread_replies, half_messages, headers_without_end, batches)


@attack(options=(*SMALL_BUDGET, "--message_timeout=1s"), kept_mib=96)
def everything_at_once(trial):
    """Whatever one peer does beside whatever else, memory stays within 100 MiB and twice the budget, and what lay there
    before; and another peer is served."""
    create_large_session(trial, 10)
    stop, connections, peak = threading.Event(), [], 0.0

    def repeat(part):
        while not stop.is_set():
            connections.append(part)
            with contextlib.suppress(OSError, Ended), contextlib.ExitStack() as stack:
                part(hold(stack, trial, stop))
            stop.wait(0.01)

    deadline = time.monotonic() + trial.size(5, 60)
    with PoliteCaller(trial.server, trial.judge, source="127.0.0.9") as polite:
        threads = [threading.Thread(target=repeat, args=(part,), daemon=True) for part in PARTS * trial.size(4, 16)]
        for thread in threads:
            thread.start()
        while time.monotonic() < deadline and trial.server.is_alive() and peak < 3000:
            peak = max(peak, trial.growth_mib())
            time.sleep(0.02)
        served = len(polite.seconds)
        stop.set()
        for thread in threads:
            thread.join(30)
    trial.note(f"{len(connections)} connections")
    trial.expect_growth(100 + 2 * trial.size(BUDGET_MIB, FULL_BUDGET_MIB), peak)
    trial.expect_amount(served >= trial.size(5, 60), f"another peer was served {served} times")
    trial.expect_polite(polite, 0)
