// Where the tensors of one received message have their bytes: in the transport's slices, in shared memory, or, for a
// message that only the full parser understands, in the message itself. Resolving copies nothing but tensors that are
// needed in one piece and came in several.
// In the path: made with the parsed message, asked by DecodeTensor, kept until the call is answered.
// Threads: resolved by one thread, before the call starts; truncated() from any later.
#ifndef NORMD_SERVER_RPC_CODEC_TENSOR_SOURCE_H_
#define NORMD_SERVER_RPC_CODEC_TENSOR_SOURCE_H_

#include <grpcpp/support/slice.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tensor.h"
#include "normd/v1/tensor.pb.h"
#include "proto/wire/split.h"
#include "server/base/buffer.h"
#include "server/engine/call.h"
#include "server/shm/region_table.h"

namespace normd::rpc {

// Received bytes that tensors point into. Not copied: a small slice holds its bytes itself.
class ReceivedBytes {
 public:
  ReceivedBytes() = default;
  ReceivedBytes(ReceivedBytes&&) = default;
  ReceivedBytes& operator=(ReceivedBytes&&) = default;
  explicit ReceivedBytes(std::vector<grpc::Slice> slices);

  absl::Span<const Segment> segments() const { return segments_; }
  // `block` of the bytes.
  std::vector<grpc::Slice> SlicesOf(const wire::Block& block) const;

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<Segment> segments_;
};

class TensorSource {
 public:
  // Which memory of the host a caller may name. Used while decoding alone.
  struct SharedMemory {
    const RegionTable* regions = nullptr;  // null: none
    std::string_view refusal;              // why
  };

  // Before anything is resolved, if at all: `data` fields hold the numbers of `blocks` of `bytes`.
  void SetBlocks(ReceivedBytes bytes, std::vector<wire::Block> blocks);
  void SetBuffers(BufferPool* buffers) { buffers_ = buffers; }
  void SetSharedMemory(const SharedMemory& shared_memory) { shared_memory_ = shared_memory; }
  // A `chunked` payload whose chunks are to come. Until they have, its tensor is scattered bytes that nobody may read:
  // enough to judge a call. `field` is a literal.
  void AwaitChunked(std::string_view field, int64_t size_bytes);
  // They have: the bytes in order, or in one piece. REQUIRES: as many as awaited.
  void AddChunked(std::string_view field, std::vector<ReceivedBytes> bytes);
  void AddChunked(std::string_view field, Buffer contiguous);
  // The bytes of a chunk of this message, which `data` is the field of, as slices that outlive the source.
  std::vector<grpc::Slice> TakeSlices(const std::string& data) const;

  struct Bytes {
    const void* data = nullptr;  // null: absent, or scattered
    int64_t size_bytes = 0;
    absl::Span<const Segment> segments = {};
    MemorySpace space = {};  // where `data` lies
  };
  // The payload of `tensor`; it lives as long as the source. `field` is the tensor's path. Errors: the region's, and
  // INVALID_ARGUMENT for what cannot come in shared memory or in chunks.
  absl::StatusOr<Bytes> Find(const v1::Tensor& tensor, std::string_view field, bool may_be_scattered);
  // The same for a block of the message. REQUIRES: there is one of that number.
  Bytes FindBlock(size_t number, bool may_be_scattered);
  absl::StatusOr<SharedBytes> FindOutput(const v1::SharedRange& range, std::string_view field);

  // FAILED_PRECONDITION when a client cut a region off while the call used it: its results mean nothing.
  absl::Status CheckRegions() const;

 private:
  // A tensor's bytes as they came, and in one piece once somebody needed that.
  struct Pieces {
    std::vector<Segment> segments;
    Buffer contiguous;
  };
  struct Chunked {
    std::string_view field;
    std::vector<Segment> awaited;  // one of no address, until the chunks are there
    std::vector<ReceivedBytes> bytes;
    Pieces pieces;
  };

  absl::StatusOr<RegionRange> Acquire(const v1::SharedRange& range, std::string_view field);
  Chunked* FindChunked(std::string_view field);
  Bytes FindPieces(Pieces& pieces, bool may_be_scattered);

  ReceivedBytes bytes_;
  std::vector<wire::Block> blocks_;
  bool in_message_ = true;
  BufferPool* buffers_ = nullptr;  // null: malloc
  SharedMemory shared_memory_;
  std::vector<Chunked> chunked_;
  std::vector<Pieces> pieces_;  // of the blocks, those that were asked for: a stream's defaults are asked for again
  std::vector<RegionRange> ranges_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_TENSOR_SOURCE_H_
