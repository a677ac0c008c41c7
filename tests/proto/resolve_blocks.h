// Puts a split message together again, through reflection: what the generated parser would have made of the whole.
#ifndef NORMD_TESTS_PROTO_RESOLVE_BLOCKS_H_
#define NORMD_TESTS_PROTO_RESOLVE_BLOCKS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "proto/wire/split.h"

namespace normd::wire {

inline bool HoldsTensorBytes(const google::protobuf::FieldDescriptor& field) {
  const std::string& owner = field.containing_type()->full_name();
  return field.name() == "data" && (owner == "normd.v1.Tensor" || owner == "normd.v1.Chunk");
}

inline std::string BytesOf(absl::Span<const Segment> segments, const Block& block) {
  std::string bytes;
  for (const Segment& piece : SegmentsOf(segments, block)) {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return bytes;
}

// Replaces every block's number in `message` by the block. A number that is none is left for the comparison to find.
inline void ResolveBlocks(absl::Span<const Segment> segments, const std::vector<Block>& blocks,
                          google::protobuf::Message* message) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (HoldsTensorBytes(*field)) {
      const size_t number = BlockNumber(reflection.GetString(*message, field));
      if (number < blocks.size()) reflection.SetString(message, field, BytesOf(segments, blocks[number]));
    } else if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    } else if (field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
        ResolveBlocks(segments, blocks, reflection.MutableRepeatedMessage(message, field, i));
      }
    } else {
      ResolveBlocks(segments, blocks, reflection.MutableMessage(message, field));
    }
  }
}

}  // namespace normd::wire

#endif  // NORMD_TESTS_PROTO_RESOLVE_BLOCKS_H_
