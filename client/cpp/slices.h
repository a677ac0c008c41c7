// A protobuf message as gRPC slices, its large `bytes` fields by reference. What the generated stubs do copies them.
// Inside of the client. Threads: a pure function; the message must not be changed any more.
#ifndef NORMD_CLIENT_CPP_SLICES_H_
#define NORMD_CLIENT_CPP_SLICES_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>

namespace normd::client {

// The slices keep the message alive: the transport may hold them longer than a call that was cut short.
grpc::ByteBuffer ToSlices(const std::shared_ptr<const google::protobuf::MessageLite>& message);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_SLICES_H_
