// Finds the bytes of the tensors of one received message: in the transport's slices, in shared memory, or, for a
// message that only the full parser understands, in the message itself. Copies only tensors that came scattered and
// must be contiguous.
// In the path: made with the parsed message, used by DecodeTensor, kept until the call is answered.
// Threads: one thread resolves the tensors before the call starts; after that, CheckRegions and EventsCompleted are
// safe from any thread.
#ifndef NORMD_SERVER_RPC_CODEC_TENSOR_SOURCE_H_
#define NORMD_SERVER_RPC_CODEC_TENSOR_SOURCE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tensor.h"
#include "normd/v1/tensor.pb.h"
#include "proto/wire/split.h"
#include "server/base/buffer.h"
#include "server/base/slice.h"
#include "server/engine/call.h"
#include "server/shm/region_table.h"

namespace normd::rpc {

// Received bytes into which tensors point.
class ReceivedBytes {
 public:
  ReceivedBytes() = default;
  explicit ReceivedBytes(MessageBytes bytes);

  absl::Span<const Segment> segments() const { return segments_; }
  // The bytes of `block`, with the same owners.
  MessageBytes PartOf(const wire::Block& block) const;

 private:
  MessageBytes bytes_;
  std::vector<Segment> segments_;
};

class TensorSource {
 public:
  // The shared memory that a caller may name. Used only while decoding.
  struct SharedMemory {
    const RegionTable* regions = nullptr;  // null: none
    std::string_view refusal;              // why there is none
    std::string tenant = {};               // the caller's
  };

  // Says that the message's `data` fields hold numbers of `blocks` in `bytes`, instead of the tensors' bytes. Call this
  // before anything is resolved.
  void SetBlocks(ReceivedBytes bytes, std::vector<wire::Block> blocks);
  void SetBuffers(BufferPool* buffers) { buffers_ = buffers; }
  void SetSharedMemory(const SharedMemory& shared_memory) { shared_memory_ = shared_memory; }
  // Announces a `chunked` payload whose chunks have not come yet. Until then, its tensor resolves to scattered bytes
  // without an address, which must not be read but suffice to validate a call. `field` must be a literal.
  void AwaitChunked(std::string_view field, int64_t size_bytes);
  // Provides the bytes of an awaited payload, in order, or in one block. REQUIRES: the size is the announced one.
  void AddChunked(std::string_view field, std::vector<ReceivedBytes> bytes);
  void AddChunked(std::string_view field, Buffer contiguous);
  // The bytes of this message's chunk, whose field is `data`; they may outlive the source.
  MessageBytes TakeChunk(const std::string& data) const;

  struct Bytes {
    const void* data = nullptr;  // null when absent or scattered
    int64_t size_bytes = 0;
    absl::Span<const Segment> segments = {};
    MemorySpace space = {};  // where `data` lies
  };
  // Finds the payload of `tensor`, whose path is `field`. The bytes live as long as the source. Returns the errors of
  // the region, and INVALID_ARGUMENT for a tensor that may not be in shared memory or in chunks.
  absl::StatusOr<Bytes> Find(const v1::Tensor& tensor, std::string_view field, bool may_be_scattered);
  // Finds a block of the message. REQUIRES: the message has a block of that number.
  Bytes FindBlock(size_t number, bool may_be_scattered);
  // Finds the shared memory for an output, with the errors of Find.
  absl::StatusOr<SharedBytes> FindOutput(const v1::SharedRange& range, std::string_view field);

  // Returns FAILED_PRECONDITION when a client has truncated one of the regions that the call uses: its results are then
  // meaningless.
  absl::Status CheckRegions() const;

  // Whether any shared memory that was found has a CUDA event, and whether all of these events have completed. Empty
  // ranges do not count. Error: that of CudaEvent::completed.
  bool has_events() const { return !events_.empty(); }
  absl::StatusOr<bool> EventsCompleted() const;

 private:
  // A tensor's bytes as received, and gathered into one block once that was needed.
  struct Pieces {
    std::vector<Segment> segments;
    Buffer contiguous;
  };
  struct Chunked {
    std::string_view field;
    std::vector<Segment> awaited;  // one segment without an address until the chunks have come
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
  std::vector<Pieces> pieces_;  // of each block found so far; the blocks of a stream's defaults are found repeatedly
  std::vector<RegionRange> ranges_;
  std::vector<const CudaEvent*> events_;  // of `ranges_`, which keep them open; each once
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_TENSOR_SOURCE_H_
