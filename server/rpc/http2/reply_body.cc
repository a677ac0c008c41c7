#include "server/rpc/http2/reply_body.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "server/rpc/http2/message_reader.h"

namespace normd::rpc::http2 {

void ReplyBody::Set(MessageBytes message) {
  message_ = std::move(message);
  total_ = MessageReader::kPrefixBytes + static_cast<size_t>(message_.size_bytes());
  left_ = total_;
  slice_ = 0;
  slice_begin_ = 0;
}

void ReplyBody::MoveTo(net::OutputQueue* output, size_t bytes) {
  const size_t moved = total_ - left_;
  left_ -= bytes;
  if (moved < MessageReader::kPrefixBytes) {
    const auto size = static_cast<uint32_t>(message_.size_bytes());
    const char prefix[MessageReader::kPrefixBytes] = {0, static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                                                      static_cast<char>(size >> 8), static_cast<char>(size)};
    const size_t part = std::min(bytes, MessageReader::kPrefixBytes - moved);
    output->Copy(std::string_view(prefix + moved, part));
    bytes -= part;
  }
  while (bytes > 0) {
    const Slice& slice = message_.slices()[slice_];
    const size_t part = std::min(bytes, slice.size() - slice_begin_);
    output->Append(slice.Part(slice_begin_, slice_begin_ + part));
    bytes -= part;
    slice_begin_ += part;
    if (slice_begin_ < slice.size()) continue;
    ++slice_;
    slice_begin_ = 0;
  }
  if (left_ == 0) Clear();
}

void ReplyBody::Clear() {
  message_ = MessageBytes();
  total_ = 0;
  left_ = 0;
}

}  // namespace normd::rpc::http2
