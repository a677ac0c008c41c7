"""Attacks by number and by form: floods of frames of every kind, resets, frames with errors in them, and what comes to
the other ports."""

import array
import contextlib
import os
import socket
import struct
import time

import wire
from callers import REQUEST, Connection, Ended
from costly import open_call, streams_of
from trial import attack

CALL = wire.frame(wire.DATA, wire.END_STREAM, 1, wire.message(REQUEST))
RESET = struct.pack(">I", 8)


def data(stream, payload, flags=0):
    return wire.frame(wire.DATA, flags, stream, payload)


def many(*frames):
    """About 16 KiB of these."""
    piece = b"".join(frames)
    return piece * max(16384 // len(piece), 1)


WINDOW_SWING = [wire.settings((wire.INITIAL_WINDOW_SIZE, size)) for size in (0, wire.MAX_WINDOW)]
TABLE_SWING = [wire.settings((wire.HEADER_TABLE_SIZE, size)) for size in (0, 4096)]
OPEN = open_call(1)
UNENDED = wire.frame(wire.HEADERS, 0, 1, wire.fields())

# name -> (what is sent first, what is sent again and again)
FRAME_FLOODS = {
    "PING": (b"", many(wire.frame(wire.PING, 0, 0, b"12345678"))),
    "answers to no PING": (b"", many(wire.frame(wire.PING, wire.ACK, 0, b"12345678"))),
    "SETTINGS": (b"", many(wire.settings())),
    "SETTINGS of 32 values": (b"", many(wire.settings(*[(wire.INITIAL_WINDOW_SIZE, 1000)] * 32))),
    "acknowledgements of no SETTINGS": (b"", many(wire.frame(wire.SETTINGS, wire.ACK))),
    "windows that swing": (b"".join(open_call(stream) for stream in streams_of(8)), many(*WINDOW_SWING)),
    "tables that swing": (b"", many(*TABLE_SWING)),
    "PRIORITY": (b"", many(wire.frame(wire.PRIORITY, 0, 1, struct.pack(">IB", 0, 5)))),
    "PRIORITY of idle streams": (b"", b"".join(
        wire.frame(wire.PRIORITY, 0, stream, struct.pack(">IB", 0, 5)) for stream in range(1, 2400, 2))),
    "PRIORITY on itself": (OPEN, many(wire.frame(wire.PRIORITY, 0, 1, struct.pack(">IB", 1, 5)))),
    "PRIORITY_UPDATE": (b"", many(wire.frame(16, 0, 0, struct.pack(">I", 1) + b"u=0"))),
    "unknown types": (b"", many(wire.frame(0xee, 0xff, 0, b"z" * 1000))),
    "unknown types, empty": (b"", many(wire.frame(0xee, 0xff))),
    "RST_STREAM of one stream": (OPEN, many(wire.frame(wire.RST_STREAM, 0, 1, RESET))),
    "RST_STREAM of an idle stream": (b"", wire.frame(wire.RST_STREAM, 0, 1001, RESET)),
    "WINDOW_UPDATE of 1": (b"", many(wire.window_update(0, 1))),
    "WINDOW_UPDATE of 1 on a stream": (OPEN, many(wire.window_update(1, 1))),
    "WINDOW_UPDATE of 0": (b"", wire.window_update(0, 0)),
    "WINDOW_UPDATE beyond 2^31": (b"", wire.window_update(0, wire.MAX_WINDOW)),
    "empty DATA": (OPEN, many(data(1, b""))),
    "DATA of padding": (OPEN + data(1, b"\0\0\0\x10\0"), many(data(1, b"\xff" + bytes(255), wire.PADDED))),
    "DATA on a closed stream": (OPEN + CALL, many(data(1, b"z" * 1000))),
    "DATA beyond the window": (OPEN, data(1, b"\0\x04\0\0\0" + b"z" * 16000)),
    "CONTINUATION, empty": (UNENDED, many(wire.frame(wire.CONTINUATION, 0, 1))),
    "CONTINUATION without end": (UNENDED, wire.frame(wire.CONTINUATION, 0, 1, wire.literal("a", "b" * 1000) * 16)),
    "HEADERS of one stream": (b"", many(open_call(1))),
    "HEADERS of an even stream": (b"", open_call(2)),
    "HEADERS with a table entry each": (b"", many(open_call(1, extra=wire.literal("k", "v" * 900, into_table=True)))),
    "PUSH_PROMISE": (b"", wire.frame(wire.PUSH_PROMISE, wire.END_HEADERS, 1, struct.pack(">I", 2) + wire.fields())),
    "GOAWAY": (b"", many(wire.frame(wire.GOAWAY, 0, 0, bytes(8) + b"x" * 1000))),
    "a frame over the limit": (b"", struct.pack(">I", (1 << 20) + 1)[1:] + bytes((0, 0)) + struct.pack(">I", 1)),
}


@attack(options=("--queues=1",))
def floods_of_frames(trial):
    """Frames of each kind, again and again: the connection ends, or they cost little."""
    ended = []
    with trial.polite() as polite:
        for name, (first, again) in FRAME_FLOODS.items():
            with contextlib.suppress(OSError), Connection(trial.server) as connection:
                connection.send(first)
                most_bytes, seconds = trial.size((2 << 20, 0.25), (400 << 20, 8))
                if connection.send_until_refused(again, most_bytes, seconds) or connection.is_ended_within(0.1):
                    ended.append(name)
            if not trial.expect(trial.server.is_alive(), f"the server ended at: {name}"):
                return
    trial.note(f"{len(ended)} of {len(FRAME_FLOODS)} floods were ended by the server")
    trial.expect_polite(polite, trial.size(20, 400))
    trial.expect_growth(64)


# What is sent for each stream so that its call is begun and then comes to nothing.
RESETS = {
    "by the client": lambda at: call_on(at) + wire.frame(wire.RST_STREAM, 0, at, RESET),
    "by the client, without a message": lambda at: open_call(at) + wire.frame(wire.RST_STREAM, 0, at, RESET),
    "by the server, WINDOW_UPDATE of 0": lambda at: call_on(at) + wire.window_update(at, 0),
    "by the server, windows beyond 2^31": lambda at: call_on(at) + wire.window_update(at, wire.MAX_WINDOW) * 2,
    "by the server, DATA after the end": lambda at: call_on(at) + data(at, b"x"),
    "by the server, HEADERS after the end": lambda at: call_on(at) + open_call(at),
    "by the server, PRIORITY of 3 bytes": lambda at: call_on(at) + wire.frame(wire.PRIORITY, 0, at, b"123"),
    "by the server, content-length": lambda at: (
        open_call(at, extra=wire.literal("content-length", "5")) + data(at, wire.message(REQUEST), wire.END_STREAM)),
    "by the server, a name in upper case": lambda at: open_call(at, extra=wire.literal("Upper", "v")),
    "by a timeout of 1 ns": lambda at: (
        open_call(at, timeout="1n") + data(at, wire.message(REQUEST), wire.END_STREAM)),
    "by 90 KB of headers": lambda at: open_call(at, extra=wire.literal("k", "v" * 3000) * 30),
    "by a compressed message": lambda at: open_call(at) + data(at, b"\1\0\0\0\x10"),
    "by GET": lambda at: open_call(at, method="GET"),
}


def call_on(stream):
    return open_call(stream) + data(stream, wire.message(REQUEST), wire.END_STREAM)


def floods_counted(trial):
    return trial.server.metrics().get('normd_connections_closed_total{reason="flood"}', 0)


@attack(options=("--queues=1", "--max_cancels_per_second=100"))
def resets_of_streams(trial):
    """Calls that are begun and taken back, in each way to do so: whoever goes on with it loses the connection."""
    ended, connections, counted = 0, 0, floods_counted(trial)
    # A fast server ends a round within 0.2 s, which is too short to tell how others are served beside it.
    begin, least_seconds = time.monotonic(), 1
    with trial.polite() as polite:
        while connections == 0 or time.monotonic() - begin < least_seconds:
            for name, of_stream in RESETS.items():
                sent, is_ended = reset_streams(trial, name, of_stream)
                if name == "by the client":
                    trial.expect(is_ended, f"a rapid reset was not ended after {sent} calls")
                ended += is_ended
                connections += 1
                if not trial.expect(trial.server.is_alive(), f"the server ended at: {name}"):
                    return
    floods = floods_counted(trial) - counted
    trial.note(f"{ended} of {connections} connections were ended, {floods:.0f} counted as floods")
    trial.expect_polite(polite, 5)
    trial.expect_growth(64)


def reset_streams(trial, name, of_stream):
    """Sends streams of one kind on a connection; returns how many, and whether the server ended it."""
    begin, sent, is_ended = time.monotonic(), 0, False
    most, seconds = trial.size((3000, 1.0), (20000, 6.0))
    with Connection(trial.server) as connection:
        while sent < most and not is_ended and time.monotonic() - begin < seconds:
            piece = b"".join(of_stream(2 * (sent + at) + 1) for at in range(20))
            is_ended = connection.send_until_refused(piece, len(piece), 1)
            sent += 20
        # Answers of 20,000 calls may be on their way before the end.
        return sent, is_ended or (name == "by the client" and connection.is_ended_within(10))


def legal_frames(random):
    """A connection's frames as a client might send them, few or many."""
    frames, stream = [wire.settings(), wire.frame(wire.SETTINGS, wire.ACK)], 1
    for _ in range(random.randint(1, 12)):
        at = random.choice((0, 1, stream, stream, stream + 2))
        path = random.choice((wire.NORMALIZE, wire.NORMALIZE_STREAM, wire.BATCH_NORMALIZE, wire.HEALTH_CHECK, "/x"))
        frames.append(random.choice((
            lambda: open_call(stream, path),
            lambda: wire.frame(wire.HEADERS, 0, stream, wire.fields(path)[:40]),
            lambda: wire.frame(wire.CONTINUATION, wire.END_HEADERS, stream, wire.fields(path)[40:]),
            lambda: data(at, wire.message(REQUEST), wire.END_STREAM),
            lambda: data(at, wire.message(wire.stream_request(1, REQUEST))),
            lambda: data(at, wire.message(REQUEST)[:random.randint(0, 40)], random.randint(0, 1)),
            lambda: wire.frame(wire.HEADERS, wire.END_HEADERS | wire.END_STREAM, at, wire.literal("k", "v")),
            lambda: wire.frame(wire.RST_STREAM, 0, at, RESET),
            lambda: wire.frame(wire.PING, random.randint(0, 1), 0, b"12345678"),
            lambda: wire.frame(wire.PRIORITY, 0, at, struct.pack(">IB", 0, 5)),
            lambda: wire.settings((random.randint(1, 6), random.choice((0, 1, 16384, wire.MAX_WINDOW)))),
            lambda: wire.window_update(at, random.choice((1, 65535, wire.MAX_WINDOW))),
        ))())
        stream += random.choice((0, 0, 2))
    return frames


def mutated(random, frames):
    """With a few errors: frames left out, doubled or exchanged, bytes that are others, bytes that are missing."""
    frames = list(frames)
    for _ in range(random.randint(0, 3)):
        at, other = random.randrange(len(frames)), random.randrange(len(frames))
        frames[at], frames[other] = frames[other], random.choice((frames[at], frames[other], b""))
    stream = bytearray(b"".join(frames))
    for _ in range(random.choice((0, 1, 1, 2, 5, 20))):
        if stream:
            stream[random.randrange(len(stream))] = random.choice((0, 1, 0x7f, 0x80, 0xff, random.randrange(256)))
    if stream and random.random() < 0.2:
        del stream[random.randrange(len(stream)):]
    return bytes(stream)


@attack()
def mutated_frames(trial):
    """Connections of legal frames with a few errors in them, of which none may hurt the others."""
    deadline, done = time.monotonic() + trial.size(3, 60), 0
    with trial.polite() as polite:
        while time.monotonic() < deadline and trial.server.is_alive():
            with contextlib.suppress(OSError, Ended), Connection(trial.server, hello=False) as connection:
                hello = wire.PREFACE if trial.random.random() < 0.97 else wire.PREFACE[:trial.random.randint(0, 23)]
                connection.send(hello + mutated(trial.random, legal_frames(trial.random)))
                connection.frames(trial.random.choice((0.001, 0.01)))
            done += 1
    trial.note(f"{done} connections")
    trial.expect_polite(polite, trial.size(10, 200))
    trial.expect_growth(64)


@attack()
def messages_half_sent(trial):
    """Connections that announce calls of a MiB, send what the window takes, and are gone."""
    with trial.polite() as polite:
        for at in range(trial.size(150, 1000)):
            with contextlib.suppress(OSError), Connection(trial.server) as connection:
                for stream in streams_of(8):
                    connection.send(open_call(stream, (wire.NORMALIZE, wire.NORMALIZE_STREAM)[at % 2]))
                    connection.send(data(stream, wire.message(b"\x7a" + bytes(8000), announced=1 << 20)))
                if at % 3 == 0:  # a reset, not an orderly end
                    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    trial.expect_polite(polite, 0)
    trial.expect_growth(64)


def expect_all_ended(trial, sockets, what):
    """Sockets on which the server has to give up, by its setup_timeout of a second."""
    deadline, left = time.monotonic() + 30, 0
    for one in sockets:
        one.settimeout(max(deadline - time.monotonic(), 0.01))
        try:
            while one.recv(4096):
                pass
        except ConnectionError:
            pass
        except OSError:
            left += 1
    trial.expect(left == 0, f"{left} of {len(sockets)} connections are there after 30 s that {what}")


def slow_connections(trial, stack, beginning):
    sockets = []
    for at in range(trial.size(40, 800)):
        one = stack.enter_context(socket.create_connection(("127.0.0.1", trial.server.port), timeout=5))
        one.sendall(beginning[:at % (len(beginning) + 1)])
        sockets.append(one)
    return sockets


@attack(options=("--setup_timeout=1s",), full_options=("--setup_timeout=1s",))
def handshakes_never_finished(trial):
    with contextlib.ExitStack() as stack, trial.polite() as polite:
        expect_all_ended(trial, slow_connections(trial, stack, wire.PREFACE), "never finished their preface")
    trial.expect_polite(polite, 1)


@attack(tls=True, options=("--setup_timeout=1s", "--queues=1"), full_options=("--setup_timeout=1s", "--queues=1"))
def tls_handshakes_never_finished(trial):
    """A ClientHello in parts, and records that are none."""
    # The beginning of a handshake record: version, and a ClientHello of 508 bytes of which the rest does not come.
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(32)) + b"\x20" + bytes(20)
    with contextlib.ExitStack() as stack, trial.polite() as polite:
        expect_all_ended(trial, slow_connections(trial, stack, hello), "never finished their ClientHello")
        garbage = slow_connections(trial, stack, trial.random.randbytes(64))
        expect_all_ended(trial, garbage, "sent no TLS")
    trial.expect_polite(polite, 1)


@attack()
def garbage_to_the_admin_port(trial):
    requests = [b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 2000, b"GET /" + b"x" * 100_000, b"\0" * 5000,
                b"POST /metrics\r\n\r\n",
                b"GET /metrics HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
                b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 500, wire.PREFACE + wire.settings(),
                b"GET /statusz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"]
    requests += [trial.random.randbytes(trial.random.randint(1, 3000)) for _ in range(trial.size(30, 500))]
    with contextlib.ExitStack() as stack:
        for _ in range(trial.size(50, 300)):  # these say nothing
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_connection(("127.0.0.1", trial.server.admin_port), timeout=5))
        for request in requests:
            with contextlib.suppress(OSError), socket.create_connection(
                    ("127.0.0.1", trial.server.admin_port), timeout=5) as one:
                one.sendall(request)
                one.settimeout(0.005)
                one.recv(4096)
        try:
            status, text = trial.server.get("/healthz", timeout=30)
            trial.expect(status == 200, f"/healthz beside it: {status} {text[:80]}")
        except OSError as error:
            trial.expect(False, f"/healthz beside it: {error!r}")


@attack()
def garbage_to_the_registrar(trial):
    """Packets of every length and with descriptors of the wrong kind, on the socket that takes in shared memory."""
    path = trial.server.socket_path + ".shm"
    header = struct.Struct("<IHHQ")  # magic, version, operation, size
    with contextlib.ExitStack() as stack:
        pipe = os.pipe()
        zero = os.open("/dev/zero", os.O_RDWR)
        stack.callback(lambda: [os.close(descriptor) for descriptor in (*pipe, zero)])
        for _ in range(trial.size(60, 300)):  # these say nothing
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)).connect(path)
        for _ in range(trial.size(200, 5000)):
            random = trial.random
            packet = header.pack(random.choice((0x4d53444e, 0x4d53444e, random.getrandbits(32))),
                                 random.choice((1, 1, 1, 0, 0xffff)), random.choice((1, 1, 2, 0, 9)),
                                 random.choice((0, 4096, 1 << 40, (1 << 64) - 1)))
            packet += random.choice((bytes(48), random.randbytes(48), b"\xff" * random.randint(1, 2000), b""))
            descriptors = random.choice(((), (), (zero,), (pipe[0],), (zero, pipe[1]), (zero,) * 20))
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
                one.settimeout(2)
                one.connect(path)
                one.sendmsg([packet], ancillary)
                if random.random() < 0.5:
                    reply = one.recv(1024)
                    if reply and struct.unpack_from("<i", reply, 8)[0] == 13:
                        trial.expect(False, f"INTERNAL to the packet {packet[:80].hex()}")
        trial.expect_served(3, "the Unix socket beside it", unix=True)
