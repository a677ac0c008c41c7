// CUDA memory of other processes, by IPC handle: what shared memory on a device is opened with.
// In the path: registering shared memory, never a request. Two files implement it and the build links one: ipc.cc where
// the CUDA Toolkit was found, no_cuda.cc where it was not.
// Threads: safe from any thread but one that runs a CUDA callback; each may take milliseconds, and leaves the thread's
// current device as it was.
#ifndef NORMD_KERNELS_CUDA_IPC_H_
#define NORMD_KERNELS_CUDA_IPC_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace normd {

struct CudaIpcMemory {
  void* data = nullptr;    // on the device; kernels of this process may use it
  int64_t size_bytes = 0;  // from `data` to the end of the allocation
};

// Maps the allocation that `handle`, the bytes of a cudaIpcMemHandle_t, names. INVALID_ARGUMENT naming
// "cuda.ipc_handle" for one that names no memory on `device` or has another length, and "cuda.device" for a device that
// there is not; RESOURCE_EXHAUSTED, UNAVAILABLE as CUDA says. Nothing is left open then.
absl::StatusOr<CudaIpcMemory> OpenCudaIpc(std::string_view handle, int device);

// REQUIRES: no kernel uses `data`, which OpenCudaIpc gave for `device`. An error means that it may still be mapped.
absl::Status CloseCudaIpc(void* data, int device);

}  // namespace normd

#endif  // NORMD_KERNELS_CUDA_IPC_H_
