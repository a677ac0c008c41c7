// Bounds the number of objects that a message would become when parsed: two bytes on the wire can become an object of
// hundreds of bytes, so a message within the size limit could take gigabytes. Only tags and lengths are read; tensor
// bytes are skipped.
// In the path: before every parse that could exceed the limit. Pure function.
#ifndef NORMD_SERVER_RPC_CODEC_ELEMENT_COUNT_H_
#define NORMD_SERVER_RPC_CODEC_ELEMENT_COUNT_H_

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <optional>

#include "server/base/slice.h"

namespace normd::rpc {

// The limit: a batch of 4096 items with 64 fields, extents and outputs each. Takes at most some 100 MB when parsed.
inline constexpr int64_t kMaxElements = 256 << 10;

// Counts the fields of a message of type `type`, at all depths. Packed fields and groups, which our messages do not
// have, are counted by their bytes. Returns nullopt for bytes that are not a message. Stops counting above
// kMaxElements.
std::optional<int64_t> CountElements(const MessageBytes& bytes, const google::protobuf::Descriptor& type);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_ELEMENT_COUNT_H_
