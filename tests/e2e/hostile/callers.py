"""Connections to normd, raw and polite."""

import math
import select
import socket
import struct
import threading
import time

import wire

ROW = (0.0, 1.0, 2.0, 3.0)
REQUEST = wire.rms_request(ROW)
PAUSE = 0.02  # seconds between the calls of a polite caller


class Ended(Exception):
    """The server closed the connection or the stream."""


class Connection:
    """A raw HTTP/2 connection that sends what it is told to. `source`: the address that the server sees."""

    def __init__(self, server, *, unix=False, tls=None, source="127.0.0.1", receive_buffer=None, timeout=10.0,
                 window=wire.DEFAULT_WINDOW, hello=True):
        self.socket = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        self.socket.settimeout(timeout)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            if unix:
                self.socket.connect(server.socket_path)
            else:
                self.socket.bind((source, 0))
                self.socket.connect(("127.0.0.1", server.port))
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
            self.rest = b""
            if hello:
                # No dynamic table: what is read here stays simple. The server's SETTINGS, which come once, are
                # acknowledged ahead.
                self.send(wire.PREFACE +
                          wire.settings((wire.HEADER_TABLE_SIZE, 0), (wire.INITIAL_WINDOW_SIZE, window)) +
                          wire.frame(wire.SETTINGS, wire.ACK))
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def send_until_refused(self, piece, most_bytes, seconds):
        """Sends `piece` again and again within these limits, reading what comes; whether the server ended it."""
        deadline, sent = time.monotonic() + seconds, 0
        try:
            while sent < most_bytes and time.monotonic() < deadline:
                self.send(piece)
                sent += len(piece)
                if select.select([self.socket], [], [], 0)[0] and not self.socket.recv(1 << 16):
                    return True
        except OSError:
            return True
        return False

    def frames(self, timeout):
        """The frames of one read; Ended at the end of the connection."""
        self.socket.settimeout(timeout)
        data = self.socket.recv(1 << 18)
        if not data:
            raise Ended("connection closed")
        found, self.rest = wire.split_frames(self.rest + data)
        return found

    def is_ended_within(self, seconds):
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                self.frames(left)
            except (Ended, ConnectionError):
                return True
            except OSError:
                return False
        return False

    def initial_window(self, timeout=10.0):
        """What the server's first SETTINGS say."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for kind, flags, _, payload in self.frames(timeout):
                if kind == wire.SETTINGS and not flags & wire.ACK:
                    pairs = dict(struct.iter_unpack(">HI", payload))
                    return pairs.get(wire.INITIAL_WINDOW_SIZE, wire.DEFAULT_WINDOW)
        raise Ended("no SETTINGS came")


class Caller:
    """Makes unary calls, one after the other, on a connection of its own, and respects the peer's windows."""

    def __init__(self, server, *, timeout=20.0, **connection):
        self.connection = Connection(server, window=wire.MAX_WINDOW, timeout=timeout, **connection)
        self.scheme = "https" if connection.get("tls") is not None else "http"
        self.timeout = timeout
        self.next_stream = 1
        self.initial = self.room = wire.DEFAULT_WINDOW  # of each stream, of the connection
        self.connection.send(wire.window_update(0, wire.MAX_WINDOW - wire.DEFAULT_WINDOW))

    def close(self):
        self.connection.close()

    def call(self, path, request):
        """(grpc-status, reply); raises OSError or Ended where there is no answer."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        deadline = time.monotonic() + self.timeout
        data, sent, stream_room = wire.message(request), 0, self.initial
        reply, block, status = bytearray(), b"", None
        self.connection.send(
            wire.frame(wire.HEADERS, wire.END_HEADERS, stream, wire.fields(path, scheme=self.scheme)))
        while True:
            while sent < len(data) and (size := min(16384, len(data) - sent, self.room, stream_room)) > 0:
                piece, sent = data[sent:sent + size], sent + size
                self.room, stream_room = self.room - size, stream_room - size
                end = wire.END_STREAM if sent == len(data) else 0
                self.connection.send(wire.frame(wire.DATA, end, stream, piece))
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError("no answer in time")
            for kind, flags, at, payload in self.connection.frames(left):
                if kind == wire.SETTINGS and not flags & wire.ACK:
                    initial = dict(struct.iter_unpack(">HI", payload)).get(wire.INITIAL_WINDOW_SIZE, self.initial)
                    stream_room, self.initial = stream_room + initial - self.initial, initial
                elif kind == wire.PING and not flags & wire.ACK:
                    self.connection.send(wire.frame(wire.PING, wire.ACK, 0, payload))
                elif kind == wire.WINDOW_UPDATE and at == 0:
                    self.room += int.from_bytes(payload, "big")
                elif kind == wire.GOAWAY:
                    raise Ended(f"GOAWAY {payload[4:80]!r}")
                elif at != stream:
                    continue
                elif kind == wire.WINDOW_UPDATE:
                    stream_room += int.from_bytes(payload, "big")
                elif kind == wire.RST_STREAM:
                    raise Ended("RST_STREAM")
                elif kind == wire.DATA:
                    reply += payload
                    if payload:
                        self.connection.send(wire.window_update(0, len(payload)))
                elif kind in (wire.HEADERS, wire.CONTINUATION):
                    block += payload
                    if flags & wire.END_HEADERS:
                        status = wire.read_fields(block).get("grpc-status", status)
                        block = b""
                if flags & wire.END_STREAM and kind in (wire.DATA, wire.HEADERS):
                    return status, bytes(reply[5:])


def is_right(y):
    """Whether y is what RmsNorm makes of ROW, but for the last bits."""
    if len(y) != 4 * len(ROW):
        return False
    divisor = math.sqrt(sum(value * value for value in ROW) / len(ROW) + 1e-6)
    return all(abs(got - value / divisor) <= 1e-6 for got, value in zip(struct.unpack(f"<{len(ROW)}f", y), ROW))


class Judge:
    """Knows the bytes of y: those of the first answer, which was near the formula. All others must equal them."""

    def __init__(self):
        self.y = None

    def wrong(self, status, reply):
        """Why the answer is wrong, or None; a refusal is not wrong."""
        if status != "0":
            return None
        try:
            y = wire.y_of(reply)
        except (KeyError, IndexError):
            return f"there is no y in {reply[:80].hex()}"
        if self.y is None and is_right(y):
            self.y = y
        return None if y == self.y else f"y is {y.hex()} and not {self.y.hex() if self.y else 'near the formula'}"


def count_served(server, judge, count, **connection):
    """(how many of these calls, each on a new connection, were answered rightly; what went wrong first)"""
    served, first = 0, ""
    for _ in range(count):
        try:
            caller = Caller(server, **connection)
            try:
                status, reply = caller.call(wire.NORMALIZE, REQUEST)
            finally:
                caller.close()
            if wrong := judge.wrong(status, reply):
                raise AssertionError(wrong)
            served += status == "0"
            first = first or ("" if status == "0" else f"grpc-status {status}")
        except (OSError, Ended) as error:
            first = first or repr(error)
    return served, first


class PoliteCaller:
    """A thread that calls all the time and goes on after every failure. Use it with `with`."""

    def __init__(self, server, judge, **connection):
        self.server, self.judge, self.connection = server, judge, connection
        self.seconds, self.failures, self.wrong = [], {}, []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join(60)

    def _run(self):
        caller = None
        while not self.stopped.wait(PAUSE):
            try:
                caller = caller or Caller(self.server, timeout=30, **self.connection)
                begin = time.monotonic()
                status, reply = caller.call(wire.NORMALIZE, REQUEST)
                if wrong := self.judge.wrong(status, reply):
                    self.wrong.append(wrong)
                elif status == "0":
                    self.seconds.append(time.monotonic() - begin)
                else:
                    self._count(f"grpc-status {status}")
            except (OSError, Ended, AssertionError) as error:
                self._count(repr(error))
                if caller is not None:
                    caller.close()
                caller = None
        if caller is not None:
            caller.close()

    def _count(self, failure):
        self.failures[failure] = self.failures.get(failure, 0) + 1

    def text(self):
        ordered = sorted(self.seconds) or [float("nan")]
        p50, p99 = (1e3 * ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.5, 0.99))
        failed = f", failures {self.failures}" if self.failures else ""
        return (f"polite {len(self.seconds)} calls, p50 {p50:.1f} ms, p99 {p99:.0f} ms, "
                f"max {1e3 * ordered[-1]:.0f} ms{failed}")
