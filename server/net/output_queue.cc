#include "server/net/output_queue.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace normd::net {
namespace {

// A part of a message of this size or less is copied: that is cheaper than one more part for the kernel to look at.
constexpr size_t kMaxCopiedBytes = 1024;
// The parts of one write: 32 frames of a large message with their heads.
constexpr size_t kMaxParts = 64;
// The written bytes that the buffer may keep before the rest is moved to its front.
constexpr size_t kMaxDeadOutputBytes = 64 << 10;

}  // namespace

void OutputQueue::Copy(std::string_view bytes) {
  if (bytes.empty()) return;
  copied_.append(bytes);
  appended_ += bytes.size();
  if (pieces_.empty() || pieces_.back().slice.size() != 0) {
    pieces_.push_back({.slice = Slice(), .size_bytes = bytes.size()});
  } else {
    pieces_.back().size_bytes += bytes.size();
  }
}

void OutputQueue::Append(Slice slice) {
  if (slice.size() <= kMaxCopiedBytes) return Copy(slice.text());
  const size_t size_bytes = slice.size();
  appended_ += size_bytes;
  pieces_.push_back({.slice = std::move(slice), .size_bytes = size_bytes});
}

IoState OutputQueue::WriteTo(ByteStream& stream) {
  absl::InlinedVector<iovec, kMaxParts> parts;
  size_t copied = copied_begin_;
  size_t begin = piece_begin_;
  for (const Piece& piece : pieces_) {
    if (parts.size() == kMaxParts) break;
    const bool is_copied = piece.slice.size() == 0;
    const char* const data = is_copied ? copied_.data() + copied : piece.slice.data() + begin;
    const size_t size = piece.size_bytes - begin;
    if (is_copied) copied += size;
    parts.push_back({.iov_base = const_cast<char*>(data), .iov_len = size});
    begin = 0;
  }
  const IoResult result = stream.Write(parts);
  if (result.state == IoState::kOk) Drop(result.bytes);
  return result.state;
}

void OutputQueue::Drop(size_t bytes) {
  written_ += bytes;
  while (bytes > 0) {
    Piece& first = pieces_.front();
    const size_t dropped = std::min(bytes, first.size_bytes - piece_begin_);
    if (first.slice.size() == 0) copied_begin_ += dropped;
    piece_begin_ += dropped;
    bytes -= dropped;
    if (piece_begin_ < first.size_bytes) break;
    pieces_.pop_front();
    piece_begin_ = 0;
  }
  if (copied_begin_ < copied_.size() && copied_begin_ < kMaxDeadOutputBytes) return;
  copied_.erase(0, copied_begin_);
  copied_begin_ = 0;
}

void OutputQueue::Clear() {
  pieces_.clear();
  piece_begin_ = 0;
  std::string().swap(copied_);
  copied_begin_ = 0;
  written_ = appended_;
}

}  // namespace normd::net
