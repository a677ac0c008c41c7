// Rows that do not fit on chip, or whose sets have several segments, masks or given statistics: the sums of their
// chunks, a warp (or 8 or 16 threads) a chunk.
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/magnitude.cuh"
#include "kernels/cuda/part_sums.cuh"
#include "kernels/cuda/parts.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/order.h"

namespace normd::cuda {
namespace {

constexpr int kThreads = 128;

int64_t Items(const SetWork& work) { return work.Sets() * work.reduce0 * order::RowChunks(work.statistic_reduce1); }

// Calls body(place) for the chunks of this group.
template <int kLanes, typename Body>
__device__ __forceinline__ void ForChunks(const SetWork& work, int64_t items, Body body) {
  const int groups = static_cast<int>(blockDim.x) / kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * groups + group; item < items;
       item += static_cast<int64_t>(gridDim.x) * groups) {
    body(ChunkOf(work, item));
  }
}

template <typename T, typename Real, bool kCentred, int kLanes>
__global__ void __launch_bounds__(kThreads, 6)
    SumNarrowRowsKernel(const __grid_constant__ SetWork work, Round round, int64_t items) {
  WaitForLaunchBefore();
  if (work.pending[static_cast<int>(round)] == 0) return;
  const auto lanes = Group<kLanes>::This();
  ForChunks<kLanes>(work, items, [&](const ChunkPlace& place) {
    const SetState& state = work.states[place.set];
    if (state.round != round) return;
    const PairSums sums = SumNarrowChunk<T, Real, kCentred>(lanes, work, place, static_cast<Real>(state.shift));
    if (lanes.lane == 0) static_cast<NarrowPart*>(work.parts)[place.part] = {sums.first.hi, sums.second.hi};
  });
}

template <bool kCentred>
__global__ void __launch_bounds__(kThreads)
    SumWideRowsKernel(const __grid_constant__ SetWork work, Round round, int64_t items) {
  WaitForLaunchBefore();
  if (work.pending[static_cast<int>(round)] == 0) return;
  const auto lanes = Group<kWarp>::This();
  const bool is_abs = work.statistic == Statistic::kAbsSum || work.statistic == Statistic::kPowerSum;
  ForChunks<kWarp>(work, items, [&](const ChunkPlace& place) {
    const SetState& state = work.states[place.set];
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

__global__ void __launch_bounds__(kThreads) MeasureRowsKernel(const __grid_constant__ SetWork work, int64_t items) {
  WaitForLaunchBefore();
  const auto lanes = Group<kWarp>::This();
  ForChunks<kWarp>(work, items, [&](const ChunkPlace& place) {
    const double* const x = static_cast<const double*>(work.x.data) + place.first;
    LaneMagnitude magnitude;
    for (int i = lanes.lane; i < place.n; i += kWarp) {
      if (work.mask == nullptr || work.mask[place.mask + i] != 0) magnitude.Take(x[i]);
    }
    magnitude.AddTo(&work.magnitudes[place.set]);
  });
}

template <typename T, typename Real, bool kCentred>
cudaError_t LaunchNarrow(const DeviceLimits& limits, const SetWork& work, Round round, cudaStream_t stream) {
  const int64_t n = work.statistic_reduce1;
  const int lanes = n <= 64 ? 8 : n <= 128 ? 16 : kWarp;
  const int64_t items = Items(work);
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, items, kThreads / lanes), .threads = kThreads};
  switch (lanes) {
    case 8:
      return Launch(shape, stream, SumNarrowRowsKernel<T, Real, kCentred, 8>, work, round, items);
    case 16:
      return Launch(shape, stream, SumNarrowRowsKernel<T, Real, kCentred, 16>, work, round, items);
    default:
      return Launch(shape, stream, SumNarrowRowsKernel<T, Real, kCentred, kWarp>, work, round, items);
  }
}

template <typename T>
cudaError_t LaunchType(const DeviceLimits& limits, const SetWork& work, Round round, cudaStream_t stream) {
  const bool fast = PrecisionOf(round) == Precision::kFast;
  if (work.statistic == Statistic::kMeanVariance) {
    return fast ? LaunchNarrow<T, float, true>(limits, work, round, stream)
                : LaunchNarrow<T, double, true>(limits, work, round, stream);
  }
  return fast ? LaunchNarrow<T, float, false>(limits, work, round, stream)
              : LaunchNarrow<T, double, false>(limits, work, round, stream);
}

}  // namespace

cudaError_t SumRowParts(const DeviceLimits& limits, const SetWork& work, Round round, cudaStream_t stream) {
  switch (work.x.dtype) {
    case DType::kF16:
      return LaunchType<F16>(limits, work, round, stream);
    case DType::kBF16:
      return LaunchType<BF16>(limits, work, round, stream);
    case DType::kF32:
      return LaunchType<F32>(limits, work, round, stream);
    case DType::kF64:
      break;
  }
  const int64_t items = Items(work);
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, items, kThreads / kWarp), .threads = kThreads};
  return work.statistic == Statistic::kMeanVariance
             ? Launch(shape, stream, SumWideRowsKernel<true>, work, round, items)
             : Launch(shape, stream, SumWideRowsKernel<false>, work, round, items);
}

cudaError_t MeasureRows(const DeviceLimits& limits, const SetWork& work, cudaStream_t stream) {
  const int64_t items = Items(work);
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, items, kThreads / kWarp), .threads = kThreads};
  return Launch(shape, stream, MeasureRowsKernel, work, items);
}

}  // namespace normd::cuda
