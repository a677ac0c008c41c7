// Statistics groups on their way from sums to statistics, all on the device: the first shift, the folding of parts, the
// decision whether to sum again, and the results for the apply pass and for replies. A warp works on a group, or a
// block where the group has many parts or is summed again. Nothing comes back to the host before the end.
#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kGroups = kThreads / kWarp;  // groups of a block

__device__ __forceinline__ int64_t GroupOfWarp() {
  return static_cast<int64_t>(blockIdx.x) * kGroups + static_cast<int>(threadIdx.x) / kWarp;
}

LaunchShape GroupsShape(const GroupWork& work) {
  return {.blocks = order::CeilDiv(work.StatisticsGroups(), kGroups), .threads = kThreads};
}

// Writes the results and outputs of a finished group. One thread calls it.
__device__ inline void Publish(const GroupWork& work, int64_t group, FinishedStatistics finished) {
  StoreOutputs(work.outputs, group, static_cast<double>(work.counted), finished);
  if (work.is_16bit) Calculate16BitInF32(&finished);
  const bool all_counted = work.mask == nullptr && (work.columns || work.statistic_reduce1 == work.reduce1);
  const bool centred = work.statistic == Statistic::kMeanVariance;
  const GroupResult result = ResultOf(finished, centred, work.fit_f32, all_counted);
  work.results[group] = result;
  if (!work.wide()) {
    const GroupStatistics& s = result.statistics;
    work.results32[group] = {static_cast<float>(s.shift), static_cast<float>(s.delta.hi),
                             result.in_f32 ? s.inverse.hi : std::numeric_limits<double>::quiet_NaN()};
  }
  work.states[group].round = Round::kDone;
}

__device__ inline FinishedStatistics Finish(const GroupWork& work, const PairSums& sums, double shift, double scale,
                                            Precision precision) {
  const auto n = static_cast<double>(work.counted);
  return work.wide() ? FinishWide(work.statistic, work.rule, sums, n, shift, scale)
                     : FinishNarrow(work.statistic, work.rule, sums, n, shift, precision);
}

__device__ inline double FiniteOrZero(double x) { return std::isfinite(x) ? x : 0; }

// The first element of a group that counts; 0 if it is not finite.
__device__ inline double FirstElement(const GroupWork& work, int64_t k0, int64_t k1) {
  const auto [r0, r1] = work.columns ? Division{work.first_counted, 0} : Divide(work.first_counted, work.reduce1);
  return FiniteOrZero(ElementAt(work.x, ((k0 * work.reduce0 + r0) * work.keep1 + k1) * work.reduce1 + r1));
}

// The mean of the first elements of a row (FAST). All lanes call it and have the result.
template <typename T>
__device__ inline double RowSample(const GroupWork& work, int64_t k0, int64_t k1) {
  const int64_t first = (k0 * work.reduce0 * work.keep1 + k1) * work.reduce1;
  return FastShiftOf(T(), LaneGroup<kWarp>::This(), static_cast<const typename T::Storage*>(work.x.data) + first,
                     work.statistic_reduce1);
}

// The mean of the first positions of a group in columns (FAST), or NaN if none of them counts. All lanes call it. The
// elements of each column are added in the order of positions, then the columns in theirs. A lane has a position where
// the group has one column, else a column.
template <typename T>
__device__ inline double ColumnSample(const GroupWork& work, int64_t k0, int64_t k1) {
  constexpr int kSample = static_cast<int>(order::kFastColumnSample);
  static_assert(kSample == kWarp);
  const auto lanes = LaneGroup<kWarp>::This();
  const int positions = static_cast<int>(work.reduce0 < kSample ? work.reduce0 : kSample);
  const bool is_counted = lanes.lane < positions && (work.mask == nullptr || work.mask[lanes.lane] != 0);
  const unsigned counted = __ballot_sync(lanes.mask, is_counted);
  if (counted == 0) return std::numeric_limits<double>::quiet_NaN();
  const auto* const x =
      static_cast<const typename T::Storage*>(work.x.data) + (k0 * work.reduce0 * work.keep1 + k1) * work.reduce1;
  const int64_t stride = work.Columns();
  double total = 0;
  if (work.reduce1 == 1) {
    const double own = is_counted ? LoadAs<double>(T(), x + lanes.lane * stride) : 0;
#pragma unroll
    for (int p = 0; p < kSample; ++p) {
      const double theirs = __shfl_sync(lanes.mask, own, p, kWarp);
      if ((counted >> p & 1) != 0) total += theirs;
    }
  } else {
    for (int64_t from = 0; from < work.reduce1; from += kWarp) {
      const int64_t r1 = from + lanes.lane;
      float own[kSample];
#pragma unroll
      for (int p = 0; p < kSample; ++p) {
        const bool is_there = (counted >> p & 1) != 0 && r1 < work.reduce1;
        own[p] = is_there ? LoadAs<float>(T(), x + p * stride + r1) : 0;
      }
      double sum = 0;
#pragma unroll
      for (int p = 0; p < kSample; ++p) {
        if ((counted >> p & 1) != 0) sum += own[p];
      }
      for (int lane = 0; lane < kWarp && from + lane < work.reduce1; ++lane) {
        total += __shfl_sync(lanes.mask, sum, lane, kWarp);
      }
    }
  }
  const float mean =
      static_cast<float>(total / (static_cast<double>(__popc(counted)) * static_cast<double>(work.reduce1)));
  return FiniteOrZero(mean);
}

// The first shift of EXACT for narrow elements.
template <typename T>
__device__ inline double FirstExactShift(const GroupWork& work, int64_t k0, int64_t k1) {
  if (work.columns || work.mask != nullptr) return FirstElement(work, k0, k1);
  const auto* const first =
      static_cast<const typename T::Storage*>(work.x.data) + (k0 * work.reduce0 * work.keep1 + k1) * work.reduce1;
  return ExactShiftOf(work.statistic_reduce1, [&](int64_t i) { return LoadAs<double>(T(), first + i); });
}

// Chooses the first shift of narrow elements. All lanes call it.
template <typename T>
__device__ inline void ChooseShift(const GroupWork& work, int64_t group, GroupState* state) {
  if (work.statistic != Statistic::kMeanVariance) return;
  const auto [k0, k1] = Divide(group, work.keep1);
  state->shift = state->exact_shift = FirstExactShift<T>(work, k0, k1);
  if (work.precision != Precision::kFast) return;
  if (work.columns) {
    const double sample = ColumnSample<T>(work, k0, k1);
    if (!std::isnan(sample)) state->shift = sample;
  } else if (work.mask == nullptr) {
    state->shift = RowSample<T>(work, k0, k1);
  }
}

// The parts of a group: `inner` adjacent columns of `count` parts each, `stride` apart.
struct PartPlace {
  int64_t first = 0, count = 0, stride = 1, inner = 1;
};

__host__ __device__ inline PartPlace PartsOfGroup(const GroupWork& work, int64_t group) {
  if (!work.columns) {
    const int64_t count = order::GroupChunks(work.reduce0, work.statistic_reduce1);
    return {.first = group * count, .count = count};
  }
  const int64_t blocks = Divide(order::ColumnBlocks(work.reduce0) + work.fold - 1, work.fold).quotient;
  const Division place = Divide(group, work.keep1);
  return {.first = place.quotient * blocks * work.Columns() + place.remainder * work.reduce1,
          .count = blocks,
          .stride = work.Columns(),
          .inner = work.reduce1};
}

template <typename T>
__global__ void __launch_bounds__(kThreads) BeginGroupsKernel(const __grid_constant__ GroupWork work) {
  WaitForLaunchBefore();
  const int64_t group = GroupOfWarp();
  if (group >= work.StatisticsGroups()) return;
  const bool first_lane = threadIdx.x % kWarp == 0;
  GroupState state;
  state.round = Round::kDone;
  FinishedStatistics finished;
  if (work.counted == 0 || PartsOfGroup(work, group).count == 0) {
    finished = Finish(work, {}, 0, 1, Precision::kExact);
  } else if constexpr (!kIsWide<T>) {
    state.round = FirstRound(work.precision);
    ChooseShift<T>(work, group, &state);
  } else {
    const Magnitude magnitude = work.pre == nullptr ? AsMagnitude(work.magnitudes[group]) : Magnitude();
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
        state.shift = FirstElement(work, group / work.keep1, group % work.keep1) * state.scale;
      }
    }
  }
  if (!first_lane) return;
  work.states[group] = state;
  if (state.round == Round::kDone) {
    Publish(work, group, finished);
  } else {
    work.pending[static_cast<int>(state.round)] = 1;  // several groups may write it, all of them 1
  }
}

__device__ __forceinline__ PairSums AsSums(const NarrowPart& part) { return {{part.first, 0}, {part.second, 0}}; }
__device__ __forceinline__ PairSums AsSums(const PairSums& part) { return part; }

// Folds `count` items, `stride` apart, pairwise by index into the first one, in place, for each of `inner` adjacent
// columns. Each turn folds 2^kLevels items to one; the lanes of a warp share the items.
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

// Finishes the group with the sums of state.round, or starts its next round. One thread calls it.
__device__ inline void FinishWith(const GroupWork& work, int64_t group, const GroupState& state, const PairSums& sums) {
  const FinishedStatistics finished = Finish(work, sums, state.shift, state.scale, PrecisionOf(state.round));
  const Round next = NextRound(state.round, finished);
  if (next == Round::kDone) return Publish(work, group, finished);
  work.states[group].shift = IsFirstOfPrecision(next) ? state.exact_shift : finished.better_shift;
  work.states[group].round = next;
  work.pending[static_cast<int>(next)] = 1;
}

// Folds the parts of a group that were summed in state.round, and finishes it. A warp calls it.
template <typename Part, typename AddTo>
__device__ inline void FinishGroup(const GroupWork& work, int64_t group, const GroupState& state) {
  const PartPlace place = PartsOfGroup(work, group);
  Part* const parts = static_cast<Part*>(work.parts) + place.first;
  FoldInPlace(parts, place.count, place.stride, place.inner, AddTo());
  FoldInPlace(parts, place.inner, 1, 1, AddTo());
  if (threadIdx.x % kWarp == 0) FinishWith(work, group, state, AsSums(parts[0]));
}

// A block folds the parts of a group instead of a warp if there are at least kManyParts. A thread then folds at most
// 2^kLargeLevels times eight parts.
constexpr int64_t kManyParts = 256;
constexpr int kLargeLevels = 8;

// Folds the values of `width` threads, `stride` apart, pairwise by index into that of the first. Both are powers of
// two. Missing values count as 0, which changes no sum that began with +0.
__device__ __forceinline__ void FoldThreads(NarrowPart* of_threads, int stride, int width) {
  for (int step = 1; step < width; step *= 2) {
    __syncthreads();
    const int index = static_cast<int>(threadIdx.x) / stride % width;
    if (index % (2 * step) == 0) AddNarrow()(of_threads[threadIdx.x], of_threads[threadIdx.x + step * stride]);
  }
}

// The number of threads that share the parts of a column; 0 if there are more columns than threads.
__host__ __device__ inline int Sharers(const PartPlace& place) {
  int columns = 1;
  while (columns < place.inner && columns <= kThreads) columns *= 2;
  return kThreads / columns;
}
bool FitsLarge(const PartPlace& place) {
  return place.count * place.inner >= kManyParts && place.count <= int64_t{Sharers(place)} << (kLargeLevels + 3);
}

// FinishGroupsKernel with a block for each group of narrow elements: the threads share the group's columns, and the
// parts of each column in runs that are powers of two. REQUIRES: FitsLarge.
__global__ void __launch_bounds__(kThreads)
    FinishLargeGroupsKernel(const __grid_constant__ GroupWork work, Round round) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  if (work.pending[static_cast<int>(round)] == 0) return;
  const int64_t group = blockIdx.x;
  const GroupState state = work.states[group];
  if (state.round != round) return;
  const PartPlace place = PartsOfGroup(work, group);
  const int sharers = Sharers(place);
  const int columns = kThreads / sharers;
  constexpr int kLevels = 3;
  constexpr int64_t kUnrolled = int64_t{1} << kLevels;
  int64_t run = kUnrolled;
  while (run * sharers < place.count) run *= 2;
  const int column = static_cast<int>(threadIdx.x) % columns;
  const int64_t begin = static_cast<int>(threadIdx.x) / columns * run;
  const int64_t end = begin + run < place.count ? begin + run : place.count;
  const NarrowPart* const parts = static_cast<const NarrowPart*>(work.parts) + place.first + column;
  PairwiseStack<kLargeLevels> first, second;
  int64_t pushed = 0;
  if (column < place.inner) {
    for (int64_t from = begin; from < end; from += kUnrolled, ++pushed) {
      const NarrowPart part = FoldTree<kLevels, NarrowPart>(
          from, from + kUnrolled < end ? from + kUnrolled : end, [&](int64_t i) { return parts[i * place.stride]; },
          AddNarrow());
      first.Push(pushed, part.first);
      second.Push(pushed, part.second);
    }
  }
  auto* const of_threads = reinterpret_cast<NarrowPart*>(shared);
  of_threads[threadIdx.x] = {first.Total(pushed), second.Total(pushed)};
  FoldThreads(of_threads, columns, sharers);
  FoldThreads(of_threads, 1, columns);
  if (threadIdx.x == 0) FinishWith(work, group, state, AsSums(of_threads[0]));
}

template <typename Part, typename AddTo>
__global__ void __launch_bounds__(kThreads) FinishGroupsKernel(const __grid_constant__ GroupWork work, Round round) {
  WaitForLaunchBefore();
  if (work.pending[static_cast<int>(round)] == 0) return;
  const int64_t group = GroupOfWarp();
  if (group >= work.StatisticsGroups()) return;
  const GroupState state = work.states[group];
  if (state.round != round) return;
  __syncwarp();
  FinishGroup<Part, AddTo>(work, group, state);
}

// Sums all parts of one group of narrow elements in EXACT. A block calls it.
template <typename T, bool kCentred>
__device__ inline void SumGroup(const GroupWork& work, int64_t group, const GroupState& state) {
  auto* const parts = static_cast<NarrowPart*>(work.parts);
  const Division place_of_group = Divide(group, work.keep1);
  const int64_t k0 = place_of_group.quotient;
  const int64_t k1 = place_of_group.remainder;
  if (work.columns) {
    const int64_t blocks = order::ColumnBlocks(work.reduce0);
    const int64_t of_column = order::CeilDiv(blocks, work.fold);
    for (int64_t i = threadIdx.x; i < of_column * work.reduce1; i += kThreads) {
      const int64_t part = i / work.reduce1;
      const int64_t column = k1 * work.reduce1 + i % work.reduce1;
      const int64_t block = part * work.fold;
      const int64_t left = blocks - block;
      parts[(k0 * of_column + part) * work.Columns() + column] = FoldFour<NarrowPart>(
          static_cast<int>(left < work.fold ? left : work.fold),
          [&](int b) { return SumNarrowColumn<T, double, kCentred>(work, k0, block + b, column, state.shift); },
          AddNarrow());
    }
    return;
  }
  const auto lanes = LaneGroup<kWarp>::This();
  const RowCut cut = RowCut::Of(work);
  for (int64_t i = static_cast<int>(threadIdx.x) / kWarp; i < cut.of_group; i += kGroups) {
    const int64_t run = (k0 * cut.runs + i / cut.of_segment) * work.keep1 + k1;
    const ChunkPlace place = ChunkOf(work, cut, run * cut.of_segment + i % cut.of_segment);
    const PairSums sums = SumNarrowChunk<T, double, kCentred>(lanes, work, cut, place, state.shift);
    if (lanes.lane == 0) parts[place.part] = {sums.first.hi, sums.second.hi};
  }
}

// Finishes the groups that are left after the rounds that all groups may need. They are rare, so that one launch does
// all of their rounds, with a block for each group.
template <typename T, bool kCentred>
__global__ void __launch_bounds__(kThreads) RedoGroupsKernel(const __grid_constant__ GroupWork work) {
  WaitForLaunchBefore();
  if (work.pending[static_cast<int>(Round::kExact)] == 0 && work.pending[static_cast<int>(Round::kExactAgain)] == 0) {
    return;
  }
  for (int64_t group = blockIdx.x; group < work.StatisticsGroups(); group += gridDim.x) {
    for (;;) {
      const GroupState state = work.states[group];
      if (state.round == Round::kDone) break;
      SumGroup<T, kCentred>(work, group, state);
      __syncthreads();
      if (threadIdx.x < kWarp) FinishGroup<NarrowPart, AddNarrow>(work, group, state);
      __syncthreads();
    }
  }
}

cudaError_t RedoGroups(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream) {
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, work.StatisticsGroups(), 1), .threads = kThreads};
  return VisitNarrowDType(work.x.dtype, [&]<typename T>() {
    return VisitCentred(work.statistic,
                        [&]<bool kCentred>() { return Launch(shape, stream, RedoGroupsKernel<T, kCentred>, work); });
  });
}

__global__ void __launch_bounds__(kThreads)
    GivenStatisticsKernel(const __grid_constant__ GroupWork work, const double* mean, const double* variance) {
  WaitForLaunchBefore();
  const int64_t group = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (group >= work.StatisticsGroups()) return;
  const int64_t k1 = group % work.keep1;
  Publish(work, group,
          GivenStatistics(work.rule, mean == nullptr ? nullptr : mean + k1, variance[k1], work.wide(), work.precision));
}

cudaError_t BeginGroups(const GroupWork& work, cudaStream_t stream) {
  return VisitDType(work.x.dtype,
                    [&]<typename T>() { return Launch(GroupsShape(work), stream, BeginGroupsKernel<T>, work); });
}

cudaError_t FinishGroups(const GroupWork& work, Round round, cudaStream_t stream) {
  const PartPlace place = PartsOfGroup(work, 0);
  if (!work.wide() && FitsLarge(place)) {
    const LaunchShape shape = {.blocks = work.StatisticsGroups(),
                               .threads = kThreads,
                               .shared_bytes = kThreads * static_cast<int64_t>(sizeof(NarrowPart))};
    return Launch(shape, stream, FinishLargeGroupsKernel, work, round);
  }
  return work.wide() ? Launch(GroupsShape(work), stream, FinishGroupsKernel<PairSums, AddWide>, work, round)
                     : Launch(GroupsShape(work), stream, FinishGroupsKernel<NarrowPart, AddNarrow>, work, round);
}

}  // namespace

int64_t PartsOf(const GroupWork& work) {
  return work.columns ? work.keep0 * order::CeilDiv(order::ColumnBlocks(work.reduce0), work.fold) * work.Columns()
                      : work.StatisticsGroups() * order::GroupChunks(work.reduce0, work.statistic_reduce1);
}

cudaError_t ReduceGroups(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream) {
  const bool any = work.counted > 0 && PartsOf(work) > 0;
  const bool is_plain = !work.wide() && work.pre == nullptr;
  if (work.wide() && work.pre == nullptr && any) {
    NORMD_CUDA_RETURN_IF_ERROR(work.columns ? MeasureColumns(limits, work, stream) : MeasureRows(limits, work, stream));
  }
  NORMD_CUDA_RETURN_IF_ERROR(BeginGroups(work, stream));
  if (!any) return cudaSuccess;
  const Precision precision = work.wide() ? Precision::kExact : work.precision;
  for (int i = static_cast<int>(FirstRound(precision)); i < kRounds; ++i) {
    const auto round = static_cast<Round>(i);
    // Only a mean can be far from the shift.
    if (!IsFirstOfPrecision(round) && work.statistic != Statistic::kMeanVariance) continue;
    if (is_plain && (PrecisionOf(round) != precision || round == Round::kExactAgain)) break;
    GroupWork now = work;
    if (is_plain && work.columns) now.fold = FoldOf(limits, work, round);
    NORMD_CUDA_RETURN_IF_ERROR(work.columns ? SumColumnParts(limits, now, round, stream)
                                            : SumRowParts(limits, now, round, stream));
    NORMD_CUDA_RETURN_IF_ERROR(FinishGroups(now, round, stream));
  }
  const bool may_be_left = precision == Precision::kFast || work.statistic == Statistic::kMeanVariance;
  return is_plain && may_be_left ? RedoGroups(limits, work, stream) : cudaSuccess;
}

cudaError_t TakeGivenStatistics(const GroupWork& work, const double* mean, const double* variance,
                                cudaStream_t stream) {
  const LaunchShape shape = {.blocks = order::CeilDiv(work.StatisticsGroups(), kThreads), .threads = kThreads};
  return Launch(shape, stream, GivenStatisticsKernel, work, mean, variance);
}

}  // namespace normd::cuda
