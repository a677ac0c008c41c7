"""What travels to and from normd, made by hand: HTTP/2 frames, HPACK, and the few protobuf messages that are needed.

By hand, because a library would refuse to send most of what these tests are about.
"""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, ACK = 1, 4, 8, 1
HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE = 1, 4
MAX_WINDOW = (1 << 31) - 1
DEFAULT_WINDOW = 65535

NORMALIZE = "/normd.v1.Normalizer/Normalize"
BATCH_NORMALIZE = "/normd.v1.Normalizer/BatchNormalize"
NORMALIZE_STREAM = "/normd.v1.Normalizer/NormalizeStream"
CREATE_SESSION = "/normd.v1.Sessions/CreateSession"
GET_SESSION = "/normd.v1.Sessions/GetSession"
HEALTH_CHECK = "/grpc.health.v1.Health/Check"


# Frames.


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def settings(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def window_update(stream, size):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))


def split_frames(data):
    """((kind, flags, stream, payload), ...) of the whole frames in `data`, and the bytes that are left."""
    frames, at = [], 0
    while at + 9 <= len(data):
        size = int.from_bytes(data[at:at + 3], "big")
        if at + 9 + size > len(data):
            break
        stream = int.from_bytes(data[at + 5:at + 9], "big") & MAX_WINDOW
        frames.append((data[at + 3], data[at + 4], stream, bytes(data[at + 9:at + 9 + size])))
        at += 9 + size
    return frames, data[at:]


# HPACK (RFC 7541). What is sent are literals; what is read uses no dynamic table, because our SETTINGS forbid it.


def integer(value, prefix_bits, first=0):
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes((first | value,))
    out, value = bytearray((first | most,)), value - most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes((value,))


def literal(name, value, into_table=False):
    """One field; with `into_table` it also becomes entry 62 of the peer's table."""
    name, value = (text.encode() if isinstance(text, str) else text for text in (name, value))
    return bytes((0x40 if into_table else 0,)) + integer(len(name), 7) + name + integer(len(value), 7) + value


def fields(path=NORMALIZE, method="POST", scheme="http", extra=()):
    own = [(":method", method), (":scheme", scheme), (":path", path), (":authority", "localhost"), ("te", "trailers"),
           ("content-type", "application/grpc")]
    return b"".join(literal(name, value) for name, value in [*own, *extra])


# The Huffman code is canonical, so the symbols of each length in their order are all of it. Others never occur here.
_SYMBOLS = {5: "012aceiost", 6: " %-./3456789=A_bdfghlmnpru", 7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz", 8: "&*,;XZ",
            10: "!\"()?", 11: "'+|", 12: "#>", 13: "\0$@[]~", 14: "^}", 15: "<`{"}


def _huffman_codes():
    codes, code = {}, 0
    for bits in range(5, 16):
        for symbol in _SYMBOLS.get(bits, ""):
            codes[bits, code] = symbol
            code += 1
        code <<= 1
    return codes


_CODES = _huffman_codes()


def huffman_text(data):
    text, code, bits = [], 0, 0
    for byte in data:
        for shift in range(7, -1, -1):
            code, bits = code << 1 | byte >> shift & 1, bits + 1
            if (bits, code) in _CODES:
                text.append(_CODES[bits, code])
                code, bits = 0, 0
    return "".join(text)


class _Block:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, prefix_bits):
        value = self.data[self.at] & ((1 << prefix_bits) - 1)
        self.at += 1
        if value == (1 << prefix_bits) - 1:
            shift = 0
            while True:
                byte = self.data[self.at]
                self.at += 1
                value += (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
        return value

    def text(self):
        is_huffman = self.data[self.at] >= 128
        size = self.number(7)
        self.at += size
        piece = self.data[self.at - size:self.at]
        return huffman_text(piece) if is_huffman else piece.decode("latin1")


def read_fields(data):
    """name -> value. A name of the static table is its number; fields that are in it as a whole have no value."""
    block, found = _Block(data), {}
    while block.at < len(data):
        first = data[block.at]
        if first >= 0x80:
            found[block.number(7)] = None
        elif first >= 0x20 and first < 0x40:
            block.number(5)  # a size of the table
        else:
            name = block.number(6 if first >= 0x40 else 4) or block.text()
            found[name] = block.text()
    return found


# Protobuf.


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes((value,))


def number_field(number, value):
    return varint(number << 3) + varint(value)


def bytes_field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def read_message(data):
    """number -> [values]: integers, and the bytes of what has a length."""
    def read_varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return value, at

    found, at = {}, 0
    while at < len(data):
        tag, at = read_varint(at)
        if tag & 7 == 0:
            value, at = read_varint(at)
        else:
            size = 8 if tag & 7 == 1 else 4
            if tag & 7 == 2:
                size, at = read_varint(at)
            value, at = data[at:at + size], at + size
        found.setdefault(tag >> 3, []).append(value)
    return found


def message(body, announced=None):
    """With gRPC's prefix; `announced`: a size that is not the body's."""
    return b"\0" + struct.pack(">I", len(body) if announced is None else announced) + body


def tensor(shape, data):
    """Of f32."""
    return number_field(1, 1) + bytes_field(2, b"".join(varint(extent) for extent in shape)) + bytes_field(15, data)


def rms_request(values):
    """NormalizeRequest: RmsNorm of one row."""
    x = tensor((1, len(values)), struct.pack(f"<{len(values)}f", *values))
    return bytes_field(1, bytes_field(5, b"")) + bytes_field(15, x)


def y_of(reply):
    """The bytes of the first output of a NormalizeResponse."""
    return read_message(read_message(read_message(reply)[15][0])[15][0])[15][0]


def stream_request(sequence, request):
    return number_field(1, sequence) + bytes_field(15, request)


def create_session_request(name, channels):
    """A LayerNorm with weight and bias, which are zeros."""
    spec = bytes_field(2, bytes_field(4, varint(channels)))
    parameter = tensor((channels,), bytes(4 * channels))
    session = bytes_field(4, spec) + bytes_field(8, bytes_field(1, parameter) + bytes_field(2, parameter))
    return bytes_field(1, name.encode()) + bytes_field(2, session)


def get_session_request(name):
    """With all of its tensors."""
    return bytes_field(1, f"sessions/{name}".encode()) + number_field(2, 2)
