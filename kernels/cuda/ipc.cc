#include "kernels/cuda/ipc.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/cuda/allocation_size.h"

namespace normd {
namespace {

absl::Status HandleError(std::string_view what) {
  return OutOfRangeError("cuda.ipc_handle", what, "a handle of memory that another process has on the device",
                         KernelReason("BAD_CUDA_HANDLE"));
}

absl::Status DeviceError(int device, std::string_view limit) {
  return OutOfRangeError("cuda.device", absl::StrCat(device), limit, KernelReason("CUDA_DEVICE"));
}

// Sorts a CUDA error into the caller's mistakes and the others. Removes the error from the runtime's record, where the
// next launch on this thread would find it.
absl::Status ToStatus(cudaError_t error, std::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  const std::string text = absl::StrCat(std::string(call), ": ", cudaGetErrorString(error));
  switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorMapBufferObjectFailed:
    case cudaErrorDeviceUninitialized:  // the error for a handle of this process itself
      return HandleError(text);
    case cudaErrorMemoryAllocation:
    case cudaErrorTooManyPeers:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

// Makes `device` the thread's current one, for a scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    known_ = cudaGetDevice(&before_) == cudaSuccess;
    error_ = cudaSetDevice(device);
  }
  ~CurrentDevice() {
    if (known_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool known_ = false;
  cudaError_t error_ = cudaSuccess;
};

absl::Status SetDeviceStatus(cudaError_t error, int device) {
  if (error != cudaErrorInvalidDevice) return ToStatus(error, "cudaSetDevice");
  cudaGetLastError();
  return DeviceError(device, "a device of this machine");
}

// The size of memory that was opened. Memory of another device is reachable through its peer, but not for the kernels
// of `device`, and is refused.
absl::StatusOr<CudaIpcMemory> Measure(void* data, int device) {
  cudaPointerAttributes attributes = {};
  absl::Status status = ToStatus(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  if (!status.ok()) return status;
  if (attributes.device != device) {
    return DeviceError(device, absl::StrCat(attributes.device, ", where the handle's memory lies"));
  }
  absl::StatusOr<int64_t> size_bytes = CudaBytesFrom(data);
  if (!size_bytes.ok()) return std::move(size_bytes).status();
  return CudaIpcMemory{data, *size_bytes};
}

}  // namespace

absl::StatusOr<CudaIpcMemory> OpenCudaIpc(std::string_view handle, int device) {
  cudaIpcMemHandle_t copy;
  if (handle.size() != sizeof(copy)) {
    return HandleError(absl::StrCat(handle.size(), " bytes instead of ", sizeof(copy)));
  }
  std::memcpy(&copy, handle.data(), sizeof(copy));
  const CurrentDevice current(device);
  absl::Status status = SetDeviceStatus(current.error(), device);
  if (!status.ok()) return status;
  void* data = nullptr;
  status = ToStatus(cudaIpcOpenMemHandle(&data, copy, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
  if (!status.ok()) return status;
  absl::StatusOr<CudaIpcMemory> memory = Measure(data, device);
  // The first error is the one to report.
  if (!memory.ok()) ToStatus(cudaIpcCloseMemHandle(data), "cudaIpcCloseMemHandle").IgnoreError();
  return memory;
}

absl::Status CloseCudaIpc(void* data, int device) {
  const CurrentDevice current(device);
  absl::Status status = SetDeviceStatus(current.error(), device);
  if (!status.ok()) return status;
  return ToStatus(cudaIpcCloseMemHandle(data), "cudaIpcCloseMemHandle");
}

}  // namespace normd
