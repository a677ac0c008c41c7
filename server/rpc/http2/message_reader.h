// Puts the messages of one stream together from the bytes of its DATA frames.
// In the path: between HTTP/2's frames and a call's Read. A message over kMaxAheadBytes is collected only once it was
// opened; until then its bytes, which flow control bounds, wait as they came.
// Ownership: borrows the pool. Threads: the loop's thread only.
#ifndef NORMD_SERVER_RPC_HTTP2_MESSAGE_READER_H_
#define NORMD_SERVER_RPC_HTTP2_MESSAGE_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "server/base/buffer.h"
#include "server/base/slice.h"

namespace normd::rpc::http2 {

class MessageReader {
 public:
  // Why the message at the front cannot be read.
  enum class Fault : uint8_t { kNone, kTooLarge, kCompressed };

  // The bytes before a message: whether it is compressed, and its size in big-endian order.
  static constexpr size_t kPrefixBytes = 5;
  // A message of this size or less is collected in its own block at once. It is what flow control lets in anyway.
  static constexpr int64_t kMaxAheadBytes = 68 << 10;

  // `pool` may be null: blocks then come from malloc.
  MessageReader(int64_t max_message_bytes, BufferPool* pool) : max_message_bytes_(max_message_bytes), pool_(pool) {}

  // Takes the next bytes. Those that were read into Destination() already lie where they belong and are not copied.
  void Append(std::string_view bytes);
  // Where the next bytes of the message at the front belong; empty if it is not being collected, or is complete.
  absl::Span<char> Destination();

  // Lets the message at the front, or the next one to come, be collected whatever its size.
  void Open();
  // Has only the first `bytes` of the message at the front collected, and the rest dropped, unless it is being
  // collected already. REQUIRES: the size of the message is known.
  void KeepHead(size_t bytes);
  Fault fault() const { return fault_; }
  // The announced size of the message at the front; nullopt while its prefix is not complete.
  std::optional<int64_t> front_bytes() const { return front_bytes_; }
  bool complete() const { return collecting_ && filled_ == block_.size_bytes() && to_drop_ == 0; }
  // How many bytes must still come until the message at the front is complete, as far as that is known.
  int64_t missing_bytes() const;
  // The memory of what was not taken yet.
  int64_t held_bytes() const { return static_cast<int64_t>(block_.size_bytes() + waiting_.capacity()); }
  // Whether no byte is held that was not taken.
  bool empty() const { return !front_bytes_.has_value() && waiting().empty(); }
  // Takes the message at the front, or what was kept of it. REQUIRES: complete().
  MessageBytes Take();
  // Drops everything.
  void Clear();

 private:
  std::string_view waiting() const { return std::string_view(waiting_).substr(waiting_begin_); }
  void DropWaiting(size_t bytes);
  // Reads the prefix at the front of `bytes`. REQUIRES: kPrefixBytes of them.
  void ReadPrefix(std::string_view bytes);
  // Begins to collect the message at the front, if that is allowed now.
  void Collect();
  // Makes the block for the first `bytes` of the message at the front.
  void Begin(size_t bytes);
  // Takes as much of `bytes` as the message at the front is missing; returns how much.
  size_t Fill(std::string_view bytes);
  // Moves what waits to where it belongs by now.
  void Advance();

  const int64_t max_message_bytes_;
  BufferPool* const pool_;
  Fault fault_ = Fault::kNone;
  bool opened_ = false;
  std::optional<int64_t> front_bytes_;
  bool collecting_ = false;
  Buffer block_;         // of the message at the front, if it is being collected
  size_t filled_ = 0;    // of block_
  size_t to_drop_ = 0;   // bytes that follow those of block_ and are not kept
  std::string waiting_;  // the bytes behind the block or, if there is none, behind the prefix
  size_t waiting_begin_ = 0;
};

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_MESSAGE_READER_H_
