#include "tests/device/bench/copy.h"

#include "kernels/cuda/device.h"

namespace normd::bench {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // a thread: enough loads in flight

// A block's vectors lie together; those past the last whole vector are bytes.
__global__ void __launch_bounds__(kThreads) CopyKernel(const uint4* from, uint4* to, int64_t vectors, int tail) {
  cuda::WaitForLaunchBefore();
  const int64_t begin = int64_t{blockIdx.x} * (kThreads * kVectors) + threadIdx.x;
  uint4 held[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (begin + i * kThreads < vectors) held[i] = __ldcs(from + begin + i * kThreads);
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (begin + i * kThreads < vectors) __stcs(to + begin + i * kThreads, held[i]);
  }
  if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < tail) {
    reinterpret_cast<unsigned char*>(to + vectors)[threadIdx.x] =
        reinterpret_cast<const unsigned char*>(from + vectors)[threadIdx.x];
  }
}

}  // namespace

cudaError_t CopyBytes(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  constexpr int64_t kVectorBytes = sizeof(uint4);
  constexpr int64_t kBlockVectors = kThreads * kVectors;
  const int64_t vectors = bytes / kVectorBytes;
  const int64_t blocks = vectors < kBlockVectors ? 1 : (vectors + kBlockVectors - 1) / kBlockVectors;
  return cuda::Launch({.blocks = blocks, .threads = kThreads}, stream, CopyKernel, static_cast<const uint4*>(from),
                      static_cast<uint4*>(to), vectors, static_cast<int>(bytes % kVectorBytes));
}

}  // namespace normd::bench
