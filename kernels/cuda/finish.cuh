// From the sums of a group's parts to its statistics: folding the parts, finishing the sums, the decision whether to
// sum again. See kernels.h for GroupWork and GroupState.
// In the path: statistics.cu finishes groups with it, column_groups.cu those that it also sums and applies, and the
// apply pass (apply.cu, column_apply.cu) those that were given statistics. Device functions.
#ifndef NORMD_KERNELS_CUDA_FINISH_CUH_
#define NORMD_KERNELS_CUDA_FINISH_CUH_

#include <cstdint>
#include <limits>

#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {

// The threads that fold together: a warp, or a block.
struct WarpThreads {
  static __device__ __forceinline__ int Index() { return static_cast<int>(threadIdx.x) % kWarp; }
  static __device__ __forceinline__ int Count() { return kWarp; }
  static __device__ __forceinline__ void Sync() { __syncwarp(); }
};
struct BlockThreads {
  static __device__ __forceinline__ int Index() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int Count() { return static_cast<int>(blockDim.x); }
  static __device__ __forceinline__ void Sync() { __syncthreads(); }
};

// Folds `count` items, `stride` apart, pairwise by index into the first one, in place, for each of `inner` adjacent
// columns. Each turn folds 2^kLevels items to one; the threads share the items. All of them call it after they have
// been synchronised, and may read the result.
template <typename Threads, typename Part, typename AddTo>
__device__ __forceinline__ void FoldInPlace(Part* parts, int64_t count, int64_t stride, int64_t inner, AddTo add) {
  constexpr int kLevels = 3;
  constexpr int64_t kWidth = int64_t{1} << kLevels;
  const int own = Threads::Index();
  for (; count > 1; count = order::CeilDiv(count, kWidth), stride *= kWidth) {
    const int64_t items = order::CeilDiv(count, kWidth) * inner;
    for (int64_t item = own; item < items; item += Threads::Count()) {
      const Division place = Divide(item, inner);
      Part* const first = parts + place.remainder;
      const int64_t begin = place.quotient * kWidth;
      const int64_t end = begin + kWidth < count ? begin + kWidth : count;
      first[begin * stride] = FoldTree<kLevels, Part>(
          begin, end, [&](int64_t i) { return first[i * stride]; }, add);
    }
    Threads::Sync();
  }
}

__device__ __forceinline__ PairSums AsSums(const NarrowPart& part) { return {{part.first, 0}, {part.second, 0}}; }
__device__ __forceinline__ PairSums AsSums(const PairSums& part) { return part; }

// The result of a finished group as the apply pass uses it.
__device__ inline GroupResult FinishedResult(const GroupWork& work, FinishedStatistics finished) {
  if (work.is_16bit) Calculate16BitInF32(&finished);
  const bool all_counted = work.mask == nullptr && (work.columns || work.statistic_reduce1 == work.reduce1);
  const bool centred = work.statistic == Statistic::kMeanVariance;
  return ResultOf(finished, centred, work.fit_f32, all_counted);
}
// The same in f32.
__device__ __forceinline__ GroupResult32 ResultIn32(const GroupResult& result) {
  const GroupStatistics& s = result.statistics;
  return {static_cast<float>(s.shift), static_cast<float>(s.delta.hi),
          result.in_f32 ? s.inverse.hi : std::numeric_limits<double>::quiet_NaN()};
}
// Writes the outputs of a finished group. Returns its result. One thread calls it.
__device__ inline GroupResult StoreFinished(const GroupWork& work, int64_t group, const FinishedStatistics& finished) {
  StoreOutputs(work.outputs, group, static_cast<double>(work.counted), finished);
  return FinishedResult(work, finished);
}

// The statistics of a group of narrow elements that was given this mean, unless no mean is given, and variance.
__device__ inline FinishedStatistics GivenTo(const GroupWork& work, double mean, double variance) {
  return GivenStatistics(work.rule, work.given_mean == nullptr ? nullptr : &mean, variance, false, work.precision);
}
// The result of a group of narrow elements with this k1, given or not.
__device__ inline GroupResult ResultAt(const GroupWork& work, int64_t group, int64_t k1) {
  if (work.given_variance == nullptr) return work.results[group];
  const double mean = work.given_mean == nullptr ? 0 : work.given_mean[k1];
  return FinishedResult(work, GivenTo(work, mean, work.given_variance[k1]));
}

__device__ inline FinishedStatistics Finish(const GroupWork& work, const PairSums& sums, double shift, double scale,
                                            Precision precision) {
  const auto n = static_cast<double>(work.counted);
  return work.wide() ? FinishWide(work.statistic, work.rule, sums, n, shift, scale)
                     : FinishNarrow(work.statistic, work.rule, sums, n, shift, precision);
}

// What follows `state`, whose sums gave `finished`: the next sums, or Round::kDone.
__device__ __forceinline__ GroupState NextState(GroupState state, const FinishedStatistics& finished) {
  state.round = NextRound(state.round, finished);
  if (state.round != Round::kDone) {
    state.shift = IsFirstOfPrecision(state.round) ? state.exact_shift : finished.better_shift;
  }
  return state;
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_FINISH_CUH_
