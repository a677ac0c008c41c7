// The bytes that a connection has to send: frames' heads, which are copied, and parts of messages, which are not.
// In the path: last; HTTP/2's layer appends, and the loop writes to the socket once a turn.
// Ownership: shares the slices until the socket has taken them. Threads: the loop's thread only.
#ifndef NORMD_SERVER_NET_OUTPUT_QUEUE_H_
#define NORMD_SERVER_NET_OUTPUT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/base/fifo.h"
#include "server/base/slice.h"
#include "server/net/byte_stream.h"

namespace normd::net {

class OutputQueue {
 public:
  // Appends a copy of `bytes`.
  void Copy(std::string_view bytes);
  // Appends a slice; a small one is copied.
  void Append(Slice slice);

  // Writes once, as much as one system call takes. kOk with bytes left says that more may follow at once.
  IoState WriteTo(ByteStream& stream);

  size_t size_bytes() const { return static_cast<size_t>(appended_ - written_); }
  bool empty() const { return appended_ == written_; }
  // All bytes ever appended, and ever taken by the socket: an appended byte was taken when `written` has passed it.
  uint64_t appended() const { return appended_; }
  uint64_t written() const { return written_; }
  // Drops everything.
  void Clear();

 private:
  // Bytes of `copied_` if the slice is empty.
  struct Piece {
    Slice slice;
    size_t size_bytes;
  };

  // Removes `bytes` from the front.
  void Drop(size_t bytes);

  Fifo<Piece> pieces_;
  size_t piece_begin_ = 0;  // how much of the first piece was written
  std::string copied_;
  size_t copied_begin_ = 0;  // how much of it was written
  uint64_t appended_ = 0;
  uint64_t written_ = 0;
};

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_OUTPUT_QUEUE_H_
