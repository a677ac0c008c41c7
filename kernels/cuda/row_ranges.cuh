// Finds the job that a row of a launch belongs to.
// In the path: included by the kernels that take rows of several jobs (fused_rows.cu, register_rows.cu,
// staged_rows.cu). Pure functions.
#ifndef NORMD_KERNELS_CUDA_ROW_RANGES_CUH_
#define NORMD_KERNELS_CUDA_ROW_RANGES_CUH_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace normd::cuda {

// The range that row `row` of the launch lies in.
__device__ __forceinline__ const RowRange& RangeOf(const RowLaunch& launch, int64_t row) {
  int low = 0;
  int high = launch.range_count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (launch.ranges[middle].first_row <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return launch.ranges[low];
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_ROW_RANGES_CUH_
