// Turns errors of the CUDA runtime into absl::Status.
// In the path: all host code of this folder returns its CUDA errors through it. Thread-safe.
#ifndef NORMD_KERNELS_CUDA_STATUS_H_
#define NORMD_KERNELS_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace normd::cuda {

// The text of an error, "cudaMalloc: cudaErrorMemoryAllocation (out of memory)". Removes the error from the runtime's
// record. `what` is the call that failed.
std::string ErrorText(cudaError_t error, std::string_view what);

// The status of a call: OK; RESOURCE_EXHAUSTED if memory is short; UNAVAILABLE if the device itself has failed, after
// which every later call of the process fails; else INTERNAL. `what` is the call.
absl::Status StatusOf(cudaError_t error, std::string_view what);

// Returns a CUDA error from the enclosing function, as a Status.
#define NORMD_CUDA_RETURN_STATUS(expression, what)                                               \
  do {                                                                                           \
    const cudaError_t normd_cuda_error = (expression);                                           \
    if (normd_cuda_error != cudaSuccess) return ::normd::cuda::StatusOf(normd_cuda_error, what); \
  } while (false)

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_STATUS_H_
