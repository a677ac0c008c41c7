// Receives the tensors of one call that travel in chunks: checks every chunk, and keeps its slices, or copies them into
// one block if the tensor must be contiguous.
// In the path: between a stream's reader and the call's TensorSource, after the call itself was validated.
// Ownership: owns the received bytes until MoveTo. Threads: thread-compatible; one reader uses it.
#ifndef NORMD_SERVER_RPC_CODEC_CHUNK_RECEIVER_H_
#define NORMD_SERVER_RPC_CODEC_CHUNK_RECEIVER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "normd/v1/normalizer.pb.h"
#include "server/base/buffer.h"
#include "server/rpc/codec/tensor_source.h"

namespace normd::rpc {

// A tensor that travels in chunks.
struct ChunkedTensor {
  std::string_view field;  // "x"
  int64_t size_bytes = 0;
  bool in_one_piece = false;  // whether the tensor must be contiguous
};

// The chunked tensors of `call`, in the order in which their chunks come. Returns INVALID_ARGUMENT for a tensor of more
// than `max_tensor_bytes`.
absl::StatusOr<std::vector<ChunkedTensor>> FindChunkedTensors(const v1::NormalizeRequest& call,
                                                              int64_t max_tensor_bytes);

class ChunkReceiver {
 public:
  // Receives `tensors` of the call with this `sequence`. `buffers` may be null, which means malloc.
  // REQUIRES: `tensors` is not empty.
  ChunkReceiver(uint64_t sequence, const std::vector<ChunkedTensor>& tensors, BufferPool* buffers);

  // Takes the next chunk; `message` has its bytes. Returns INVALID_ARGUMENT, naming "sequence" or a field of "chunk",
  // for a chunk that is wrong or not the next one; after that the call cannot be completed.
  absl::Status Take(const v1::StreamRequest& request, const TensorSource& message);
  bool complete() const { return current_ == tensors_.size(); }
  // The error for a call whose chunks did not all come.
  absl::Status IncompleteError() const;
  // Passes the received tensors on to `tensors`. REQUIRES: complete().
  void MoveTo(TensorSource* tensors);

 private:
  struct Incoming {
    ChunkedTensor tensor;
    int64_t received_bytes = 0;
    std::vector<ReceivedBytes> pieces;
    std::string small;  // copies of small chunks, following `pieces`
    Buffer contiguous;  // used instead of both if the tensor must be contiguous
  };

  absl::Status Check(const v1::StreamRequest& request, const MessageBytes& data) const;
  void Keep(MessageBytes data, Incoming* incoming);

  const uint64_t sequence_;
  std::vector<Incoming> tensors_;
  size_t current_ = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_CHUNK_RECEIVER_H_
