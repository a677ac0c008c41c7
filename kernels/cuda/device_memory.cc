#include "kernels/cuda/device_memory.h"

#include "kernels/cuda/status.h"

namespace normd::cuda {

absl::StatusOr<DeviceMemory> DeviceMemory::Of(int device, int64_t kept_bytes) {
  int has_pool = 0;
  NORMD_CUDA_RETURN_STATUS(cudaDeviceGetAttribute(&has_pool, cudaDevAttrMemoryPoolsSupported, device),
                           "cudaDeviceGetAttribute");
  DeviceMemory memory;
  if (has_pool == 0) return memory;
  cudaMemPool_t pool = nullptr;
  NORMD_CUDA_RETURN_STATUS(cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool");
  // By default the pool gives everything back to the device whenever a stream is synchronised, that is after each list.
  auto threshold = static_cast<uint64_t>(kept_bytes);
  NORMD_CUDA_RETURN_STATUS(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
                           "cudaMemPoolSetAttribute");
  memory.has_pool_ = true;
  return memory;
}

absl::StatusOr<void*> DeviceMemory::Take(int64_t bytes, cudaStream_t stream) const {
  void* taken = nullptr;
  const auto size = static_cast<size_t>(bytes);
  if (has_pool_) {
    NORMD_CUDA_RETURN_STATUS(cudaMallocAsync(&taken, size, stream), "cudaMallocAsync");
  } else {
    NORMD_CUDA_RETURN_STATUS(cudaMalloc(&taken, size), "cudaMalloc");
  }
  return taken;
}

void DeviceMemory::GiveBack(void* memory, cudaStream_t stream) const {
  if (memory == nullptr) return;
  if (has_pool_) {
    cudaFreeAsync(memory, stream);
  } else {
    cudaFree(memory);
  }
}

}  // namespace normd::cuda
