"""Attacks by what a byte costs: memory and time of the server out of all proportion to what is sent."""

import contextlib
import subprocess
import threading
import time

import wire
from callers import Caller, Connection, Ended
from trial import attack

MIB = 1 << 20
# Makes the limit of calls 1,024 and that of calls of one connection 16.
FEW_CALLS = ("--max_in_flight_bytes=16MiB", "--max_message_bytes=4MiB")
# Messages of at most 16 MiB: 8 calls of a connection.
SMALL_BUDGET = ("--max_in_flight_bytes=48MiB", "--max_message_bytes=16MiB")
FEW_CONNECTIONS = ("--max_connections=64",)


def open_call(stream, path=wire.NORMALIZE, method="POST", extra=b"", timeout=None):
    timeouts = () if timeout is None else (("grpc-timeout", timeout),)
    block = wire.fields(path, method=method, extra=timeouts) + extra
    return wire.frame(wire.HEADERS, wire.END_HEADERS, stream, block)


def streams_of(connection_streams):
    return range(1, 2 * connection_streams, 2)


def run_threads(count, work):
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


@attack()
def commas_in_binary_metadata(trial):
    """A value of a -bin field is a list: each of its 7,990 commas may cost no field with a name of 8 KB."""
    field = wire.literal(b"x" * 7990 + b"-bin", b"," * 7990)
    peak = 0.0
    with contextlib.ExitStack() as stack:
        for at in range(trial.size(2, 6)):
            method = ("POST", "GET")[at % 2]
            connection = stack.enter_context(Connection(trial.server))
            for stream in streams_of(trial.size(4, 8)):
                with contextlib.suppress(OSError):
                    connection.send(open_call(stream, method=method, extra=field))
            for _ in range(10):
                peak = max(peak, trial.growth_mib())
                time.sleep(0.03)
    trial.expect_growth(64, peak)


def send_trailers(connection, state, mib):
    """A call, whose headers fill the table, and then trailers of which every byte is a field of 3.9 KB."""
    method = "GET" if state == "refused" else "POST"
    large = wire.literal(b"k", b"v" * 3900, into_table=True)
    connection.send(open_call(1, method=method, extra=large))
    if state == "answered":
        connection.send(wire.frame(wire.DATA, 0, 1, wire.message(b"\xff")))  # no protobuf
        time.sleep(0.05)
    block = b"\xbe" * MIB
    connection.send(wire.frame(wire.HEADERS, wire.END_STREAM | (wire.END_HEADERS if mib == 1 else 0), 1, block))
    for at in range(1, mib):
        connection.send(wire.frame(wire.CONTINUATION, wire.END_HEADERS if at == mib - 1 else 0, 1, block))


@attack()
def trailers_out_of_the_table(trial):
    """In each state of a stream a MiB of trailers may cost a fraction of the second that HPACK can make of it."""
    for state in ("open", "answered", "refused"):
        before = trial.server.cpu_seconds()
        with Connection(trial.server) as connection, contextlib.suppress(OSError):
            send_trailers(connection, state, trial.size(1, 9))
            # The connection stays, because closing it takes back what the server has not read. An answer on the Unix
            # socket comes when the queue's thread has done what came before.
            time.sleep(0.1)
            trial.expect_served(1, f"the Unix socket beside trailers ({state})", unix=True, timeout=60)
        spent = trial.server.cpu_seconds() - before
        trial.expect_amount(spent < 0.4, f"{state}: {spent:.2f} s of CPU (under 0.4)")


@attack()
def trailers_beside_a_caller(trial):
    seconds, stop = trial.size(3, 10), threading.Event()

    def work():
        while not stop.is_set():
            with contextlib.suppress(OSError), Connection(trial.server, timeout=5) as connection:
                send_trailers(connection, "open", 9)
            stop.wait(0.02)

    with trial.polite() as polite:
        threads = run_threads(8, work)
        time.sleep(seconds)
        served = len(polite.seconds)
        stop.set()
        for thread in threads:
            thread.join(30)
    trial.expect_amount(served >= 8 * seconds, f"{served} calls served in {seconds} s (at least {8 * seconds})")
    trial.expect_polite(polite, 1)


def create_large_session(trial, mib):
    """The session "large", unless an attack before this one has left it; its memory is the server's from then on."""
    creator = Caller(trial.server, unix=True, timeout=60)
    status, _ = creator.call(wire.CREATE_SESSION, wire.create_session_request("large", mib * MIB // 8))
    creator.close()
    trial.expect(status in ("0", "6"), f"CreateSession: grpc-status {status}")
    trial.resident_before = trial.server.resident_mib()


@attack(options=SMALL_BUDGET, kept_mib=96)
def replies_that_nobody_reads(trial):
    """A reply's bytes are within the budget for as long as they are held, whatever ends its call."""
    create_large_session(trial, trial.size(10, 24))
    get = wire.message(wire.get_session_request("large"))
    with contextlib.ExitStack() as stack:
        for at in range(12):
            connection = stack.enter_context(
                Connection(trial.server, receive_buffer=4096, window=wire.MAX_WINDOW))
            connection.send(wire.window_update(0, wire.MAX_WINDOW - wire.DEFAULT_WINDOW))
            by_deadline = at % 2 == 0
            with contextlib.suppress(OSError):
                for stream in streams_of(8):
                    connection.send(open_call(stream, wire.GET_SESSION, timeout="300m" if by_deadline else None))
                    end = wire.END_STREAM if by_deadline else 0
                    connection.send(wire.frame(wire.DATA, end, stream, get))
                time.sleep(0.4)
                if not by_deadline:  # a message of 4 GiB behind one that is answered ends the call
                    for stream in streams_of(8):
                        connection.send(wire.frame(wire.DATA, 0, stream, b"\0\xff\xff\xff\xff"))
                    time.sleep(0.1)
        in_flight = trial.server.metrics()["normd_in_flight_bytes"] / MIB
        trial.note(f"in flight {in_flight:.0f} MiB")
        # Twice the budget and 64 MiB.
        trial.expect_growth(trial.size(160, 640))


@attack(tls=True, options=("--queues=1",), full_options=("--queues=1",))
def tls_records_that_carry_nothing(trial):
    """Neither KeyUpdates nor records of one byte may keep a queue's thread from the others."""
    seconds = trial.size(2.5, 8)
    for kind in ("keyupdate", "bytes"):
        with trial.polite() as polite:
            time.sleep(0.3)
            before = len(polite.seconds)
            flood = subprocess.Popen([trial.tls_flood, str(trial.server.port), kind, f"{seconds:.1f}"],
                                     stdout=subprocess.PIPE, text=True)
            time.sleep(seconds)
            served = len(polite.seconds) - before
            told, _ = flood.communicate(timeout=60)
        trial.note(f"{kind}: {told.strip()}")
        trial.expect(flood.returncode == 0, f"{kind}: tls_flood ended with {flood.returncode}: {told}")
        trial.expect_amount(served >= 8 * seconds,
                            f"{kind}: {served} calls served in {seconds} s (at least {8 * seconds:.0f})")
        trial.expect_polite(polite, 1, kind)


@attack(options=FEW_CALLS)
def idle_streams_of_one_peer(trial):
    """Streams without a message, as many as all calls: others, the Unix socket and health are served."""
    connections, streams = trial.size((80, 16), (2310, 8))
    opened = 0
    with contextlib.ExitStack() as stack:
        headers = b"".join(open_call(stream, wire.NORMALIZE_STREAM) for stream in streams_of(streams))
        for _ in range(connections):
            with contextlib.suppress(OSError):
                stack.enter_context(Connection(trial.server)).send(headers)
                opened += 1
        time.sleep(0.3)
        trial.note(f"{opened} connections of {streams} idle streams, "
                   f"normd_calls {trial.server.metrics()['normd_calls']:.0f}")
        trial.expect_served(10, "the Unix socket", unix=True)
        trial.expect_served(10, "another address", source="127.0.0.9")
        try:
            caller = Caller(trial.server, unix=True)
            status, reply = caller.call(wire.HEALTH_CHECK, b"")
            caller.close()
            trial.expect((status, reply) == ("0", b"\x08\x01"), f"health: grpc-status {status}, {reply!r}")
        except (OSError, Ended) as error:
            trial.expect(False, f"health: {error!r}")


@attack(options=SMALL_BUDGET, kept_mib=64)
def windows_that_stay_shut(trial):
    """What streams hold while their replies are not read is within the budget."""
    call = wire.message(wire.stream_request(1, wire.rms_request((1.0,) * 4)))
    deadline = time.monotonic() + trial.size(15, 60)
    connected, peak = 0, 0.0
    with contextlib.ExitStack() as stack:
        for _ in range(trial.size(260, 1500)):
            try:
                connection = stack.enter_context(Connection(trial.server, window=0, timeout=5))
                size = min(connection.initial_window(5), 68 << 10)
                filled = call * (size // len(call))
                for stream in streams_of(8):
                    connection.send(open_call(stream, wire.NORMALIZE_STREAM) + b"".join(
                        wire.frame(wire.DATA, 0, stream, filled[at:at + 16000])
                        for at in range(0, len(filled), 16000)))
                connected += 1
            except (OSError, Ended):
                pass
            peak = max(peak, trial.growth_mib())
            if peak > 2500 or time.monotonic() > deadline:
                break
        time.sleep(0.3)
        peak = max(peak, trial.growth_mib())
        trial.note(f"{connected} connections of 8 streams")
        # Twice the budget and 64 MiB; of the full budget what is held is a part.
        trial.expect_growth(trial.size(160, 700), peak)
        trial.expect_served(5, "the Unix socket beside it", unix=True)


@attack(kept_mib=96)
def batches_of_empty_items(trial):
    """A batch of 4,096 items in 8 KiB costs a queue's thread no more than other messages of its size."""
    batch = wire.bytes_field(1, b"") * 4096
    seconds, stop, answered = trial.size(3, 8), threading.Event(), []

    def work():
        while not stop.is_set():
            with contextlib.suppress(OSError, Ended):
                caller = Caller(trial.server, timeout=30)
                try:
                    while not stop.is_set():
                        answered.append(caller.call(wire.BATCH_NORMALIZE, batch)[0])
                        stop.wait(0.02)  # so that this program is not what the polite caller waits for
                finally:
                    caller.close()

    with trial.polite() as polite:
        threads = run_threads(32, work)
        time.sleep(seconds)
        served = len(polite.seconds)
        stop.set()
        for thread in threads:
            thread.join(40)
    trial.note(f"{len(answered)} batches answered")
    trial.expect_amount(served >= 8 * seconds, f"{served} calls served in {seconds} s (at least {8 * seconds})")
    trial.expect_polite(polite, 1)


@attack(options=FEW_CONNECTIONS, kept_mib=160)
def idle_connections_of_two_addresses(trial):
    """Together they have every connection: the Unix socket and a third address are served all the same."""
    opened = 0
    with contextlib.ExitStack() as stack:
        for source in ("127.0.0.1", "127.0.0.2"):
            for _ in range(trial.size(40, 4200)):
                with contextlib.suppress(OSError):
                    stack.enter_context(Connection(trial.server, source=source, timeout=3))
                    opened += 1
        time.sleep(0.3)
        trial.note(f"{opened} connections tried, "
                   f"normd_connections {trial.server.metrics()['normd_connections']:.0f}")
        trial.expect_served(5, "the Unix socket", unix=True)
        trial.expect_served(5, "a third address", source="127.0.0.9")
        status, text = trial.server.get("/readyz")
        trial.expect(status == 200, f"/readyz: {status} {text.strip()[:80]}")
