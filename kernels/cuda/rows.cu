// The reduce pass of Pattern::kRows for rows that fused_rows.cu does not take (they do not fit on chip, have f64
// elements, or belong to groups with several segments or masks): the sums of their chunks, one chunk for each lane
// group, or two where the second is short.
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/first_shift.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/partial_sums.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/reduce.cuh"
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

}  // namespace

cudaError_t SumRowParts(const DeviceLimits& limits, const GroupWork& work, Round round, cudaStream_t stream) {
  const RowCut cut = RowCut::Of(work);
  if (work.wide()) {
    return VisitCentred(work.statistic, [&]<bool kCentred>() {
      return Launch(ChunksShape(limits, work, cut, kWarp), stream, SumWideRowsKernel<kCentred>, work, round, cut);
    });
  }
  const int64_t segments = work.reduce0 < cut.chunk_segments ? work.reduce0 : cut.chunk_segments;
  return VisitNarrowRows(work.x.dtype, PrecisionOf(round), work.statistic, ChunkLanes(segments, work.statistic_reduce1),
                         [&]<typename T, typename Real, bool kCentred, int kLanes>() {
                           return Launch(ChunksShape(limits, work, cut, kLanes), stream,
                                         SumNarrowRowsKernel<T, Real, kCentred, kLanes>, work, cut);
                         });
}

cudaError_t MeasureRows(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream) {
  const RowCut cut = RowCut::Of(work);
  return Launch(ChunksShape(limits, work, cut, kWarp), stream, MeasureRowsKernel, work, cut);
}

}  // namespace normd::cuda
