// The size of a device allocation: the one function of the CUDA driver's interface that the runtime's lacks. It stands
// apart, so that no other file needs <cuda.h>. libcuda is not linked, because a build with CUDA must start on machines
// without a driver.
// In the path: ipc.cc calls it when shared CUDA memory is registered. Threads: safe from any thread.
#ifndef NORMD_KERNELS_CUDA_ALLOCATION_SIZE_H_
#define NORMD_KERNELS_CUDA_ALLOCATION_SIZE_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace normd {

// The number of bytes from `data` to the end of its allocation. UNAVAILABLE if the driver does not say. REQUIRES: the
// thread's current device is the one that `data` lies on.
absl::StatusOr<int64_t> CudaBytesFrom(const void* data);

}  // namespace normd

#endif  // NORMD_KERNELS_CUDA_ALLOCATION_SIZE_H_
