#include "tests/device/planted_kernels.h"

#include <cuda_runtime.h>

namespace normd {
namespace {

template <Barriers kBarriers>
__global__ void __launch_bounds__(1024) Neighbours(int rounds, uint32_t* __restrict__ out) {
  NORMD_DYNAMIC_SHARED(shared);
  uint32_t* const numbers = reinterpret_cast<uint32_t*>(shared);
  uint32_t sum = threadIdx.x + 1;
  for (int round = 0; round < rounds; ++round) {
    numbers[threadIdx.x] = sum;
    if constexpr (kBarriers != Barriers::kAfterReading) __syncthreads();
    sum = sum * 3 + numbers[(threadIdx.x + blockDim.x - 1) % blockDim.x];
    if constexpr (kBarriers != Barriers::kBeforeReading) __syncthreads();
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace

int LaunchNeighbours(Barriers barriers, int blocks, int threads, int rounds, uint32_t* out) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(threads) * sizeof(uint32_t);
  switch (barriers) {
    case Barriers::kBoth:
      return cudaLaunchKernelEx(&config, Neighbours<Barriers::kBoth>, rounds, out);
    case Barriers::kBeforeReading:
      return cudaLaunchKernelEx(&config, Neighbours<Barriers::kBeforeReading>, rounds, out);
    case Barriers::kAfterReading:
      return cudaLaunchKernelEx(&config, Neighbours<Barriers::kAfterReading>, rounds, out);
  }
  return cudaErrorInvalidValue;
}

}  // namespace normd
