// The sums of one part of a group of narrow elements, straight from memory: a chunk of a row by a lane group, or a
// block of one column by one thread. See kernels/summation_order.h for the order, and kernels.h for GroupWork.
// In the path: rows.cu and column_sums.cu sum all parts with it, statistics.cu those of the few groups that are summed
// again; column_groups.cu adds its parts with it. Device functions; RowCut is for the host, too.
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

// Folds the parts of(i), 0 <= i < count, pairwise by index. There are at least one and at most four of them.
template <typename Part, typename Of, typename AddTo>
__device__ __forceinline__ Part FoldFour(int count, Of of, AddTo add) {
  Part low, high;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const Part part = of(i);
    // Not by a reference to either half, which would put both in memory.
    if (i == 0) {
      low = part;
    } else if (i == 1) {
      add(low, part);
    } else if (i == 2) {
      high = part;
    } else {
      add(high, part);
    }
  }
  if (count > 2) add(low, high);
  return low;
}

struct AddNarrow {
  __device__ __forceinline__ void operator()(NarrowPart& a, const NarrowPart& b) const {
    a.first += b.first;
    a.second += b.second;
  }
};
struct AddWide {
  __device__ __forceinline__ void operator()(PairSums& a, const PairSums& b) const { AddPairs(a, b); }
};

// True if the last chunk of a row of `length` elements is so short that it belongs to those who have the chunk before
// it (an image of 56x56 is 3 chunks and 64 elements): by itself it would keep a warp from work for a fraction of the
// time.
__host__ __device__ constexpr bool HasShortTail(int64_t length) {
  const int64_t tail = length % order::kRowChunk;
  return length > order::kRowChunk && tail != 0 && tail <= order::kRowChunk / 4;
}

// How the groups of a plan in rows are cut into chunks.
struct RowCut {
  int64_t of_segment = 1;  // chunks of a segment
  int64_t of_group = 1;    // chunks of a group
  int chunk_segments = 1;  // segments of a chunk
  int step_segments = 1;   // segments of a step of FAST
  int64_t runs = 1;        // of chunk_segments segments, in a group

  static __host__ __device__ RowCut Of(const GroupWork& work) {
    RowCut cut;
    cut.of_segment = order::RowChunks(work.statistic_reduce1);
    cut.of_group = order::GroupChunks(work.reduce0, work.statistic_reduce1);
    cut.chunk_segments = static_cast<int>(order::ChunkSegments(work.statistic_reduce1));
    cut.step_segments = static_cast<int>(order::StepSegments(work.statistic_reduce1));
    cut.runs = order::CeilDiv(work.reduce0, cut.chunk_segments);
    return cut;
  }
};

// The place of one chunk of a group.
struct ChunkPlace {
  int64_t group = 0;
  int64_t part = 0;         // index in work.parts
  int64_t group_first = 0;  // index in x of the group's first element
  int64_t first = 0;        // and of the chunk's
  int64_t mask = 0;         // index of the first byte in the mask
  int segments = 1;         // parts of segments, work.keep1 * work.reduce1 elements apart
  int n = 0;                // elements of each
};

// The place of chunk `index` of a run; runs are numbered in the order of memory.
__device__ __forceinline__ ChunkPlace ChunkOf(const GroupWork& work, const RowCut& cut, int64_t run, int64_t index) {
  const Division row = Divide(run, work.keep1);
  const Division group_run = Divide(row.quotient, cut.runs);
  const int64_t r0 = group_run.remainder * cut.chunk_segments;
  const int64_t at = index * order::kRowChunk;
  const int64_t group = group_run.quotient * work.keep1 + row.remainder;
  const int64_t segments = work.reduce0 - r0;
  const int64_t left = work.statistic_reduce1 - at;
  const int64_t group_first = (group_run.quotient * work.reduce0 * work.keep1 + row.remainder) * work.reduce1;
  return {.group = group,
          .part = (group * cut.runs + group_run.remainder) * cut.of_segment + index,
          .group_first = group_first,
          .first = group_first + r0 * work.keep1 * work.reduce1 + at,
          .mask = r0 * work.reduce1 + at,
          .segments = segments < cut.chunk_segments ? static_cast<int>(segments) : cut.chunk_segments,
          .n = static_cast<int>(left < order::kRowChunk ? left : order::kRowChunk)};
}

// The sums of a chunk, in which `take(at, mask_at, sums)` adds the element that lies `at` elements behind the chunk's
// first one, and whose byte of the mask lies `mask_at` behind the first. The first lane has the result.
template <bool kCentred, typename Sums, int kLanes, typename Take>
__device__ __forceinline__ PairSums SumPlace(LaneGroup<kLanes> lanes, const GroupWork& work, const RowCut& cut,
                                             const ChunkPlace& place, Take take) {
  if (place.segments == 1) {
    return SumChunk<kCentred, Sums>(lanes, place.n, [&](int i, Sums& sums) { take(int64_t{i}, int64_t{i}, sums); });
  }
  const int64_t stride = work.keep1 * work.reduce1;
  return SumShortSegments<kCentred, Sums>(
      lanes, place.segments, place.n, cut.step_segments,
      [&](int segment, int i, Sums& sums) { take(segment * stride + i, segment * work.reduce1 + i, sums); });
}

// The sums of a chunk about `shift`. The first lane has the result.
template <typename T, typename Real, bool kCentred, int kLanes>
__device__ __forceinline__ PairSums SumNarrowChunk(LaneGroup<kLanes> lanes, const GroupWork& work, const RowCut& cut,
                                                   const ChunkPlace& place, Real shift) {
  const bool is_abs = work.statistic == Statistic::kAbsSum;
  const auto* const x = static_cast<const typename T::Storage*>(work.x.data) + place.first;
  const auto take = [&](int64_t at, NarrowSums<Real>& sums) {
    const Real value = LoadAs<Real>(T(), x + at);
    sums.template Take<kCentred>(kCentred ? value - shift : value, is_abs);
  };
  if (work.mask == nullptr) {
    return SumPlace<kCentred, NarrowSums<Real>>(
        lanes, work, cut, place, [&](int64_t at, int64_t /*mask_at*/, NarrowSums<Real>& sums) { take(at, sums); });
  }
  const uint8_t* const mask = work.mask + place.mask;
  return SumPlace<kCentred, NarrowSums<Real>>(lanes, work, cut, place,
                                              [&](int64_t at, int64_t mask_at, NarrowSums<Real>& sums) {
                                                if (mask[mask_at] != 0) take(at, sums);
                                              });
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
