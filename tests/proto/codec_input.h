// One input of the codec's fuzzers and a file of their corpus tests/fuzz/codec: a byte that chooses the message type, a
// byte that says how the transport cut the message, the message. And what must hold for every such input: a split
// message that is parsed and put together is what parsing the whole gives. Pure functions.
#ifndef NORMD_TESTS_PROTO_CODEC_INPUT_H_
#define NORMD_TESTS_PROTO_CODEC_INPUT_H_

#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "normd/v1/normalizer.pb.h"
#include "proto/wire/layout.h"
#include "proto/wire/split.h"
#include "tests/proto/resolve_blocks.h"

namespace normd::fuzz {

inline constexpr size_t kCodecHeaderBytes = 2;

struct CodecType {
  const wire::MessageLayout* layout;
  const google::protobuf::Message* prototype;
};

// In the order of the first byte, which is reduced modulo their number. Corpus files hold these numbers.
inline std::array<CodecType, 8> CodecTypes() {
  return {{{&wire::kNormalizeRequest, &v1::NormalizeRequest::default_instance()},
           {&wire::kBatchNormalizeRequest, &v1::BatchNormalizeRequest::default_instance()},
           {&wire::kStreamRequest, &v1::StreamRequest::default_instance()},
           {&wire::kComputeMomentsRequest, &v1::ComputeMomentsRequest::default_instance()},
           {&wire::kNormalizeResponse, &v1::NormalizeResponse::default_instance()},
           {&wire::kBatchNormalizeResponse, &v1::BatchNormalizeResponse::default_instance()},
           {&wire::kStreamResponse, &v1::StreamResponse::default_instance()},
           {&wire::kComputeMomentsResponse, &v1::ComputeMomentsResponse::default_instance()}}};
}

struct CodecInput {
  CodecType type;
  std::string_view message;
  std::vector<wire::Segment> segments;  // of `message`
};

// Borrows `bytes`. Nothing when they are fewer than the header's.
inline std::optional<CodecInput> ReadCodecInput(std::string_view bytes) {
  if (bytes.size() < kCodecHeaderBytes) return std::nullopt;
  const std::array<CodecType, 8> types = CodecTypes();
  CodecInput input = {types[static_cast<uint8_t>(bytes[0]) % types.size()], bytes.substr(kCodecHeaderBytes), {}};
  // Pieces of this length and of half of it by turns, which may be none; 0: one piece.
  const size_t piece = static_cast<uint8_t>(bytes[1]);
  const auto* const data = reinterpret_cast<const std::byte*>(input.message.data());
  for (size_t at = 0, n = 0; at < input.message.size(); at += input.segments.back().size(), ++n) {
    const size_t rest = input.message.size() - at;
    input.segments.emplace_back(data + at, std::min(rest, piece == 0 ? rest : piece >> n % 2));
  }
  return input;
}

struct CodecVerdict {
  bool fast = false;            // Split took it
  const char* wrong = nullptr;  // where it disagreed with the parser of the whole
};

inline CodecVerdict CheckSplit(const CodecInput& input) {
  const google::protobuf::LogSilencer silencer;  // of invalid UTF-8, which both parsers refuse
  const std::optional<wire::SplitMessage> split = wire::Split(input.segments, *input.type.layout);
  if (!split.has_value()) return {};
  const std::unique_ptr<google::protobuf::Message> whole(input.type.prototype->New());
  const std::unique_ptr<google::protobuf::Message> parts(input.type.prototype->New());
  const bool whole_ok = whole->ParseFromArray(input.message.data(), static_cast<int>(input.message.size()));
  if (parts->ParseFromString(split->metadata) != whole_ok) return {true, whole_ok ? "refused" : "accepted"};
  if (!whole_ok) return {true};
  ResolveBlocks(input.segments, split->blocks, parts.get());
  return {true, parts->SerializeAsString() == whole->SerializeAsString() ? nullptr : "other values"};
}

}  // namespace normd::fuzz

#endif  // NORMD_TESTS_PROTO_CODEC_INPUT_H_
