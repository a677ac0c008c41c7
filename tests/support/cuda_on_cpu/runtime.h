// The CUDA runtime API, as far as normd calls it, with CUDA's names, values and errors. Read through <cuda_runtime.h>.
// Everything runs at once: streams and events only keep their rules, unless a test holds events
// (cuda_on_cpu::HoldEvents). Threads: safe from any; the last error is the calling thread's own. Ownership: memory,
// streams, events and opened handles are the caller's, as with CUDA; what is not given back is counted (cuda_on_cpu.h).
// Functions have C++ names, so that a program may link the real runtime, too.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_RUNTIME_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_RUNTIME_H_

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/support/cuda_on_cpu/language.h"

// The names are CUDA's.
// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier)

// name, value, CUDA's words for it.
#define CUDA_ON_CPU_ERRORS(ERROR)                                                                               \
  ERROR(cudaSuccess, 0, "no error")                                                                             \
  ERROR(cudaErrorInvalidValue, 1, "invalid argument")                                                           \
  ERROR(cudaErrorMemoryAllocation, 2, "out of memory")                                                          \
  ERROR(cudaErrorInitializationError, 3, "initialization error")                                                \
  ERROR(cudaErrorCudartUnloading, 4, "driver shutting down")                                                    \
  ERROR(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                     \
  ERROR(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                                            \
  ERROR(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                               \
  ERROR(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")        \
  ERROR(cudaErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable")                   \
  ERROR(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                                          \
  ERROR(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                           \
  ERROR(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                                  \
  ERROR(cudaErrorDeviceUninitialized, 201, "invalid device context")                                            \
  ERROR(cudaErrorMapBufferObjectFailed, 205, "mapping of buffer object failed")                                 \
  ERROR(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device")       \
  ERROR(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                                  \
  ERROR(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                         \
  ERROR(cudaErrorNotReady, 600, "device not ready")                                                             \
  ERROR(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                               \
  ERROR(cudaErrorTooManyPeers, 711, "peer mapping resources exhausted")                                         \
  ERROR(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")                          \
  ERROR(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                                 \
  ERROR(cudaErrorMisalignedAddress, 716, "misaligned address")                                                  \
  ERROR(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                              \
  ERROR(cudaErrorNotPermitted, 800, "operation not permitted")                                                  \
  ERROR(cudaErrorNotSupported, 801, "operation not supported")                                                  \
  ERROR(cudaErrorSystemNotReady, 802, "system not yet initialized")                                             \
  ERROR(cudaErrorInvalidClusterSize, 912, "a kernel launch error has occurred due to cluster misconfiguration") \
  ERROR(cudaErrorUnknown, 999, "unknown error")

enum cudaError : int {
#define CUDA_ON_CPU_ENUMERATOR(name, value, words) name = value,
  CUDA_ON_CPU_ERRORS(CUDA_ON_CPU_ENUMERATOR)
#undef CUDA_ON_CPU_ENUMERATOR
};
using cudaError_t = cudaError;

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();  // and forgets it, unless it is sticky
cudaError_t cudaPeekAtLastError();

// Devices.
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major;
  int minor;
  int multiProcessorCount;
  size_t sharedMemPerBlock;
  size_t sharedMemPerBlockOptin;
  int l2CacheSize;
};
enum cudaDeviceAttr {
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMemoryPoolsSupported = 115,
  cudaDevAttrClusterLaunch = 120,
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);

// Streams and events.
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
inline constexpr unsigned cudaStreamDefault = 0;
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0;
inline constexpr unsigned cudaEventBlockingSync = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaEventInterprocess = 4;  // with cudaEventDisableTiming only
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaEventDestroy(cudaEvent_t event);

// Memory.
enum cudaMemcpyKind : int {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2 };
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
};
inline constexpr unsigned cudaHostAllocDefault = 0;
inline constexpr unsigned cudaHostAllocPortable = 1;
inline constexpr unsigned cudaHostAllocMapped = 2;
inline constexpr unsigned cudaHostAllocWriteCombined = 4;
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
using cudaMemPool_t = struct CUmemPoolHandle_st*;
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);  // of memory of a pool only
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* to, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer);

template <typename T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <typename T>
cudaError_t cudaMallocHost(T** memory, size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(memory), bytes);
}
template <typename T>
cudaError_t cudaHostAlloc(T** memory, size_t bytes, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(memory), bytes, flags);
}

// Memory of another process: here, only of this one. A handle that this process did not make cannot be opened.
struct cudaIpcMemHandle_t {
  char reserved[64];
};
inline constexpr unsigned cudaIpcMemLazyEnablePeerAccess = 1;
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory);
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void* memory);
struct cudaIpcEventHandle_t {
  char reserved[64];
};
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event);  // of an interprocess event only
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle);

// Launches.
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14,
};
enum cudaLaunchAttributeID { cudaLaunchAttributeIgnore = 0, cudaLaunchAttributeClusterDimension = 4 };
union cudaLaunchAttributeValue {
  struct {
    unsigned x, y, z;
  } clusterDim;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

namespace cuda_on_cpu {

cudaError_t SetKernelAttribute(const void* kernel, cudaFuncAttribute attribute, int value);

cudaError_t CountClusters(int* clusters, const cudaLaunchConfig_t* config, const void* kernel);

// Checks as CUDA does, then runs body(arguments) once in every thread of the grid.
cudaError_t LaunchKernel(const cudaLaunchConfig_t* config, const void* kernel, void (*body)(void*), void* arguments);

template <typename... Parameters>
struct Call {
  void (*kernel)(Parameters...);
  std::tuple<std::decay_t<Parameters>...> arguments;

  // Each thread has its own copy of the parameters.
  static void Run(void* call) { std::apply(static_cast<Call*>(call)->kernel, static_cast<Call*>(call)->arguments); }
};

}  // namespace cuda_on_cpu

template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cuda_on_cpu::SetKernelAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <typename... Parameters>
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, void (*kernel)(Parameters...),
                                           const cudaLaunchConfig_t* config) {
  return cuda_on_cpu::CountClusters(clusters, config, reinterpret_cast<const void*>(kernel));
}

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  cuda_on_cpu::Call<Parameters...> call{kernel, {std::forward<Arguments>(arguments)...}};
  return cuda_on_cpu::LaunchKernel(config, reinterpret_cast<const void*>(kernel), call.Run, &call);
}

// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_RUNTIME_H_
