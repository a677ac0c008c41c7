// Memory of the emulated device: heap of the exact size, full of junk, and what is known of each address.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>

#include "tests/support/cuda_on_cpu/launch.h"
#include "tests/support/cuda_on_cpu/runtime.h"
#include "tests/support/cuda_on_cpu/state.h"

namespace {

using cuda_on_cpu::Allocation;
using cuda_on_cpu::Api;
using cuda_on_cpu::IsStream;
using cuda_on_cpu::ReleasingApi;
using cuda_on_cpu::State;

struct Found {
  uintptr_t base = 0;
  Allocation allocation;
};

// The allocation in which `pointer` lies.
std::optional<Found> Find(const State& state, const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto after = state.allocations.upper_bound(address);
  if (after == state.allocations.begin()) return std::nullopt;
  const auto& [base, allocation] = *std::prev(after);
  if (address - base >= allocation.bytes) return std::nullopt;
  return Found{base, allocation};
}

bool IsDevice(const State& state, const void* pointer) {
  const std::optional<Found> found = Find(state, pointer);
  return found.has_value() && found->allocation.device;
}

// Whether `bytes` from `pointer` on lie in one allocation of the device.
bool IsDeviceRange(const State& state, const void* pointer, size_t bytes) {
  const std::optional<Found> found = Find(state, pointer);
  if (!found.has_value() || !found->allocation.device) return false;
  return bytes <= found->allocation.bytes - (reinterpret_cast<uintptr_t>(pointer) - found->base);
}

size_t DeviceBytes(const State& state) {
  size_t bytes = 0;
  for (const auto& [base, allocation] : state.allocations) bytes += allocation.device ? allocation.bytes : 0;
  return bytes;
}

enum class Kind { kHost, kDevice, kPool };

cudaError_t Allocate(const char* api_name, void** memory, size_t bytes, Kind kind, cudaStream_t stream = nullptr) {
  const bool device = kind != Kind::kHost;
  return Api(api_name, [&](State& state) {
    if (memory == nullptr) return cudaErrorInvalidValue;
    if (!IsStream(state, stream)) return cudaErrorInvalidResourceHandle;
    if (kind == Kind::kPool && !state.device.has_memory_pools) return cudaErrorNotSupported;
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (device && bytes > state.device.memory_bytes - DeviceBytes(state)) return cudaErrorMemoryAllocation;
    if (posix_memalign(memory, 256, bytes) != 0) return cudaErrorMemoryAllocation;
    // One byte for all: an allocation may be large. Never zero, and as float or half large or a NaN half of the time.
    std::memset(*memory, static_cast<int>(0x7f + (cuda_on_cpu::Mix(state.seed + state.allocations_made) & 0x80)),
                bytes);
    const bool pooled = kind == Kind::kPool;
    state.allocations[reinterpret_cast<uintptr_t>(*memory)] = {bytes, device, pooled, ++state.allocations_made};
    return cudaSuccess;
  });
}

cudaError_t Free(const char* api_name, void* memory, Kind kind, cudaStream_t stream = nullptr) {
  return ReleasingApi(api_name, [&](State& state) {
    if (!IsStream(state, stream)) return cudaErrorInvalidResourceHandle;
    if (memory == nullptr) return cudaSuccess;
    const auto found = state.allocations.find(reinterpret_cast<uintptr_t>(memory));
    if (found == state.allocations.end() || found->second.device != (kind != Kind::kHost)) return cudaErrorInvalidValue;
    if (kind == Kind::kPool && !found->second.pooled) return cudaErrorInvalidValue;
    state.allocations.erase(found);
    std::free(memory);
    return cudaSuccess;
  });
}

// What a copy of this kind asks of its ends: memory of the device where the kind says so, and enough of it.
bool EndFits(const State& state, const void* end, size_t bytes, bool is_device, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return !IsDevice(state, end) || IsDeviceRange(state, end, bytes);
  return is_device ? IsDeviceRange(state, end, bytes) : end != nullptr && !IsDevice(state, end);
}

cudaError_t Copy(const char* api_name, void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) {
  return Api(api_name, [&](State& state) {
    if (!IsStream(state, stream)) return cudaErrorInvalidResourceHandle;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (bytes == 0) return cudaSuccess;
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (!EndFits(state, to, bytes, to_device, kind) || !EndFits(state, from, bytes, from_device, kind)) {
      return cudaErrorInvalidValue;
    }
    std::memmove(to, from, bytes);
    if (kind == cudaMemcpyDeviceToHost) state.bytes_to_host += static_cast<int64_t>(bytes);
    return cudaSuccess;
  });
}

cudaError_t Set(const char* api_name, void* to, int value, size_t bytes, cudaStream_t stream) {
  return Api(api_name, [&](State& state) {
    if (!IsStream(state, stream)) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    if (!IsDeviceRange(state, to, bytes)) return cudaErrorInvalidValue;
    std::memset(to, value, bytes);
    return cudaSuccess;
  });
}

// What lies in a cudaIpcMemHandle_t.
struct Handle {
  int64_t process = 0;
  uintptr_t base = 0;
  uint64_t number = 0;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

}  // namespace

cudaError_t cudaMalloc(void** memory, size_t bytes) { return Allocate("cudaMalloc", memory, bytes, Kind::kDevice); }
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return Allocate("cudaMallocHost", memory, bytes, Kind::kHost);
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return Allocate("cudaHostAlloc", memory, bytes, Kind::kHost);
}
cudaError_t cudaFree(void* memory) { return Free("cudaFree", memory, Kind::kDevice); }
cudaError_t cudaFreeHost(void* memory) { return Free("cudaFreeHost", memory, Kind::kHost); }

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static CUmemPoolHandle_st the_pool;
  return Api("cudaDeviceGetDefaultMemPool", [&](State& state) {
    if (pool == nullptr) return cudaErrorInvalidValue;
    if (device != 0) return cudaErrorInvalidDevice;
    if (!state.device.has_memory_pools) return cudaErrorNotSupported;
    *pool = &the_pool;
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return Api("cudaMemPoolSetAttribute", [&](State&) {
    const bool known = attribute == cudaMemPoolAttrReleaseThreshold;
    return pool != nullptr && known && value != nullptr ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  return Allocate("cudaMallocAsync", memory, bytes, Kind::kPool, stream);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return Free("cudaFreeAsync", memory, Kind::kPool, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return Copy("cudaMemcpy", to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return Copy("cudaMemcpyAsync", to, from, bytes, kind, stream);
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) { return Set("cudaMemset", to, value, bytes, nullptr); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return Set("cudaMemsetAsync", to, value, bytes, stream);
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return Api("cudaMemGetInfo", [&](State& state) {
    if (free_bytes == nullptr || total_bytes == nullptr) return cudaErrorInvalidValue;
    *total_bytes = state.device.memory_bytes;
    *free_bytes = state.device.memory_bytes - DeviceBytes(state);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return Api("cudaPointerGetAttributes", [&](State& state) {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    void* same = const_cast<void*>(pointer);
    const std::optional<Found> found = Find(state, pointer);
    if (!found.has_value()) {
      *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, same};
    } else if (found->allocation.device) {
      *attributes = {cudaMemoryTypeDevice, 0, same, nullptr};
    } else {
      *attributes = {cudaMemoryTypeHost, 0, same, same};
    }
    return cudaSuccess;
  });
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  return Api("cudaIpcGetMemHandle", [&](State& state) {
    if (handle == nullptr || !IsDevice(state, memory)) return cudaErrorInvalidValue;
    const Found found = *Find(state, memory);
    const Handle value{getpid(), found.base, found.allocation.number};
    *handle = {};
    std::memcpy(handle->reserved, &value, sizeof(value));
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags) {
  return Api("cudaIpcOpenMemHandle", [&](State& state) {
    if (memory == nullptr || flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
    Handle value;
    std::memcpy(&value, handle.reserved, sizeof(value));
    const auto found = state.allocations.find(value.base);
    if (value.process != getpid() || found == state.allocations.end() || !found->second.device ||
        found->second.number != value.number) {
      return cudaErrorInvalidResourceHandle;
    }
    ++state.opened[value.base];
    *memory = reinterpret_cast<void*>(value.base);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
  return ReleasingApi("cudaIpcCloseMemHandle", [&](State& state) {
    const auto found = state.opened.find(reinterpret_cast<uintptr_t>(memory));
    if (found == state.opened.end()) return cudaErrorInvalidValue;
    if (--found->second == 0) state.opened.erase(found);
    return cudaSuccess;
  });
}
