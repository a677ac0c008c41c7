// The CUDA backend: one GPU, its kernels, and the transfer of tensors to it and back. Two files implement this header
// and the build links one of them: backend.cc where the CUDA Toolkit was found, no_cuda.cc where it was not.
// In the path: make_backend.cc makes a backend for each device in use, the device scheduler queues for it. Results are
// those of the CPU backend, bit for bit.
#ifndef NORMD_KERNELS_CUDA_BACKEND_H_
#define NORMD_KERNELS_CUDA_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/nearest.h"

namespace normd {

struct CudaBackendOptions {
  int device = 0;
  int streams = 3;               // stream workers: job lists that run at one time, so that copies and kernels overlap
  int64_t max_device_bytes = 0;  // scratch of all stream workers together; 0: half of the free memory
  NearestOptions nearest = {};
};

// Makes the backend of options.device. UNAVAILABLE with the reason if this build or this machine has no such device
// that is usable. The destructor of the backend waits for submitted work.
//
// Submit fails a job list with RESOURCE_EXHAUSTED if it does not fit in device memory, or what the device leaves to the
// host does not fit in the host's, and with UNAVAILABLE once the device is lost, from then on for good.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options);

}  // namespace normd

#endif  // NORMD_KERNELS_CUDA_BACKEND_H_
