// Statistic sets on their way from sums to statistics, all on the device: where sums begin, how parts are folded,
// whether sums are to be taken again, and what Apply and replies get. A warp a set; nothing comes back to the host
// before the end.
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/parts.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/order.h"
#include "kernels/set_statistics.h"

namespace normd::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kSets = kThreads / kWarp;  // of a block

__device__ __forceinline__ int64_t SetOfWarp() {
  return static_cast<int64_t>(blockIdx.x) * kSets + static_cast<int>(threadIdx.x) / kWarp;
}

LaunchShape SetsShape(const SetWork& work) {
  return {.blocks = order::CeilDiv(work.Sets(), kSets), .threads = kThreads};
}

// The set is finished: by one thread.
__device__ inline void Publish(const SetWork& work, int64_t set, FinishedSet finished) {
  StoreOutputs(work.outputs, set, static_cast<double>(work.counted), finished);
  if (work.halves) CalculateHalvesInF32(&finished);
  const bool all_counted = work.mask == nullptr && (work.columns || work.statistic_reduce1 == work.reduce1);
  SetResult& result = work.results[set];
  result.statistics = finished.statistics;
  result.in_f32 = finished.elements_in_f32 && work.fit_f32;
  result.may_be_nan = !finished.finite || !work.fit_f32 || !all_counted;
  work.states[set].round = Round::kDone;
}

__device__ inline FinishedSet Finish(const SetWork& work, const PairSums& sums, double shift, double scale,
                                     Precision precision) {
  const auto n = static_cast<double>(work.counted);
  return work.wide() ? FinishWide(work.statistic, work.rule, sums, n, shift, scale)
                     : FinishNarrow(work.statistic, work.rule, sums, n, shift, precision);
}

__device__ inline double FiniteOrZero(double x) { return std::isfinite(x) ? x : 0; }

// The first element that counts.
__device__ inline double FirstElement(const SetWork& work, int64_t k0, int64_t k1) {
  const int64_t r0 = work.columns ? work.first_counted : work.first_counted / work.reduce1;
  const int64_t r1 = work.columns ? 0 : work.first_counted % work.reduce1;
  return FiniteOrZero(ElementAt(work.x, ((k0 * work.reduce0 + r0) * work.keep1 + k1) * work.reduce1 + r1));
}

// FAST, rows: the mean of the first elements. By all lanes.
__device__ inline double RowSample(const SetWork& work, int64_t k0, int64_t k1) {
  const auto lanes = Group<kWarp>::This();
  const int64_t first = (k0 * work.reduce0 * work.keep1 + k1) * work.reduce1;
  switch (work.x.dtype) {
    case DType::kF16:
      return ShiftOf(F16(), lanes, Precision::kFast, static_cast<const uint16_t*>(work.x.data) + first,
                     work.statistic_reduce1);
    case DType::kBF16:
      return ShiftOf(BF16(), lanes, Precision::kFast, static_cast<const uint16_t*>(work.x.data) + first,
                     work.statistic_reduce1);
    default:
      return ShiftOf(F32(), lanes, Precision::kFast, static_cast<const float*>(work.x.data) + first,
                     work.statistic_reduce1);
  }
}

// FAST, columns: the mean of the first positions, or NaN if none of them counts. By all lanes.
__device__ inline double ColumnSample(const SetWork& work, int64_t k0, int64_t k1) {
  const auto lanes = Group<kWarp>::This();
  const int64_t positions = work.reduce0 < order::kFastColumnSample ? work.reduce0 : order::kFastColumnSample;
  int64_t counted = 0;
  double total = 0;
  for (int64_t from = 0; from < work.reduce1; from += kWarp) {
    const int64_t r1 = from + lanes.lane;
    double sum = 0;
    counted = 0;
    for (int64_t p = 0; p < positions; ++p) {
      if (work.mask != nullptr && work.mask[p] == 0) continue;
      ++counted;
      if (r1 < work.reduce1) sum += ElementAt(work.x, ((k0 * work.reduce0 + p) * work.keep1 + k1) * work.reduce1 + r1);
    }
    // Column by column.
    for (int lane = 0; lane < kWarp && from + lane < work.reduce1; ++lane) {
      total += __shfl_sync(lanes.mask, sum, lane, kWarp);
    }
  }
  if (counted == 0) return std::numeric_limits<double>::quiet_NaN();
  const float mean = static_cast<float>(total / static_cast<double>(counted * work.reduce1));
  return FiniteOrZero(mean);
}

// Where the sums of narrow elements begin. By all lanes.
__device__ inline void ChooseShift(const SetWork& work, int64_t set, SetState* state) {
  if (work.statistic != Statistic::kMeanVariance) return;
  const int64_t k0 = set / work.keep1;
  const int64_t k1 = set % work.keep1;
  state->shift = state->exact_shift = FirstElement(work, k0, k1);
  if (work.precision != Precision::kFast) return;
  if (work.columns) {
    const double sample = ColumnSample(work, k0, k1);
    if (!std::isnan(sample)) state->shift = sample;
  } else if (work.mask == nullptr) {
    state->shift = RowSample(work, k0, k1);
  }
}

// How many parts a set has, and where: `inner` neighbours of `count`, `stride` apart.
struct PartPlace {
  int64_t first = 0, count = 0, stride = 1, inner = 1;
};

__host__ __device__ inline PartPlace PartsOfSet(const SetWork& work, int64_t set) {
  if (!work.columns) {
    const int64_t count = work.reduce0 * order::RowChunks(work.statistic_reduce1);
    return {.first = set * count, .count = count};
  }
  const int64_t blocks = order::ColumnBlocks(work.reduce0);
  return {.first = set / work.keep1 * blocks * work.Columns() + set % work.keep1 * work.reduce1,
          .count = blocks,
          .stride = work.Columns(),
          .inner = work.reduce1};
}

__global__ void __launch_bounds__(kThreads) BeginSetsKernel(const __grid_constant__ SetWork work) {
  const int64_t set = SetOfWarp();
  if (set >= work.Sets()) return;
  const bool first_lane = threadIdx.x % kWarp == 0;
  SetState state;
  state.round = Round::kDone;
  FinishedSet finished;
  if (work.counted == 0 || PartsOfSet(work, set).count == 0) {
    finished = Finish(work, {}, 0, 1, Precision::kExact);
  } else if (!work.wide()) {
    state.round = FirstRound(work.precision);
    ChooseShift(work, set, &state);
  } else {
    const Magnitude magnitude = work.pre == nullptr ? AsMagnitude(work.magnitudes[set]) : Magnitude();
    if (SumsPowers(work.statistic)) {
      state.scale = ScaleFor(magnitude, work.rule);
      state.shift = magnitude.largest() * state.scale;
      const bool has_sums = work.statistic == Statistic::kPowerSum && magnitude.finite() && state.shift > 0;
      if (has_sums) {
        state.round = Round::kExact;
      } else {
        finished = Finish(work, {}, state.shift, state.scale, Precision::kExact);
      }
    } else if (!magnitude.finite()) {
      finished = Finish(work, NonFiniteSums(work.statistic, magnitude), 0, 1, Precision::kExact);
    } else {
      state.round = Round::kExact;
      state.scale = ScaleFor(magnitude, work.rule);
      if (work.statistic == Statistic::kMeanVariance) {
        state.shift = FirstElement(work, set / work.keep1, set % work.keep1) * state.scale;
      }
    }
  }
  if (!first_lane) return;
  work.states[set] = state;
  if (state.round == Round::kDone) {
    Publish(work, set, finished);
  } else {
    work.pending[static_cast<int>(state.round)] = 1;  // by all who have something: the same
  }
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
__device__ __forceinline__ PairSums AsSums(const NarrowPart& part) { return {{part.first, 0}, {part.second, 0}}; }
__device__ __forceinline__ PairSums AsSums(const PairSums& part) { return part; }

// Folds `count` items, `stride` apart, of each of `inner` neighbours pairwise by index into the first, in place.
// 2^kLevels at a time, level by level; the lanes of a warp share them out.
template <typename Part, typename AddTo>
__device__ inline void FoldInPlace(Part* parts, int64_t count, int64_t stride, int64_t inner, AddTo add) {
  constexpr int kLevels = 3;
  constexpr int64_t kWidth = int64_t{1} << kLevels;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (; count > 1; count = order::CeilDiv(count, kWidth), stride *= kWidth) {
    const int64_t items = order::CeilDiv(count, kWidth) * inner;
    for (int64_t item = lane; item < items; item += kWarp) {
      Part* const first = parts + item % inner;
      const int64_t begin = item / inner * kWidth;
      const int64_t end = begin + kWidth < count ? begin + kWidth : count;
      first[begin * stride] = FoldTree<kLevels, Part>(
          begin, end, [&](int64_t i) { return first[i * stride]; }, add);
    }
    __syncwarp();
  }
}

template <typename Part, typename AddTo>
__global__ void __launch_bounds__(kThreads) FinishSetsKernel(const __grid_constant__ SetWork work, Round round) {
  if (work.pending[static_cast<int>(round)] == 0) return;
  const int64_t set = SetOfWarp();
  if (set >= work.Sets()) return;
  const SetState state = work.states[set];
  if (state.round != round) return;
  __syncwarp();
  const PartPlace place = PartsOfSet(work, set);
  Part* const parts = static_cast<Part*>(work.parts) + place.first;
  FoldInPlace(parts, place.count, place.stride, place.inner, AddTo());
  FoldInPlace(parts, place.inner, 1, 1, AddTo());
  if (threadIdx.x % kWarp != 0) return;
  const FinishedSet finished = Finish(work, AsSums(parts[0]), state.shift, state.scale, PrecisionOf(round));
  const Round next = NextRound(round, finished);
  if (next == Round::kDone) return Publish(work, set, finished);
  work.states[set].shift = IsFirstOfPrecision(next) ? state.exact_shift : finished.better_shift;
  work.states[set].round = next;
  work.pending[static_cast<int>(next)] = 1;
}

__global__ void __launch_bounds__(kThreads)
    GivenSetsKernel(const __grid_constant__ SetWork work, const double* mean, const double* variance) {
  const int64_t set = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (set >= work.Sets()) return;
  const int64_t k1 = set % work.keep1;
  Publish(work, set,
          GivenStatistics(work.rule, mean == nullptr ? nullptr : mean + k1, variance[k1], work.wide(), work.precision));
}

cudaError_t FinishSets(const SetWork& work, Round round, cudaStream_t stream) {
  return work.wide() ? Launch(SetsShape(work), stream, FinishSetsKernel<PairSums, AddWide>, work, round)
                     : Launch(SetsShape(work), stream, FinishSetsKernel<NarrowPart, AddNarrow>, work, round);
}

}  // namespace

int64_t PartsOf(const SetWork& work) {
  return work.columns ? work.keep0 * order::ColumnBlocks(work.reduce0) * work.Columns()
                      : work.Sets() * work.reduce0 * order::RowChunks(work.statistic_reduce1);
}

cudaError_t ReduceSets(const DeviceLimits& limits, const SetWork& work, cudaStream_t stream) {
  const bool any = work.counted > 0 && PartsOf(work) > 0;
  if (work.wide() && work.pre == nullptr && any) {
    NORMD_CUDA_RETURN_IF_ERROR(work.columns ? MeasureColumns(limits, work, stream) : MeasureRows(limits, work, stream));
  }
  NORMD_CUDA_RETURN_IF_ERROR(Launch(SetsShape(work), stream, BeginSetsKernel, work));
  if (!any) return cudaSuccess;
  for (int i = static_cast<int>(FirstRound(work.wide() ? Precision::kExact : work.precision)); i < kRounds; ++i) {
    const auto round = static_cast<Round>(i);
    // Only a mean can be far from where sums began.
    if (!IsFirstOfPrecision(round) && work.statistic != Statistic::kMeanVariance) continue;
    NORMD_CUDA_RETURN_IF_ERROR(work.columns ? SumColumnParts(limits, work, round, stream)
                                            : SumRowParts(limits, work, round, stream));
    NORMD_CUDA_RETURN_IF_ERROR(FinishSets(work, round, stream));
  }
  return cudaSuccess;
}

cudaError_t TakeGivenSets(const SetWork& work, const double* mean, const double* variance, cudaStream_t stream) {
  const LaunchShape shape = {.blocks = order::CeilDiv(work.Sets(), kThreads), .threads = kThreads};
  return Launch(shape, stream, GivenSetsKernel, work, mean, variance);
}

}  // namespace normd::cuda
