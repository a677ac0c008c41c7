// Opens CUDA memory and CUDA events of other processes by their IPC handles.
// In the path: the registration of shared memory opens and closes; a request only asks whether an event has completed.
// Two files implement this header and the build links one of them: ipc.cc where the CUDA Toolkit was found, no_cuda.cc
// where it was not.
// Threads: safe from any thread but one that runs a CUDA callback. Opening and closing may take milliseconds. Every
// function leaves `device` the thread's current device, as cudaSetDevice does: restoring another one could create a
// context there. So a thread that uses CUDA otherwise sets its device before each use.
#ifndef NORMD_KERNELS_CUDA_IPC_H_
#define NORMD_KERNELS_CUDA_IPC_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace normd {

struct CudaIpcMemory {
  void* data = nullptr;    // on the device, for kernels of this process
  int64_t size_bytes = 0;  // from `data` to the end of the allocation
};

// Maps the allocation that `handle` names, which is the bytes of a cudaIpcMemHandle_t. INVALID_ARGUMENT naming
// "cuda.ipc_handle" if the handle has a wrong length or names no memory on `device`, and naming "cuda.device" if there
// is no such device or the memory lies on another one. FAILED_PRECONDITION in a build without CUDA. RESOURCE_EXHAUSTED
// and UNAVAILABLE as CUDA says. After an error nothing stays mapped. The caller must close the memory with
// CloseCudaIpc.
absl::StatusOr<CudaIpcMemory> OpenCudaIpc(std::string_view handle, int device);

// Unmaps `data`. After an error it may still be mapped. REQUIRES: OpenCudaIpc returned `data` for `device`, and no
// kernel uses it any more.
absl::Status CloseCudaIpc(void* data, int device);

// Opens the event that `handle` names, which is the bytes of a cudaIpcEventHandle_t, for use on `device`.
// INVALID_ARGUMENT naming "cuda.event_handle" if the handle has a wrong length or names no event of another process,
// and naming "cuda.device" if there is no such device. FAILED_PRECONDITION in a build without CUDA. RESOURCE_EXHAUSTED
// and UNAVAILABLE as CUDA says. After an error nothing stays open. The caller must close the event with
// CloseCudaIpcEvent.
absl::StatusOr<void*> OpenCudaIpcEvent(std::string_view handle, int device);

// Whether everything that the other process put on its stream before it last recorded the event has completed; true for
// an event that was never recorded. Asks the device and does not wait for it, some microseconds. UNAVAILABLE if CUDA
// cannot tell. REQUIRES: OpenCudaIpcEvent returned `event` for `device`.
absl::StatusOr<bool> IsCudaIpcEventCompleted(void* event, int device);

// Closes `event`, whether or not it has completed. REQUIRES: as above, and nobody uses the event any more.
absl::Status CloseCudaIpcEvent(void* event, int device);

}  // namespace normd

#endif  // NORMD_KERNELS_CUDA_IPC_H_
