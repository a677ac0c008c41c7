"""What the tests of foreign callers share: a server of the transport under test, and calls whose answers are known.

NORMD_PROGRAM is the server, NORMD_TEST_TRANSPORT its transport.
"""

import array
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time

import grpc
from normd.v1 import norm_pb2, normalizer_pb2, normalizer_pb2_grpc, tensor_pb2

PROGRAM = os.environ["NORMD_PROGRAM"]
TRANSPORT = os.environ["NORMD_TEST_TRANSPORT"]
PATIENCE = 30  # seconds for a server to start or end, on a busy machine
NORMALIZE = "/normd.v1.Normalizer/Normalize"


class Server:
    """A normd on a free port, which keeps its port when it is started again."""

    def __init__(self, *flags):
        self.folder = tempfile.mkdtemp(prefix="normd-interop.")
        self.target = "127.0.0.1:0"
        self.flags = flags
        self.start()

    def start(self):
        ports = f"{self.folder}/ports"
        if os.path.exists(ports):
            os.unlink(ports)
        self.process = subprocess.Popen(
            [PROGRAM, f"--transport={TRANSPORT}", f"--listen={self.target}", "--admin_listen=127.0.0.1:0",
             "--session_store=memory", "--cuda=off", f"--port_file={ports}", "--log_level=error", *self.flags])
        end = time.monotonic() + PATIENCE
        while not os.path.exists(ports):
            assert self.process.poll() is None, f"{PROGRAM} ended with {self.process.returncode}"
            assert time.monotonic() < end, f"{PROGRAM} did not start"
            time.sleep(0.01)
        with open(ports, encoding="utf-8") as lines:
            self.target = next(line.strip().split("=", 1)[1] for line in lines if line.startswith("grpc="))

    def drain(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        return self.process.wait(PATIENCE)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)


def options(**more):
    """Channel options: a connection of its own, which comes back quickly, and no limit on messages."""
    named = {"use_local_subchannel_pool": 1, "max_receive_message_length": -1, "max_send_message_length": -1,
             "initial_reconnect_backoff_ms": 50, "min_reconnect_backoff_ms": 50, "max_reconnect_backoff_ms": 200}
    named.update(more)
    return [(f"grpc.{name}", value) for name, value in named.items()]


def connect(server, **more):
    channel = grpc.insecure_channel(server.target, options=options(**more))
    return channel, normalizer_pb2_grpc.NormalizerStub(channel)


def call(count=4, row=4):
    """LayerNorm of rows 0, 1, ... row-1, `count` values in all."""
    assert count % row == 0
    values = array.array("f", [float(i % row) for i in range(count)])
    return normalizer_pb2.NormalizeRequest(
        spec=norm_pb2.NormSpec(layer_norm=norm_pb2.LayerNorm(normalized_shape=[row])),
        x=tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_F32, shape=[count // row, row], data=values.tobytes()))


def check(reply, count=4, row=4):
    """Raises AssertionError unless `reply` answers `call(count, row)`."""
    got = array.array("f")
    got.frombytes(reply.outputs[0].tensor.data)
    assert len(got) == count, f"{len(got)} values instead of {count}"
    mean = (row - 1) / 2
    deviation = math.sqrt(sum((i - mean) ** 2 for i in range(row)) / row + 1e-5)
    for i in (*range(row), count - row, count - 1):
        want = (i % row - mean) / deviation
        assert abs(got[i] - want) < 1e-4, f"y[{i}] is {got[i]}, not {want}"


def stream_call(sequence, count=4):
    return normalizer_pb2.StreamRequest(sequence=sequence, call=call(count))
