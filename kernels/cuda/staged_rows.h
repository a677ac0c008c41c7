// The rows that NormaliseRows of kernels.h leaves to another kernel.
// In the path: fused_rows.cu asks staged_rows.cu for them. Threads: safe from any thread, with one thread per stream.
#ifndef NORMD_KERNELS_CUDA_STAGED_ROWS_H_
#define NORMD_KERNELS_CUDA_STAGED_ROWS_H_

#include "kernels/cuda/kernels.h"

namespace normd::cuda {

// True if rows that fit on chip can be normalised as staged_rows.cu does.
bool FitsStaged(const RowLaunch& launch);
// Normalises such rows. REQUIRES: FitsOnChip and FitsStaged.
cudaError_t NormaliseStagedRows(const DeviceLimits& limits, const RowLaunch& launch, cudaStream_t stream);

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_STAGED_ROWS_H_
