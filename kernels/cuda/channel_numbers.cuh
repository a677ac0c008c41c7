// The numbers that the elements of a channel are calculated with, made once for all of them instead of by each thread:
// one or two 16-byte loads of shared memory then serve a whole vector of elements.
// In the path: the apply pass (apply.cu, column_apply.cu) makes them at the start of a block of threads. Device
// functions.
#ifndef NORMD_KERNELS_CUDA_CHANNEL_NUMBERS_CUH_
#define NORMD_KERNELS_CUDA_CHANNEL_NUMBERS_CUH_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/reduce.cuh"

namespace normd::cuda {

// How the elements of channels are calculated.
enum class ChannelWay : uint8_t {
  kScaled,       // in f32, in way 2 of kernels/group_statistics.h, or 1 without parameters, which is the same then
  kAboutZero,    // in f32, in way 1 with parameters, where nothing is subtracted
  kScaledInF64,  // in way 2
};

template <ChannelWay kWay>
using RealOf = std::conditional_t<kWay == ChannelWay::kScaledInF64, double, float>;

// If a channel must be calculated in f64, and is not, the factor, or 1 / D, is NaN, so that all its elements come out
// as NaN.
template <typename Real>
struct alignas(kVectorBytes) ChannelNumbers {
  Real shift = 0;   // kAboutZero: 1 / D
  Real delta = 0;   // kAboutZero: unused
  Real factor = 1;  // kAboutZero: the weight
  Real bias = static_cast<Real>(-0.0);
};

// The numbers of a channel of `group`. Writes the outputs of a group that was given statistics if `publishes`.
template <ChannelWay kWay>
__device__ __forceinline__ ChannelNumbers<RealOf<kWay>> NumbersOf(const GroupWork& work, const Parameters& parameters,
                                                                  int64_t group, int64_t k1, int64_t parameter,
                                                                  bool publishes) {
  constexpr bool kInF64 = kWay == ChannelWay::kScaledInF64;
  // All loads come first, so that they are under way together.
  const bool is_given = work.given_variance != nullptr;
  double mean = 0, variance = 0;
  std::conditional_t<kInF64, GroupStatistics, GroupResult32> s;
  if (is_given) {
    variance = work.given_variance[k1];
    if (work.given_mean != nullptr) mean = work.given_mean[k1];
  } else if constexpr (kInF64) {
    s = work.results[group].statistics;
  } else {
    s = work.results32[group];
  }
  using Loaded = std::conditional_t<kWay == ChannelWay::kAboutZero, float, double>;
  const Affine<Loaded> affine = AffineAt<Loaded>(parameters, parameter);
  if (is_given) {
    const FinishedStatistics finished = GivenTo(work, mean, variance);
    if (publishes) StoreOutputs(work.outputs, group, static_cast<double>(work.counted), finished);
    const GroupResult result = FinishedResult(work, finished);
    if constexpr (kInF64) {
      s = result.statistics;
    } else {
      s = ResultIn32(result);
    }
  }
  if constexpr (kInF64) {
    const Affine<double> scaled = ScaledAffine<double>(affine, s.inverse.hi);
    return {s.shift, s.delta.hi, scaled.weight, scaled.bias};
  } else if constexpr (kWay == ChannelWay::kScaled) {
    const Affine<float> scaled = ScaledAffine<float>(affine, s.inverse);
    return {s.shift, s.delta, scaled.weight, scaled.bias};
  } else {
    return {static_cast<float>(s.inverse), 0, affine.weight, affine.bias};
  }
}

template <ChannelWay kWay>
__device__ __forceinline__ float ChannelElement(float x, const ChannelNumbers<RealOf<kWay>>& numbers) {
  if constexpr (kWay == ChannelWay::kScaledInF64) {
    const double wide = std::fma((x - numbers.shift) - numbers.delta, numbers.factor, numbers.bias);
    return CanonicalNaN(static_cast<float>(wide));
  } else if constexpr (kWay == ChannelWay::kScaled) {
    return std::fma((x - numbers.shift) - numbers.delta, numbers.factor, numbers.bias);
  } else {
    return std::fma(x * numbers.shift, numbers.factor, numbers.bias);
  }
}

// Zero if all elements of a vector of y, calculated in f32, are finite; such words may be joined with |. Others must be
// calculated one by one: in f64, or because the canonical NaN is wanted. Always zero if elements are calculated in f64.
template <typename T, ChannelWay kWay>
__device__ __forceinline__ unsigned NonFinite(const uint4& words) {
  if constexpr (kWay == ChannelWay::kScaledInF64) return 0;
  // 0 times what is not finite is NaN.
  return (T::TimesZero(words.x) | T::TimesZero(words.y) | T::TimesZero(words.z) | T::TimesZero(words.w)) &
         T::kMagnitudes;
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_CHANNEL_NUMBERS_CUH_
