// The sums of one part of a group of narrow elements, straight from memory: a chunk of a row by a lane group, or a
// block of one column by one thread. See kernels/summation_order.h for the order, and kernels.h for GroupWork.
// In the path: rows.cu and column_sums.cu sum all parts with it, statistics.cu those of the few groups that are summed
// again. Device functions.
#ifndef NORMD_KERNELS_CUDA_PART_SUMS_CUH_
#define NORMD_KERNELS_CUDA_PART_SUMS_CUH_

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/summation_order.h"

namespace normd::cuda {

// Folds values that come one after the other, at most 2^kLevels, pairwise by index. The values kept at any time are
// those of the binary digits of the count so far.
template <int kLevels>
class PairwiseStack {
 public:
  // Adds the next value. REQUIRES: `index` counts the calls from 0.
  __device__ __forceinline__ void Push(int64_t index, double value) {
    bool moving = true;
#pragma unroll
    for (int level = 0; level <= kLevels; ++level) {
      if (!moving) continue;
      if (level < kLevels && (index >> level & 1) != 0) {
        value = kept_[level] + value;
      } else {
        kept_[level] = value;
        moving = false;
      }
    }
  }
  // The fold of the `count` values that were added; 0 if there are none.
  __device__ __forceinline__ double Total(int64_t count) const {
    double total = 0;
    bool any = false;
#pragma unroll
    for (int level = 0; level <= kLevels; ++level) {
      if ((count >> level & 1) == 0) continue;
      total = any ? kept_[level] + total : kept_[level];
      any = true;
    }
    return total;
  }

 private:
  double kept_[kLevels + 1] = {};
};

// The place of one chunk of a group.
struct ChunkPlace {
  int64_t group = 0;
  int64_t part = 0;   // index in work.parts
  int64_t first = 0;  // index of the first element in x
  int64_t mask = 0;   // index of the first byte in the mask
  int n = 0;          // elements
};

// The place of chunk `item`; chunks are numbered in the order of memory.
__device__ __forceinline__ ChunkPlace ChunkOf(const GroupWork& work, int64_t item) {
  const int64_t of_segment = order::RowChunks(work.statistic_reduce1);
  const Division segment = of_segment == 1 ? Division{item, 0} : Divide(item, of_segment);
  const Division row = Divide(segment.quotient, work.keep1);
  const Division group_row = Divide(row.quotient, work.reduce0);
  const int64_t at = segment.remainder * order::kRowChunk;
  const int64_t group = group_row.quotient * work.keep1 + row.remainder;
  const int64_t left = work.statistic_reduce1 - at;
  return {.group = group,
          .part = (group * work.reduce0 + group_row.remainder) * of_segment + segment.remainder,
          .first = segment.quotient * work.reduce1 + at,
          .mask = group_row.remainder * work.reduce1 + at,
          .n = static_cast<int>(left < order::kRowChunk ? left : order::kRowChunk)};
}

// The sums of a chunk about `shift`. The first lane has the result.
template <typename T, typename Real, bool kCentred, int kLanes>
__device__ __forceinline__ PairSums SumNarrowChunk(LaneGroup<kLanes> lanes, const GroupWork& work,
                                                   const ChunkPlace& place, Real shift) {
  const bool is_abs = work.statistic == Statistic::kAbsSum;
  const auto* const x = static_cast<const typename T::Storage*>(work.x.data) + place.first;
  if (work.mask == nullptr) {
    const auto take = [&](int i, NarrowSums<Real>& sums) {
      const Real value = LoadAs<Real>(T(), x + i);
      sums.template Take<kCentred>(kCentred ? value - shift : value, is_abs);
    };
    return SumChunk<kCentred, NarrowSums<Real>>(lanes, place.n, take);
  }
  const uint8_t* const mask = work.mask + place.mask;
  const auto take = [&](int i, NarrowSums<Real>& sums) {
    if (mask[i] == 0) return;
    const Real value = LoadAs<Real>(T(), x + i);
    sums.template Take<kCentred>(kCentred ? value - shift : value, is_abs);
  };
  return SumChunk<kCentred, NarrowSums<Real>>(lanes, place.n, take);
}

// True if position p enters the statistics.
__device__ __forceinline__ bool Counts(const GroupWork& work, int64_t p) {
  return work.mask == nullptr || work.mask[p] != 0;
}

// The sums of one column of a block of positions about `shift`.
template <typename T, typename Real, bool kCentred>
__device__ __forceinline__ NarrowPart SumNarrowColumn(const GroupWork& work, int64_t k0, int64_t block, int64_t column,
                                                      Real shift) {
  constexpr bool kInF32 = std::is_same_v<Real, float>;
  const bool is_abs = work.statistic == Statistic::kAbsSum;
  const int64_t begin = block * order::kColumnBlock;
  const int64_t left = work.reduce0 - begin;
  const int positions = static_cast<int>(left < order::kColumnBlock ? left : order::kColumnBlock);
  const auto* const x =
      static_cast<const typename T::Storage*>(work.x.data) + (k0 * work.reduce0 + begin) * work.Columns() + column;
  NarrowSums<Real> even, odd;
  NarrowPart total;
  int in_run = 0;
  const auto flush = [&] {
    total.first += static_cast<double>(even.first + odd.first);
    total.second += static_cast<double>(even.second + odd.second);
    even = odd = {};
    in_run = 0;
  };
  for (int p = 0; p < positions; ++p) {
    if (!Counts(work, begin + p)) continue;
    const Real value = LoadAs<Real>(T(), x + p * work.Columns());
    const Real diff = kCentred ? value - shift : value;
    if (kInF32 && in_run % 2 != 0) {
      odd.template Take<kCentred>(diff, is_abs);
    } else {
      even.template Take<kCentred>(diff, is_abs);
    }
    if (kInF32 && ++in_run == order::kFastColumnRun) flush();
  }
  if constexpr (!kInF32) return {even.first, even.second};
  if (in_run != 0) flush();
  return total;
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_PART_SUMS_CUH_
