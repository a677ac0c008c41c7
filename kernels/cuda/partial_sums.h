// The sums of the parts of statistics groups, one launch each: what statistics.cu asks of rows.cu and column_sums.cu;
// and what apply.cu asks of column_apply.cu. See kernels.h for GroupWork.
#ifndef NORMD_KERNELS_CUDA_PARTIAL_SUMS_H_
#define NORMD_KERNELS_CUDA_PARTIAL_SUMS_H_

#include "kernels/cuda/kernels.h"

namespace normd::cuda {

// work.parts of the groups that are in `round`. Rows: [set][segment][chunk]; columns: [keep0][part][column],
// a part being `fold` blocks.
cudaError_t SumRowParts(const DeviceLimits& limits, const GroupWork& work, Round round, cudaStream_t stream);
cudaError_t SumColumnParts(const DeviceLimits& limits, const GroupWork& work, Round round, cudaStream_t stream);
// How many blocks of columns SumColumnParts makes one part of in `round`: what work.fold has to say.
int64_t FoldOf(const DeviceLimits& limits, const GroupWork& work, Round round);

// work.magnitudes, of f64.
cudaError_t MeasureRows(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream);
cudaError_t MeasureColumns(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream);

// The elements of y of narrow groups in columns: each thread keeps the statistics of its own.
cudaError_t ApplyColumns(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                         cudaStream_t stream);

// Enough blocks to fill the device, for kernels whose threads take item after item.
inline int64_t EnoughBlocks(const DeviceLimits& limits, int64_t items, int64_t items_per_block) {
  const int64_t needed = items / items_per_block + (items % items_per_block != 0);
  const int64_t filled = int64_t{16} * limits.multiprocessors;
  return needed < filled ? needed : filled;
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_PARTIAL_SUMS_H_
