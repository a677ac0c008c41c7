// The outputs of one call on their way back in chunks, each a part of its output block that is passed to gRPC without a
// copy. In the path: after the call's reply; the stream takes a message when it has written the one before.
// Threads: thread-compatible. Ownership: a block lives until the sender and gRPC are done with it.
#ifndef NORMD_SERVER_RPC_CODEC_CHUNK_SENDER_H_
#define NORMD_SERVER_RPC_CODEC_CHUNK_SENDER_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "server/base/buffer.h"

namespace normd::rpc {

class ChunkSender {
 public:
  // For the call with this `sequence`, its outputs in order; one without bytes has one chunk, too.
  ChunkSender(uint64_t sequence, std::vector<Buffer> outputs);

  // The next StreamResponse; nothing after the last.
  std::optional<grpc::ByteBuffer> Next();
  // Of all outputs.
  int64_t size_bytes() const { return size_bytes_; }

 private:
  const uint64_t sequence_;
  std::vector<grpc::Slice> outputs_;  // those sent are empty
  int64_t size_bytes_ = 0;
  size_t current_ = 0;
  size_t offset_ = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_CHUNK_SENDER_H_
