// The message that a call is sending: a prefix of five bytes, then the message's slices, cut into DATA frames.
// In the path: between a call's Write and the connection's output. Threads: the loop's thread only.
#ifndef NORMD_SERVER_RPC_HTTP2_REPLY_BODY_H_
#define NORMD_SERVER_RPC_HTTP2_REPLY_BODY_H_

#include <cstddef>

#include "server/base/slice.h"
#include "server/net/output_queue.h"

namespace normd::rpc::http2 {

class ReplyBody {
 public:
  // Sets the message. REQUIRES: empty().
  void Set(MessageBytes message);
  bool empty() const { return left_ == 0; }
  // How many bytes are left, with those of the prefix.
  size_t left() const { return left_; }
  // Moves the next `bytes` to `output`. REQUIRES: at most left().
  void MoveTo(net::OutputQueue* output, size_t bytes);
  void Clear();

 private:
  MessageBytes message_;
  size_t total_ = 0;
  size_t left_ = 0;
  size_t slice_ = 0;        // the slice that comes next
  size_t slice_begin_ = 0;  // how much of it was moved
};

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_REPLY_BODY_H_
