// What the codec's fuzzers check of an input, and the count of those that took the fast path, told at the end.
#ifndef NORMD_TESTS_FUZZ_CODEC_CHECK_H_
#define NORMD_TESTS_FUZZ_CODEC_CHECK_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "server/base/slice.h"
#include "server/rpc/codec/message.h"
#include "server/rpc/codec/tensor_source.h"
#include "tests/proto/codec_input.h"

namespace normd::fuzz {

// Of one program.
class CodecCounts {
 public:
  ~CodecCounts() {
    std::fprintf(stderr, "fast path: %llu of %llu inputs, %llu of %llu valid ones\n", fast_, inputs_, fast_valid_,
                 valid_);
  }
  void Add(bool fast, bool valid) {
    ++inputs_;
    fast_ += fast ? 1 : 0;
    valid_ += valid ? 1 : 0;
    fast_valid_ += fast && valid ? 1 : 0;
  }

 private:
  unsigned long long inputs_ = 0, fast_ = 0, valid_ = 0, fast_valid_ = 0;
};

// Reported by libFuzzer with the input.
inline void FailCodec(const char* what) {
  std::fprintf(stderr, "the walker and the parser disagree: %s\n", what);
  std::abort();
}

inline MessageBytes InSlices(const std::vector<wire::Segment>& segments) {
  MessageBytes bytes;
  for (const wire::Segment& segment : segments) {
    bytes.Append(Slice::Copy({reinterpret_cast<const char*>(segment.data()), segment.size()}));
  }
  return bytes;
}

// Whether the server's parse takes the message; nothing when the one with a layout and the one without disagree.
inline std::optional<bool> ServerParses(const CodecInput& input) {
  const google::protobuf::LogSilencer silencer;
  const MessageBytes bytes = InSlices(input.segments);
  const std::unique_ptr<google::protobuf::Message> plain(input.type.prototype->New());
  const std::unique_ptr<google::protobuf::Message> with_layout(input.type.prototype->New());
  rpc::TensorSource tensors;
  const absl::Status plainly = rpc::ParseInto(bytes, plain.get());
  const absl::Status status = rpc::ParseInto(rpc::Receive(bytes, *input.type.layout), with_layout.get(), &tensors);
  if (status.code() != plainly.code()) return std::nullopt;
  return status.ok();
}

inline void CheckCodec(const uint8_t* data, size_t size) {
  static CodecCounts counts;
  const std::optional<CodecInput> input = ReadCodecInput({reinterpret_cast<const char*>(data), size});
  if (!input.has_value()) return;
  const CodecVerdict verdict = CheckSplit(*input);
  if (verdict.wrong != nullptr) FailCodec(verdict.wrong);
  const std::optional<bool> valid = ServerParses(*input);
  if (!valid.has_value()) FailCodec("ParseInto");
  counts.Add(verdict.fast, *valid);
}

}  // namespace normd::fuzz

#endif  // NORMD_TESTS_FUZZ_CODEC_CHECK_H_
