// Results to the nearest value on a GPU: the bound of a group, which of its outputs that decides, and narrow elements
// with the test of each.
// In the path: nearest.cu and nearest_rows.cu. Device functions.
#ifndef NORMD_KERNELS_CUDA_NEAREST_ELEMENTS_CUH_
#define NORMD_KERNELS_CUDA_NEAREST_ELEMENTS_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/bounded_group.h"
#include "kernels/certificate.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/nearest.h"
#include "kernels/group_statistics.h"

namespace normd::cuda {

__device__ inline void Leave(LeftToHost* left, int64_t item) {
  const unsigned long long at = atomicAdd(&left->count, 1ull);
  if (at < static_cast<unsigned long long>(LeftToHost::kMost)) left->items[at] = item;
}

// ---- Groups ----

__device__ inline GroupTraits TraitsOf(const GroupWork& work, const NearestWork& nearest) {
  return {.statistic = work.statistic,
          .counted = static_cast<double>(work.counted),
          .is_wide = work.wide(),
          .is_given = nearest.is_given,
          .has_eps = work.rule.eps > 0,
          .all_counted = work.mask == nullptr && work.statistic_reduce1 == work.reduce1,
          .elements = nearest.elements};
}
__device__ inline SumErrors SumErrorsOf(const NearestWork& nearest, const NearestGroup& group) {
  return {nearest.additions, group.shift, group.is_zero};
}

__device__ inline void SetBound(const GroupWork& work, const NearestWork& nearest, NearestGroup* group) {
  static_cast<BoundedGroup&>(*group) =
      BoundGroup(TraitsOf(work, nearest), SumErrorsOf(nearest, *group), group->finished);
}

// True if every number within `error` of the pair rounds to `rounded`. The last digit of sums of such numbers is no
// part of an error, which is doubled for it.
__device__ inline bool RoundsToOneF64(DoublePair value, double error, double rounded) {
  const double wide = 2 * error * kSecondOrder;
  return value.hi == rounded && value.hi + (value.lo + wide) == rounded && value.hi + (value.lo - wide) == rounded;
}

// How far the mean and 1 / D, which the bound of elements is made of, may be off.
struct StatisticsBound {
  double of_mean = 0, of_inverse = 0;

  __device__ StatisticsBound(const NearestGroup& group, double bound_factor)
      : of_mean(group.bound.beta / group.finished.inverse_std * bound_factor),
        of_inverse(group.bound.kappa * group.finished.inverse_std * bound_factor) {}
};

// True if the mean and 1 / D that StoreOutputs wrote are the nearest values.
__device__ inline bool DecidesOutputs(const GroupOutputs& outputs, const NearestWork& nearest,
                                      const NearestGroup& group) {
  const FinishedStatistics& s = group.finished;
  const StatisticsBound bound(group, nearest.bound_factor);
  if (!outputs.in_f64) {
    const double unit = 2 * kUnit * nearest.bound_factor;
    return (outputs.mean == nullptr || RoundsToOneF32(s.mean, bound.of_mean + std::fabs(s.mean) * unit)) &&
           (outputs.inverse_std == nullptr || RoundsToOneF32(s.inverse_std, bound.of_inverse + s.inverse_std * unit));
  }
  const bool has_mean = nearest.is_given || (group.has_pairs && RoundsToOneF64(group.mean, bound.of_mean, s.mean));
  const bool has_inverse =
      s.statistics.scale == 1 && RoundsToOneF64(s.statistics.inverse, bound.of_inverse, s.inverse_std);
  return (outputs.mean == nullptr || has_mean) && (outputs.inverse_std == nullptr || has_inverse);
}

// True if the mean and m2 in pairs round to the nearest values. Those of equal elements are exact.
__device__ inline bool DecidesMoments(const GroupWork& work, const NearestWork& nearest, const NearestGroup& group) {
  if (!group.has_pairs) return false;
  if (IsEqual(TraitsOf(work, nearest), SumErrorsOf(nearest, group), group.finished)) {
    return group.m2.hi == 0 && group.m2.lo == 0;
  }
  const StatisticsBound bound(group, nearest.bound_factor);
  const bool has_mean =
      work.statistic != Statistic::kMeanVariance || RoundsToOneF64(group.mean, bound.of_mean, group.mean.hi);
  // m2 is off by twice what the root leaves of it in 1 / D.
  const double of_m2 = 2 * group.bound.kappa * group.m2.hi * nearest.bound_factor;
  return has_mean && RoundsToOneF64(group.m2, of_m2, group.m2.hi);
}

// Writes or leaves the outputs of a finite group.
__device__ inline void DecideOutputs(const GroupWork& work, const NearestWork& nearest, int64_t index,
                                     const NearestGroup& group) {
  const GroupOutputs& outputs = work.outputs;
  const bool has_bound = group.bound.decides() && std::isfinite(nearest.bound_factor) && group.finished.inverse_std > 0;
  const bool has_outputs = outputs.mean != nullptr || outputs.inverse_std != nullptr;
  bool is_left = has_outputs && !(has_bound && DecidesOutputs(outputs, nearest, group));
  if (nearest.moments != nullptr) {
    if (has_bound && DecidesMoments(work, nearest, group)) {
      double* const moment = nearest.moments + 3 * index;
      moment[0] = static_cast<double>(work.counted);
      moment[1] = work.statistic == Statistic::kMeanVariance ? group.mean.hi : 0;
      moment[2] = group.m2.hi;
    } else {
      is_left = true;
    }
  }
  if (is_left) Leave(nearest.left, nearest.element_count + index);
}

// ---- Elements ----

// Of one w and b. The rounding of y is no part of the bound of narrow elements, see kRoundingOfY. `is_pair`: y is
// tested as a pair, not once it is an f64.
__device__ inline ElementBound BoundOf(const GroupWork& work, const ApplyWork& apply, const NearestWork& nearest,
                                       const NearestGroup& group, const Affine<double>& affine, bool is_pair) {
  const ElementTraits traits = {.is_wide = work.wide(),
                                .is_f64 = is_pair,
                                .is_centred = work.statistic == Statistic::kMeanVariance,
                                .casts_first = apply.cast_order == CastOrder::kCastThenAffine,
                                .bound_factor = nearest.bound_factor};
  const bool keeps_sign = apply.parameters.bias == nullptr || (affine.bias == 0 && std::signbit(affine.bias));
  return BoundOfElement(group, traits, affine.weight, traits.is_wide ? affine.bias : 0, keeps_sign);
}

// A value of the type of y, and whether the exact one may round to another.
struct NearestValue {
  double y = 0;
  bool is_doubtful = false;
};

// The w and b of an element before it is rounded: none under CAST_THEN_AFFINE.
__device__ __forceinline__ Affine<double> BeforeRounding(CastOrder order, const Affine<double>& affine) {
  return order == CastOrder::kCastThenAffine ? Affine<double>() : affine;
}
// The element of y, rounded once, and under CAST_THEN_AFFINE once more by each operation with w and b.
template <typename T>
__device__ __forceinline__ typename T::Storage Rounded(T type, CastOrder order, double y,
                                                       const Affine<double>& affine) {
  if (order == CastOrder::kCastThenAffine) {
    y = AddIn(type, MultiplyIn(type, RoundTo(type, y), affine.weight), affine.bias);
  }
  return Store(type, RoundTo(type, y));  // Store rounds 16-bit elements to f32 first
}

// See kRoundingOfY.
__device__ __forceinline__ double RoundingOf(const NearestWork& nearest) {
  return kRoundingOfY * (std::isinf(nearest.bound_factor) ? 1 : nearest.bound_factor);
}

// Leaves an element that is undecided. What NaN and Inf give is known.
__device__ inline void LeaveElement(const NearestWork& nearest, const NearestGroup& group, int64_t index, double x) {
  if (group.is_finite && std::isfinite(x)) Leave(nearest.left, index);
}

// Narrow elements are calculated in f64.
template <typename T>
__device__ inline NearestValue NarrowValue(T /*type*/, double x, const GroupStatistics& s, const Affine<double>& affine,
                                           const ElementBound& bound, double rounding) {
  const double product = ((x - s.shift) - s.delta.hi) * s.inverse.hi * affine.weight;
  const double y = product + affine.bias;
  const double error = std::fabs(y) * rounding + (std::fabs(product) * bound.relative + bound.fixed);
  return {y, IsNearMiddle<T::kDType>(y, error)};
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_NEAREST_ELEMENTS_CUH_
