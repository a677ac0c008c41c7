// The CUDA backend: one GPU, its kernels and the way of tensors there and back. Two files implement it and the build
// links one: backend.cc where the CUDA Toolkit was found, no_cuda.cc where it was not. In the path: make_backend.cc
// makes it where a device is there; the device scheduler queues for it. Results are those of the CPU backend, bit for
// bit.
#ifndef NORMD_KERNELS_CUDA_BACKEND_H_
#define NORMD_KERNELS_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace normd {

struct CudaBackendOptions {
  int device = 0;
  int streams = 3;               // job lists at one time, so that copies and kernels overlap
  int64_t max_device_bytes = 0;  // 0: half of what is free
};

// UNAVAILABLE with the reason where this build or machine has no usable device. Destroying the backend waits
// for submitted work.
//
// Submit fails a job list with RESOURCE_EXHAUSTED where it does not fit in device memory, with UNAVAILABLE once the
// device is lost: then for good.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options);

}  // namespace normd

#endif  // NORMD_KERNELS_CUDA_BACKEND_H_
