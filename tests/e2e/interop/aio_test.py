"""grpcio's asyncio API, which has a client of its own in C-core's threads."""

import asyncio
import unittest

import grpc
import interop
from normd.v1 import normalizer_pb2_grpc


class AioTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.server = interop.Server()
        self.channel = grpc.aio.insecure_channel(self.server.target, options=interop.options())
        self.stub = normalizer_pb2_grpc.NormalizerStub(self.channel)

    async def asyncTearDown(self):
        await self.channel.close()
        self.server.close()

    async def test_many_calls_at_once(self):
        counts = [4 << (i % 12) for i in range(300)]
        replies = await asyncio.gather(*(self.stub.Normalize(interop.call(count), timeout=30) for count in counts))
        for reply, count in zip(replies, counts):
            interop.check(reply, count)

    async def test_streams_beside_each_other(self):
        async def talk(calls):
            stream = self.stub.NormalizeStream(timeout=30)
            for sequence in range(calls):
                await stream.write(interop.stream_call(sequence, 1024))
                reply = await stream.read()
                self.assertEqual(reply.sequence, sequence)
                interop.check(reply.reply, 1024)
            await stream.done_writing()
            self.assertIs(await stream.read(), grpc.aio.EOF)
            self.assertEqual(await stream.code(), grpc.StatusCode.OK)

        await asyncio.gather(*(talk(20) for _ in range(6)))

    async def test_deadline_and_cancellation(self):
        stream = self.stub.NormalizeStream(timeout=0.2)
        with self.assertRaises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        self.assertEqual(raised.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        stream = self.stub.NormalizeStream(timeout=30)
        await stream.write(interop.stream_call(1))
        stream.cancel()
        self.assertEqual(await stream.code(), grpc.StatusCode.CANCELLED)
        interop.check(await self.stub.Normalize(interop.call(), timeout=30))


if __name__ == "__main__":
    unittest.main()
