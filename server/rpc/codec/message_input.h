// Presents the bytes of a message to protobuf's parsers without copying them.
// In the path: under ParseInto and the walkers of unparsed messages.
// Ownership: borrows the bytes. Threads: thread-compatible.
#ifndef NORMD_SERVER_RPC_CODEC_MESSAGE_INPUT_H_
#define NORMD_SERVER_RPC_CODEC_MESSAGE_INPUT_H_

#include <google/protobuf/io/zero_copy_stream.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "server/base/slice.h"

namespace normd::rpc {

class MessageInput : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit MessageInput(const MessageBytes& bytes) : slices_(bytes.slices()) {}

  bool Next(const void** data, int* size) override {
    if (slices_.empty()) return false;
    const std::string_view rest = slices_.front().text().substr(offset_);
    *data = rest.data();
    *size = static_cast<int>(rest.size());
    Take(rest.size());
    return true;
  }
  void BackUp(int count) override {
    // Next has taken a slice to its end, unless it stands within one.
    if (offset_ == 0) {
      slices_ = {slices_.data() - 1, slices_.size() + 1};
      offset_ = slices_.front().size();
    }
    offset_ -= static_cast<size_t>(count);
    byte_count_ -= count;
  }
  bool Skip(int count) override {
    auto left = static_cast<size_t>(count);
    while (left > 0 && !slices_.empty()) {
      const size_t step = std::min(left, slices_.front().size() - offset_);
      Take(step);
      left -= step;
    }
    return left == 0;
  }
  int64_t ByteCount() const override { return byte_count_; }

 private:
  void Take(size_t count) {
    byte_count_ += static_cast<int64_t>(count);
    offset_ += count;
    if (offset_ < slices_.front().size()) return;
    slices_.remove_prefix(1);
    offset_ = 0;
  }

  absl::Span<const Slice> slices_;  // from the one that is being read on; none is empty
  size_t offset_ = 0;               // in the first of them
  int64_t byte_count_ = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_MESSAGE_INPUT_H_
