"""A restart under load: SIGTERM while callers call, and the server comes back at its port."""

import collections
import threading
import time
import unittest

import grpc
import interop


class DrainTest(unittest.TestCase):
    def setUp(self):
        self.server = interop.Server("--drain_timeout=5s")

    def tearDown(self):
        self.server.close()

    def test_no_call_is_cancelled_by_a_restart(self):
        codes = collections.Counter()
        stop = threading.Event()

        def call_on_and_on():
            channel, stub = interop.connect(self.server)
            while not stop.is_set():
                try:
                    interop.check(stub.Normalize(interop.call(1024), timeout=30), 1024)
                    codes["OK"] += 1
                except grpc.RpcError as error:
                    codes[error.code().name] += 1
                    time.sleep(0.02)
            channel.close()

        callers = [threading.Thread(target=call_on_and_on) for _ in range(4)]
        for caller in callers:
            caller.start()
        for _ in range(2):
            time.sleep(0.5)
            self.server.drain()
            self.assertEqual(self.server.wait(), 0)
            self.server.start()
        before = codes["OK"]
        deadline = time.monotonic() + interop.PATIENCE
        while codes["OK"] < before + 40 and time.monotonic() < deadline:
            time.sleep(0.02)
        stop.set()
        for caller in callers:
            caller.join()
        self.assertGreaterEqual(codes["OK"], before + 40, f"callers do not find back: {codes}")
        self.assertLessEqual(set(codes), {"OK", "UNAVAILABLE"}, codes)

    def test_a_stream_that_is_open_ends_with_its_reason(self):
        _, stub = interop.connect(self.server)
        more = threading.Event()

        def requests():
            yield interop.stream_call(1)
            more.wait(interop.PATIENCE)

        replies = stub.NormalizeStream(requests(), timeout=30)
        self.assertEqual(next(replies).sequence, 1)
        self.server.drain()
        with self.assertRaises(grpc.RpcError) as raised:
            next(replies)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        more.set()
        self.assertEqual(self.server.wait(), 0)


if __name__ == "__main__":
    unittest.main()
