// The barriers of the blocks of threads that share a row or a group: a cluster of blocks, or one block alone. Code for
// less than 9.0 has no clusters.
// In the path: included by the kernels whose rows or groups may have several blocks. Device functions; all threads of
// the blocks call them, with the number of blocks.
#ifndef NORMD_KERNELS_CUDA_CLUSTER_CUH_
#define NORMD_KERNELS_CUDA_CLUSTER_CUH_

#include <cooperative_groups.h>

#include "kernels/cuda/device.h"

namespace normd::cuda {

// Synchronises all threads of the blocks.
__device__ __forceinline__ void MeetBlocks([[maybe_unused]] int blocks) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (blocks > 1) return cooperative_groups::this_cluster().sync();
#endif
  __syncthreads();
}

// The end of a block whose shared memory others may still read: nothing waits where there are no others.
__device__ __forceinline__ void LeaveBlocks([[maybe_unused]] int blocks) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if (blocks > 1) cooperative_groups::this_cluster().sync();
#endif
}

// LeaveBlocks in two parts, with work between them. kReleases: the other threads see after WaitToLeave what this thread
// wrote before ArriveToLeave.
template <bool kReleases>
__device__ __forceinline__ void ArriveToLeave([[maybe_unused]] int blocks) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (blocks <= 1) return;
  if constexpr (kReleases) {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  } else {
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  }
#endif
}
__device__ __forceinline__ void WaitToLeave([[maybe_unused]] int blocks) {
#if !defined(__CUDA_ARCH__)
  LeaveBlocks(blocks);
#elif __CUDA_ARCH__ >= 900
  if (blocks > 1) asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_CLUSTER_CUH_
