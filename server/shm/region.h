// One registered region: a mapped object of host memory, or open CUDA memory.
// In the path: RegionTable owns regions together with the ranges of requests.
// Threads: every method is safe from any thread.
#ifndef NORMD_SERVER_SHM_REGION_H_
#define NORMD_SERVER_SHM_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "kernels/tensor.h"
#include "server/shm/cuda_memory.h"
#include "server/shm/mapped_region.h"

namespace normd {

class Region {
 public:
  explicit Region(std::unique_ptr<const MappedRegion> mapped) : mapped_(std::move(mapped)) {}
  explicit Region(CudaRegion cuda) : cuda_(std::move(cuda)) {}

  // An address in space().
  std::byte* data() const { return cuda_.has_value() ? cuda_->data() : mapped_->data(); }
  int64_t size_bytes() const { return cuda_.has_value() ? cuda_->size_bytes() : mapped_->size_bytes(); }
  MemorySpace space() const { return cuda_.has_value() ? CudaSpace(cuda_->device()) : MemorySpace(); }

  // What a call that names this memory must wait for; null: nothing.
  const CudaEvent* event() const { return cuda_.has_value() ? cuda_->event() : nullptr; }

  // As in MappedRegion. CUDA memory cannot be checked: what becomes of it when its owner frees it is undefined.
  bool sealed() const { return mapped_ == nullptr || mapped_->sealed(); }
  bool truncated() const { return mapped_ != nullptr && mapped_->truncated(); }
  absl::Status CheckNotTruncated() const {
    return mapped_ == nullptr ? absl::OkStatus() : mapped_->CheckNotTruncated();
  }

 private:
  // Exactly one of the two is set.
  std::unique_ptr<const MappedRegion> mapped_;
  std::optional<CudaRegion> cuda_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SHM_REGION_H_
