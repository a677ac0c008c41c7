// From the sums of one statistics group to what the apply pass needs: centre, divisor and their error terms.
// In the path: the scalar arithmetic between the reduce pass and the apply pass, which is the same on every device;
// kernels/cpu and kernels/cuda call it once for each group.
// "Narrow" elements are f32, f16 and bf16, whose sums are f64 (EXACT) or f32 (FAST); "wide" elements are f64, whose
// sums are DoublePairs. A sum is taken about a shift near the mean, because sums about 0 cancel; if the shift proves to
// be too far from the mean, the elements are summed once more about a better one.
// Standard headers only, because device code includes this file. Pure functions, safe from any thread.
#ifndef NORMD_KERNELS_GROUP_STATISTICS_H_
#define NORMD_KERNELS_GROUP_STATISTICS_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/base/host_device.h"
#include "kernels/base/types.h"
#include "kernels/pairs.h"
#include "kernels/power_sum.h"

namespace normd {

// Sums over a statistics group or a part of one, with d = x * scale - shift for each element: `first` is the sum of d,
// `second` the sum of d squared (of |d| for kAbsSum, of the terms for kPowerSum).
struct PairSums {
  DoublePair first, second;
};

// a += b. AddPairs is for wide elements, AddPlain for narrow ones, whose low parts are 0.
NORMD_HOST_DEVICE inline void AddPairs(PairSums& a, const PairSums& b) {
  a.first = Add(a.first, b.first);
  a.second = Add(a.second, b.second);
}
NORMD_HOST_DEVICE inline void AddPlain(PairSums& a, const PairSums& b) {
  a.first.hi += b.first.hi;
  a.second.hi += b.second.hi;
}

// How large the elements of a wide group, or of a part of one, are.
struct Magnitude {
  uint64_t largest_bits = 0;  // largest |x| as f64 bits; above the bits of Inf: a NaN
  double non_finite_sum = 0;  // sum of the elements that are Inf or NaN

  NORMD_HOST_DEVICE void Include(const Magnitude& other) {
    if (other.largest_bits > largest_bits) largest_bits = other.largest_bits;
    non_finite_sum += other.non_finite_sum;
  }
  NORMD_HOST_DEVICE bool finite() const { return largest_bits < 0x7FF0000000000000ull; }
  NORMD_HOST_DEVICE double largest() const { return std::bit_cast<double>(largest_bits); }
};

// The statistics of a group as the apply pass uses them: n = ((x * scale - shift) - delta) * inverse, y = n * w + b.
// shift + delta is the mean times scale, and inverse is 1 / (D * scale). Where a scale above 1 would take an element
// that was not summed out of range, n = ((x - shift) - delta) * inverse * scale instead: see kFarBeyond. If a mean of 0
// is subtracted, the shift is -0, so that an exactly centred -0 becomes +0. If nothing is subtracted, the shift is +0,
// which keeps the sign of x.
struct GroupStatistics {
  double scale = 1;  // a power of two, 1 unless the squares of a wide group leave the range
  double shift = 0;
  DoublePair delta;
  DoublePair inverse = {1, 0};
};

// Groups whose elements are all under 2^-400 are scaled up. An element of at least this magnitude is then far beyond
// its group: it was not summed (it is masked, or lies behind pRMSNorm's first k), x * scale may overflow although y
// does not, and a shift, which is under 2^200 when it is scaled, is nothing beside it.
inline constexpr double kFarBeyond = 0x1p+400;

// How many subtractions the apply pass needs: none, the shift, or the shift and delta.
enum class Centring : uint8_t { kNone, kOnce, kTwice };

NORMD_HOST_DEVICE inline Centring CentringOf(Statistic statistic, const GroupStatistics& s) {
  if (statistic != Statistic::kMeanVariance) return Centring::kNone;
  return s.delta.hi == 0 ? Centring::kOnce : Centring::kTwice;
}

// GroupStatistics of adjacent columns, as one array for each member. Borrows the arrays.
struct ColumnStatistics {
  const double* scale = nullptr;
  const double* shift = nullptr;
  const double* delta_hi = nullptr;
  const double* delta_lo = nullptr;
  const double* inverse_hi = nullptr;
  const double* inverse_lo = nullptr;

  // The statistics of the columns from `column` on.
  NORMD_HOST_DEVICE ColumnStatistics At(int64_t column) const {
    return {scale + column,    shift + column,      delta_hi + column,
            delta_lo + column, inverse_hi + column, inverse_lo + column};
  }
};

// The shift of a group from which a mean is subtracted: -0 instead of 0, see GroupStatistics.
NORMD_HOST_DEVICE inline double CentringShift(double shift) { return shift == 0 ? -0.0 : shift; }

// How the divisor D is made from S (the variance, the mean square or the sum of squares) or from R (the norm), as
// NormSpec::eps_mode says: sqrt(S + eps), R + eps, or max(R, eps).
struct DivisorRule {
  double eps = 0;
  EpsMode mode = EpsMode::kInsideSqrt;
  // y = 0 instead of NaN where R is 0 and eps is 0 (LpNorm).
  bool zero_norm_gives_zero = false;
  double p = 2;  // the power of Statistic::kPowerSum
};

// The result of a group. `mean`, `m2` (the sum of squares about the mean, or the norm where a norm is summed) and
// `inverse_std` (1 / D) are the unscaled values that replies and sessions get.
struct FinishedStatistics {
  GroupStatistics statistics;
  double mean = 0;
  double m2 = 0;
  double inverse_std = 0;
  // The shift was too far from the mean: the elements must be summed again about `better_shift`, which is still scaled.
  bool shift_too_far = false;
  double better_shift = 0;
  // The FAST sums are out of the range of f32, or so small that squares were lost: the CPU runs the group to the
  // nearest value (kernels/cpu/beyond_fast.h), CUDA sums it again in f64. So they do where a second shift is too far
  // from the mean.
  bool out_of_fast_range = false;
  // The apply pass under FAST calculates in f32: the statistics fit its range and, but for 16-bit elements in CUDA, the
  // sums are in f32. Where they do not fit, the CPU runs the group to the nearest value, CUDA calculates in f64.
  bool elements_in_f32 = false;
  // No element that entered the sums can give a NaN: the sums and 1 / D are finite.
  bool finite = false;
};

// The power of two that keeps the squares of a wide group, and the error terms of the squares, in range: 1 unless the
// largest magnitude is above 2^400, or is under 2^-400 and eps does not drown it. The outer bounds leave room for the
// squares of 2^24 elements at either end.
NORMD_HOST_DEVICE inline double ScaleFor(const Magnitude& magnitude, const DivisorRule& rule) {
  const double largest = magnitude.largest();
  if (!magnitude.finite() || largest == 0) return 1;
  if (largest > 0x1p+400) return 0x1p-600;
  const double eps_matters = rule.mode == EpsMode::kInsideSqrt ? 0x1p-700 : 0x1p-350;
  return largest < 0x1p-400 && rule.eps < eps_matters ? 0x1p+600 : 1;
}

// The sums of a wide group that holds an Inf or a NaN: the values of plain IEEE sums about 0. Sums in pairs would be
// NaN throughout, because they subtract Inf from Inf.
NORMD_HOST_DEVICE inline PairSums NonFiniteSums(Statistic statistic, const Magnitude& magnitude) {
  const bool centred = statistic == Statistic::kMeanVariance;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return {{magnitude.non_finite_sum, 0}, {centred ? nan : magnitude.largest(), 0}};
}

// 1 / D in plain f64, for narrow elements. `value` is S, or R if `is_root`.
NORMD_HOST_DEVICE inline double InverseDivisor(const DivisorRule& rule, double value, bool is_root) {
  double divisor = 0;
  if (rule.mode == EpsMode::kInsideSqrt) {
    divisor = std::sqrt(value + rule.eps);
  } else {
    const double root = is_root ? value : std::sqrt(value);
    if (rule.mode == EpsMode::kAddToRoot) {
      divisor = root + rule.eps;
    } else {
      divisor = root < rule.eps ? rule.eps : root;  // NaN stays
    }
  }
  return 1 / divisor;
}

// 1 / (D * scale) as a pair, for wide elements. `value` is S * scale^2, or R * scale if `is_root`.
NORMD_HOST_DEVICE inline DoublePair InverseDivisorWide(const DivisorRule& rule, DoublePair value, bool is_root,
                                                       double scale) {
  DoublePair divisor;
  if (rule.mode == EpsMode::kInsideSqrt) {
    divisor = Sqrt(std::isfinite(value.hi) ? Add(value, {rule.eps * scale * scale, 0}) : value);
  } else {
    const DoublePair root = is_root ? value : Sqrt(value);
    const double eps = rule.eps * scale;
    if (rule.mode == EpsMode::kAddToRoot) {
      divisor = std::isfinite(root.hi) ? Add(root, {eps, 0}) : root;
    } else {
      const bool is_less = root.hi < eps || (root.hi == eps && root.lo < 0);
      divisor = is_less ? DoublePair{eps, 0} : root;
    }
  }
  return Reciprocal(divisor);
}

// The factor of the elements: 1 / D, but 0 for a norm of 0 if the rule has zero_norm_gives_zero. If eps is so small
// that 1 / D overflows, the elements of the group are all equal and their centred values are 0; the largest finite
// factor then gives 0 instead of 0 * Inf.
NORMD_HOST_DEVICE inline double Factor(const DivisorRule& rule, double inverse_divisor) {
  if (!std::isinf(inverse_divisor)) return inverse_divisor;
  if (rule.zero_norm_gives_zero) return 0;
  return rule.eps > 0 ? std::numeric_limits<double>::max() : inverse_divisor;
}

// The greatest distance of a shift from the mean, in standard deviations, squared. d and d squared are summed with
// relative errors of 2^-50: eight deviations leave what EXACT promises. f32 has nothing to spare.
inline constexpr double kExactGuard = 64;
inline constexpr double kFastGuard = 1;

// Sets what is subtracted from narrow elements. If the mean is so near to 0, measured in deviations, that its own
// rounding does no harm (2^-50 deviations in f64, 2^-24 in f32), the mean alone is subtracted; else the shift, and then
// the distance `delta` of the mean from the shift.
NORMD_HOST_DEVICE inline void CentreNarrow(Precision precision, double mean, double variance, double shift,
                                           double delta, GroupStatistics* statistics) {
  const bool fast = precision == Precision::kFast;
  const bool near = mean * mean <= (fast ? kFastGuard : kExactGuard) * variance;
  statistics->shift = CentringShift(!near ? shift : fast ? static_cast<float>(mean) : mean);
  statistics->delta = {near ? 0 : delta, 0};
}

// True if elements can be calculated in f32 with these statistics: no value comes near either end of its range, nor
// does the product of the factor with a weight that fits (HostParameters::fit_f32).
NORMD_HOST_DEVICE inline bool FitF32(const GroupStatistics& s) {
  const double inverse = std::abs(s.inverse.hi);
  return std::abs(s.shift) <= 0x1p+100 && (inverse == 0 || (inverse >= 0x1p-60 && inverse <= 0x1p+60));
}

// ---- Elements: four ways to calculate y from x under FAST, all within the bounds of kernels/README.md ----
//
// The CPU takes the first two, in f32; CUDA takes all of them, 3 and 4 for groups that f32 does not serve.
//
// 1. In general: y = ((x - shift) - delta) * inverse * w + b, the last product and sum rounded once.
// 2. One w and b for many elements (a channel), and down columns: y = ((x - shift) - delta) * g + b, rounded once, with
//    g = FactorOf(inverse, w).
// 3. A w and b for each element, or none, in f64, where Folds(): y = (x * inverse + k) * w + b, each product and sum
//    rounded once, with k = FoldedCentre().
// 4. f32 elements about zero, summed in f64, where the statistics fit f32, the weights fit and equal f32, no b is given
//    and no element can be NaN: in pairs of floats, see FloatPair.

// inverse * weight, but finite where 1 / D has overflowed (see Factor) and the weight is finite: the centred elements
// are 0 then, and must stay so.
NORMD_HOST_DEVICE inline double FactorOf(double inverse, double weight) {
  const double factor = inverse * weight;
  const bool overflows = std::isinf(factor) && inverse == std::numeric_limits<double>::max() && std::isfinite(weight);
  return overflows ? std::copysign(std::numeric_limits<double>::max(), factor) : factor;
}

// True if (x - mean) * inverse may be one fused multiply-add about FoldedCentre(): the mean is at most 8 divisors away,
// so that rounding the product costs 2^-50, and no element can equal it, because it is no f32. An element that equals
// its mean must give +0.
NORMD_HOST_DEVICE inline bool Folds(const GroupStatistics& s) {
  return s.delta.hi == 0 && static_cast<double>(static_cast<float>(s.shift)) != s.shift &&
         std::abs(s.shift * s.inverse.hi) <= 8;
}
NORMD_HOST_DEVICE inline double FoldedCentre(const GroupStatistics& s) { return -(s.shift * s.inverse.hi); }

// 1 / D as the sum of two floats, of which `lo` is not negative: -0 stays -0 then. (Where w is 0, the sign of y is that
// of a rounding error.) y = x * (hi + lo) * w is
//   p = x * hi;  e = fma(-x, hi, p);  r = fma(x, lo, -e);  y = fma(p, w, r * w)
// where p - e is x * hi exactly, and r and r * w have errors of 2^-46 of the whole.
struct FloatPair {
  float hi = 0, lo = 0;
};
// REQUIRES: FitF32, so that `inverse` is 0 or in the range of f32.
NORMD_HOST_DEVICE inline FloatPair FloatPairOf(double inverse) {
  auto hi = static_cast<float>(inverse);
  if (hi > inverse) hi = std::bit_cast<float>(std::bit_cast<uint32_t>(hi) - 1);
  return {hi, static_cast<float>(inverse - hi)};
}
NORMD_HOST_DEVICE inline float TimesPair(float x, FloatPair factor, float w) {
  const float p = x * factor.hi;
  const float e = std::fma(-x, factor.hi, p);
  const float r = std::fma(x, factor.lo, -e);
  return std::fma(p, w, r * w);
}

// The shift of the first EXACT sums over a row, from four of its elements: those with the indices SampleIndex(n, 0) to
// SampleIndex(n, 3). Sums about 0 need no subtraction, and suffice where the mean is at most 8 deviations away
// (kExactGuard). Where the four lie closer together than that, the first of them is the better shift.
NORMD_HOST_DEVICE inline int64_t SampleIndex(int64_t n, int i) { return i < 3 ? n / 3 * i : n - 1; }
NORMD_HOST_DEVICE inline double ExactShift(double a, double b, double c, double d) {
  // Not std::fmin, which is a call.
  const auto least = [](double x, double y) { return x < y ? x : y; };
  const auto greatest = [](double x, double y) { return x > y ? x : y; };
  const double nearest = least(least(std::abs(a), std::abs(b)), least(std::abs(c), std::abs(d)));
  const double spread = greatest(greatest(a, b), greatest(c, d)) - least(least(a, b), least(c, d));
  return nearest > 8 * spread && std::isfinite(a) ? a : 0;
}

// Lets CUDA calculate 16-bit elements in f32 that FAST has summed in f64, where the range allows that. The mean is
// split into two floats, shift and delta, of which the second is at most half an ulp of the first: x - shift is either
// exact, or so large beside delta that its rounding is a relative error. With the rounding of the factor and of the
// product that is 2^-21, while half an ulp of the element type is 2^-12 (f16) or 2^-9 (bf16).
NORMD_HOST_DEVICE inline void Calculate16BitInF32(FinishedStatistics* finished) {
  GroupStatistics& s = finished->statistics;
  // No element differs from the mean by more than the root of m2.
  if (finished->elements_in_f32 || !FitF32(s) || !(finished->m2 <= 0x1p+240)) return;
  finished->elements_in_f32 = true;
  if (s.shift == 0 && s.delta.hi == 0) return;
  const double centre = static_cast<float>(s.shift + s.delta.hi);
  s.delta.hi = (s.shift - centre) + s.delta.hi;
  s.shift = CentringShift(centre);
}

// True if f32 sums are out of range, or so small that squares were lost.
NORMD_HOST_DEVICE inline bool OutOfFastRange(const PairSums& sums) {
  return !(sums.second.hi >= 0x1p-100 && sums.second.hi <= std::numeric_limits<float>::max());
}

// The result of a narrow group of n elements from its sums about `shift`: mean = shift + delta with delta = first / n,
// and M2 = second - first * delta. All members are set at once: to clear them first would take a fifth of the time that
// a row of 128 elements takes.
NORMD_HOST_DEVICE inline FinishedStatistics FinishNarrow(Statistic statistic, const DivisorRule& rule,
                                                         const PairSums& sums, double n, double shift,
                                                         Precision precision) {
  const bool fast = precision == Precision::kFast;
  const bool centred = statistic == Statistic::kMeanVariance;
  GroupStatistics group;
  double mean = 0, m2 = sums.second.hi, better_shift = 0;
  bool shift_too_far = false;
  if (centred) {
    const double delta = sums.first.hi / n;
    const double correction = sums.first.hi * delta;
    m2 -= correction;
    mean = shift + delta;
    shift_too_far = correction > (fast ? kFastGuard : kExactGuard) * m2;
    better_shift = fast ? static_cast<float>(mean) : mean;
    CentreNarrow(precision, mean, m2 / n, shift, delta, &group);
  }
  const double value = centred || statistic == Statistic::kMeanSquare ? m2 / n : m2;
  const double inverse_divisor = InverseDivisor(rule, value, statistic == Statistic::kAbsSum);
  group.inverse = {Factor(rule, inverse_divisor), 0};
  return {.statistics = group,
          .mean = mean,
          .m2 = m2,
          .inverse_std = inverse_divisor,
          .shift_too_far = shift_too_far,
          .better_shift = better_shift,
          .out_of_fast_range = fast && OutOfFastRange(sums),
          .elements_in_f32 = fast && FitF32(group),
          .finite = std::isfinite(sums.second.hi) && std::isfinite(group.inverse.hi)};
}

// The rounds of summing a narrow group in CUDA: about a first shift, again about a better one, each in f32 under FAST
// and, where f32 does not suffice, in f64, as EXACT begins.
enum class Round : uint8_t { kDone, kFast, kFastAgain, kExact, kExactAgain };
inline constexpr int kRounds = 5;

NORMD_HOST_DEVICE inline Round FirstRound(Precision precision) {
  return precision == Precision::kFast ? Round::kFast : Round::kExact;
}
NORMD_HOST_DEVICE inline Precision PrecisionOf(Round round) {
  return round == Round::kFast || round == Round::kFastAgain ? Precision::kFast : Precision::kExact;
}
NORMD_HOST_DEVICE inline bool IsFirstOfPrecision(Round round) {
  return round == Round::kFast || round == Round::kExact;
}
// The round that follows `round`, whose result is `finished`.
NORMD_HOST_DEVICE inline Round NextRound(Round round, const FinishedStatistics& finished) {
  if (round == Round::kFast && finished.shift_too_far) return Round::kFastAgain;
  if (round == Round::kExact && finished.shift_too_far) return Round::kExactAgain;
  const bool is_fast = PrecisionOf(round) == Precision::kFast;
  return is_fast && (finished.shift_too_far || finished.out_of_fast_range) ? Round::kExact : Round::kDone;
}

// The result of a narrow group, in as many rounds as it needs. `shift_of(precision)` returns the first shift,
// `finish(precision, shift)` the result of FinishNarrow for the sums about `shift`.
template <typename ShiftOf, typename Finish>
NORMD_HOST_DEVICE FinishedStatistics FinishInRounds(Precision precision, ShiftOf shift_of, Finish finish) {
  FinishedStatistics finished;
  for (Round round = FirstRound(precision); round != Round::kDone; round = NextRound(round, finished)) {
    const Precision now = PrecisionOf(round);
    finished = finish(now, IsFirstOfPrecision(round) ? shift_of(now) : finished.better_shift);
  }
  return finished;
}
// The same for n elements, of which `sums_of(precision, shift)` returns the PairSums about `shift`.
template <typename ShiftOf, typename SumsOf>
NORMD_HOST_DEVICE FinishedStatistics FinishNarrowGroup(Statistic statistic, const DivisorRule& rule,
                                                       Precision precision, double n, ShiftOf shift_of,
                                                       SumsOf sums_of) {
  return FinishInRounds(precision, shift_of, [&](Precision now, double shift) {
    return FinishNarrow(statistic, rule, sums_of(now, shift), n, shift, now);
  });
}

// Finishes a wide group that was scaled down and has no deviation from its mean: D is made from eps alone, which the
// scale would have lost. `finished` has all members but the divisor and m2. The scale stays where D is at least 1. A
// smaller D leaves no room for the scale in 1 / D and needs none: an element that differs from such a mean by more than
// f64 resolves gives an infinite y in any case.
NORMD_HOST_DEVICE inline void FinishEqual(const DivisorRule& rule, FinishedStatistics* finished) {
  GroupStatistics& s = finished->statistics;
  s.inverse = InverseDivisorWide(rule, {0, 0}, false, 1);
  finished->inverse_std = s.inverse.hi;
  finished->m2 = 0;
  if (s.inverse.hi <= 1) {
    s.inverse = {s.inverse.hi / s.scale, s.inverse.lo / s.scale};
    return;
  }
  s.inverse.hi = Factor(rule, s.inverse.hi);
  s.shift = CentringShift(s.shift / s.scale);
  s.delta = {s.delta.hi / s.scale, s.delta.lo / s.scale};
  s.scale = 1;
}

// The norm of wide elements whose largest |x| is `largest`. `sum` is the sum of the terms of kPowerSum.
NORMD_HOST_DEVICE inline DoublePair PowerNormOf(Statistic statistic, const DivisorRule& rule, DoublePair sum,
                                                double largest) {
  if (statistic == Statistic::kMaxAbs || !std::isfinite(largest)) return {largest, 0};
  return Multiply({largest, 0}, PowerRoot(sum, rule.p));
}

// The result of a wide group of n elements from its sums of x * scale about `shift`, which is scaled, too. For
// statistics with SumsPowers(), `shift` is the largest |x * scale| instead.
NORMD_HOST_DEVICE inline FinishedStatistics FinishWide(Statistic statistic, const DivisorRule& rule,
                                                       const PairSums& sums, double n, double shift, double scale) {
  FinishedStatistics finished;
  finished.statistics.scale = scale;
  DoublePair m2 = sums.second;
  if (statistic == Statistic::kMeanVariance) {
    const DoublePair delta = Divide(sums.first, n);
    const DoublePair correction = Multiply(sums.first, delta);
    m2 = Add(m2, Negate(correction));
    const DoublePair mean = TwoSum(shift, delta.hi);
    finished.better_shift = std::isfinite(mean.hi) ? mean.hi + (mean.lo + delta.lo) : mean.hi;
    finished.mean = finished.better_shift / scale;
    finished.shift_too_far = correction.hi > m2.hi;
    finished.statistics.shift = CentringShift(shift);
    finished.statistics.delta = delta;
  }
  if (SumsPowers(statistic)) m2 = PowerNormOf(statistic, rule, sums.second, shift);
  const bool divide = statistic == Statistic::kMeanVariance || statistic == Statistic::kMeanSquare;
  const DoublePair value = divide ? Divide(m2, n) : m2;
  if (scale < 1 && value.hi <= 0 && rule.eps > 0) {
    FinishEqual(rule, &finished);
    return finished;
  }
  const bool is_root = statistic == Statistic::kAbsSum || SumsPowers(statistic);
  finished.m2 = is_root ? m2.hi / scale : m2.hi / scale / scale;
  finished.statistics.inverse = InverseDivisorWide(rule, value, is_root, scale);
  finished.inverse_std = finished.statistics.inverse.hi * scale;
  finished.statistics.inverse.hi = Factor(rule, finished.statistics.inverse.hi);
  return finished;
}

// Statistics that were given instead of summed. If `mean` is null, nothing is subtracted. `wide`: for f64 elements.
NORMD_HOST_DEVICE inline FinishedStatistics GivenStatistics(const DivisorRule& rule, const double* mean,
                                                            double variance, bool wide, Precision precision) {
  FinishedStatistics finished;
  finished.mean = mean == nullptr ? 0 : *mean;
  finished.statistics.inverse =
      wide ? InverseDivisorWide(rule, {variance, 0}, false, 1) : DoublePair{InverseDivisor(rule, variance, false), 0};
  finished.inverse_std = finished.statistics.inverse.hi;
  finished.statistics.inverse.hi = Factor(rule, finished.inverse_std);
  if (mean == nullptr) return finished;
  finished.statistics.shift = CentringShift(finished.mean);
  finished.elements_in_f32 = precision == Precision::kFast && FitF32(finished.statistics);
  if (finished.elements_in_f32) {
    const double shift = static_cast<float>(finished.mean);
    CentreNarrow(precision, finished.mean, variance, shift, finished.mean - shift, &finished.statistics);
  }
  return finished;
}

}  // namespace normd

#endif  // NORMD_KERNELS_GROUP_STATISTICS_H_
