#include "server/rpc/http2/message_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace normd::rpc::http2 {
namespace {

// The used bytes that the buffer may keep before the waiting ones are moved to its front, and its memory when none
// wait.
constexpr size_t kMaxDeadBytes = 32 << 10;

}  // namespace

void MessageReader::Append(std::string_view bytes) {
  if (fault_ != Fault::kNone) return;
  // The usual case first: nothing waits, so that the bytes go straight to their message.
  while (!bytes.empty() && waiting().empty() && fault_ == Fault::kNone) {
    if (!front_bytes_.has_value() && bytes.size() >= kPrefixBytes) {
      ReadPrefix(bytes);
      bytes.remove_prefix(kPrefixBytes);
      Collect();
    } else if (collecting_ && !complete()) {
      bytes.remove_prefix(Fill(bytes));
    } else {
      break;
    }
  }
  if (bytes.empty() || fault_ != Fault::kNone) return;
  waiting_.append(bytes);
  Advance();
}

absl::Span<char> MessageReader::Destination() {
  if (!collecting_) return {};
  return {reinterpret_cast<char*>(block_.data()) + filled_, block_.size_bytes() - filled_};
}

void MessageReader::Open() {
  opened_ = true;
  if (front_bytes_.has_value() && !collecting_) Collect();
  Advance();
}

int64_t MessageReader::missing_bytes() const {
  if (!front_bytes_.has_value()) return static_cast<int64_t>(kPrefixBytes - std::min(waiting().size(), kPrefixBytes));
  if (collecting_) return static_cast<int64_t>(block_.size_bytes() - filled_ + to_drop_);
  return std::max<int64_t>(*front_bytes_ - static_cast<int64_t>(waiting().size()), 0);
}

MessageBytes MessageReader::Take() {
  MessageBytes message(Slice(std::exchange(block_, Buffer())));
  filled_ = 0;
  collecting_ = false;
  opened_ = false;
  front_bytes_.reset();
  Advance();
  return message;
}

void MessageReader::Clear() {
  block_ = Buffer();
  filled_ = 0;
  to_drop_ = 0;
  collecting_ = false;
  front_bytes_.reset();
  std::string().swap(waiting_);  // assigning an empty string would keep the memory
  waiting_begin_ = 0;
}

void MessageReader::DropWaiting(size_t bytes) {
  waiting_begin_ += bytes;
  if (waiting_begin_ < waiting_.size() && waiting_begin_ < kMaxDeadBytes) return;
  if (waiting_begin_ == waiting_.size() && waiting_.capacity() > kMaxDeadBytes) std::string().swap(waiting_);
  waiting_.erase(0, waiting_begin_);
  waiting_begin_ = 0;
}

void MessageReader::ReadPrefix(std::string_view bytes) {
  uint32_t size = 0;
  for (size_t i = 1; i < kPrefixBytes; ++i) size = size << 8 | static_cast<unsigned char>(bytes[i]);
  front_bytes_ = size;
  if (bytes[0] != 0) fault_ = Fault::kCompressed;
  if (*front_bytes_ > max_message_bytes_) fault_ = Fault::kTooLarge;
}

void MessageReader::Collect() {
  if (fault_ != Fault::kNone || (!opened_ && *front_bytes_ > kMaxAheadBytes)) return;
  Begin(static_cast<size_t>(*front_bytes_));
}

void MessageReader::KeepHead(size_t bytes) {
  if (!collecting_ && fault_ == Fault::kNone) Begin(std::min(bytes, static_cast<size_t>(*front_bytes_)));
}

void MessageReader::Begin(size_t bytes) {
  block_ = pool_ == nullptr ? Buffer(bytes) : pool_->Take(bytes);
  filled_ = 0;
  to_drop_ = static_cast<size_t>(*front_bytes_) - bytes;
  collecting_ = true;
}

size_t MessageReader::Fill(std::string_view bytes) {
  const absl::Span<char> destination = Destination();
  const size_t taken = std::min(bytes.size(), destination.size());
  if (taken > 0 && bytes.data() != destination.data()) std::memcpy(destination.data(), bytes.data(), taken);
  filled_ += taken;
  const size_t dropped = std::min(bytes.size() - taken, to_drop_);
  to_drop_ -= dropped;
  return taken + dropped;
}

void MessageReader::Advance() {
  if (fault_ != Fault::kNone) return;
  if (!front_bytes_.has_value() && waiting().size() >= kPrefixBytes) {
    ReadPrefix(waiting());
    DropWaiting(kPrefixBytes);
    Collect();
  }
  if (collecting_ && !complete()) DropWaiting(Fill(waiting()));
}

}  // namespace normd::rpc::http2
