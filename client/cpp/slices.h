// A protobuf message as gRPC slices that refer to its large `bytes` fields, where the generated stubs would copy them.
// In the path: inside Client::Normalize, before a message is sent. Threads: a pure function.
#ifndef NORMD_CLIENT_CPP_SLICES_H_
#define NORMD_CLIENT_CPP_SLICES_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>

namespace normd::client {

// The slices keep `message` alive, because the transport may hold them longer than a call that was cut short. The
// message must not change any more.
grpc::ByteBuffer ToSlices(const std::shared_ptr<const google::protobuf::MessageLite>& message);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_SLICES_H_
