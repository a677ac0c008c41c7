// The reduce pass of Pattern::kRows for rows that fused_rows.cu does not take (they do not fit on chip, have f64
// elements, or belong to groups with several segments or masks): the sums of their chunks, one chunk for each lane
// group.
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
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

int64_t Items(const GroupWork& work) {
  return work.StatisticsGroups() * work.reduce0 * order::RowChunks(work.statistic_reduce1);
}

// Calls body(place) for the chunks of this lane group.
template <int kLanes, typename Body>
__device__ __forceinline__ void ForChunks(const GroupWork& work, int64_t items, Body body) {
  const int groups = static_cast<int>(blockDim.x) / kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * groups + group; item < items;
       item += static_cast<int64_t>(gridDim.x) * groups) {
    body(ChunkOf(work, item));
  }
}

template <typename T, typename Real, bool kCentred, int kLanes>
__global__ void __launch_bounds__(kThreads, 6)
    SumNarrowRowsKernel(const __grid_constant__ GroupWork work, Round round, int64_t items) {
  WaitForLaunchBefore();
  if (work.pending[static_cast<int>(round)] == 0) return;
  const auto lanes = LaneGroup<kLanes>::This();
  ForChunks<kLanes>(work, items, [&](const ChunkPlace& place) {
    const GroupState& state = work.states[place.group];
    if (state.round != round) return;
    const PairSums sums = SumNarrowChunk<T, Real, kCentred>(lanes, work, place, static_cast<Real>(state.shift));
    if (lanes.lane == 0) static_cast<NarrowPart*>(work.parts)[place.part] = {sums.first.hi, sums.second.hi};
  });
}

template <bool kCentred>
__global__ void __launch_bounds__(kThreads)
    SumWideRowsKernel(const __grid_constant__ GroupWork work, Round round, int64_t items) {
  WaitForLaunchBefore();
  if (work.pending[static_cast<int>(round)] == 0) return;
  const auto lanes = LaneGroup<kWarp>::This();
  const bool is_abs = work.statistic == Statistic::kAbsSum || work.statistic == Statistic::kPowerSum;
  ForChunks<kWarp>(work, items, [&](const ChunkPlace& place) {
    const GroupState& state = work.states[place.group];
    if (state.round != round) return;
    const double* const x = static_cast<const double*>(work.x.data) + place.first;
    const double* const lo = work.x.lo == nullptr ? nullptr : work.x.lo + place.first;
    const uint8_t* const mask = work.mask == nullptr ? nullptr : work.mask + place.mask;
    const auto take = [&](int i, WideSums& sums) {
      if (mask != nullptr && mask[i] == 0) return;
      const double low = lo == nullptr ? 0 : lo[i];
      sums.template Take<kCentred>(WideValue<kCentred>(work, state, {x[i], low}), is_abs);
    };
    const PairSums sums = SumChunk<kCentred, WideSums>(lanes, place.n, take);
    if (lanes.lane == 0) static_cast<PairSums*>(work.parts)[place.part] = sums;
  });
}

__global__ void __launch_bounds__(kThreads) MeasureRowsKernel(const __grid_constant__ GroupWork work, int64_t items) {
  WaitForLaunchBefore();
  const auto lanes = LaneGroup<kWarp>::This();
  ForChunks<kWarp>(work, items, [&](const ChunkPlace& place) {
    const double* const x = static_cast<const double*>(work.x.data) + place.first;
    LaneMagnitude magnitude;
    for (int i = lanes.lane; i < place.n; i += kWarp) {
      if (work.mask == nullptr || work.mask[place.mask + i] != 0) magnitude.Take(x[i]);
    }
    magnitude.AddTo(&work.magnitudes[place.group]);
  });
}

LaunchShape ChunksShape(const DeviceLimits& limits, const GroupWork& work, int lanes) {
  return {.blocks = EnoughBlocks(limits, Items(work), kThreads / lanes), .threads = kThreads};
}

}  // namespace

cudaError_t SumRowParts(const DeviceLimits& limits, const GroupWork& work, Round round, cudaStream_t stream) {
  if (work.wide()) {
    return VisitCentred(work.statistic, [&]<bool kCentred>() {
      return Launch(ChunksShape(limits, work, kWarp), stream, SumWideRowsKernel<kCentred>, work, round, Items(work));
    });
  }
  return VisitNarrowRows(work.x.dtype, PrecisionOf(round), work.statistic, ChunkLanes(work.statistic_reduce1),
                         [&]<typename T, typename Real, bool kCentred, int kLanes>() {
                           return Launch(ChunksShape(limits, work, kLanes), stream,
                                         SumNarrowRowsKernel<T, Real, kCentred, kLanes>, work, round, Items(work));
                         });
}

cudaError_t MeasureRows(const DeviceLimits& limits, const GroupWork& work, cudaStream_t stream) {
  return Launch(ChunksShape(limits, work, kWarp), stream, MeasureRowsKernel, work, Items(work));
}

}  // namespace normd::cuda
