"""grpcio's blocking API: calls of all kinds, deadlines, cancellation, metadata, errors, health and reflection."""

import queue
import threading
import time
import unittest

import grpc
import interop
from google.protobuf import descriptor_pool
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status
from normd.v1 import normalizer_pb2, sessions_pb2, sessions_pb2_grpc, norm_pb2, tensor_pb2


class CallsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = interop.Server()
        cls.channel, cls.stub = interop.connect(cls.server)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.close()

    def assert_code(self, code, function, *arguments, **named):
        with self.assertRaises(grpc.RpcError) as raised:
            function(*arguments, **named)
        self.assertEqual(raised.exception.code(), code, raised.exception.details())
        return raised.exception

    def test_unary_calls_of_all_sizes(self):
        for count in (4, 64, 4096, 16 << 10, 16380, 1 << 20, 8 << 20):
            interop.check(self.stub.Normalize(interop.call(count), timeout=30), count)

    def test_a_message_over_the_limit_is_refused_and_the_next_is_served(self):
        count = (64 << 20) // 4 + 1024
        self.assert_code(grpc.StatusCode.RESOURCE_EXHAUSTED, self.stub.Normalize, interop.call(count), timeout=30)
        interop.check(self.stub.Normalize(interop.call(), timeout=30))

    def test_many_calls_at_once(self):
        # More than one connection may have: the client queues them by the server's SETTINGS.
        futures = [self.stub.Normalize.future(interop.call(1024), timeout=30) for _ in range(500)]
        for future in futures:
            interop.check(future.result(), 1024)

    def test_a_stream_of_calls_is_answered_in_order(self):
        counts = [4, 4096, 400_000, 8, 4]
        replies = list(self.stub.NormalizeStream(
            (interop.stream_call(i, count) for i, count in enumerate(counts)), timeout=30))
        self.assertEqual([reply.sequence for reply in replies], list(range(len(counts))))
        for reply, count in zip(replies, counts):
            interop.check(reply.reply, count)

    def test_a_stream_takes_turns(self):
        to_send = queue.SimpleQueue()
        replies = self.stub.NormalizeStream(iter(to_send.get, None), timeout=30)
        for sequence in range(20):
            to_send.put(interop.stream_call(sequence))
            self.assertEqual(next(replies).sequence, sequence)
        to_send.put(None)
        self.assertEqual(list(replies), [])
        self.assertEqual(replies.code(), grpc.StatusCode.OK)

    def test_messages_of_clients_and_of_servers_stream(self):
        sessions = sessions_pb2_grpc.SessionsStub(self.channel)
        spec = norm_pb2.NormSpec(layer_norm=norm_pb2.LayerNorm(normalized_shape=[200_000]))
        weight = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_F32, shape=[200_000], data=bytes(800_000))
        sessions.CreateSession(sessions_pb2.CreateSessionRequest(session_id="whole", session=sessions_pb2.Session(
            spec=spec, parameters=normalizer_pb2.Parameters(weight=weight))), timeout=30)
        chunks = list(sessions.ExportSession(sessions_pb2.ExportSessionRequest(name="sessions/whole"), timeout=30))
        self.assertGreater(len(chunks), 2)
        imported = sessions.ImportSession((sessions_pb2.ImportSessionRequest(
            session_id="copy" if i == 0 else "", chunk=chunk.chunk) for i, chunk in enumerate(chunks)), timeout=30)
        self.assertEqual(imported.name, "sessions/copy")

    def test_a_deadline_ends_the_call(self):
        begun = time.monotonic()
        replies = self.stub.NormalizeStream(iter(threading.Event().wait, True), timeout=0.3)
        error = self.assert_code(grpc.StatusCode.DEADLINE_EXCEEDED, next, replies)
        self.assertLess(time.monotonic() - begun, 5, error)

    def test_a_cancelled_call_leaves_the_connection_to_others(self):
        for _ in range(20):
            never = threading.Event()
            replies = self.stub.NormalizeStream(iter(lambda: never.wait(10) or None, None), timeout=30)
            replies.cancel()
            self.assertEqual(replies.code(), grpc.StatusCode.CANCELLED)
            never.set()
        interop.check(self.stub.Normalize(interop.call(), timeout=30))

    def test_metadata_comes_back(self):
        metadata = (("x-request-id", "a-name-of-the-caller"), ("x-bytes-bin", bytes(range(256))), ("x-twice", "1"),
                    ("x-twice", "2"), ("normd-explain", "1"))
        reply, call = self.stub.Normalize.with_call(interop.call(), metadata=metadata, timeout=30)
        interop.check(reply)
        trailers = dict(call.trailing_metadata())
        self.assertEqual(trailers["x-request-id"], "a-name-of-the-caller")
        self.assertIn("kernel", trailers["normd-explain"])

    def test_an_error_has_its_details(self):
        request = interop.call()
        request.x.shape[:] = [3, 3]
        error = self.assert_code(grpc.StatusCode.INVALID_ARGUMENT, self.stub.Normalize, request, timeout=30)
        status = rpc_status.from_call(error)
        self.assertEqual(status.message, error.details())
        info = error_details_pb2.ErrorInfo()
        self.assertTrue(any(detail.Unpack(info) for detail in status.details))
        self.assertEqual(info.domain, "normd")
        self.assert_code(grpc.StatusCode.UNIMPLEMENTED, self.channel.unary_unary("/normd.v1.Normalizer/None"), b"")

    def test_compressed_messages_are_refused_by_name(self):
        error = self.assert_code(grpc.StatusCode.UNIMPLEMENTED, self.stub.Normalize, interop.call(1024),
                                 compression=grpc.Compression.Gzip, timeout=30)
        self.assertIn("gzip", error.details())

    def test_keepalive_pings_are_answered(self):
        if interop.TRANSPORT != "native":
            self.skipTest("gRPC's server ends a connection that pings often without a call")
        channel, stub = interop.connect(self.server, keepalive_time_ms=100, keepalive_timeout_ms=2000,
                                        keepalive_permit_without_calls=1, **{"http2.max_pings_without_data": 0})
        states = []
        interop.check(stub.Normalize(interop.call(), timeout=30))
        channel.subscribe(states.append)
        time.sleep(1.5)
        interop.check(stub.Normalize(interop.call(), timeout=30))
        channel.close()
        self.assertNotIn(grpc.ChannelConnectivity.TRANSIENT_FAILURE, states)
        self.assertNotIn(grpc.ChannelConnectivity.CONNECTING, states)

    def test_health_is_told_and_watched(self):
        health = health_pb2_grpc.HealthStub(self.channel)
        request = health_pb2.HealthCheckRequest()
        self.assertEqual(health.Check(request, timeout=30).status, health_pb2.HealthCheckResponse.SERVING)
        watch = health.Watch(request, timeout=30)
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVING)
        watch.cancel()
        unknown = health_pb2.HealthCheckRequest(service="no.such.Service")
        self.assert_code(grpc.StatusCode.NOT_FOUND, health.Check, unknown, timeout=30)

    def test_reflection_describes_the_services(self):
        database = ProtoReflectionDescriptorDatabase(self.channel)
        self.assertIn("normd.v1.Normalizer", database.get_services())
        service = descriptor_pool.DescriptorPool(database).FindServiceByName("normd.v1.Normalizer")
        self.assertIn("Normalize", service.methods_by_name)


if __name__ == "__main__":
    unittest.main()
