// Splits a message with tensors without touching the tensors: into a small message that the protobuf parser reads, and
// the places of the tensor bytes in the segments that came from the transport. The generated parser alone would copy
// every tensor into a std::string.
// In the path: the first step with a received request (rpc's codec and stream reader).
// Ownership: nothing is owned; places are offsets, and segments borrow. Threads: pure functions, safe from any thread.
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

// A piece of a message, as the transport delivers it, of any length and alignment.
using Segment = absl::Span<const std::byte>;

// The place of tensor bytes: a range of the whole message.
struct Block {
  size_t offset = 0;
  size_t size_bytes = 0;
};

// A message without its tensor bytes, and the places of these bytes.
struct SplitMessage {
  // The message, where each field of tensor bytes holds the number of its block instead (see BlockNumber). Everything
  // else is as it came, unknown fields included, so that the parser decides which fields are valid, which merge, and
  // which of several wins.
  std::string metadata;
  std::vector<Block> blocks;  // in the order of the wire
};

// Larger metadata is not worth a copy of its own.
inline constexpr size_t kMaxMetadataBytes = size_t{1} << 20;

// Splits the message of `layout` that `segments` hold. Returns nothing for bytes that are not such a message, for
// encodings that no serialiser writes (groups, tags of five bytes), for single fields of 256 MiB or more, and for more
// metadata than kMaxMetadataBytes. The parser of the whole message then decides whether the bytes are valid.
std::optional<SplitMessage> Split(absl::Span<const Segment> segments, const MessageLayout& layout);

// A field of a message as encoded: a number, or the place of its bytes.
struct TopField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t varint = 0;  // for kVarint only
  Block bytes;          // for kDelimited only
};

// The fields of a message, without those of embedded messages. Returns nothing for more than `max_fields` fields, and
// for bytes that Split does not take apart either.
std::optional<std::vector<TopField>> TopFields(absl::Span<const Segment> segments, size_t max_fields);

// The number of the block that a bytes field of split metadata stands for. REQUIRES: Split made the field.
size_t BlockNumber(std::string_view field);

// The pieces of `block` in `segments`, in order, none empty.
std::vector<Segment> SegmentsOf(absl::Span<const Segment> segments, const Block& block);

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_SPLIT_H_
