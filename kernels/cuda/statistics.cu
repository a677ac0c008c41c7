// Statistics groups on their way from sums to statistics, all on the device: the first shift, the folding of parts, the
// decision whether to sum again, and the results for the apply pass and for replies. A warp works on a group, or a
// block where the group has many parts or is summed again. Nothing comes back to the host before the end.
#include "kernels/certificate.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/first_shift.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/nearest.h"
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
// Threads of a block that has one group, of many parts: enough to sum such a group again. Of fewer parts, a block of
// the second size can fold all in one turn, and a multiprocessor has several of them at a time.
constexpr int kLargeThreads = 512;
constexpr int kMiddleThreads = 128;

__device__ __forceinline__ int64_t GroupOfWarp() {
  return static_cast<int64_t>(blockIdx.x) * kGroups + static_cast<int>(threadIdx.x) / kWarp;
}

LaunchShape GroupsShape(const GroupWork& work) {
  return {.blocks = order::CeilDiv(work.StatisticsGroups(), kGroups), .threads = kThreads};
}

// Writes the results and outputs of a finished group. One thread calls it.
__device__ inline void Publish(const GroupWork& work, int64_t group, const FinishedStatistics& finished) {
  if (work.nearest != nullptr) {
    work.nearest[group] = {};
    work.nearest[group].finished = finished;
  }
  const GroupResult result = StoreFinished(work, group, finished);
  work.results[group] = result;
  if (!work.wide()) work.results32[group] = ResultIn32(result);
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

// Writes what the bounds of a group need to know of its sums, and the statistics in pairs that they have.
__device__ inline void NoteSums(const GroupWork& work, const GroupState& state, const PairSums& sums,
                                NearestGroup* group) {
  group->shift = state.shift / state.scale;
  group->is_zero = sums.second.hi == 0;
  group->has_pairs = work.wide() && state.scale == 1 && !SumsPowers(work.statistic);
  if (!group->has_pairs) return;
  group->m2 = sums.second;
  if (work.statistic != Statistic::kMeanVariance) return;
  const DoublePair delta = Divide(sums.first, static_cast<double>(work.counted));
  const DoublePair mean = TwoSum(state.shift, delta.hi);
  group->mean = Renormalise(mean.hi, mean.lo + delta.lo);
  group->m2 = Add(sums.second, Negate(Multiply(sums.first, delta)));
}

// Finishes the group with its sums, which are those of state.round. Returns the state of its next round. One thread
// calls it.
__device__ inline GroupState FinishGroup(const GroupWork& work, int64_t group, const GroupState& state,
                                         const PairSums& sums) {
  const FinishedStatistics finished = Finish(work, sums, state.shift, state.scale, PrecisionOf(state.round));
  const GroupState next = NextState(state, finished);
  if (next.round != Round::kDone) return next;
  Publish(work, group, finished);
  if (work.nearest != nullptr) {
    NoteSums(work, state, sums, &work.nearest[group]);
    if (work.wide()) {
      const Magnitude magnitude = AsMagnitude(work.magnitudes[group]);
      work.nearest[group].is_zero = WideSumsAreZero(work.statistic, sums.second, magnitude, state.scale);
    }
  }
  return next;
}

// The sum of a group's parts, which it folds in place. A warp calls it; all of it has the result.
template <typename Part, typename AddTo>
__device__ inline PairSums FoldGroup(const GroupWork& work, int64_t group) {
  const PartPlace place = PartsOfGroup(work, group);
  Part* const parts = static_cast<Part*>(work.parts) + place.first;
  FoldInPlace<WarpThreads>(parts, place.count, place.stride, place.inner, AddTo());
  FoldInPlace<WarpThreads>(parts, place.inner, 1, 1, AddTo());
  return AsSums(parts[0]);
}

// ---- Narrow elements: one launch finishes every group, and sums the few again that need it ----

// The sample of a group in columns. A warp calls it; each lane has a column, and all have the result.
template <typename T>
__device__ inline ColumnSample SampleGroup(const GroupWork& work, int64_t k0, int64_t k1) {
  const auto lanes = LaneGroup<kWarp>::This();
  ColumnSample sample;
  for (int64_t from = 0; from < work.reduce1; from += kWarp) {
    const int64_t r1 = from + lanes.lane;
    ColumnSample own;
    if (r1 < work.reduce1) own = SampleColumn<T>(work, k0, k1 * work.reduce1 + r1);
    for (int lane = 0; lane < kWarp && from + lane < work.reduce1; ++lane) {
      sample.Add({__shfl_sync(lanes.mask, own.sum, lane, kWarp), __shfl_sync(lanes.mask, own.count, lane, kWarp)});
    }
  }
  return sample;
}

// The first shift of EXACT for a group. Few groups need it after FAST: inlined, it would take registers from what all
// need.
template <typename T>
__device__ __noinline__ double FirstExactShift(const GroupWork& work, int64_t group) {
  const auto [k0, k1] = Divide(group, work.keep1);
  const int64_t first = FirstOf(work, k0, k1);
  // EXACT takes elements that are far apart, and no sum of several lanes.
  return work.columns ? FirstCounted(work, first)
                      : RowShift<T>(LaneGroup<kWarp>::This(), work, Precision::kExact, first);
}

// The state in which the parts of a group were summed. A warp calls it.
template <typename T, bool kCentred>
__device__ inline GroupState FirstState(const GroupWork& work, int64_t group) {
  GroupState state;
  state.round = FirstRound(work.precision);
  if constexpr (kCentred) {
    if (work.precision != Precision::kFast) {
      state.shift = FirstExactShift<T>(work, group);
    } else {
      const auto [k0, k1] = Divide(group, work.keep1);
      const int64_t first = FirstOf(work, k0, k1);
      state.shift = work.columns ? SampleGroup<T>(work, k0, k1).Shift(work, first)
                                 : RowShift<T>(LaneGroup<kWarp>::This(), work, Precision::kFast, first);
    }
  }
  return state;
}

// FinishGroup for narrow elements, which begin with FAST. One thread calls it.
template <typename T, bool kCentred>
__device__ inline GroupState FinishNarrowState(const GroupWork& work, int64_t group, const GroupState& state,
                                               const PairSums& sums) {
  GroupState next = FinishGroup(work, group, state, sums);
  if (kCentred && next.round != Round::kDone && IsFirstOfPrecision(next.round)) {
    next.shift = FirstExactShift<T>(work, group);
  }
  return next;
}

// Sums all parts of a group about state.shift. A block of kBlock threads calls it. Few groups need it: inlined, it
// would take registers from what all need.
template <typename T, typename Real, bool kCentred, int kBlock>
__device__ __noinline__ void SumGroup(const GroupWork& work, int64_t group, const GroupState& state) {
  auto* const parts = static_cast<NarrowPart*>(work.parts);
  const auto shift = static_cast<Real>(state.shift);
  const Division kept = Divide(group, work.keep1);
  const int64_t k0 = kept.quotient, k1 = kept.remainder;
  if (work.columns) {
    const int64_t blocks = order::ColumnBlocks(work.reduce0);
    const int64_t of_column = order::CeilDiv(blocks, work.fold);
    for (int64_t i = threadIdx.x; i < of_column * work.reduce1; i += kBlock) {
      const int64_t part = i / work.reduce1;
      const int64_t column = k1 * work.reduce1 + i % work.reduce1;
      const int64_t block = part * work.fold;
      const int64_t left = blocks - block;
      parts[(k0 * of_column + part) * work.Columns() + column] = FoldFour<NarrowPart>(
          static_cast<int>(left < work.fold ? left : work.fold),
          [&](int b) { return SumNarrowColumn<T, Real, kCentred>(work, k0, block + b, column, shift); }, AddNarrow());
    }
    return;
  }
  const auto lanes = LaneGroup<kWarp>::This();
  const RowCut cut = RowCut::Of(work);
  for (int64_t i = static_cast<int>(threadIdx.x) / kWarp; i < cut.of_group; i += kBlock / kWarp) {
    const int64_t run = (k0 * cut.runs + i / cut.of_segment) * work.keep1 + k1;
    const ChunkPlace place = ChunkOf(work, cut, run, i % cut.of_segment);
    const PairSums sums = SumNarrowChunk<T, Real, kCentred>(lanes, work, cut, place, shift);
    if (lanes.lane == 0) parts[place.part] = {sums.first.hi, sums.second.hi};
  }
}

// Sums a group again until it is done. `state` is in shared memory. All kBlock threads of a block call it, after they
// have been synchronised.
template <typename T, bool kCentred, int kBlock>
__device__ inline void RedoGroup(const GroupWork& work, int64_t group, GroupState* state) {
  while (state->round != Round::kDone) {
    if (PrecisionOf(state->round) == Precision::kFast) {
      SumGroup<T, float, kCentred, kBlock>(work, group, *state);
    } else {
      SumGroup<T, double, kCentred, kBlock>(work, group, *state);
    }
    __syncthreads();
    if (threadIdx.x < kWarp) {
      const PairSums sums = FoldGroup<NarrowPart, AddNarrow>(work, group);
      if (threadIdx.x == 0) *state = FinishNarrowState<T, kCentred>(work, group, *state, sums);
    }
    __syncthreads();
  }
}

// The lanes of a warp fold the parts of one column, eight each, if there are no more.
constexpr int kLaneLevels = 3;
__device__ __forceinline__ bool FitsLanes(const PartPlace& place) {
  return place.inner == 1 && place.count <= int64_t{kWarp} << kLaneLevels;
}
// The fold of this lane's parts; 0 if it has none, which changes no sum that began with +0.
__device__ __forceinline__ NarrowPart FoldOfLane(const GroupWork& work, const PartPlace& place) {
  const int64_t begin = static_cast<int64_t>(threadIdx.x % kWarp) << kLaneLevels;
  const int64_t end = begin + (1 << kLaneLevels);
  const NarrowPart* const parts = static_cast<const NarrowPart*>(work.parts) + place.first;
  if (begin >= place.count) return {};
  return FoldTree<kLaneLevels, NarrowPart>(
      begin, end < place.count ? end : place.count, [&](int64_t i) { return parts[i * place.stride]; }, AddNarrow());
}
// The fold of what the lanes have. The first lane has the result.
__device__ __forceinline__ PairSums FoldLanes(NarrowPart own) {
  const auto lanes = LaneGroup<kWarp>::This();
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    AddNarrow()(own, {lanes.Down(own.first, step), lanes.Down(own.second, step)});
  }
  return AsSums(own);
}

// True if no element enters the statistics.
__host__ __device__ inline bool IsEmpty(const GroupWork& work) {
  return work.counted == 0 || PartsOfGroup(work, 0).count == 0;
}

// `first` has the parts that were summed; those of a group that is summed again go to `again`.
template <typename T, bool kCentred>
__global__ void __launch_bounds__(kThreads, 6)
    FinishGroupsKernel(const __grid_constant__ GroupWork first, const __grid_constant__ GroupWork again) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  auto* const states = reinterpret_cast<GroupState*>(shared);  // of the block's groups
  const int64_t group = GroupOfWarp();
  GroupState state;
  if (group < first.StatisticsGroups()) {
    if (IsEmpty(first)) {
      if (threadIdx.x % kWarp == 0) Publish(first, group, Finish(first, {}, 0, 1, Precision::kExact));
    } else {
      const PartPlace place = PartsOfGroup(first, group);
      const bool fits = FitsLanes(place);
      // The parts are under way while the elements of the sample are.
      NarrowPart own;
      if (fits) own = FoldOfLane(first, place);
      state = FirstState<T, kCentred>(first, group);
      const PairSums sums = fits ? FoldLanes(own) : FoldGroup<NarrowPart, AddNarrow>(first, group);
      if (threadIdx.x % kWarp == 0) state = FinishNarrowState<T, kCentred>(first, group, state, sums);
    }
  }
  if (threadIdx.x % kWarp == 0) states[threadIdx.x / kWarp] = state;
  __syncthreads();
  for (int i = 0; i < kGroups; ++i) {
    RedoGroup<T, kCentred, kThreads>(again, static_cast<int64_t>(blockIdx.x) * kGroups + i, &states[i]);
  }
}

// A block folds the parts of a group instead of a warp if there are at least kManyParts. A thread then folds at most
// 2^kLargeLevels times 2^kTurnLevels parts.
constexpr int64_t kManyParts = 256;
constexpr int kLargeLevels = 8;
constexpr int kTurnLevels = 3;

// Folds the values of `width` threads, `stride` apart, pairwise by index into that of the first. Both are powers of
// two. Missing values count as 0, which changes no sum that began with +0.
__device__ __forceinline__ void FoldThreads(NarrowPart* of_threads, int stride, int width) {
  for (int step = 1; step < width; step *= 2) {
    __syncthreads();
    const int index = static_cast<int>(threadIdx.x) / stride % width;
    if (index % (2 * step) == 0) AddNarrow()(of_threads[threadIdx.x], of_threads[threadIdx.x + step * stride]);
  }
}

// The number of threads, of kBlock, that share the parts of a column; 0 if there are more columns than threads.
template <int kBlock>
__host__ __device__ inline int Sharers(const PartPlace& place) {
  int columns = 1;
  while (columns < place.inner && columns <= kBlock) columns *= 2;
  return kBlock / columns;
}
bool FitsLarge(const PartPlace& place) {
  return place.count * place.inner >= kManyParts && place.count <= int64_t{Sharers<kLargeThreads>(place)}
                                                                       << (kLargeLevels + kTurnLevels);
}
bool FitsMiddle(const PartPlace& place) {
  return place.count <= int64_t{Sharers<kMiddleThreads>(place)} << kTurnLevels;
}

// FinishGroupsKernel with a block for each group: the threads share the group's columns, and the parts of each column
// in runs that are powers of two. REQUIRES: FitsLarge.
template <typename T, bool kCentred, int kBlock>
__global__ void __launch_bounds__(kBlock, kLargeThreads / kBlock)
    FinishLargeGroupsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ GroupWork again) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  auto* const of_threads = reinterpret_cast<NarrowPart*>(shared);
  auto* const state = reinterpret_cast<GroupState*>(of_threads + kBlock);
  const int64_t group = blockIdx.x;
  // The last warp has the fewest parts.
  if (threadIdx.x >= kBlock - kWarp) {
    const GroupState first = FirstState<T, kCentred>(work, group);
    if (threadIdx.x == kBlock - kWarp) *state = first;
  }
  const PartPlace place = PartsOfGroup(work, group);
  const int sharers = Sharers<kBlock>(place);
  const int columns = kBlock / sharers;
  constexpr int64_t kUnrolled = int64_t{1} << kTurnLevels;
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
      const NarrowPart part = FoldTree<kTurnLevels, NarrowPart>(
          from, from + kUnrolled < end ? from + kUnrolled : end, [&](int64_t i) { return parts[i * place.stride]; },
          AddNarrow());
      first.Push(pushed, part.first);
      second.Push(pushed, part.second);
    }
  }
  of_threads[threadIdx.x] = {first.Total(pushed), second.Total(pushed)};
  FoldThreads(of_threads, columns, sharers);
  FoldThreads(of_threads, 1, columns);
  if (threadIdx.x == 0) *state = FinishNarrowState<T, kCentred>(work, group, *state, AsSums(of_threads[0]));
  __syncthreads();
  RedoGroup<T, kCentred, kBlock>(again, group, state);
}

template <typename T, bool kCentred, int kBlock>
cudaError_t FinishLargeGroups(const GroupWork& first, const GroupWork& again, cudaStream_t stream) {
  const LaunchShape shape = {
      .blocks = first.StatisticsGroups(),
      .threads = kBlock,
      .shared_bytes = kBlock * static_cast<int64_t>(sizeof(NarrowPart)) + static_cast<int64_t>(sizeof(GroupState))};
  return Launch(shape, stream, FinishLargeGroupsKernel<T, kCentred, kBlock>, first, again);
}

cudaError_t FinishNarrowGroups(const GroupWork& first, const GroupWork& again, cudaStream_t stream) {
  return VisitNarrowDType(first.x.dtype, [&]<typename T>() {
    return VisitCentred(first.statistic, [&]<bool kCentred>() {
      const PartPlace parts = PartsOfGroup(first, 0);
      if (!IsEmpty(first) && FitsLarge(parts)) {
        return FitsMiddle(parts) ? FinishLargeGroups<T, kCentred, kMiddleThreads>(first, again, stream)
                                 : FinishLargeGroups<T, kCentred, kLargeThreads>(first, again, stream);
      }
      LaunchShape shape = GroupsShape(first);
      shape.shared_bytes = kGroups * static_cast<int64_t>(sizeof(GroupState));
      return Launch(shape, stream, FinishGroupsKernel<T, kCentred>, first, again);
    });
  });
}

// ---- f64 elements: a launch for each step ----

__global__ void __launch_bounds__(kThreads) BeginWideGroupsKernel(const __grid_constant__ GroupWork work) {
  WaitForLaunchBefore();
  const int64_t group = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (group >= work.StatisticsGroups()) return;
  GroupState state;
  FinishedStatistics finished;
  const Magnitude magnitude = AsMagnitude(work.magnitudes[group]);
  if (IsEmpty(work)) {
    finished = Finish(work, {}, 0, 1, Precision::kExact);
  } else if (SumsPowers(work.statistic)) {
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
      const auto [k0, k1] = Divide(group, work.keep1);
      state.shift = FirstCounted(work, FirstOf(work, k0, k1)) * state.scale;
    }
  }
  work.states[group] = state;
  if (state.round == Round::kDone) {
    Publish(work, group, finished);
    if (work.nearest != nullptr) {
      work.nearest[group].is_zero = WideSumsAreZero(work.statistic, {}, magnitude, state.scale);
    }
  } else {
    work.pending[static_cast<int>(state.round)] = 1;  // several groups may write it, all of them 1
  }
}

__global__ void __launch_bounds__(kThreads)
    FinishWideGroupsKernel(const __grid_constant__ GroupWork work, Round round) {
  WaitForLaunchBefore();
  if (work.pending[static_cast<int>(round)] == 0) return;
  const int64_t group = GroupOfWarp();
  if (group >= work.StatisticsGroups()) return;
  const GroupState state = work.states[group];
  if (state.round != round) return;
  __syncwarp();  // all of the warp have read the state that its first thread writes
  const PairSums sums = FoldGroup<PairSums, AddWide>(work, group);
  if (threadIdx.x % kWarp != 0) return;
  const GroupState next = FinishGroup(work, group, state, sums);
  work.states[group] = next;
  if (next.round != Round::kDone) work.pending[static_cast<int>(next.round)] = 1;
}

__global__ void __launch_bounds__(kThreads)
    GivenStatisticsKernel(const __grid_constant__ GroupWork work, const double* mean, const double* variance) {
  WaitForLaunchBefore();
  const int64_t group = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (group >= work.StatisticsGroups()) return;
  const int64_t k1 = group % work.keep1;
  FinishedStatistics given =
      GivenStatistics(work.rule, mean == nullptr ? nullptr : mean + k1, variance[k1], work.wide(), work.precision);
  given.m2 = variance[k1];  // BoundGroup asks whether it is finite
  Publish(work, group, given);
}

LaunchShape ThreadsShape(const GroupWork& work) {
  return {.blocks = order::CeilDiv(work.StatisticsGroups(), kThreads), .threads = kThreads};
}

cudaError_t SumParts(const DeviceLimits& limits, const GroupWork& work, Round round, cudaStream_t stream) {
  return work.columns ? SumColumnParts(limits, work, round, stream) : SumRowParts(limits, work, round, stream);
}

// The number of parts of all groups together: chunks of rows, or work.fold blocks of columns each.
int64_t PartsOf(const GroupWork& work) {
  return work.columns ? work.keep0 * order::CeilDiv(order::ColumnBlocks(work.reduce0), work.fold) * work.Columns()
                      : work.StatisticsGroups() * order::GroupChunks(work.reduce0, work.statistic_reduce1);
}

// The same groups as the first round sums them. The parts of columns lie behind those of groups that are summed again,
// whose places are others: a block may sum its group again while another one still reads its own parts.
GroupWork FirstRoundOf(const DeviceLimits& limits, const GroupWork& work) {
  GroupWork first = work;
  if (!work.columns) return first;
  first.fold = FoldOf(limits, work);
  // Null while the parts are only counted.
  if (work.parts != nullptr) first.parts = static_cast<NarrowPart*>(work.parts) + PartsOf(work);
  return first;
}

cudaError_t ReduceWideGroups(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream) {
  const bool any = !IsEmpty(work);
  if (any) {
    NORMD_CUDA_RETURN_IF_ERROR(work.columns ? MeasureColumns(limits, work, stream) : MeasureRows(limits, work, stream));
  }
  NORMD_CUDA_RETURN_IF_ERROR(Launch(ThreadsShape(work), stream, BeginWideGroupsKernel, work));
  if (!any) return cudaSuccess;
  for (const Round round : {Round::kExact, Round::kExactAgain}) {
    // Only a mean can be far from the shift.
    if (round == Round::kExactAgain && work.statistic != Statistic::kMeanVariance) break;
    NORMD_CUDA_RETURN_IF_ERROR(SumParts(limits, work, round, stream));
    NORMD_CUDA_RETURN_IF_ERROR(Launch(GroupsShape(work), stream, FinishWideGroupsKernel, work, round));
  }
  return cudaSuccess;
}

}  // namespace

int64_t PartsToTake(const DeviceLimits& limits, const GroupWork& work) {
  return PartsOf(work) + (work.columns && !work.wide() ? PartsOf(FirstRoundOf(limits, work)) : 0);
}

cudaError_t ReduceGroups(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream) {
  if (work.StatisticsGroups() == 0) return cudaSuccess;
  if (work.wide()) return ReduceWideGroups(limits, work, stream);
  const GroupWork first = FirstRoundOf(limits, work);
  if (!IsEmpty(work)) NORMD_CUDA_RETURN_IF_ERROR(SumParts(limits, first, FirstRound(work.precision), stream));
  return FinishNarrowGroups(first, work, stream);
}

cudaError_t TakeGivenStatistics(const GroupWork& work, const double* mean, const double* variance,
                                cudaStream_t stream) {
  return Launch(ThreadsShape(work), stream, GivenStatisticsKernel, work, mean, variance);
}

}  // namespace normd::cuda
