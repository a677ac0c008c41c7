#include "tests/support/cuda_on_cpu/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tests/support/cuda_on_cpu/launch.h"
#include "tests/support/cuda_on_cpu/report.h"
#include "tests/support/cuda_on_cpu/state.h"

namespace {

using cuda_on_cpu::Api;
using cuda_on_cpu::CurrentDevice;
using cuda_on_cpu::Device;
using cuda_on_cpu::IsDevice;
using cuda_on_cpu::IsStream;
using cuda_on_cpu::ReleasingApi;
using cuda_on_cpu::State;

constexpr int kSharedBytes = 48 * 1024;  // without cudaFuncSetAttribute
constexpr int kL2Bytes = 50 << 20;
constexpr int kVersion = 13000;

cudaError_t CheckStream(const char* api_name, cudaStream_t stream) {
  return Api(api_name,
             [&](State& state) { return IsStream(state, stream) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

// What lies in a cudaIpcEventHandle_t.
struct EventHandle {
  int64_t process = 0;
  uint64_t number = 0;
};
static_assert(sizeof(EventHandle) <= sizeof(cudaIpcEventHandle_t));

// One value that the device has.
template <typename T>
cudaError_t Tell(const char* api_name, T* to, T value) {
  return Api(api_name, [&](State&) {
    if (to == nullptr) return cudaErrorInvalidValue;
    *to = value;
    return cudaSuccess;
  });
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define CUDA_ON_CPU_NAME(name, value, words) \
  case name:                                 \
    return #name;
    CUDA_ON_CPU_ERRORS(CUDA_ON_CPU_NAME)
#undef CUDA_ON_CPU_NAME
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define CUDA_ON_CPU_WORDS(name, value, words) \
  case name:                                  \
    return words;
    CUDA_ON_CPU_ERRORS(CUDA_ON_CPU_WORDS)
#undef CUDA_ON_CPU_WORDS
  }
  return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError() {
  State& state = cuda_on_cpu::TheState();
  const std::lock_guard lock(state.mutex);
  return state.lost != cudaSuccess ? state.lost : cuda_on_cpu::LastError();
}

cudaError_t cudaGetLastError() {
  const cudaError_t last = cudaPeekAtLastError();
  cuda_on_cpu::LastError() = cudaSuccess;
  return last;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return Api("cudaGetDeviceCount", [&](State& state) {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = state.devices;
    return cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* device) { return Tell("cudaGetDevice", device, CurrentDevice()); }
cudaError_t cudaDriverGetVersion(int* version) { return Tell("cudaDriverGetVersion", version, kVersion); }
cudaError_t cudaRuntimeGetVersion(int* version) { return Tell("cudaRuntimeGetVersion", version, kVersion); }
cudaError_t cudaDeviceSynchronize() { return CheckStream("cudaDeviceSynchronize", nullptr); }

cudaError_t cudaSetDevice(int device) {
  return Api("cudaSetDevice", [&](State& state) {
    if (!IsDevice(state, device)) return cudaErrorInvalidDevice;
    state.contexts.insert(device);
    CurrentDevice() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Api("cudaGetDeviceProperties", [&](State& state) {
    if (properties == nullptr) return cudaErrorInvalidValue;
    if (!IsDevice(state, device)) return cudaErrorInvalidDevice;
    const Device& has = state.device;
    *properties = {"CUDA on the CPU",
                   has.memory_bytes,
                   has.major,
                   has.minor,
                   has.sms,
                   kSharedBytes,
                   static_cast<size_t>(has.shared_optin_bytes),
                   kL2Bytes};
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return Api("cudaDeviceGetAttribute", [&](State& state) {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!IsDevice(state, device)) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = kSharedBytes;
        return cudaSuccess;
      case cudaDevAttrMultiProcessorCount:
        *value = state.device.sms;
        return cudaSuccess;
      case cudaDevAttrL2CacheSize:
        *value = kL2Bytes;
        return cudaSuccess;
      case cudaDevAttrMemoryPoolsSupported:
        *value = state.device.has_memory_pools ? 1 : 0;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = state.device.major;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = state.device.minor;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = state.device.shared_optin_bytes;
        return cudaSuccess;
      case cudaDevAttrClusterLaunch:
        *value = state.device.major >= 9 ? 1 : 0;
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return Api("cudaStreamCreateWithFlags", [&](State& state) {
    if (stream == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = new CUstream_st{.device = CurrentDevice()};
    state.streams.insert(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return ReleasingApi("cudaStreamDestroy", [&](State& state) {
    if (state.streams.erase(stream) == 0) return cudaErrorInvalidResourceHandle;
    delete stream;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return CheckStream("cudaStreamSynchronize", stream); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return CheckStream("cudaStreamQuery", stream); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return Api("cudaStreamWaitEvent", [&](State& state) {
    if (!IsStream(state, stream) || !state.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (event->record->held) cuda_on_cpu::Die("a stream waits for an event that is held: streams run at once");
    return flags == 0 ? cudaSuccess : cudaErrorInvalidValue;
  });
}

namespace {

cudaError_t CreateEvent(const char* api_name, cudaEvent_t* event, unsigned flags) {
  return Api(api_name, [&](State& state) {
    constexpr unsigned kAll = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    const bool timed = (flags & cudaEventDisableTiming) == 0;
    const bool interprocess = (flags & cudaEventInterprocess) != 0;
    if (event == nullptr || flags > kAll || (interprocess && timed)) return cudaErrorInvalidValue;
    *event = new CUevent_st{
        .timed = timed,
        .interprocess = interprocess,
        .record = std::make_shared<cuda_on_cpu::EventRecord>(cuda_on_cpu::EventRecord{.number = ++state.events_made})};
    state.events.insert(*event);
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t cudaEventCreate(cudaEvent_t* event) { return CreateEvent("cudaEventCreate", event, cudaEventDefault); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return CreateEvent("cudaEventCreateWithFlags", event, flags);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Api("cudaEventRecord", [&](State& state) {
    if (!state.events.contains(event) || !IsStream(state, stream)) return cudaErrorInvalidResourceHandle;
    event->record->recorded = true;
    event->record->held = state.holds_events;
    event->record->at = std::chrono::steady_clock::now();
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Api("cudaEventSynchronize", [&](State& state) {
    if (!state.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (event->record->held) cuda_on_cpu::Die("a thread waits for an event that is held");
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Api("cudaEventQuery", [&](State& state) {
    if (!state.events.contains(event)) return cudaErrorInvalidResourceHandle;
    return event->record->held ? cudaErrorNotReady : cudaSuccess;
  });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return Api("cudaIpcGetEventHandle", [&](State& state) {
    if (handle == nullptr) return cudaErrorInvalidValue;
    if (!state.events.contains(event) || !event->interprocess) return cudaErrorInvalidResourceHandle;
    const EventHandle value{getpid(), event->record->number};
    *handle = {};
    std::memcpy(handle->reserved, &value, sizeof(value));
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return Api("cudaIpcOpenEventHandle", [&](State& state) {
    if (event == nullptr) return cudaErrorInvalidValue;
    EventHandle value;
    std::memcpy(&value, handle.reserved, sizeof(value));
    const auto found = std::find_if(state.events.begin(), state.events.end(), [&](const CUevent_st* made) {
      return made->interprocess && made->record->number == value.number;
    });
    if (value.process != getpid() || found == state.events.end()) return cudaErrorInvalidResourceHandle;
    *event = new CUevent_st{.timed = false, .interprocess = false, .record = (*found)->record};
    state.events.insert(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return Api("cudaEventElapsedTime", [&](State& state) {
    if (milliseconds == nullptr) return cudaErrorInvalidValue;
    for (const cudaEvent_t event : {start, end}) {
      if (!state.events.contains(event) || !event->timed || !event->record->recorded)
        return cudaErrorInvalidResourceHandle;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->record->at - start->record->at).count();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return ReleasingApi("cudaEventDestroy", [&](State& state) {
    if (state.events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

namespace cuda_on_cpu {

cudaError_t SetKernelAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return Api("cudaFuncSetAttribute", [&](State& state) {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    KernelLimits& limits = state.kernels[kernel];
    if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
      limits.large_clusters = value != 0;
      return cudaSuccess;
    }
    if (value < 0 || value > state.device.shared_optin_bytes) return cudaErrorInvalidValue;
    limits.shared_bytes = value;
    return cudaSuccess;
  });
}

namespace {

dim3 ClusterOf(const cudaLaunchConfig_t& config) {
  dim3 cluster;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id != cudaLaunchAttributeClusterDimension) continue;
    const auto& size = config.attrs[i].val.clusterDim;
    cluster = dim3(size.x, size.y, size.z);
  }
  return cluster;
}

cudaError_t CheckCluster(const Device& device, const KernelLimits& limits, const dim3& grid, const dim3& cluster) {
  const unsigned long long blocks = 1ull * cluster.x * cluster.y * cluster.z;
  if (blocks == 1) return cudaSuccess;
  if (device.major < 9) return cudaErrorNotSupported;
  if (blocks == 0 || grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    return cudaErrorInvalidConfiguration;
  }
  if (blocks > (limits.large_clusters ? 16 : 8)) return cudaErrorInvalidClusterSize;
  return device.clusters == 0 ? cudaErrorLaunchOutOfResources : cudaSuccess;
}

cudaError_t CheckLaunch(const State& state, const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 0xffff || grid.z > 0xffff ||
      block.x == 0 || block.y == 0 || block.z == 0 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      block.x * block.y * block.z > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  if (!IsStream(state, config.stream)) return cudaErrorInvalidResourceHandle;
  if (config.stream != nullptr && config.stream->device != CurrentDevice()) return cudaErrorInvalidResourceHandle;
  const auto found = state.kernels.find(kernel);
  const KernelLimits limits = found == state.kernels.end() ? KernelLimits{} : found->second;
  const int shared_limit = std::min(std::max(kSharedBytes, limits.shared_bytes), state.device.shared_optin_bytes);
  if (config.dynamicSmemBytes > static_cast<size_t>(shared_limit)) return cudaErrorInvalidValue;
  return CheckCluster(state.device, limits, grid, ClusterOf(config));
}

}  // namespace

cudaError_t CountClusters(int* clusters, const cudaLaunchConfig_t* config, const void* kernel) {
  return Api("cudaOccupancyMaxActiveClusters", [&](State& state) {
    if (clusters == nullptr || config == nullptr) return cudaErrorInvalidValue;
    const cudaError_t error = CheckLaunch(state, *config, kernel);
    if (error != cudaSuccess && error != cudaErrorLaunchOutOfResources) return error;
    *clusters = state.device.clusters;
    return cudaSuccess;
  });
}

cudaError_t LaunchKernel(const cudaLaunchConfig_t* config, const void* kernel, void (*body)(void*), void* arguments) {
  Launch launch{.kernel = kernel, .body = body, .arguments = arguments};
  const cudaError_t checked = Api("cudaLaunchKernelEx", [&](State& state) {
    if (config == nullptr) return cudaErrorInvalidValue;
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    const cudaError_t error = CheckLaunch(state, *config, kernel);
    if (error != cudaSuccess) return error;
    launch.seed = state.seed;
    ++state.launches;
    return cudaSuccess;
  });
  if (checked != cudaSuccess) return checked;
  launch.grid = config->gridDim;
  launch.block = config->blockDim;
  launch.cluster = ClusterOf(*config);
  launch.shared_bytes = config->dynamicSmemBytes;
  if (1.0 * launch.grid.x * launch.grid.y * launch.grid.z > 0x1p31) Die("a grid of more than 2^31 blocks");
  Run(launch);
  return cudaSuccess;
}

}  // namespace cuda_on_cpu
