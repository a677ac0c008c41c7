// Pattern::kColumns on a GPU (the innermost extent is kept): how threads share columns and positions. A thread has a
// few adjacent columns of some consecutive positions.
// In the path: included by column_sums.cu, column_apply.cu and column_groups.cu. Pure functions.
#ifndef NORMD_KERNELS_CUDA_COLUMNS_CUH_
#define NORMD_KERNELS_CUDA_COLUMNS_CUH_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/partial_sums.h"
#include "kernels/summation_order.h"

namespace normd::cuda {

// Threads of a block in kernels whose threads take columns, or tiles of columns, one after the other.
inline constexpr int kColumnThreads = 128;

// A tile of adjacent columns, from `column` on, of one block of positions.
struct BlockPlace {
  int64_t k0 = 0, block = 0, column = 0;
};

// The number of tiles of kColumns columns that cover a row.
template <int kColumns>
__host__ __device__ inline int64_t Tiles(const GroupWork& work) {
  return order::CeilDiv(work.Columns(), kColumns);
}

// Calls body(place) for each tile of this thread; adjacent threads have adjacent columns. `blocks` is the number of
// blocks of positions of each keep0.
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

// The launch of a kernel that calls ForBlocks with the same `blocks`.
template <int kColumns>
inline LaunchShape BlocksShape(const DeviceLimits& limits, const GroupWork& work, int64_t blocks) {
  return {.blocks = EnoughBlocks(limits, work.keep0 * blocks * Tiles<kColumns>(work), kColumnThreads),
          .threads = kColumnThreads};
}

// The index of the element in column `column` of position `p`.
__device__ __forceinline__ int64_t IndexOf(const GroupWork& work, int64_t k0, int64_t p, int64_t column) {
  return (k0 * work.reduce0 + p) * work.Columns() + column;
}

// The index of the parameters of a column.
__device__ __forceinline__ int64_t ParameterOfColumn(const GroupWork& work, const ApplyWork& apply, int64_t column) {
  if (apply.parameters.absent()) return 0;
  if (work.reduce1 == 1) return column * apply.index.channels_per_keep1;
  const auto [k1, r1] = Divide(column, work.reduce1);
  return k1 * apply.index.channels_per_keep1 + Divide(r1, apply.index.channel_run).quotient;
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_COLUMNS_CUH_
