// The apply pass of Pattern::kColumns (the innermost extent is kept), from finished groups: a thread loads the
// statistics and parameters of a few adjacent columns, and walks down some positions.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/visit.cuh"
#include "kernels/summation_order.h"

namespace normd::cuda {
namespace {

// The number of positions that a thread walks down with the statistics of its columns: enough to pay for loading them,
// and few enough to fill the device with threads.
constexpr int kApplyPositions = 32;
constexpr int kLeastApplyPositions = 8;
constexpr int kApplyColumns = 4;

int PositionsOfThread(const DeviceLimits& limits, const GroupWork& work, int64_t tiles) {
  const int64_t filled = int64_t{1024} * limits.multiprocessors;
  int positions = kApplyPositions;
  while (positions > kLeastApplyPositions && work.keep0 * tiles * order::CeilDiv(work.reduce0, positions) < filled) {
    positions /= 2;
  }
  return positions;
}

// Four elements as f32, and back.
template <typename T>
__device__ __forceinline__ void UnpackSome(const uint2& some, float (&x)[kApplyColumns]) {
  T::Split(some.x, x[0], x[1]);
  T::Split(some.y, x[2], x[3]);
}
template <typename T>
__device__ __forceinline__ void UnpackSome(const uint4& some, float (&x)[kApplyColumns]) {
  UnpackVector<F32>(some, x);
}
template <typename T>
__device__ __forceinline__ void PackSome(const float (&x)[kApplyColumns], uint2* some) {
  *some = make_uint2(T::Join(x[0], x[1]), T::Join(x[2], x[3]));
}
template <typename T>
__device__ __forceinline__ void PackSome(const float (&x)[kApplyColumns], uint4* some) {
  *some = PackVector<F32>(x);
}

// Calculates in f32. Elements of columns that must be calculated in f64, and elements that are not finite, are
// calculated one by one.
template <typename T>
__global__ void __launch_bounds__(kColumnThreads, 5)
    ApplyColumnsKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply, int positions) {
  WaitForLaunchBefore();
  constexpr int kColumns = kApplyColumns;
  using S = typename T::Storage;
  using Some = std::conditional_t<std::is_same_v<T, F32>, uint4, uint2>;  // kColumns elements of a position
  const auto is_aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % sizeof(Some) == 0; };
  const bool aligned = work.Columns() % kColumns == 0 && is_aligned(work.x.data) && is_aligned(apply.y);
  const int64_t strips = order::CeilDiv(work.reduce0, positions);
  ForBlocks<kColumns>(work, strips, [&](const BlockPlace& place) {
    const int64_t left = work.Columns() - place.column;
    const int count = static_cast<int>(left < kColumns ? left : kColumns);
    const auto group_of = [&](int c) {
      return place.k0 * work.keep1 +
             (work.reduce1 == 1 ? place.column + c : Divide(place.column + c, work.reduce1).quotient);
    };
    Statistics32 s[kColumns];
    Affine<float> affine[kColumns];  // the weights are factors
    bool in_f32 = true;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = c < count ? c : 0;
      const GroupResult32 group = work.results32[group_of(column)];
      s[c] = {group.shift, group.delta, 1};
      in_f32 = in_f32 && group.in_f32();
      affine[c] =
          ScaledAffineAt<float>(apply.parameters, ParameterOfColumn(work, apply, place.column + column), group.inverse);
    }
    const int64_t begin = place.block * positions;
    const int64_t end = begin + positions < work.reduce0 ? begin + positions : work.reduce0;
    const auto singly = [&](int64_t at) {
      const auto* const x = static_cast<const S*>(work.x.data) + at;
      auto* const y = static_cast<S*>(apply.y) + at;
#pragma unroll 1
      for (int c = 0; c < count; ++c) {
        y[c] = NarrowElements<T, false>(work.results[group_of(c)], apply.parameters, true)
                   .One(x[c], ParameterOfColumn(work, apply, place.column + c));
      }
    };
    const int64_t first = IndexOf(work, place.k0, begin, place.column);
    constexpr int kUnrolled = kLeastApplyPositions;
#pragma unroll 1
    for (int64_t p = 0; p < end - begin; p += kUnrolled) {
      const S* const x = static_cast<const S*>(work.x.data) + first + p * work.Columns();
      S* const y = static_cast<S*>(apply.y) + first + p * work.Columns();
      Some some[kUnrolled] = {};
#pragma unroll
      for (int i = 0; i < kUnrolled; ++i) {
        if (!in_f32 || p + i >= end - begin) continue;
        const S* const from = x + i * work.Columns();
        if (aligned) {
          some[i] = __ldcs(reinterpret_cast<const Some*>(from));
        } else {
          float elements[kColumns] = {};
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            if (c < count) elements[c] = T::Widen(from[c]);
          }
          PackSome<T>(elements, &some[i]);  // NaN stays one
        }
      }
#pragma unroll
      for (int i = 0; i < kUnrolled; ++i) {
        if (p + i >= end - begin) continue;
        float out[kColumns];
        UnpackSome<T>(some[i], out);
        float zero = 0;  // NaN if an element is not finite
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          out[c] = ScaledElement(out[c], s[c], affine[c].weight, affine[c].bias);
          zero = std::fma(out[c], 0.0f, zero);
        }
        if (!in_f32 || !(zero == 0)) {
          singly(first + (p + i) * work.Columns());
          continue;
        }
        S* const to = y + i * work.Columns();
        if (aligned) {
          PackSome<T>(out, &some[i]);
          *reinterpret_cast<Some*>(to) = some[i];
        } else {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            if (c < count) to[c] = T::Narrow(out[c]);
          }
        }
      }
    }
  });
}

// Calculates f32 elements in f64 (EXACT).
__global__ void __launch_bounds__(kColumnThreads)
    ApplyColumnsExactKernel(const __grid_constant__ GroupWork work, const __grid_constant__ ApplyWork apply,
                            int positions) {
  WaitForLaunchBefore();
  constexpr int kColumns = 2;
  const int64_t strips = order::CeilDiv(work.reduce0, positions);
  ForBlocks<kColumns>(work, strips, [&](const BlockPlace& place) {
    const int count = work.Columns() - place.column < kColumns ? 1 : kColumns;
    const bool aligned = work.Columns() % kColumns == 0 &&
                         reinterpret_cast<uintptr_t>(work.x.data) % sizeof(float2) == 0 &&
                         reinterpret_cast<uintptr_t>(apply.y) % sizeof(float2) == 0;
    GroupStatistics s[kColumns];
    Affine<double> affine[kColumns];  // the weights are factors
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int64_t column = place.column + (c < count ? c : 0);
      s[c] = work.results[place.k0 * work.keep1 + (work.reduce1 == 1 ? column : Divide(column, work.reduce1).quotient)]
                 .statistics;
      affine[c] = ScaledAffineAt<double>(apply.parameters, ParameterOfColumn(work, apply, column), s[c].inverse.hi);
    }
    const int64_t begin = place.block * positions;
    const int64_t end = begin + positions < work.reduce0 ? begin + positions : work.reduce0;
    const int64_t first = IndexOf(work, place.k0, begin, place.column);
    const float* const x = static_cast<const float*>(work.x.data) + first;
    float* const y = static_cast<float*>(apply.y) + first;
#pragma unroll 4
    for (int64_t p = 0; p < end - begin; ++p) {
      const int64_t at = p * work.Columns();
      if (aligned) {
        const float2 both = *reinterpret_cast<const float2*>(x + at);
        *reinterpret_cast<float2*>(y + at) = make_float2(ScaledElement(both.x, s[0], affine[0].weight, affine[0].bias),
                                                         ScaledElement(both.y, s[1], affine[1].weight, affine[1].bias));
        continue;
      }
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (c < count) y[at + c] = ScaledElement(x[at + c], s[c], affine[c].weight, affine[c].bias);
      }
    }
  });
}

template <int kColumns, typename Kernel>
cudaError_t LaunchApply(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply, cudaStream_t stream,
                        Kernel kernel) {
  const int positions = PositionsOfThread(limits, work, Tiles<kColumns>(work));
  return Launch(BlocksShape<kColumns>(limits, work, order::CeilDiv(work.reduce0, positions)), stream, kernel, work,
                apply, positions);
}

}  // namespace

cudaError_t ApplyColumns(const DeviceLimits& limits, const GroupWork& work, const ApplyWork& apply,
                         cudaStream_t stream) {
  // EXACT f32 alone is calculated in f64.
  if (work.x.dtype == DType::kF32 && work.precision == Precision::kExact) {
    return LaunchApply<2>(limits, work, apply, stream, ApplyColumnsExactKernel);
  }
  return VisitNarrowDType(work.x.dtype, [&]<typename T>() {
    return LaunchApply<kApplyColumns>(limits, work, apply, stream, ApplyColumnsKernel<T>);
  });
}

}  // namespace normd::cuda
