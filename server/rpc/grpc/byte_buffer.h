// Messages between gRPC's form and ours, without copying what is large.
// In the path: where GrpcCall reads and writes. Threads: pure functions.
#ifndef NORMD_SERVER_RPC_GRPC_BYTE_BUFFER_H_
#define NORMD_SERVER_RPC_GRPC_BYTE_BUFFER_H_

#include <grpcpp/support/byte_buffer.h>

#include "server/base/slice.h"

namespace normd::rpc {

// The owner of the slices keeps gRPC's references.
MessageBytes ToMessageBytes(const grpc::ByteBuffer& buffer);

// gRPC keeps the owners of the slices alive until it has sent the bytes.
grpc::ByteBuffer ToByteBuffer(const MessageBytes& message);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_GRPC_BYTE_BUFFER_H_
