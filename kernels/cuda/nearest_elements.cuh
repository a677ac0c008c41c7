// Results to the nearest value on a GPU: the bound of a group, which of its outputs that decides, and narrow elements
// with the test of each.
// In the path: nearest.cu and nearest_rows.cu. Device functions.
#ifndef NORMD_KERNELS_CUDA_NEAREST_ELEMENTS_CUH_
#define NORMD_KERNELS_CUDA_NEAREST_ELEMENTS_CUH_

#include <bit>
#include <cmath>
#include <cstdint>

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

__device__ inline NormalisedBound NarrowBound(const GroupWork& work, const NearestWork& nearest,
                                              const NearestGroup& group) {
  if (nearest.is_given) return BoundOfGiven(group.finished);
  const SumErrors sums = {nearest.additions, group.shift, group.is_zero};
  return work.statistic == Statistic::kMeanVariance
             ? BoundAboutMean(static_cast<double>(work.counted), sums, group.finished)
             : BoundAboutZero(work.statistic, sums, group.finished);
}

// True if every element that was summed is equal to the shift, and the mean is, too.
__device__ inline bool IsEqual(const GroupWork& work, const NearestWork& nearest, const NearestGroup& group) {
  const bool centred = work.statistic == Statistic::kMeanVariance;
  return group.is_zero && nearest.elements.relative == 0 && (!centred || group.finished.mean == group.shift);
}

__device__ inline NormalisedBound WideBound(const GroupWork& work, const NearestWork& nearest,
                                            const NearestGroup& group) {
  const bool centred = work.statistic == Statistic::kMeanVariance;
  if (nearest.is_given) return WideBoundOfGiven(centred, nearest.elements, group.finished);
  if (IsEqual(work, nearest, group)) return WideBoundOfEqual(group.finished);
  const SumErrors sums = {nearest.additions, group.shift, group.is_zero};
  return centred ? WideBoundAboutMean(static_cast<double>(work.counted), sums, nearest.elements, group.finished)
                 : WideBoundAboutZero(sums, nearest.elements, group.finished);
}

// GroupBound of kernels/cpu/nearest_group.h.
__device__ inline void BoundGroup(const GroupWork& work, const NearestWork& nearest, NearestGroup* group) {
  const FinishedStatistics& finished = group->finished;
  const bool has_divisor = std::isfinite(finished.inverse_std) ||
                           (work.rule.eps > 0 && (nearest.is_given || !std::isnan(finished.inverse_std)));
  group->normalises_to_zero = false;
  if (!work.wide()) {
    group->is_finite = std::isfinite(finished.m2) && std::isfinite(finished.mean) && has_divisor;
    group->bound = NarrowBound(work, nearest, *group);
    return;
  }
  const double inverse = finished.statistics.inverse.hi;
  const bool shows_none = nearest.elements.relative > 0 && std::isfinite(finished.m2) && !(finished.m2 > 0);
  if (nearest.is_given) {
    group->is_finite = std::isfinite(finished.m2) && std::isfinite(finished.mean) && has_divisor;
  } else if (shows_none) {
    group->is_finite = std::isfinite(finished.mean);
  } else {
    group->is_finite = std::isfinite(inverse) && inverse != 0 && std::isfinite(finished.statistics.delta.hi);
  }
  group->bound = WideBound(work, nearest, *group);
  const bool all_counted = work.mask == nullptr && work.statistic_reduce1 == work.reduce1;
  group->normalises_to_zero = !nearest.is_given && all_counted && IsEqual(work, nearest, *group);
  // What is lost where x * scale, scale * r or n is so small that its low part is no f64.
  if (!group->normalises_to_zero) group->bound.beta += 0x1p-1070 * (1 + inverse + finished.inverse_std);
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
  if (IsEqual(work, nearest, group)) return group.m2.hi == 0 && group.m2.lo == 0;
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

// GroupBound::Of of kernels/cpu/nearest_group.h, for one w and b. `in_pairs`: y is f64.
__device__ inline ElementBound BoundOfElement(const GroupWork& work, const ApplyWork& apply, const NearestWork& nearest,
                                              const NearestGroup& group, Affine<double> affine) {
  if (std::isinf(nearest.bound_factor)) return {};
  const bool keeps_sign = apply.parameters.bias == nullptr || (affine.bias == 0 && std::signbit(affine.bias));
  if (apply.cast_order == CastOrder::kCastThenAffine) affine = {1, 0};
  const bool in_pairs = apply.y_dtype == DType::kF64;
  // The rounding of y is no part of the bound of narrow elements, see kRoundingOfY.
  ElementBound bound = work.wide()
                           ? BoundOfWideElements(group.bound, in_pairs ? kPairUnit : kUnit, affine.weight, affine.bias)
                           : BoundOfElements(group.bound, affine.weight, 0);
  bound.fixed *= nearest.bound_factor;
  bound.relative *= nearest.bound_factor;
  // Digits of pairs that small are lost.
  if (in_pairs && !group.normalises_to_zero) bound.fixed += 0x1p-1000;
  // Where w is 0 and no b is added, y has the sign of n, which an element near the mean may not show.
  const bool centred = work.statistic == Statistic::kMeanVariance;
  if (affine.weight == 0 && keeps_sign && centred && bound.fixed == 0) bound.fixed = 0x1p-1000;
  return bound;
}

// The significand bits of T and the least exponent of its normal values.
template <typename T>
struct Narrowness;
template <>
struct Narrowness<F32> {
  static constexpr int kBits = 24, kMinExponent = -126;
};
template <>
struct Narrowness<BF16> {
  static constexpr int kBits = 8, kMinExponent = -126;
};
template <>
struct Narrowness<F16> {
  static constexpr int kBits = 11, kMinExponent = -14;
};

// 2^exponent. REQUIRES: it is a normal f64.
__device__ constexpr double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
}

// True if a middle between two adjacent values of T, or 0, may lie within `bound` of y, and for NaN and Inf; see
// IsDoubtful of kernels/cpu/nearest-inl.h. An element that is exactly 0 is not doubtful if its bound is 0.
template <typename T>
__device__ inline bool IsNearMiddle(T /*type*/, double y, double bound) {
  constexpr int kDropped = 53 - Narrowness<T>::kBits;
  constexpr uint64_t kLow = (uint64_t{1} << kDropped) - 1;
  constexpr uint64_t kHalf = uint64_t{1} << (kDropped - 1);
  const double magnitude = std::fabs(y);
  if (magnitude > 0 && magnitude < PowerOfTwo(Narrowness<T>::kMinExponent)) {
    // The middles of subnormal values are the odd multiples of half an ulp of theirs.
    constexpr int kUlp = Narrowness<T>::kMinExponent - Narrowness<T>::kBits + 1;
    constexpr double kRound = 1.5 * PowerOfTwo(kUlp + 52);
    const double from_value = std::fabs(magnitude - ((magnitude + kRound) - kRound));
    return PowerOfTwo(kUlp - 1) - from_value <= bound || magnitude <= bound;
  }
  const double middle = std::bit_cast<double>((std::bit_cast<uint64_t>(y) & ~kLow) | kHalf);
  return !(std::fabs(y - middle) > bound);
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
__device__ inline NearestValue NarrowValue(T type, double x, const GroupStatistics& s, const Affine<double>& affine,
                                           const ElementBound& bound, double rounding) {
  const double product = ((x - s.shift) - s.delta.hi) * s.inverse.hi * affine.weight;
  const double y = product + affine.bias;
  const double error = std::fabs(y) * rounding + (std::fabs(product) * bound.relative + bound.fixed);
  return {y, IsNearMiddle(type, y, error)};
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_NEAREST_ELEMENTS_CUH_
