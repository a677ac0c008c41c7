// The launches that the .cu files start for one another.
// In the path: statistics.cu asks rows.cu and column_sums.cu for the sums of the parts of statistics groups, and
// apply.cu asks column_apply.cu for the apply pass over columns. See kernels.h for GroupWork.
// Threads: safe from any thread, with one thread per stream; nothing here waits.
#ifndef NORMD_KERNELS_CUDA_PARTIAL_SUMS_H_
#define NORMD_KERNELS_CUDA_PARTIAL_SUMS_H_

#include "kernels/cuda/kernels.h"

namespace normd::cuda {

// Writes work.parts: of all groups of narrow elements, which are in their first round; of those groups of f64 elements
// that are in `round`. The parts of rows are [group][chunk], those of columns [keep0][part][column], where a part is
// work.fold blocks.
cudaError_t SumRowParts(const DeviceLimits& limits, const GroupWork& work, Round round, cudaStream_t stream);
cudaError_t SumColumnParts(const DeviceLimits& limits, const GroupWork& work, Round round, cudaStream_t stream);
// The number of blocks of positions that SumColumnParts makes one part of for narrow elements: the value that
// work.fold must have. A multiple of LeastFold, whose value work.fold has before.
int64_t FoldOf(const DeviceLimits& limits, const GroupWork& work);

// Writes work.magnitudes, for f64 elements.
cudaError_t MeasureRows(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream);
cudaError_t MeasureColumns(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream);

// True if the apply pass over columns takes whole vectors of them, and work.given_variance, too: if rows of columns are
// such vectors, and if the blocks of threads have enough to do.
bool AreInWindows(const GroupWork& work, const ApplyWork& apply);
// The apply pass over narrow elements in Pattern::kColumns.
cudaError_t ApplyColumns(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                         cudaStream_t stream);

// The number of blocks for a kernel whose threads take item after item: enough for all items, but no more than fill the
// device.
inline int64_t EnoughBlocks(const DeviceLimits& limits, int64_t items, int64_t items_per_block) {
  const int64_t needed = items / items_per_block + (items % items_per_block != 0);
  const int64_t filled = int64_t{16} * limits.multiprocessors;
  return needed < filled ? needed : filled;
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_PARTIAL_SUMS_H_
