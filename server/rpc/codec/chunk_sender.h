// Sends the outputs of one call in chunks. Each chunk is a part of its output's block, passed to the transport without
// a copy. In the path: after the call's reply; the stream takes the next message when it has written the one before.
// Ownership: an output's block lives until the sender and the transport are done with it. Threads: thread-compatible.
#ifndef NORMD_SERVER_RPC_CODEC_CHUNK_SENDER_H_
#define NORMD_SERVER_RPC_CODEC_CHUNK_SENDER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "server/base/buffer.h"
#include "server/base/slice.h"

namespace normd::rpc {

class ChunkSender {
 public:
  // Sends `outputs`, in order, of the call with this `sequence`. An output without bytes also has one chunk.
  ChunkSender(uint64_t sequence, std::vector<Buffer> outputs);

  // The next StreamResponse; nullopt after the last.
  std::optional<MessageBytes> Next();
  // The size of all outputs together.
  int64_t size_bytes() const { return size_bytes_; }

 private:
  const uint64_t sequence_;
  std::vector<Slice> outputs_;  // outputs already sent are empty
  int64_t size_bytes_ = 0;
  size_t current_ = 0;
  size_t offset_ = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_CHUNK_SENDER_H_
