// Counts what a message would become before it is parsed: two bytes on the wire can be an object of hundreds in memory,
// so that a message in limits could take gigabytes. Walks tags and lengths alone; tensor bytes are skipped.
// In the path: before every parse. Pure function.
#ifndef NORMD_SERVER_RPC_CODEC_ELEMENT_COUNT_H_
#define NORMD_SERVER_RPC_CODEC_ELEMENT_COUNT_H_

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>

namespace normd::rpc {

// A batch of 4096 items with 64 fields, extents and outputs each; at most some 100 MB when parsed.
inline constexpr int64_t kMaxElements = 256 << 10;

// The fields, at all depths, of a message of type `type`, elements of packed ones and groups, which our messages do not
// have, counted by their bytes. Nothing for bytes that cannot be walked. Stops counting above kMaxElements.
std::optional<int64_t> CountElements(const grpc::ByteBuffer& bytes, const google::protobuf::Descriptor& type);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_ELEMENT_COUNT_H_
