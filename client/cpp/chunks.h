// Tensors that travel in chunks: taking a request apart, and putting a reply together. Pure but for what ReplyJoiner
// holds; no gRPC. In the path: between Client::NormalizeChunked and its stream (chunked_call.cc).
#ifndef NORMD_CLIENT_CPP_CHUNKS_H_
#define NORMD_CLIENT_CPP_CHUNKS_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// `request` with the data of x and of residual.tensor named as chunked, and not copied.
v1::NormalizeRequest WithoutData(const v1::NormalizeRequest& request);

// The chunk of `data` at `offset`, of `chunk_bytes` or what is left.
v1::Chunk CutChunk(absl::string_view data, size_t offset, size_t chunk_bytes);

// How much data to put into a chunk for a server with these limits.
size_t ChunkBytes(const v1::Limits& limits);

// Puts the reply and the chunks after it together. Thread-compatible.
class ReplyJoiner {
 public:
  // For the call with this `sequence`.
  explicit ReplyJoiner(uint64_t sequence) : sequence_(sequence) {}

  // The stream's next message, which is no error. DATA_LOSS naming what does not fit: a server that breaks the
  // contract, or bytes that were damaged.
  absl::Status Take(const v1::StreamResponse& message);
  bool complete() const { return has_reply_ && next_ == response_.outputs_size(); }
  // REQUIRES: complete().
  v1::NormalizeResponse TakeResponse() { return std::move(response_); }

 private:
  absl::Status TakeChunk(const v1::Chunk& chunk);
  // Goes on to the next output that comes in chunks.
  void SkipInline();

  const uint64_t sequence_;
  bool has_reply_ = false;
  v1::NormalizeResponse response_;
  int next_ = 0;      // the output whose chunks come
  std::string data_;  // of it, so far
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_CHUNKS_H_
