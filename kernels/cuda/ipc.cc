#include "kernels/cuda/ipc.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/allocation_size.h"

namespace normd {
namespace {

// What a handle names: the field that brings the handle, and what the field must hold.
struct HandleKind {
  const char* field;
  const char* limit;
};
constexpr HandleKind kMemory = {"cuda.ipc_handle", "a handle of memory that another process has on the device"};
constexpr HandleKind kEvent = {
    "cuda.event_handle",
    "a handle of an event that another process made with cudaEventInterprocess and cudaEventDisableTiming"};

absl::Status HandleError(const HandleKind& kind, std::string_view what) {
  return OutOfRangeError(kind.field, what, kind.limit, KernelReason("BAD_CUDA_HANDLE"));
}

// Copies the bytes of `handle` into `copy`, which is one of CUDA's handle types.
template <typename Handle>
absl::Status CopyHandle(const HandleKind& kind, std::string_view handle, Handle* copy) {
  if (handle.size() != sizeof(*copy)) {
    return HandleError(kind, absl::StrCat(handle.size(), " bytes instead of ", sizeof(*copy)));
  }
  std::memcpy(copy, handle.data(), sizeof(*copy));
  return absl::OkStatus();
}

absl::Status DeviceError(int device, std::string_view limit) {
  return OutOfRangeError("cuda.device", absl::StrCat(device), limit, KernelReason("CUDA_DEVICE"));
}

// Removes an error from the runtime's record, where the next launch on this thread would find it, and describes it.
std::string TakeErrorText(cudaError_t error, std::string_view call) {
  cudaGetLastError();
  return absl::StrCat(std::string(call), ": ", cudaGetErrorString(error));
}

// Sorts the error of a call on a handle, or on what the handle names, into the caller's mistakes and the others.
absl::Status ToStatus(cudaError_t error, std::string_view call, const HandleKind& kind = kMemory) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text = TakeErrorText(error, call);
  switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorMapBufferObjectFailed:
    case cudaErrorDeviceUninitialized:  // the error for a handle of this process itself
      return HandleError(kind, text);
    case cudaErrorMemoryAllocation:
    case cudaErrorTooManyPeers:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

// Makes `device` the thread's current one. It stays so, because to set the device that was current before creates a
// context there if it has none: hundreds of MiB of a device that the server may not even use.
absl::Status SetDevice(int device) {
  const cudaError_t error = cudaSetDevice(device);
  if (error != cudaErrorInvalidDevice) return ToStatus(error, "cudaSetDevice");
  cudaGetLastError();
  return DeviceError(device, "a device of this machine");
}

// The size of memory that was opened. Memory of another device is reachable through its peer, but not for the kernels
// of `device`, and is refused.
absl::StatusOr<CudaIpcMemory> Measure(void* data, int device) {
  cudaPointerAttributes attributes = {};
  NORMD_RETURN_IF_ERROR(ToStatus(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes"));
  if (attributes.device != device) {
    return DeviceError(device, absl::StrCat(attributes.device, ", where the handle's memory lies"));
  }
  NORMD_ASSIGN_OR_RETURN(const int64_t size_bytes, CudaBytesFrom(data));
  return CudaIpcMemory{data, size_bytes};
}

}  // namespace

absl::StatusOr<CudaIpcMemory> OpenCudaIpc(std::string_view handle, int device) {
  cudaIpcMemHandle_t copy;
  NORMD_RETURN_IF_ERROR(CopyHandle(kMemory, handle, &copy));
  NORMD_RETURN_IF_ERROR(SetDevice(device));
  void* data = nullptr;
  NORMD_RETURN_IF_ERROR(
      ToStatus(cudaIpcOpenMemHandle(&data, copy, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle"));
  absl::StatusOr<CudaIpcMemory> memory = Measure(data, device);
  // The first error is the one to report.
  if (!memory.ok()) ToStatus(cudaIpcCloseMemHandle(data), "cudaIpcCloseMemHandle").IgnoreError();
  return memory;
}

absl::Status CloseCudaIpc(void* data, int device) {
  NORMD_RETURN_IF_ERROR(SetDevice(device));
  return ToStatus(cudaIpcCloseMemHandle(data), "cudaIpcCloseMemHandle");
}

absl::StatusOr<void*> OpenCudaIpcEvent(std::string_view handle, int device) {
  cudaIpcEventHandle_t copy;
  NORMD_RETURN_IF_ERROR(CopyHandle(kEvent, handle, &copy));
  NORMD_RETURN_IF_ERROR(SetDevice(device));
  cudaEvent_t event = nullptr;
  NORMD_RETURN_IF_ERROR(ToStatus(cudaIpcOpenEventHandle(&event, copy), "cudaIpcOpenEventHandle", kEvent));
  return event;
}

absl::StatusOr<bool> IsCudaIpcEventCompleted(void* event, int device) {
  NORMD_RETURN_IF_ERROR(SetDevice(device));
  const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (error == cudaErrorNotReady) return false;
  if (error == cudaSuccess) return true;
  return absl::UnavailableError(TakeErrorText(error, "cudaEventQuery"));
}

absl::Status CloseCudaIpcEvent(void* event, int device) {
  NORMD_RETURN_IF_ERROR(SetDevice(device));
  return ToStatus(cudaEventDestroy(static_cast<cudaEvent_t>(event)), "cudaEventDestroy", kEvent);
}

}  // namespace normd
