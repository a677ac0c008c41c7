// Device memory for job lists, from the device's pool: cudaMalloc and cudaFree wait for every stream of the device, and
// the requests of other streams would wait with them.
// In the path: arena.cc and prepared_parameters.cc take memory here. Thread-safe: a value without state.
#ifndef NORMD_KERNELS_CUDA_DEVICE_MEMORY_H_
#define NORMD_KERNELS_CUDA_DEVICE_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace normd::cuda {

// A stream that is destroyed with its owner.
struct StreamCloser {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
using OwnedStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamCloser>;

class DeviceMemory {
 public:
  // The memory of `device`, whose pool keeps up to `kept_bytes` that were given back. A device without a pool (some
  // virtual ones) serves by cudaMalloc. Errors are those of StatusOf.
  static absl::StatusOr<DeviceMemory> Of(int device, int64_t kept_bytes);

  // Returns uninitialised memory, aligned to 256 bytes, for work that is added to `stream` afterwards, or to any stream
  // after `stream` was synchronised. RESOURCE_EXHAUSTED if the device has no room, else what StatusOf says. REQUIRES:
  // the device is current.
  absl::StatusOr<void*> Take(int64_t bytes, cudaStream_t stream) const;
  // Takes back what Take returned, or null. REQUIRES: the device is current; only work that is already in `stream` uses
  // the memory.
  void GiveBack(void* memory, cudaStream_t stream) const;

 private:
  bool has_pool_ = false;
};

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_DEVICE_MEMORY_H_
