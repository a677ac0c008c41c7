// GroupNorm with channels last, where groups are small and few: a block of threads has one group, which it sums,
// finishes and applies in one launch. Its elements are read twice, the second time from a cache. Large or many groups
// take the launches of ReduceGroups and ApplyGroups, which share every group among many blocks and read wider pieces.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/first_shift.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kMostThreads = 512;
constexpr int kLeastThreads = 128;
// Bounds within which one launch is faster than three: on an H100, with 64 groups, EXACT is 1.6 to 2.6 times as fast
// for groups of 2,560 to 20,480 elements, and 0.9 times for 40,960. Of more groups than multiprocessors some would wait
// for others.
constexpr int64_t kMostElements = 32 << 10;  // of a group
constexpr int64_t kLeastBytes = 16;          // of a group at one position: half of what a load brings
// A thread has a pair of adjacent columns, read in one access, of several positions.
constexpr int kPair = 2;

template <typename T>
using PairOf = std::conditional_t<std::is_same_v<T, F32>, float2, unsigned>;

template <typename T>
__device__ __forceinline__ void UnpackPair(const PairOf<T>& pair, float (&x)[kPair]) {
  if constexpr (std::is_same_v<T, F32>) {
    x[0] = pair.x;
    x[1] = pair.y;
  } else {
    T::Split(pair, x[0], x[1]);
  }
}
// REQUIRES: no 16-bit element is NaN.
template <typename T>
__device__ __forceinline__ PairOf<T> PackPair(const float (&x)[kPair]) {
  if constexpr (std::is_same_v<T, F32>) {
    return make_float2(x[0], x[1]);
  } else {
    return T::Join(x[0], x[1]);
  }
}

// What the threads of a block share: this, then the parameters of each column, then the parts, [block of
// positions][column].
struct Shared {
  GroupState state;
  GroupResult result;
};
constexpr int64_t kSharedBytes = order::CeilDiv(sizeof(Shared), kVectorBytes) * kVectorBytes;
int64_t SharedBytes(const GroupWork& work) {
  return kSharedBytes + work.reduce1 * static_cast<int64_t>(sizeof(Affine<double>)) +
         order::ColumnBlocks(work.reduce0) * work.reduce1 * static_cast<int64_t>(sizeof(NarrowPart));
}

int ThreadsOf(const GroupWork& work) {
  constexpr int64_t kLeastElements = 8;  // of a thread
  int threads = kMostThreads;
  while (threads > kLeastThreads && threads / 2 >= work.reduce1 / kPair &&
         threads * kLeastElements > work.reduce0 * work.reduce1) {
    threads /= 2;
  }
  return threads;
}

// The group of a block, and the part of it that this thread has: a pair of columns, and every rows-th position or block
// of positions, beginning with `row`.
struct PairPlace {
  int64_t group = 0, k0 = 0, k1 = 0;
  int64_t first = 0;  // the index in x of the thread's columns at position 0
  int column = 0;     // of the group
  int row = 0, rows = 0;
  bool idle = false;

  static __device__ __forceinline__ PairPlace This(const GroupWork& work) {
    const int pairs = static_cast<int>(work.reduce1) / kPair;
    const int index = static_cast<int>(threadIdx.x);
    const Division group = Divide(blockIdx.x, work.keep1);
    PairPlace place;
    place.group = blockIdx.x;
    place.k0 = group.quotient;
    place.k1 = group.remainder;
    place.column = index % pairs * kPair;
    place.row = index / pairs;
    place.rows = static_cast<int>(blockDim.x) / pairs;
    place.idle = place.row >= place.rows;
    place.first = FirstOf(work, place.k0, place.k1) + place.column;
    return place;
  }
};

// Copies the parameters of the group's columns to shared memory, so that they are there when the sums are.
__device__ __forceinline__ void LoadAffine(const GroupWork& work, const ApplyWork& apply, const PairPlace& place,
                                           Affine<double>* to) {
  for (int64_t r1 = threadIdx.x; r1 < work.reduce1; r1 += blockDim.x) {
    to[r1] = AffineAt<double>(apply.parameters, ParameterOfColumn(work, apply, place.k1 * work.reduce1 + r1));
  }
}

// The state in which the group is summed first, to shared->state. `samples` has room for one of each column. All
// threads call it, and have been synchronised when they return.
template <typename T>
__device__ __forceinline__ void BeginGroup(const GroupWork& work, const PairPlace& place, ColumnSample* samples,
                                           Shared* shared) {
  const bool fast = work.precision == Precision::kFast;
  const int64_t first = FirstOf(work, place.k0, place.k1);
  const double first_counted = threadIdx.x == 0 ? FirstCounted(work, first) : 0;  // on its way meanwhile
  if (fast) {
    for (int64_t r1 = threadIdx.x; r1 < work.reduce1; r1 += blockDim.x) {
      samples[r1] = SampleColumn<T>(work, place.k0, place.k1 * work.reduce1 + r1);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    GroupState state;
    state.round = FirstRound(work.precision);
    state.shift = state.exact_shift = first_counted;
    if (fast) {
      ColumnSample sample;
      sample.Add(samples, work.reduce1);
      state.shift = sample.Shift(work, first);
    }
    shared->state = state;
  }
  __syncthreads();
}

// Sums the thread's columns of every block of positions that it has, about `shift`, as SumNarrowColumn does.
template <typename T, typename Real>
__device__ __forceinline__ void SumBlocks(const GroupWork& work, const PairPlace& place, Real shift,
                                          NarrowPart* parts) {
  constexpr bool kInRuns = std::is_same_v<Real, float>;
  constexpr int kRun = static_cast<int>(order::kFastColumnRun);
  constexpr int kBlock = static_cast<int>(order::kColumnBlock);
  constexpr int kLoads = kBlock / 2;  // that are under way together
  static_assert(kLoads % kRun == 0);
  const auto* const x = static_cast<const typename T::Storage*>(work.x.data) + place.first;
  const auto blocks = static_cast<int>(order::ColumnBlocks(work.reduce0));
  for (int block = place.row; block < blocks; block += place.rows) {
    NarrowPart total[kPair];
    NarrowSums<Real> sums[2][kPair];  // FAST: of even and odd positions of a run
#pragma unroll 1
    for (int from = 0; from < kBlock; from += kLoads) {
      const int64_t begin = int64_t{block} * kBlock + from;
      const int64_t left = work.reduce0 - begin;
      PairOf<T> pairs[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (i < left) pairs[i] = *reinterpret_cast<const PairOf<T>*>(x + (begin + i) * work.Columns());
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (i < left) {
          float values[kPair];
          UnpackPair<T>(pairs[i], values);
#pragma unroll
          for (int c = 0; c < kPair; ++c) {
            sums[kInRuns ? i % 2 : 0][c].template Take<true>(static_cast<Real>(values[c]) - shift, false);
          }
        }
        // Positions after the last one have sums of 0, which change no sum that began with +0.
        if (kInRuns && i % kRun == kRun - 1) {
#pragma unroll
          for (int c = 0; c < kPair; ++c) {
            total[c].first += static_cast<double>(sums[0][c].first + sums[1][c].first);
            total[c].second += static_cast<double>(sums[0][c].second + sums[1][c].second);
            sums[0][c] = sums[1][c] = {};
          }
        }
      }
    }
#pragma unroll
    for (int c = 0; c < kPair; ++c) {
      if constexpr (!kInRuns) total[c] = {sums[0][c].first, sums[0][c].second};
      parts[block * work.reduce1 + place.column + c] = total[c];
    }
  }
}

// Sums the group until it is done: shared->result. All threads call it, and have been synchronised when they return.
template <typename T>
__device__ __forceinline__ void ReduceGroup(const GroupWork& work, const PairPlace& place, NarrowPart* parts,
                                            Shared* shared) {
#pragma unroll 1
  while (shared->state.round != Round::kDone) {
    const double shift = shared->state.shift;
    if (!place.idle) {
      if (PrecisionOf(shared->state.round) == Precision::kFast) {
        SumBlocks<T>(work, place, static_cast<float>(shift), parts);
      } else {
        SumBlocks<T>(work, place, shift, parts);
      }
    }
    __syncthreads();
    FoldInPlace<BlockThreads>(parts, order::ColumnBlocks(work.reduce0), work.reduce1, work.reduce1, AddNarrow());
    FoldInPlace<BlockThreads>(parts, work.reduce1, 1, 1, AddNarrow());
    if (threadIdx.x == 0) {
      const GroupState state = shared->state;
      const FinishedStatistics finished =
          Finish(work, AsSums(parts[0]), state.shift, state.scale, PrecisionOf(state.round));
      shared->state = NextState(state, finished);
      if (shared->state.round == Round::kDone) shared->result = StoreFinished(work, place.group, finished);
    }
    __syncthreads();
  }
}

// Writes y of the thread's columns. kInF64: calculates in f64 (EXACT f32); otherwise in f32, and single elements in f64
// where f32 does not suffice.
template <typename T, bool kInF64>
__device__ __forceinline__ void ApplyGroup(const GroupWork& work, const ApplyWork& apply, const PairPlace& place,
                                           const Affine<double>* of_columns, const GroupResult& result) {
  using S = typename T::Storage;
  using Real = std::conditional_t<kInF64, double, float>;
  constexpr int kLoads = 8;  // that are under way together
  const auto statistics = [&] {
    if constexpr (kInF64) {
      return result.statistics;
    } else {
      return ToF32(result.statistics);
    }
  }();
  Affine<Real> affine[kPair];  // the weights are factors
#pragma unroll
  for (int c = 0; c < kPair; ++c) {
    affine[c] = ScaledAffine<Real>(of_columns[place.column + c], result.statistics.inverse.hi);
  }
  const auto* const x = static_cast<const S*>(work.x.data) + place.first;
  auto* const y = static_cast<S*>(apply.y) + place.first;
  const bool singly = !kInF64 && !result.in_f32;
#pragma unroll 1
  for (int64_t from = place.row; from < work.reduce0; from += int64_t{kLoads} * place.rows) {
    PairOf<T> pairs[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t p = from + int64_t{i} * place.rows;
      if (p < work.reduce0) pairs[i] = *reinterpret_cast<const PairOf<T>*>(x + p * work.Columns());
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t p = from + int64_t{i} * place.rows;
      if (p >= work.reduce0) continue;
      float out[kPair];
      UnpackPair<T>(pairs[i], out);
      Real zero = 0;  // NaN if an element is not finite
#pragma unroll
      for (int c = 0; c < kPair; ++c) {
        out[c] = ScaledElement(out[c], statistics, affine[c].weight, affine[c].bias);
        zero = std::fma(static_cast<Real>(out[c]), Real{0}, zero);
      }
      if (!kInF64 && (singly || !(zero == 0))) {
        const NarrowElements<T, false> elements(result, apply.parameters, true);
#pragma unroll 1
        for (int c = 0; c < kPair; ++c) {
          const int64_t at = p * work.Columns() + c;
          y[at] = elements.One(x[at], ParameterOfColumn(work, apply, place.k1 * work.reduce1 + place.column + c));
        }
        continue;
      }
      *reinterpret_cast<PairOf<T>*>(y + p * work.Columns()) = PackPair<T>(out);
    }
  }
}

template <typename T, bool kInF64>
__global__ void __launch_bounds__(kMostThreads)
    NormaliseGroupsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(memory);
  auto* const shared = reinterpret_cast<Shared*>(memory);
  auto* const affine = reinterpret_cast<Affine<double>*>(memory + kSharedBytes);
  auto* const parts = reinterpret_cast<NarrowPart*>(affine + work.reduce1);
  static_assert(sizeof(ColumnSample) <= sizeof(NarrowPart));
  const PairPlace place = PairPlace::This(work);
  LoadAffine(work, apply, place, affine);
  BeginGroup<T>(work, place, reinterpret_cast<ColumnSample*>(parts), shared);
  ReduceGroup<T>(work, place, parts, shared);
  if (!place.idle) ApplyGroup<T, kInF64>(work, apply, place, affine, shared->result);
}

}  // namespace

bool FitsInBlocks(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply) {
  const int64_t pair_bytes = kPair * SizeOf(work.x.dtype);
  const auto is_aligned = [&](const void* p) { return reinterpret_cast<uintptr_t>(p) % pair_bytes == 0; };
  const bool is_plain = work.columns && !work.wide() && work.statistic == Statistic::kMeanVariance &&
                        work.mask == nullptr && work.pre == nullptr && work.counted > 0 &&
                        apply.cast_order == CastOrder::kAffineThenCast &&
                        (apply.parameters.absent() || apply.index.kind != AffineIndex::kElement);
  return is_plain && work.reduce1 % kPair == 0 && work.reduce1 / kPair <= kMostThreads && is_aligned(work.x.data) &&
         is_aligned(apply.y) && work.StatisticsGroups() <= limits.multiprocessors &&
         work.reduce1 * SizeOf(work.x.dtype) >= kLeastBytes && work.reduce0 * work.reduce1 <= kMostElements &&
         SharedBytes(work) <= kPlainSharedBytes;
}

cudaError_t NormaliseGroups(const GroupWork& work, const ApplyWork& apply, cudaStream_t stream) {
  const LaunchShape shape = {
      .blocks = work.StatisticsGroups(), .threads = ThreadsOf(work), .shared_bytes = SharedBytes(work)};
  if (work.x.dtype == DType::kF32 && work.precision == Precision::kExact) {
    return Launch(shape, stream, NormaliseGroupsKernel<F32, true>, work, apply);
  }
  return VisitNarrowDType(
      work.x.dtype, [&]<typename T>() { return Launch(shape, stream, NormaliseGroupsKernel<T, false>, work, apply); });
}

}  // namespace normd::cuda
