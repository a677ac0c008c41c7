// The CUDA backend: the plans of kernels/norm.h on one NVIDIA GPU.
// In the path: behind server/batch, which gathers work for it and falls back from it. Two files implement the factory
// and the build links one: backend.cc where the CUDA Toolkit was found, no_cuda.cc where it was not.
// Threads: safe from any thread. Destroying a backend waits for submitted work.
#ifndef NORMD_KERNELS_CUDA_BACKEND_H_
#define NORMD_KERNELS_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace normd {

struct CudaBackendOptions {
  int device = 0;
  int streams = 3;
  int64_t max_device_bytes = 0;  // 0: half of what is free
};

// UNAVAILABLE with the reason where this build or machine has none. `host` prepares parameters and must outlive it.
// Submit fails with UNAVAILABLE when the device is lost, then for good, and with RESOURCE_EXHAUSTED when a job does not
// fit in its memory.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options, const Backend* host);

}  // namespace normd

#endif  // NORMD_KERNELS_CUDA_BACKEND_H_
