// Takes a message of tensors apart without touching the tensors: a small message that the protobuf parser reads, and
// the places of the tensor bytes in the segments that came from the transport.
// In the path: the first thing done with a received request.
// Why: the generated parser would copy every tensor into a std::string. Pure functions; nothing is owned.
#ifndef NORMD_PROTO_WIRE_SPLIT_H_
#define NORMD_PROTO_WIRE_SPLIT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "proto/wire/layout.h"
#include "proto/wire/writer.h"

namespace normd::wire {

// A piece of a message, as the transport delivers it. Any length, any alignment.
using Segment = absl::Span<const std::byte>;

// Tensor bytes: a range of the whole message.
struct Block {
  size_t offset = 0;
  size_t size_bytes = 0;
};

struct SplitMessage {
  // The message with each field of tensor bytes holding its block's number instead (see BlockNumber). All else is as it
  // came, unknown fields too, so that the parser decides what is valid, what merges and which of several wins.
  std::string metadata;
  std::vector<Block> blocks;  // in order of the wire
};

// Metadata larger than this is not worth a copy of its own.
inline constexpr size_t kMaxMetadataBytes = size_t{1} << 20;

// Nothing for bytes that are not such a message, for what no serialiser writes for it (groups, tags of five bytes), for
// single fields from 256 MiB on, and for more metadata than kMaxMetadataBytes. Whether those are valid is for the
// parser of the whole message to say.
std::optional<SplitMessage> Split(absl::Span<const Segment> segments, const MessageLayout& layout);

// A field of a message as it lies there: a number, or the place of the bytes of what has a length.
struct TopField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t varint = 0;  // of kVarint alone
  Block bytes;          // of kDelimited alone
};

// The fields of a message, at most `max_fields`, without those of the messages in it. Nothing for more of them, and for
// what Split does not take apart either.
std::optional<std::vector<TopField>> TopFields(absl::Span<const Segment> segments, size_t max_fields);

// The number of the block that a bytes field of split metadata stands for. REQUIRES: the field is from Split.
size_t BlockNumber(std::string_view field);

// The pieces of `block`, in order, none empty.
std::vector<Segment> SegmentsOf(absl::Span<const Segment> segments, const Block& block);

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_SPLIT_H_
