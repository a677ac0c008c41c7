#include "server/rpc/http2/frame_scanner.h"

#include <algorithm>
#include <cstring>

namespace normd::rpc::http2 {
namespace {

// RFC 9113, 6.
constexpr uint8_t kData = 0, kHeaders = 1, kContinuation = 9;
constexpr uint8_t kEndHeaders = 4, kPadded = 8;

}  // namespace

size_t FrameScanner::Scan(std::string_view bytes) {
  at_headers_end_ = false;
  size_t position = std::min(magic_bytes_, bytes.size());
  magic_bytes_ -= position;
  while (position < bytes.size() && !at_headers_end_) {
    if (head_filled_ < head_.size()) {
      const size_t taken = std::min(head_.size() - head_filled_, bytes.size() - position);
      std::memcpy(head_.data() + head_filled_, bytes.data() + position, taken);
      head_filled_ += taken;
      position += taken;
      if (head_filled_ < head_.size()) break;
      ReadHead();
    } else {
      const size_t taken = std::min(payload_bytes_, bytes.size() - position);
      payload_bytes_ -= taken;
      position += taken;
    }
    if (payload_bytes_ > 0) continue;
    head_filled_ = 0;
    at_headers_end_ = ends_headers_;
    if (ends_headers_) in_header_block_ = false;
  }
  return position;
}

void FrameScanner::ReadHead() {
  const auto byte = [this](size_t i) { return static_cast<uint32_t>(head_[i]); };
  payload_bytes_ = byte(0) << 16 | byte(1) << 8 | byte(2);
  const uint8_t type = head_[3];
  const uint8_t flags = head_[4];
  stream_id_ = static_cast<int32_t>((byte(5) & 0x7F) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8));
  is_data_ = type == kData && (flags & kPadded) == 0;
  const bool has_headers = type == kHeaders || type == kContinuation;
  ends_headers_ = has_headers && (flags & kEndHeaders) != 0;
  if (type == kHeaders) header_block_bytes_ = 0;
  if (has_headers) header_block_bytes_ += payload_bytes_;
  in_header_block_ = in_header_block_ || has_headers;
}

}  // namespace normd::rpc::http2
