// Host tensors on their way to the device and back, through a few pinned pieces of memory: while one piece is copied by
// the device, the next is filled or emptied. Tensors that are small share a piece, and a copy.
// In the path: a worker of the backend's uses one for each job list. Thread-compatible.
#ifndef NORMD_KERNELS_CUDA_STAGING_H_
#define NORMD_KERNELS_CUDA_STAGING_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace normd::cuda {

// Where tensors of a job list lie one behind the other, each aligned.
class Layout {
 public:
  // The offset of `bytes` more.
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

// Host bytes that belong at `offset` of a Layout.
struct HostBytes {
  int64_t offset = 0;
  char* data = nullptr;  // only read on the way to the device
  int64_t size_bytes = 0;
};

class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Pins the memory. Once, before the others.
  absl::Status Start();

  // Copies `parts`, which are in order of offset, to `device`. Returns when all host bytes have been read; the stream
  // goes on.
  absl::Status Upload(absl::Span<const HostBytes> parts, char* device, cudaStream_t stream);
  // Copies `parts` from `device`. Returns when they are there, and so all of the stream is done.
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
