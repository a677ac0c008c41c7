// Moves host tensors to the device and back through a few pinned pieces of memory: while the device copies one piece,
// the next is filled or emptied. Small tensors share a piece, and a copy.
// In the path: job_list.cc uploads and downloads each job list with it. Thread-compatible: each stream worker has its
// own.
#ifndef NORMD_KERNELS_CUDA_STAGING_H_
#define NORMD_KERNELS_CUDA_STAGING_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace normd::cuda {

// The places of the tensors of a job list in one block of device memory, each aligned.
class Layout {
 public:
  // Adds a tensor of `bytes` bytes and returns its offset.
  int64_t Add(int64_t bytes) {
    const int64_t offset = size_bytes_;
    size_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  static constexpr int64_t kAlignment = 256;
  int64_t size_bytes_ = 0;
};

// Borrowed host bytes whose place is `offset` of a Layout.
struct HostBytes {
  int64_t offset = 0;
  char* data = nullptr;  // only read by uploads
  int64_t size_bytes = 0;
};

class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Allocates the pinned memory. Called once, before the other methods.
  absl::Status Start();

  // Copies `parts`, which are in the order of their offsets, to `device`. Returns when all host bytes have been read;
  // the stream may still be copying.
  absl::Status Upload(absl::Span<const HostBytes> parts, char* device, cudaStream_t stream);
  // Copies `parts`, in the same order, from `device`. Returns when all host bytes have been written; the stream has
  // then done all its work.
  absl::Status Download(absl::Span<const HostBytes> parts, const char* device, cudaStream_t stream);

 private:
  static constexpr int kPieces = 4;
  static constexpr int64_t kPieceBytes = int64_t{4} << 20;

  struct Piece {
    char* data = nullptr;
    cudaEvent_t done = nullptr;
    bool in_use = false;
  };
  absl::Status Wait(Piece* piece);

  Piece pieces_[kPieces];
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_STAGING_H_
