// The first shift of a statistics group of narrow elements, about which its parts are summed: what of its elements
// decides it, in rows and in columns, FAST and EXACT. It is cheap enough for every kernel that needs it to calculate
// it, where a launch of its own would cost more.
// In the path: included by the kernels that sum parts (rows.cu, column_sums.cu), by the one that finishes groups
// (statistics.cu) and by the one that does both (column_groups.cu). Device functions.
#ifndef NORMD_KERNELS_CUDA_FIRST_SHIFT_CUH_
#define NORMD_KERNELS_CUDA_FIRST_SHIFT_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/summation_order.h"

namespace normd::cuda {

__device__ __forceinline__ double FiniteOrZero(double x) { return std::isfinite(x) ? x : 0; }

// The index of the first element of a group.
__device__ __forceinline__ int64_t FirstOf(const GroupWork& work, int64_t k0, int64_t k1) {
  return (k0 * work.reduce0 * work.keep1 + k1) * work.reduce1;
}

// The first element that counts, of the group whose first element has index `first`; 0 if it is not finite.
__device__ __forceinline__ double FirstCounted(const GroupWork& work, int64_t first) {
  const auto [r0, r1] = work.columns ? Division{work.first_counted, 0} : Divide(work.first_counted, work.reduce1);
  return FiniteOrZero(ElementAt(work.x, first + r0 * work.keep1 * work.reduce1 + r1));
}

// The shift for the group in rows whose first element has index `first`. All lanes call it and have the result.
template <typename T, int kLanes>
__device__ __forceinline__ double RowShift(LaneGroup<kLanes> lanes, const GroupWork& work, Precision precision,
                                           int64_t first) {
  if (work.mask != nullptr) return FirstCounted(work, first);
  const auto* const x = static_cast<const typename T::Storage*>(work.x.data) + first;
  if (precision == Precision::kFast) return FastShiftOf(T(), lanes, x, work.statistic_reduce1);
  return ExactShiftOf(work.statistic_reduce1, [&](int64_t i) { return LoadAs<double>(T(), x + i); });
}

// A sample of a group in columns (FAST): the sum of its first positions, and how many elements entered it.
struct ColumnSample {
  double sum = 0;
  int64_t count = 0;

  // Adds the next column of the group.
  __device__ __forceinline__ void Add(const ColumnSample& column) {
    sum += column.sum;
    count += column.count;
  }
  // The same for several adjacent columns, one after the other.
  __device__ __forceinline__ void Add(const ColumnSample* columns, int64_t columns_count) {
#pragma unroll 8
    for (int64_t c = 0; c < columns_count; ++c) Add(columns[c]);
  }
  // The shift. `first` is the index of the group's first element; it decides if no position of the sample counts.
  __device__ __forceinline__ double Shift(const GroupWork& work, int64_t first) const {
    if (count == 0) return FirstCounted(work, first);
    return FiniteOrZero(static_cast<float>(sum / static_cast<double>(count)));
  }
};

// The part of one column in the sample, its elements added in the order of positions. `column` is among all columns.
template <typename T>
__device__ __forceinline__ ColumnSample SampleColumn(const GroupWork& work, int64_t k0, int64_t column) {
  constexpr int kSample = static_cast<int>(order::kFastColumnSample);
  const int positions = static_cast<int>(work.reduce0 < kSample ? work.reduce0 : kSample);
  const auto* const x =
      static_cast<const typename T::Storage*>(work.x.data) + k0 * work.reduce0 * work.Columns() + column;
  float own[kSample];
#pragma unroll
  for (int p = 0; p < kSample; ++p) own[p] = p < positions ? LoadAs<float>(T(), x + p * work.Columns()) : 0;
  ColumnSample sample;
#pragma unroll
  for (int p = 0; p < kSample; ++p) {
    if (p >= positions || (work.mask != nullptr && work.mask[p] == 0)) continue;
    sample.sum += own[p];
    ++sample.count;
  }
  return sample;
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_FIRST_SHIFT_CUH_
