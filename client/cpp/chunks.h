// Tensors that travel in chunks: splitting a request and joining a reply. In the path: between Client::NormalizeChunked
// and its stream (chunked_call.cc). No gRPC. Threads: the functions are pure; a ReplyJoiner is thread-compatible.
#ifndef NORMD_CLIENT_CPP_CHUNKS_H_
#define NORMD_CLIENT_CPP_CHUNKS_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

// A copy of `request` without the data of x and residual.tensor, whose payloads become `chunked`.
v1::NormalizeRequest WithoutData(const v1::NormalizeRequest& request);

// The chunk of `data` that starts at `offset`: `chunk_bytes` long, or shorter at the end.
v1::Chunk CutChunk(absl::string_view data, size_t offset, size_t chunk_bytes);

// The size of a chunk's data for a server with these limits, in bytes.
size_t ChunkBytes(const v1::Limits& limits);

// Joins a reply and the chunks that follow it. Thread-compatible.
class ReplyJoiner {
 public:
  // Joins the reply to the call with this `sequence`.
  explicit ReplyJoiner(uint64_t sequence) : sequence_(sequence) {}

  // Takes the next message of the stream, which is not an error. DATA_LOSS, naming the mismatch, if the server broke
  // the contract or the bytes were damaged.
  absl::Status Take(const v1::StreamResponse& message);
  // True once the reply and all of its chunks have come.
  bool complete() const { return has_reply_ && next_ == response_.outputs_size(); }
  // REQUIRES: complete().
  v1::NormalizeResponse TakeResponse() { return std::move(response_); }

 private:
  absl::Status TakeChunk(const v1::Chunk& chunk);
  // Advances to the next output that comes in chunks.
  void SkipInline();

  const uint64_t sequence_;
  bool has_reply_ = false;
  v1::NormalizeResponse response_;
  int next_ = 0;      // index of the output whose chunks are coming
  std::string data_;  // the data of that output so far
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_CHUNKS_H_
