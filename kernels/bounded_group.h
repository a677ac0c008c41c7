// Which line of kernels/certificate.h holds for a group of a job and for its elements, and the test of an element: what
// the kernels of every device ask, so that there is one answer.
//
//   const BoundedGroup bounded = BoundGroup(traits, sums, finished);
//   const ElementBound bound = BoundOfElement(bounded, elements, w, 0, keeps_sign);
//   if (IsNearMiddle<DType::kF32>(y, |y| * kRoundingOfY + |n w| * bound.relative + bound.fixed)) // undecided
//
// In the path: between the reduce pass and the apply pass; kernels/cpu/nearest_group.h and kernels/cuda/nearest.cu.
// Standard headers only, because device code includes this file. Pure functions, safe from any thread.
#ifndef NORMD_KERNELS_BOUNDED_GROUP_H_
#define NORMD_KERNELS_BOUNDED_GROUP_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/types.h"
#include "kernels/certificate.h"
#include "kernels/group_statistics.h"
#include "kernels/power_sum.h"

namespace normd {

// What the bound of a group depends on, beside its sums and its statistics.
struct GroupTraits {
  Statistic statistic = Statistic::kMeanVariance;
  double counted = 0;       // elements in the statistics
  bool is_wide = false;     // the elements are calculated in pairs
  bool is_given = false;    // the statistics are given; the sums are ignored
  bool has_eps = false;     // eps > 0
  bool all_counted = true;  // no element is left out of the statistics
  ElementErrors elements;   // of wide ones

  NORMD_HOST_DEVICE bool is_centred() const { return statistic == Statistic::kMeanVariance; }
};

// Groups whose sums or whose 1 / D are not finite have the value of IEEE arithmetic, and nothing of them is undecided.
struct BoundedGroup {
  NormalisedBound bound;
  bool is_finite = false;
  bool normalises_to_zero = false;  // every element, exactly
};

// True if every element that was summed is equal to the shift, and the mean is, too.
NORMD_HOST_DEVICE inline bool IsEqual(const GroupTraits& traits, const SumErrors& sums,
                                      const FinishedStatistics& group) {
  return sums.is_zero && traits.elements.relative == 0 && (!traits.is_centred() || group.mean == sums.shift);
}

NORMD_HOST_DEVICE inline NormalisedBound NarrowBound(const GroupTraits& traits, const SumErrors& sums,
                                                     const FinishedStatistics& group) {
  if (traits.is_given) return BoundOfGiven(group);
  return traits.is_centred() ? BoundAboutMean(traits.counted, sums, group)
                             : BoundAboutZero(traits.statistic, sums, group);
}

NORMD_HOST_DEVICE inline NormalisedBound WideBound(const GroupTraits& traits, const SumErrors& sums,
                                                   const FinishedStatistics& group) {
  if (traits.is_given) return WideBoundOfGiven(traits.is_centred(), traits.elements, group);
  if (IsEqual(traits, sums, group)) return WideBoundOfEqual(group);
  if (traits.is_centred()) return WideBoundAboutMean(traits.counted, sums, traits.elements, group);
  return traits.statistic == Statistic::kPowerSum ? WideBoundOfWholeOrder(sums, traits.elements, group)
                                                  : WideBoundAboutZero(sums, traits.elements, group);
}

// Whether elements of wide groups are finite. The sums of a group that is not finite are Inf or NaN, and its 1 / D is 0
// or NaN. A deviation that the elements of a residual stream do not show, because they are rounded, is no reason for
// 0 / 0; that no element counts is one.
NORMD_HOST_DEVICE inline bool WideGroupIsFinite(const GroupTraits& traits, const FinishedStatistics& group) {
  const bool is_rounded = traits.elements.relative > 0 && traits.counted > 0;
  const bool shows_none = is_rounded && std::isfinite(group.m2) && !(group.m2 > 0);
  if (shows_none) return std::isfinite(group.mean);
  const double inverse = group.statistics.inverse.hi;
  return std::isfinite(inverse) && inverse != 0 && std::isfinite(group.statistics.delta.hi);
}

NORMD_HOST_DEVICE inline BoundedGroup BoundGroup(const GroupTraits& traits, const SumErrors& sums,
                                                 const FinishedStatistics& group) {
  // With an eps D is not 0, even where 1 / D is above the largest f64. That of a group without elements is NaN, as one
  // may be that is given and leaves the range of pairs.
  const bool has_divisor =
      std::isfinite(group.inverse_std) || (traits.has_eps && (traits.is_given || !std::isnan(group.inverse_std)));
  BoundedGroup bounded;
  bounded.is_finite = traits.is_wide && !traits.is_given
                          ? WideGroupIsFinite(traits, group)
                          : std::isfinite(group.m2) && std::isfinite(group.mean) && has_divisor;
  if (!traits.is_wide) {
    bounded.bound = NarrowBound(traits, sums, group);
    return bounded;
  }
  bounded.bound = WideBound(traits, sums, group);
  bounded.normalises_to_zero = !traits.is_given && traits.all_counted && IsEqual(traits, sums, group);
  // What is lost where x * scale, scale * r or n is so small that its low part is no f64.
  if (!bounded.normalises_to_zero) {
    bounded.bound.beta += 0x1p-1070 * (1 + group.statistics.inverse.hi + group.inverse_std);
  }
  return bounded;
}

// What the bound of an element depends on, beside its group, w and b.
struct ElementTraits {
  bool is_wide = false;      // calculated in pairs
  bool is_f64 = false;       // y is
  bool is_centred = false;   // a mean is subtracted
  bool casts_first = false;  // CAST_THEN_AFFINE: w and b come after the rounding that is decided here
  double bound_factor = 1;   // see NearestOptions
};

// The bound of y for one w and b, or for the largest of many. `keeps_sign`: there is no b, or it is -0, so that where
// w is 0 y has the sign of n. The rounding of y may be left out of `bias`, see kRoundingOfY. REQUIRES: the group is
// finite.
NORMD_HOST_DEVICE inline ElementBound BoundOfElement(const BoundedGroup& group, const ElementTraits& traits,
                                                     double weight, double bias, bool keeps_sign) {
  if (std::isinf(traits.bound_factor)) return {};
  if (traits.casts_first) {
    weight = 1;
    bias = 0;
  }
  ElementBound bound = traits.is_wide
                           ? BoundOfWideElements(group.bound, traits.is_f64 ? kPairUnit : kUnit, weight, bias)
                           : BoundOfElements(group.bound, weight, bias);
  bound.fixed *= traits.bound_factor;
  bound.relative *= traits.bound_factor;
  // Digits of pairs that small are lost.
  if (traits.is_f64 && !group.normalises_to_zero) bound.fixed += 0x1p-1000;
  // An element near the mean may not show the sign of n.
  if (weight == 0 && keeps_sign && traits.is_centred && bound.fixed == 0) bound.fixed = 0x1p-1000;
  return bound;
}

// The significand bits of a narrow type, and the least exponent of its normal values.
struct Narrowness {
  int bits = 24, min_exponent = -126;
};
NORMD_HOST_DEVICE constexpr Narrowness NarrownessOf(DType dtype) {
  return dtype == DType::kF16 ? Narrowness{11, -14} : dtype == DType::kBF16 ? Narrowness{8, -126} : Narrowness{};
}

// True if a middle between two adjacent values of a narrow type, or 0, may lie within `bound` of y, and for NaN and
// Inf. An element that is exactly 0 is not near one if its bound is 0. kernels/cpu/nearest-inl.h has it for vectors.
template <DType kType>
NORMD_HOST_DEVICE inline bool IsNearMiddle(double y, double bound) {
  constexpr Narrowness kOf = NarrownessOf(kType);
  constexpr uint64_t kLow = (uint64_t{1} << (53 - kOf.bits)) - 1;
  constexpr int kUlp = kOf.min_exponent - kOf.bits + 1;  // of subnormal values, as an exponent
  const double magnitude = std::fabs(y);
  if (magnitude > 0 && magnitude < PowerOfTwo(kOf.min_exponent)) {
    // The middles of subnormal values are the odd multiples of half an ulp of theirs.
    const double round = 1.5 * PowerOfTwo(kUlp + 52);
    const double from_value = std::fabs(magnitude - ((magnitude + round) - round));
    return PowerOfTwo(kUlp - 1) - from_value <= bound || magnitude <= bound;
  }
  const double middle = std::bit_cast<double>((std::bit_cast<uint64_t>(y) & ~kLow) | (kLow / 2 + 1));
  return !(std::fabs(y - middle) > bound);
}

}  // namespace normd

#endif  // NORMD_KERNELS_BOUNDED_GROUP_H_
