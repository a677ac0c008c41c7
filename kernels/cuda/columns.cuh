// Sets whose innermost extent is kept: how threads share out columns and positions, a thread having a few neighbouring
// columns of some positions in a row. Read by column_sums.cu and column_apply.cu.
#ifndef NORMD_KERNELS_CUDA_COLUMNS_CUH_
#define NORMD_KERNELS_CUDA_COLUMNS_CUH_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/partial_sums.h"
#include "kernels/summation_order.h"

namespace normd::cuda {

// Threads of a block where each takes columns, or tiles of them, one after the other.
inline constexpr int kColumnThreads = 128;

// `kColumns` neighbouring columns of one block of positions.
struct BlockPlace {
  int64_t k0 = 0, block = 0, column = 0;
};

template <int kColumns>
__host__ __device__ inline int64_t Tiles(const GroupWork& work) {
  return order::CeilDiv(work.Columns(), kColumns);
}

// Calls body(place) for what this thread has; neighbours have neighbouring columns. `blocks`: of each keep0.
template <int kColumns, typename Body>
__device__ __forceinline__ void ForBlocks(const GroupWork& work, int64_t blocks, Body body) {
  const int64_t tiles = Tiles<kColumns>(work);
  const int64_t items = work.keep0 * blocks * tiles;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x; item < items;
       item += static_cast<int64_t>(gridDim.x) * kColumnThreads) {
    const Division row = Divide(item, tiles);
    const Division block = Divide(row.quotient, blocks);
    body(BlockPlace{block.quotient, block.remainder, row.remainder * kColumns});
  }
}

template <int kColumns>
inline LaunchShape BlocksShape(const DeviceLimits& limits, const GroupWork& work, int64_t blocks) {
  return {.blocks = EnoughBlocks(limits, work.keep0 * blocks * Tiles<kColumns>(work), kColumnThreads),
          .threads = kColumnThreads};
}

// Element `column` of position `p`.
__device__ __forceinline__ int64_t IndexOf(const GroupWork& work, int64_t k0, int64_t p, int64_t column) {
  return (k0 * work.reduce0 + p) * work.Columns() + column;
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_COLUMNS_CUH_
