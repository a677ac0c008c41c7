"""layer_norm.cc with plain grpcio stubs, in Python: python layer_norm.py 127.0.0.1:8001

    pip install grpcio-tools googleapis-common-protos
    mkdir -p build/stubs
    python -m grpc_tools.protoc -I proto --python_out=build/stubs --grpc_python_out=build/stubs proto/normd/v1/*.proto
    PYTHONPATH=build/stubs python client/examples/layer_norm.py 127.0.0.1:8001
"""

import struct
import sys

import grpc
from normd.v1 import norm_pb2, normalizer_pb2, normalizer_pb2_grpc, tensor_pb2

# gRPC refuses messages over 4 MiB unless it is told otherwise.
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def main():
    x = [1, 2, 3, 4, 40, 30, 20, 10]
    request = normalizer_pb2.NormalizeRequest(
        spec=norm_pb2.NormSpec(layer_norm=norm_pb2.LayerNorm(normalized_shape=[4])),
        x=tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_F32, shape=[2, 4], data=struct.pack("<8f", *x)))  # little-endian
    with grpc.insecure_channel(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8001", options=OPTIONS) as channel:
        reply = normalizer_pb2_grpc.NormalizerStub(channel).Normalize(request, timeout=30)
    y = struct.unpack("<8f", reply.outputs[0].tensor.data)
    for row in range(2):
        print(*(f"{value:.6g}" for value in y[4 * row:4 * row + 4]))


if __name__ == "__main__":
    main()
