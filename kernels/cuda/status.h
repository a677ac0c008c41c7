// What the CUDA runtime says, as a Status. Thread-safe.
#ifndef NORMD_KERNELS_CUDA_STATUS_H_
#define NORMD_KERNELS_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace normd::cuda {

// "cudaMalloc: cudaErrorMemoryAllocation (out of memory)". Takes the error off the runtime's record.
std::string ErrorText(cudaError_t error, std::string_view what);

// OK; RESOURCE_EXHAUSTED for memory; else INTERNAL, or UNAVAILABLE where the device itself has failed: after such an
// error every later call of the process fails. `what` was tried.
absl::Status StatusOf(cudaError_t error, std::string_view what);

// Returns what fails, as a Status.
#define NORMD_CUDA_RETURN_STATUS(expression, what)                                               \
  do {                                                                                           \
    const cudaError_t normd_cuda_error = (expression);                                           \
    if (normd_cuda_error != cudaSuccess) return ::normd::cuda::StatusOf(normd_cuda_error, what); \
  } while (false)

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_STATUS_H_
