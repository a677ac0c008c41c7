// The reduce pass of Pattern::kRows for rows that fused_rows.cu does not take (they do not fit on chip, have f64
// elements, or belong to groups with several segments or masks): the sums of their chunks, one chunk for each lane
// group, or two where the second is short. Segments that are aligned to vectors are loaded by vectors.
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/first_shift.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector_sums.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

constexpr int kThreads = 128;

// The number of lane groups that share the chunks of a run.
__host__ __device__ inline int64_t SharersOfRun(const GroupWork& work, const RowCut& cut) {
  return cut.of_segment - (HasShortTail(work.statistic_reduce1) ? 1 : 0);
}
// The same for all runs of all groups.
__host__ __device__ inline int64_t Items(const GroupWork& work, const RowCut& cut) {
  return work.StatisticsGroups() * cut.runs * SharersOfRun(work, cut);
}

// Calls body(place) for the chunks of this lane group.
template <int kLanes, typename Body>
__device__ __forceinline__ void ForChunks(const GroupWork& work, const RowCut& cut, Body body) {
  const int64_t items = Items(work, cut);
  const int64_t sharers = SharersOfRun(work, cut);
  const int groups = static_cast<int>(blockDim.x) / kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * groups + group; item < items;
       item += static_cast<int64_t>(gridDim.x) * groups) {
    const Division run = sharers == 1 ? Division{item, 0} : Divide(item, sharers);
    const int64_t last = run.remainder + 1 == sharers ? cut.of_segment - 1 : run.remainder;
#pragma unroll 1
    for (int64_t chunk = run.remainder; chunk <= last; ++chunk) body(ChunkOf(work, cut, run.quotient, chunk));
  }
}

template <typename T, typename Real, bool kCentred, int kLanes>
__global__ void __launch_bounds__(kThreads, 6)
    SumNarrowRowsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ RowCut cut) {
  WaitForLaunchBefore();
  const auto lanes = LaneGroup<kLanes>::This();
  constexpr Precision kPrecision = std::is_same_v<Real, float> ? Precision::kFast : Precision::kExact;
  ForChunks<kLanes>(work, cut, [&](const ChunkPlace& place) {
    Real shift = 0;
    if constexpr (kCentred) shift = static_cast<Real>(RowShift<T>(lanes, work, kPrecision, place.group_first));
    const PairSums sums = SumNarrowChunk<T, Real, kCentred>(lanes, work, cut, place, shift);
    if (lanes.lane == 0) static_cast<NarrowPart*>(work.parts)[place.part] = {sums.first.hi, sums.second.hi};
  });
}

// The same for segments that are aligned to vectors of kWidth elements. Lane groups have one chunk after the other, and
// the chunks that are shorter than others come last, so that the lane groups of a warp have chunks of one length.
template <typename T, typename Real, bool kCentred, int kWidth>
__global__ void __launch_bounds__(kThreads, 5)
    SumVectorRowsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ RowCut cut) {
  WaitForLaunchBefore();
  using Chunk = VectorSums<T, Real, kCentred, kWidth>;
  constexpr int kGroups = kThreads / Chunk::kLanes;
  const int lane = static_cast<int>(threadIdx.x) % Chunk::kLanes;
  const int64_t runs = work.StatisticsGroups() * cut.runs;
  const int64_t whole = cut.of_segment - (work.statistic_reduce1 % order::kRowChunk == 0 ? 0 : 1);
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kGroups + static_cast<int>(threadIdx.x) / Chunk::kLanes;
       item < runs * cut.of_segment; item += static_cast<int64_t>(gridDim.x) * kGroups) {
    const Division run = item < runs * whole ? Divide(item, whole) : Division{item - runs * whole, whole};
    const ChunkPlace place = ChunkOf(work, cut, run.quotient, run.remainder);
    const NarrowPart sums = Chunk(work).Sum(cut, place);
    if (lane == 0) static_cast<NarrowPart*>(work.parts)[place.part] = sums;
  }
}

// FAST, segments that are too short for that, of several adjacent groups: a partial sum has one element of each segment
// of a chunk, so that a thread sums a vector of elements down the segments, whichever groups its elements belong to. A
// block has kGroups groups of one chunk each, and folds their partial sums in shared memory.
template <typename T>
struct ShortSegments {
  static constexpr int kGroups = 2 * kVector<T>;
  static constexpr int kPartials = static_cast<int>(order::kFastPartials);
  static_assert(kGroups * kPartials <= kThreads * kVector<T>);
  float shifts[kGroups];
  float first[kGroups * kPartials], second[kGroups * kPartials];  // [group][element]

  // True if the segments suit. REQUIRES: FAST.
  static bool Fits(const GroupWork& work) {
    return work.mask == nullptr && work.statistic_reduce1 == work.reduce1 && work.reduce1 > kPartials / 2 &&
           work.reduce1 <= kPartials && work.keep1 * work.reduce1 % kVector<T> == 0 && IsVectorAligned(work.x.data);
  }
  static __host__ __device__ int64_t Tiles(const GroupWork& work) { return order::CeilDiv(work.keep1, kGroups); }

  // The fold of the partial sums of a group. A warp calls it; the first lane has the result.
  static __device__ __forceinline__ float Fold(const float* partials, int group, int length) {
    const auto lanes = LaneGroup<kWarp>::This();
    float own[kPartials / kWarp];
#pragma unroll
    for (int k = 0; k < kPartials / kWarp; ++k) {
      const int i = lanes.lane + k * kWarp;
      own[k] = i < length ? partials[group * length + i] : 0;
    }
    return FoldPartials<NarrowSums<float>>(lanes, own);
  }
};

template <typename T, bool kCentred>
__global__ void __launch_bounds__(kThreads, 4)
    SumShortSegmentsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ RowCut cut) {
  WaitForLaunchBefore();
  NORMD_DYNAMIC_SHARED(memory);
  using Vector = Packed<T, kVector<T>>;
  constexpr int kGroups = ShortSegments<T>::kGroups;
  constexpr int kSegments = static_cast<int>(order::ChunkSegments(order::kFastPartials));
  constexpr int kStep = static_cast<int>(order::StepSegments(order::kFastPartials));
  auto* const shared = reinterpret_cast<ShortSegments<T>*>(memory);
  const Division tile = Divide(blockIdx.x, ShortSegments<T>::Tiles(work));
  const Division run = Divide(tile.quotient, cut.runs);
  const int64_t k1 = tile.remainder * kGroups;
  const int groups = static_cast<int>(work.keep1 - k1 < kGroups ? work.keep1 - k1 : kGroups);
  const int64_t begin = run.remainder * kSegments;
  const int segments = static_cast<int>(work.reduce0 - begin < kSegments ? work.reduce0 - begin : kSegments);
  const int length = static_cast<int>(work.reduce1);
  const int64_t stride = work.keep1 * work.reduce1;
  const int own = static_cast<int>(threadIdx.x) * kVector<T>;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const bool has_elements = own < groups * length;
  const auto* const of_groups =
      static_cast<const typename T::Storage*>(work.x.data) + run.quotient * work.reduce0 * stride + k1 * length + own;
  const auto* const x = of_groups + begin * stride;
  Vector sample, steps[2][kStep];
  const auto load = [&](int step) {
#pragma unroll
    for (int s = 0; s < kStep; ++s) {
      if (has_elements && step * kStep + s < segments)
        steps[step % 2][s] = Vector::Load(x + (step * kStep + s) * stride);
    }
  };
  if (kCentred && has_elements) sample = Vector::Load(of_groups);
  load(0);
  load(1);
  float shift[kVector<T>] = {};
  if constexpr (kCentred) {
    float values[kVector<T>];
    sample.Unpack(values);
#pragma unroll
    for (int k = 0; k < kVector<T>; ++k) {
      if (has_elements) shared->first[own + k] = values[k];
    }
    __syncthreads();
    for (int group = warp; group < groups; group += kThreads / kWarp) {
      const float sum = ShortSegments<T>::Fold(shared->first, group, length);
      const auto mean = static_cast<float>(static_cast<double>(sum) / length);
      if (threadIdx.x % kWarp == 0) shared->shifts[group] = std::isfinite(mean) ? mean : 0;
    }
    __syncthreads();
    const int group = own / length;
#pragma unroll
    for (int k = 0; k < kVector<T>; ++k) {
      if (has_elements) shift[k] = shared->shifts[own + k < (group + 1) * length ? group : group + 1];
    }
  }
  const bool is_abs = work.statistic == Statistic::kAbsSum;
  NarrowSums<float> sums[kVector<T>], totals[kVector<T>];
#pragma unroll
  for (int step = 0; step < kSegments / kStep; ++step) {
#pragma unroll
    for (int s = 0; s < kStep; ++s) {
      if (!has_elements || step * kStep + s >= segments) continue;
      float values[kVector<T>];
      steps[step % 2][s].Unpack(values);
#pragma unroll
      for (int k = 0; k < kVector<T>; ++k) {
        sums[k].template Take<kCentred>(kCentred ? values[k] - shift[k] : values[k], is_abs);
      }
    }
    EndStep(sums, totals);
    if (step + 2 < kSegments / kStep) load(step + 2);
  }
#pragma unroll
  for (int k = 0; k < kVector<T>; ++k) {
    if (!has_elements) continue;
    shared->first[own + k] = totals[k].first;
    shared->second[own + k] = totals[k].second;
  }
  __syncthreads();
  for (int group = warp; group < groups; group += kThreads / kWarp) {
    NarrowPart part;
    if constexpr (kCentred) part.first = static_cast<double>(ShortSegments<T>::Fold(shared->first, group, length));
    part.second = static_cast<double>(ShortSegments<T>::Fold(shared->second, group, length));
    const int64_t to = (run.quotient * work.keep1 + k1 + group) * cut.runs + run.remainder;
    if (threadIdx.x % kWarp == 0) static_cast<NarrowPart*>(work.parts)[to] = part;
  }
}

template <bool kCentred>
__global__ void __launch_bounds__(kThreads, 6)
    SumWideRowsKernel(const __grid_constant__ GroupWork work, Round round, const __grid_constant__ RowCut cut) {
  WaitForLaunchBefore();
  if (work.pending[static_cast<int>(round)] == 0) return;
  const auto lanes = LaneGroup<kWarp>::This();
  const bool is_abs = work.statistic == Statistic::kAbsSum || work.statistic == Statistic::kPowerSum;
  ForChunks<kWarp>(work, cut, [&](const ChunkPlace& place) {
    const GroupState& state = work.states[place.group];
    if (state.round != round) return;
    const double* const x = static_cast<const double*>(work.x.data) + place.first;
    const double* const lo = work.x.lo == nullptr ? nullptr : work.x.lo + place.first;
    const uint8_t* const mask = work.mask == nullptr ? nullptr : work.mask + place.mask;
    const auto take = [&](int64_t at, int64_t mask_at, WideSums& sums) {
      if (mask != nullptr && mask[mask_at] == 0) return;
      const double low = lo == nullptr ? 0 : lo[at];
      sums.template Take<kCentred>(WideValue<kCentred>(work, state, {x[at], low}), is_abs);
    };
    const PairSums sums = SumPlace<kCentred, WideSums>(lanes, work, cut, place, take);
    if (lanes.lane == 0) static_cast<PairSums*>(work.parts)[place.part] = sums;
  });
}

__global__ void __launch_bounds__(kThreads)
    MeasureRowsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ RowCut cut) {
  WaitForLaunchBefore();
  const auto lanes = LaneGroup<kWarp>::This();
  ForChunks<kWarp>(work, cut, [&](const ChunkPlace& place) {
    LaneMagnitude magnitude;
    const double* x = static_cast<const double*>(work.x.data) + place.first;
    int64_t mask = place.mask;
    for (int segment = 0; segment < place.segments; ++segment) {
      for (int i = lanes.lane; i < place.n; i += kWarp) {
        if (work.mask == nullptr || work.mask[mask + i] != 0) magnitude.Take(x[i]);
      }
      x += work.keep1 * work.reduce1;
      mask += work.reduce1;
    }
    // One lane adds what all of them have seen.
#pragma unroll
    for (int half = kWarp / 2; half > 0; half /= 2) {
      const auto largest_bits = static_cast<unsigned long long>(magnitude.largest_bits);
      magnitude.Include({lanes.Down(largest_bits, half), lanes.Down(magnitude.non_finite, half)});
    }
    if (lanes.lane == 0) magnitude.AddTo(&work.magnitudes[place.group]);
  });
}

LaunchShape ChunksShape(const DeviceLimits& limits, const GroupWork& work, const RowCut& cut, int lanes) {
  return {.blocks = EnoughBlocks(limits, Items(work, cut), kThreads / lanes), .threads = kThreads};
}

// True if every segment can be loaded by vectors of `width` elements. Groups of fewer elements than the sample that
// decides the shift are left out.
bool HasVectors(const GroupWork& work, int width) {
  return work.mask == nullptr && reinterpret_cast<uintptr_t>(work.x.data) % (width * SizeOf(work.x.dtype)) == 0 &&
         work.reduce1 % width == 0 && work.statistic_reduce1 % width == 0 &&
         work.statistic_reduce1 >= order::kFastPartials;
}

template <typename T, typename Real, bool kCentred, int kWidth>
cudaError_t SumVectorRows(const DeviceLimits& limits, const GroupWork& work, const RowCut& cut, cudaStream_t stream) {
  constexpr int kGroups = kThreads / VectorSums<T, Real, kCentred, kWidth>::kLanes;
  const int64_t chunks = work.StatisticsGroups() * cut.runs * cut.of_segment;
  // A block for each few chunks: the device gives the next block to whichever multiprocessor has ended one.
  const int64_t most = int64_t{256} * limits.multiprocessors;
  const int64_t blocks = order::CeilDiv(chunks, kGroups);
  return Launch({.blocks = blocks < most ? blocks : most, .threads = kThreads}, stream,
                SumVectorRowsKernel<T, Real, kCentred, kWidth>, work, cut);
}

// Starts the kernel for the widest vectors that the segments are aligned to, and that a lane has registers for, or for
// short segments. Returns false if neither suits.
template <typename T, typename Real, bool kCentred>
bool SumByVectors(const DeviceLimits& limits, const GroupWork& work, const RowCut& cut, cudaStream_t stream,
                  cudaError_t* error) {
  if constexpr (std::is_same_v<Real, float>) {
    if (ShortSegments<T>::Fits(work)) {
      const LaunchShape shape = {.blocks = work.keep0 * cut.runs * ShortSegments<T>::Tiles(work),
                                 .threads = kThreads,
                                 .shared_bytes = sizeof(ShortSegments<T>)};
      *error = Launch(shape, stream, SumShortSegmentsKernel<T, kCentred>, work, cut);
      return true;
    }
  }
  if constexpr (!std::is_same_v<T, F32> && std::is_same_v<Real, float>) {
    if (HasVectors(work, 8)) {
      *error = SumVectorRows<T, Real, kCentred, 8>(limits, work, cut, stream);
      return true;
    }
  }
  if (!HasVectors(work, 4)) return false;
  *error = SumVectorRows<T, Real, kCentred, 4>(limits, work, cut, stream);
  return true;
}

}  // namespace

cudaError_t SumRowParts(const DeviceLimits& limits, const GroupWork& work, Round round, cudaStream_t stream) {
  const RowCut cut = RowCut::Of(work);
  if (work.wide()) {
    return VisitCentred(work.statistic, [&]<bool kCentred>() {
      return Launch(ChunksShape(limits, work, cut, kWarp), stream, SumWideRowsKernel<kCentred>, work, round, cut);
    });
  }
  const int64_t segments = work.reduce0 < cut.chunk_segments ? work.reduce0 : cut.chunk_segments;
  return VisitReal(PrecisionOf(round), [&]<typename Real>() {
    return VisitNarrowRows(work.x.dtype, work.statistic, ChunkLanes(segments, work.statistic_reduce1),
                           [&]<typename T, bool kCentred, int kLanes>() {
                             cudaError_t error = cudaSuccess;
                             if (SumByVectors<T, Real, kCentred>(limits, work, cut, stream, &error)) return error;
                             return Launch(ChunksShape(limits, work, cut, kLanes), stream,
                                           SumNarrowRowsKernel<T, Real, kCentred, kLanes>, work, cut);
                           });
  });
}

cudaError_t MeasureRows(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream) {
  const RowCut cut = RowCut::Of(work);
  return Launch(ChunksShape(limits, work, cut, kWarp), stream, MeasureRowsKernel, work, cut);
}

}  // namespace normd::cuda
