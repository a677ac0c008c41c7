"""Tests of the hostile tests' own parts: what reads a reply, and what judges a server. Needs no server."""

import random
import unittest

import floods
import wire
from callers import ROW, Judge, is_right
from normd_server import ALARMS, EXPOSITION


class HostileSelfTest(unittest.TestCase):
    def test_fields_of_a_reply_are_read(self):
        # RFC 7541, C.6.1: :status, cache-control, date and location, with Huffman codes; and a plain literal.
        block = bytes.fromhex("488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c7"
                              "8f0b97c8e9ae82ae43d3")
        self.assertEqual(wire.read_fields(block + wire.literal("grpc-status", "0")), {
            8: "302", 24: "private", 33: "Mon, 21 Oct 2013 20:13:21 GMT", 46: "https://www.example.com",
            "grpc-status": "0"})
        self.assertEqual(wire.integer(1337, 5), bytes.fromhex("1f9a0a"))  # C.1.2

    def test_frames_are_split_and_what_is_left_is_kept(self):
        data = wire.settings() + wire.frame(wire.DATA, 1, 5, b"abc")
        frames, rest = wire.split_frames(data + data[:4])
        self.assertEqual(frames, [(wire.SETTINGS, 0, 0, b""), (wire.DATA, 1, 5, b"abc")])
        self.assertEqual(rest, data[:4])

    def test_a_wrong_answer_is_told_from_a_right_one(self):
        y = wire.bytes_field(15, wire.bytes_field(15, wire.tensor((1, 4), bytes.fromhex(
            "00000000" "76d6083f" "76d6883f" "b141cd3f"))))
        other = y[:-1] + b"\x40"
        judge = Judge()
        self.assertTrue(is_right(wire.y_of(y)), ROW)
        self.assertFalse(is_right(wire.y_of(other)))
        self.assertIsNone(judge.wrong("0", y))
        self.assertIsNotNone(judge.wrong("0", other))
        self.assertIsNone(judge.wrong("8", b""))
        self.assertIsNotNone(Judge().wrong("0", other))
        for cut in (b"", y[:1], y[:-20]):
            self.assertIsNotNone(judge.wrong("0", cut), cut)

    def test_alarms_of_a_log_are_found(self):
        for line in ("W grpc request code=INTERNAL", "==1==ERROR: AddressSanitizer: heap-use-after-free",
                     "a.cc:3:4: runtime error: signed integer overflow"):
            self.assertTrue(ALARMS.search(line), line)
        self.assertFalse(ALARMS.search("INFO connection closed reason=flood"))

    def test_lines_of_an_exposition_are_told_from_others(self):
        self.assertTrue(EXPOSITION.match('normd_calls{code="OK",method="/a.B/C \\"x\\""} 3'))
        self.assertTrue(EXPOSITION.match("normd_in_flight_bytes 0"))
        self.assertFalse(EXPOSITION.match("normd_in_flight_bytes"))
        self.assertFalse(EXPOSITION.match('normd_calls{code="O"K"} 3'))

    def test_a_seed_repeats_what_is_sent(self):
        first, second = (random.Random("seed") for _ in range(2))
        for _ in range(50):
            self.assertEqual(floods.mutated(first, floods.legal_frames(first)),
                             floods.mutated(second, floods.legal_frames(second)))


def main():
    result = unittest.TextTestRunner(verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(HostileSelfTest))
    return 0 if result.wasSuccessful() else 1
