// Elements of y from sets that are finished: rows of narrow elements by 16-byte vectors; everything that pairs,
// PowerNorm, CAST_THEN_AFFINE or parameters along another axis need, one element at a time.
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/parts.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/order.h"

namespace normd::cuda {
namespace {

constexpr int kThreads = 256;

// Where element `i` of memory order is.
struct ElementPlace {
  int64_t set = 0, r0 = 0, k1 = 0, r1 = 0;
};

template <typename Index>
__device__ __forceinline__ ElementPlace Decode(const SetWork& work, Index i) {
  const auto reduce1 = static_cast<Index>(work.reduce1);
  const auto keep1 = static_cast<Index>(work.keep1);
  const auto reduce0 = static_cast<Index>(work.reduce0);
  const Index segment = i / reduce1;
  const Index row = segment / keep1;
  ElementPlace place;
  place.r1 = i % reduce1;
  place.k1 = segment % keep1;
  place.r0 = row % reduce0;
  place.set = static_cast<int64_t>(row / reduce0) * work.keep1 + place.k1;
  return place;
}
// A division of 64 bits costs several of 32.
__device__ __forceinline__ ElementPlace PlaceOf(const SetWork& work, int64_t i, bool is_small) {
  return is_small ? Decode(work, static_cast<uint32_t>(i)) : Decode(work, static_cast<uint64_t>(i));
}

__device__ __forceinline__ int64_t ParameterOf(const SetWork& work, const ApplyWork& apply, const ElementPlace& place) {
  if (apply.parameters.absent()) return 0;
  if (apply.index.kind == AffineIndex::kElement) return place.r0 * work.reduce1 + place.r1;
  return place.k1 * apply.index.channels_per_keep1 + place.r1 / apply.index.channel_run;
}

// T narrow, AFFINE_THEN_CAST.
template <typename T, bool kInF64>
__global__ void __launch_bounds__(kThreads)
    ApplyRowsKernel(const __grid_constant__ SetWork work, const __grid_constant__ ApplyWork apply, int64_t elements) {
  using S = typename T::Storage;
  const bool is_small = elements <= std::numeric_limits<int32_t>::max();
  const auto* const x = static_cast<const S*>(work.x.data);
  auto* const y = static_cast<S*>(apply.y);
  const bool aligned = MisalignedElements(x) == 0 && MisalignedElements(y) == 0;
  const bool per_element = apply.index.kind == AffineIndex::kElement;
  const int64_t vectors = order::CeilDiv(elements, kVector<T>);
  for (int64_t v = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; v < vectors;
       v += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t begin = v * kVector<T>;
    const ElementPlace place = PlaceOf(work, begin, is_small);
    ElementPlace last = place;
    last.r1 += kVector<T> - 1;
    const int64_t parameter = ParameterOf(work, apply, place);
    const bool together = aligned && last.r1 < work.reduce1 && begin + kVector<T> <= elements &&
                          (per_element || ParameterOf(work, apply, last) == parameter);
    if (together) {
      VectorOf<S> vector = LoadVector(x + begin);
      if (NarrowElements<T, kInF64>(work.results[place.set], apply.parameters)
              .Some(vector.lanes, parameter, per_element)) {
        StoreVector(y + begin, vector);
        continue;
      }
    }
    const int64_t end = begin + kVector<T> < elements ? begin + kVector<T> : elements;
#pragma unroll 1
    for (int64_t i = begin; i < end; ++i) {
      const ElementPlace one = PlaceOf(work, i, is_small);
      const NarrowElements<T, kInF64> element(work.results[one.set], apply.parameters);
      y[i] = element.One(x[i], ParameterOf(work, apply, one));
    }
  }
}

template <typename TIn, typename TOut>
__global__ void __launch_bounds__(kThreads)
    ApplyGeneralKernel(const __grid_constant__ SetWork work, const __grid_constant__ ApplyWork apply,
                       int64_t elements) {
  const bool is_small = elements <= std::numeric_limits<int32_t>::max();
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const ElementPlace place = PlaceOf(work, i, is_small);
    const double x = LoadAs<double>(TIn(), static_cast<const typename TIn::Storage*>(work.x.data) + i);
    const double lo = work.x.lo == nullptr ? 0 : work.x.lo[i];
    const PositionScale pre = work.pre == nullptr ? PositionScale() : PreOf(work, place.r0, place.k1);
    const Affine<double> affine = AffineAt<double>(apply.parameters, ParameterOf(work, apply, place));
    static_cast<typename TOut::Storage*>(apply.y)[i] = GeneralElement<TIn>(
        TOut(), x, lo, work.results[place.set].statistics, pre, apply.cast_order, affine.weight, affine.bias);
  }
}

int64_t Elements(const SetWork& work) { return work.Sets() * work.reduce0 * work.reduce1; }

template <typename T, bool kInF64>
cudaError_t LaunchRows(const DeviceLimits& limits, const SetWork& work, const ApplyWork& apply, cudaStream_t stream) {
  const int64_t vectors = order::CeilDiv(Elements(work), kVector<T>);
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, vectors, kThreads), .threads = kThreads};
  return Launch(shape, stream, ApplyRowsKernel<T, kInF64>, work, apply, Elements(work));
}

cudaError_t ApplyRows(const DeviceLimits& limits, const SetWork& work, const ApplyWork& apply, cudaStream_t stream) {
  switch (work.x.dtype) {
    case DType::kF16:
      return LaunchRows<F16, false>(limits, work, apply, stream);
    case DType::kBF16:
      return LaunchRows<BF16, false>(limits, work, apply, stream);
    case DType::kF32:
      return work.precision == Precision::kFast ? LaunchRows<F32, false>(limits, work, apply, stream)
                                                : LaunchRows<F32, true>(limits, work, apply, stream);
    case DType::kF64:
      break;
  }
  return cudaErrorInvalidValue;
}

template <typename TIn, typename TOut>
cudaError_t LaunchGeneral(const DeviceLimits& limits, const SetWork& work, const ApplyWork& apply,
                          cudaStream_t stream) {
  const LaunchShape shape = {.blocks = EnoughBlocks(limits, Elements(work), kThreads), .threads = kThreads};
  return Launch(shape, stream, ApplyGeneralKernel<TIn, TOut>, work, apply, Elements(work));
}

cudaError_t ApplyGeneral(const DeviceLimits& limits, const SetWork& work, const ApplyWork& apply, cudaStream_t stream) {
  switch (work.x.dtype) {
    case DType::kF32:
      return LaunchGeneral<F32, F32>(limits, work, apply, stream);
    case DType::kF16:
      return LaunchGeneral<F16, F16>(limits, work, apply, stream);
    case DType::kBF16:
      return LaunchGeneral<BF16, BF16>(limits, work, apply, stream);
    case DType::kF64:
      break;
  }
  switch (apply.y_dtype) {
    case DType::kF32:
      return LaunchGeneral<F64, F32>(limits, work, apply, stream);
    case DType::kF16:
      return LaunchGeneral<F64, F16>(limits, work, apply, stream);
    case DType::kBF16:
      return LaunchGeneral<F64, BF16>(limits, work, apply, stream);
    case DType::kF64:
      return LaunchGeneral<F64, F64>(limits, work, apply, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t ApplySets(const DeviceLimits& limits, const SetWork& work, const ApplyWork& apply, cudaStream_t stream) {
  const bool along_positions = work.columns && apply.index.kind == AffineIndex::kElement && !apply.parameters.absent();
  const bool general =
      work.wide() || work.pre != nullptr || along_positions || apply.cast_order != CastOrder::kAffineThenCast;
  if (general) return ApplyGeneral(limits, work, apply, stream);
  return work.columns ? ApplyColumns(limits, work, apply, stream) : ApplyRows(limits, work, apply, stream);
}

}  // namespace normd::cuda
