// How large an allocation on a device is: the one thing of the driver's interface that the runtime's lacks. Apart, so
// that the rest needs no <cuda.h>. libcuda is not linked: a build with CUDA starts on machines without a driver.
// Threads: safe from any thread.
#ifndef NORMD_KERNELS_CUDA_ALLOCATION_SIZE_H_
#define NORMD_KERNELS_CUDA_ALLOCATION_SIZE_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace normd {

// Bytes from `data` to the end of the allocation that it lies in. REQUIRES: the device that `data` is of is the
// thread's current one. UNAVAILABLE where the driver does not say.
absl::StatusOr<int64_t> CudaBytesFrom(const void* data);

}  // namespace normd

#endif  // NORMD_KERNELS_CUDA_ALLOCATION_SIZE_H_
