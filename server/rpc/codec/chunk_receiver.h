// The tensors of one call that come in chunks, while they come: every chunk is checked, and its bytes are kept as gRPC
// received them, or put in place where a tensor is needed in one piece.
// In the path: between a stream's reader and the call's TensorSource, once the call itself was judged.
// Threads: thread-compatible; one reader uses it. Ownership: it keeps what has come until MoveTo.
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

// A tensor that comes in chunks.
struct ChunkedTensor {
  std::string_view field;  // "x"
  int64_t size_bytes = 0;
  bool in_one_piece = false;  // as it is needed
};

// Those of `call`, in the order in which they come. INVALID_ARGUMENT for one of more than `max_tensor_bytes`.
absl::StatusOr<std::vector<ChunkedTensor>> FindChunkedTensors(const v1::NormalizeRequest& call,
                                                              int64_t max_tensor_bytes);

class ChunkReceiver {
 public:
  // For the call with this `sequence`. REQUIRES: there are tensors. `buffers` may be null: malloc.
  ChunkReceiver(uint64_t sequence, const std::vector<ChunkedTensor>& tensors, BufferPool* buffers);

  // The next chunk, out of `message`. INVALID_ARGUMENT naming "sequence" or a field of "chunk": it does not go on where
  // the one before ended, and none can any more.
  absl::Status Take(const v1::StreamRequest& request, const TensorSource& message);
  bool complete() const { return current_ == tensors_.size(); }
  // What to say of a call that is not completed.
  absl::Status IncompleteError() const;
  // REQUIRES: complete().
  void MoveTo(TensorSource* tensors);

 private:
  struct Incoming {
    ChunkedTensor tensor;
    int64_t received_bytes = 0;
    std::vector<ReceivedBytes> pieces;
    std::string small;  // bytes after the pieces, of small chunks
    Buffer contiguous;  // instead of both
  };

  absl::Status Check(const v1::StreamRequest& request, const std::vector<grpc::Slice>& data) const;
  void Keep(std::vector<grpc::Slice> data, int64_t size_bytes, Incoming* incoming);

  const uint64_t sequence_;
  std::vector<Incoming> tensors_;
  size_t current_ = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_CHUNK_RECEIVER_H_
