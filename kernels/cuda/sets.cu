// Statistic sets on their way from sums to statistics, all on the device: where sums begin, how parts are folded,
// whether sums are to be taken again, and what Apply and replies get. A warp a set, or a block where it has many parts
// or is summed once more; nothing comes back to the host before the end.
#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/part_sums.cuh"
#include "kernels/cuda/parts.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/visit.cuh"
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
  if (!work.wide()) {
    const Statistics32 s = ToF32(result.statistics);
    work.results32[set] = {s.shift, s.delta, s.inverse, result.in_f32 ? 1u : 0u};
  }
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
  const auto [r0, r1] = work.columns ? Division{work.first_counted, 0} : Divide(work.first_counted, work.reduce1);
  return FiniteOrZero(ElementAt(work.x, ((k0 * work.reduce0 + r0) * work.keep1 + k1) * work.reduce1 + r1));
}

// FAST, rows: the mean of the first elements. By all lanes.
template <typename T>
__device__ inline double RowSample(const SetWork& work, int64_t k0, int64_t k1) {
  const int64_t first = (k0 * work.reduce0 * work.keep1 + k1) * work.reduce1;
  return ShiftOf(T(), Group<kWarp>::This(), Precision::kFast,
                 static_cast<const typename T::Storage*>(work.x.data) + first, work.statistic_reduce1);
}

// FAST, columns: the mean of the first positions, or NaN if none of them counts. By all lanes. Each column's elements
// are added in the order of positions, then columns in theirs; a lane has a position where the set has one column, else
// a column.
template <typename T>
__device__ inline double ColumnSample(const SetWork& work, int64_t k0, int64_t k1) {
  constexpr int kSample = static_cast<int>(order::kFastColumnSample);
  static_assert(kSample == kWarp);
  const auto lanes = Group<kWarp>::This();
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

// Where the sums of narrow elements begin. By all lanes.
template <typename T>
__device__ inline void ChooseShift(const SetWork& work, int64_t set, SetState* state) {
  if (work.statistic != Statistic::kMeanVariance) return;
  const auto [k0, k1] = Divide(set, work.keep1);
  state->shift = state->exact_shift = FirstElement(work, k0, k1);
  if (work.precision != Precision::kFast) return;
  if (work.columns) {
    const double sample = ColumnSample<T>(work, k0, k1);
    if (!std::isnan(sample)) state->shift = sample;
  } else if (work.mask == nullptr) {
    state->shift = RowSample<T>(work, k0, k1);
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
  const int64_t blocks = Divide(order::ColumnBlocks(work.reduce0) + work.fold - 1, work.fold).quotient;
  const Division place = Divide(set, work.keep1);
  return {.first = place.quotient * blocks * work.Columns() + place.remainder * work.reduce1,
          .count = blocks,
          .stride = work.Columns(),
          .inner = work.reduce1};
}

template <typename T>
__global__ void __launch_bounds__(kThreads) BeginSetsKernel(const __grid_constant__ SetWork work) {
  WaitForLaunchBefore();
  const int64_t set = SetOfWarp();
  if (set >= work.Sets()) return;
  const bool first_lane = threadIdx.x % kWarp == 0;
  SetState state;
  state.round = Round::kDone;
  FinishedSet finished;
  if (work.counted == 0 || PartsOfSet(work, set).count == 0) {
    finished = Finish(work, {}, 0, 1, Precision::kExact);
  } else if constexpr (!kIsWide<T>) {
    state.round = FirstRound(work.precision);
    ChooseShift<T>(work, set, &state);
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

// Finishes the set with the sums of state.round, or says what comes next. By one thread.
__device__ inline void FinishWith(const SetWork& work, int64_t set, const SetState& state, const PairSums& sums) {
  const FinishedSet finished = Finish(work, sums, state.shift, state.scale, PrecisionOf(state.round));
  const Round next = NextRound(state.round, finished);
  if (next == Round::kDone) return Publish(work, set, finished);
  work.states[set].shift = IsFirstOfPrecision(next) ? state.exact_shift : finished.better_shift;
  work.states[set].round = next;
  work.pending[static_cast<int>(next)] = 1;
}

// Folds the parts of a set that were summed in state.round, and finishes it. By a warp.
template <typename Part, typename AddTo>
__device__ inline void FinishSet(const SetWork& work, int64_t set, const SetState& state) {
  const PartPlace place = PartsOfSet(work, set);
  Part* const parts = static_cast<Part*>(work.parts) + place.first;
  FoldInPlace(parts, place.count, place.stride, place.inner, AddTo());
  FoldInPlace(parts, place.inner, 1, 1, AddTo());
  if (threadIdx.x % kWarp == 0) FinishWith(work, set, state, AsSums(parts[0]));
}

// Parts of a set from which on a block folds them, not a warp; and folds of eight that a thread has at most, as a power
// of two.
constexpr int64_t kManyParts = 256;
constexpr int kLargeLevels = 6;

// Adds what `width` threads have, `stride` apart, pairwise by index into the first's. A power of two each. What is not
// there counts 0, which changes no sum that began with +0.
__device__ __forceinline__ void FoldThreads(NarrowPart* of_threads, int stride, int width) {
  for (int step = 1; step < width; step *= 2) {
    __syncthreads();
    const int index = static_cast<int>(threadIdx.x) / stride % width;
    if (index % (2 * step) == 0) AddNarrow()(of_threads[threadIdx.x], of_threads[threadIdx.x + step * stride]);
  }
}

// How many threads share a column's parts; 0: there are more columns than threads.
__host__ __device__ inline int Sharers(const PartPlace& place) {
  int columns = 1;
  while (columns < place.inner && columns <= kThreads) columns *= 2;
  return kThreads / columns;
}
bool FitsLarge(const PartPlace& place) {
  return place.count * place.inner >= kManyParts && place.count <= int64_t{Sharers(place)} << (kLargeLevels + 3);
}

// The same as FinishSetsKernel by a block a set, of narrow elements: threads share out its columns, and the parts of
// each column in runs that are powers of two. REQUIRES: FitsLarge.
__global__ void __launch_bounds__(kThreads) FinishLargeSetsKernel(const __grid_constant__ SetWork work, Round round) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(shared);
  if (work.pending[static_cast<int>(round)] == 0) return;
  const int64_t set = blockIdx.x;
  const SetState state = work.states[set];
  if (state.round != round) return;
  const PartPlace place = PartsOfSet(work, set);
  const int sharers = Sharers(place);
  const int columns = kThreads / sharers;
  constexpr int kLevels = 3;
  constexpr int64_t kTogether = int64_t{1} << kLevels;
  int64_t run = kTogether;
  while (run * sharers < place.count) run *= 2;
  const int column = static_cast<int>(threadIdx.x) % columns;
  const int64_t begin = static_cast<int>(threadIdx.x) / columns * run;
  const int64_t end = begin + run < place.count ? begin + run : place.count;
  const NarrowPart* const parts = static_cast<const NarrowPart*>(work.parts) + place.first + column;
  PairwiseStack<kLargeLevels> first, second;
  int64_t pushed = 0;
  if (column < place.inner) {
    for (int64_t from = begin; from < end; from += kTogether, ++pushed) {
      const NarrowPart part = FoldTree<kLevels, NarrowPart>(
          from, from + kTogether < end ? from + kTogether : end, [&](int64_t i) { return parts[i * place.stride]; },
          AddNarrow());
      first.Push(pushed, part.first);
      second.Push(pushed, part.second);
    }
  }
  auto* const of_threads = reinterpret_cast<NarrowPart*>(shared);
  of_threads[threadIdx.x] = {first.Total(pushed), second.Total(pushed)};
  FoldThreads(of_threads, columns, sharers);
  FoldThreads(of_threads, 1, columns);
  if (threadIdx.x == 0) FinishWith(work, set, state, AsSums(of_threads[0]));
}

template <typename Part, typename AddTo>
__global__ void __launch_bounds__(kThreads) FinishSetsKernel(const __grid_constant__ SetWork work, Round round) {
  WaitForLaunchBefore();
  if (work.pending[static_cast<int>(round)] == 0) return;
  const int64_t set = SetOfWarp();
  if (set >= work.Sets()) return;
  const SetState state = work.states[set];
  if (state.round != round) return;
  __syncwarp();
  FinishSet<Part, AddTo>(work, set, state);
}

// The EXACT sums of all parts of one set of narrow elements, by a block.
template <typename T, bool kCentred>
__device__ inline void SumSet(const SetWork& work, int64_t set, const SetState& state) {
  auto* const parts = static_cast<NarrowPart*>(work.parts);
  const auto [k0, k1] = Divide(set, work.keep1);
  if (work.columns) {
    const int64_t blocks = order::ColumnBlocks(work.reduce0);
    for (int64_t i = threadIdx.x; i < blocks * work.reduce1; i += kThreads) {
      const int64_t block = i / work.reduce1;
      const int64_t column = k1 * work.reduce1 + i % work.reduce1;
      parts[(k0 * blocks + block) * work.Columns() + column] =
          SumNarrowColumn<T, double, kCentred>(work, k0, block, column, state.shift);
    }
    return;
  }
  const auto lanes = Group<kWarp>::This();
  const int64_t of_segment = order::RowChunks(work.statistic_reduce1);
  for (int64_t i = static_cast<int>(threadIdx.x) / kWarp; i < work.reduce0 * of_segment; i += kSets) {
    const int64_t segment = (k0 * work.reduce0 + i / of_segment) * work.keep1 + k1;
    const ChunkPlace place = ChunkOf(work, segment * of_segment + i % of_segment);
    const PairSums sums = SumNarrowChunk<T, double, kCentred>(lanes, work, place, state.shift);
    if (lanes.lane == 0) parts[place.part] = {sums.first.hi, sums.second.hi};
  }
}

// What is left after the rounds that all sets may need: rarely any, so that one launch does for all of it, a block a
// set.
template <typename T, bool kCentred>
__global__ void __launch_bounds__(kThreads) RedoSetsKernel(const __grid_constant__ SetWork work) {
  WaitForLaunchBefore();
  if (work.pending[static_cast<int>(Round::kExact)] == 0 && work.pending[static_cast<int>(Round::kExactAgain)] == 0) {
    return;
  }
  for (int64_t set = blockIdx.x; set < work.Sets(); set += gridDim.x) {
    for (;;) {
      const SetState state = work.states[set];
      if (state.round == Round::kDone) break;
      SumSet<T, kCentred>(work, set, state);
      __syncthreads();
      if (threadIdx.x < kWarp) FinishSet<NarrowPart, AddNarrow>(work, set, state);
      __syncthreads();
    }
  }
}

cudaError_t RedoSets(const DeviceLimits& limits, const SetWork& work, cudaStream_t stream) {
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, work.Sets(), 1), .threads = kThreads};
  return VisitNarrowDType(work.x.dtype, [&]<typename T>() {
    return VisitCentred(work.statistic,
                        [&]<bool kCentred>() { return Launch(shape, stream, RedoSetsKernel<T, kCentred>, work); });
  });
}

__global__ void __launch_bounds__(kThreads)
    GivenSetsKernel(const __grid_constant__ SetWork work, const double* mean, const double* variance) {
  WaitForLaunchBefore();
  const int64_t set = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (set >= work.Sets()) return;
  const int64_t k1 = set % work.keep1;
  Publish(work, set,
          GivenStatistics(work.rule, mean == nullptr ? nullptr : mean + k1, variance[k1], work.wide(), work.precision));
}

cudaError_t BeginSets(const SetWork& work, cudaStream_t stream) {
  return VisitDType(work.x.dtype,
                    [&]<typename T>() { return Launch(SetsShape(work), stream, BeginSetsKernel<T>, work); });
}

cudaError_t FinishSets(const SetWork& work, Round round, cudaStream_t stream) {
  const PartPlace place = PartsOfSet(work, 0);
  if (!work.wide() && FitsLarge(place)) {
    const LaunchShape shape = {.blocks = work.Sets(),
                               .threads = kThreads,
                               .shared_bytes = kThreads * static_cast<int64_t>(sizeof(NarrowPart))};
    return Launch(shape, stream, FinishLargeSetsKernel, work, round);
  }
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
  const bool is_plain = !work.wide() && work.pre == nullptr;
  if (work.wide() && work.pre == nullptr && any) {
    NORMD_CUDA_RETURN_IF_ERROR(work.columns ? MeasureColumns(limits, work, stream) : MeasureRows(limits, work, stream));
  }
  NORMD_CUDA_RETURN_IF_ERROR(BeginSets(work, stream));
  if (!any) return cudaSuccess;
  const Precision precision = work.wide() ? Precision::kExact : work.precision;
  for (int i = static_cast<int>(FirstRound(precision)); i < kRounds; ++i) {
    const auto round = static_cast<Round>(i);
    // Only a mean can be far from where sums began.
    if (!IsFirstOfPrecision(round) && work.statistic != Statistic::kMeanVariance) continue;
    if (is_plain && (PrecisionOf(round) != precision || round == Round::kExactAgain)) break;
    SetWork now = work;
    if (is_plain && work.columns) now.fold = FoldOf(limits, work, round);
    NORMD_CUDA_RETURN_IF_ERROR(work.columns ? SumColumnParts(limits, now, round, stream)
                                            : SumRowParts(limits, now, round, stream));
    NORMD_CUDA_RETURN_IF_ERROR(FinishSets(now, round, stream));
  }
  const bool may_be_left = precision == Precision::kFast || work.statistic == Statistic::kMeanVariance;
  return is_plain && may_be_left ? RedoSets(limits, work, stream) : cudaSuccess;
}

cudaError_t TakeGivenSets(const SetWork& work, const double* mean, const double* variance, cudaStream_t stream) {
  const LaunchShape shape = {.blocks = order::CeilDiv(work.Sets(), kThreads), .threads = kThreads};
  return Launch(shape, stream, GivenSetsKernel, work, mean, variance);
}

}  // namespace normd::cuda
