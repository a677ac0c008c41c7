// The bounds of rounding errors that let a kernel decide which value of the element type is nearest to y: the one table
// that every kernel form has its line in.
//
// A kernel calculates n = (x - mean) / D and y = n * w + b in f64. With the numbers of a group's bound,
//
//   |n - exact n| <= beta + kappa * |n|
//   |y - exact y| <= |w| * beta + |n w| * (kappa + 3 u) + |b| * u,     u = 2^-53:
//
// the product with w, a weight that is itself rounded (weight + weight_offset) and the sum take a rounding each. If no
// middle between two adjacent values of the element type lies that near to y, then rounding y is rounding the exact
// value. Elements where one does are decided by kernels/slow_road.
//
// A line that is too small is wrong in one element of 2^25 and silent; tests/kernels/nearest_rounding_test.cc holds
// each line to rows that are made to have their elements at the middles (tests/support/boundary_rows.h).
//
// In the path: between the reduce pass and the apply pass, beside kernels/group_statistics.h. Standard headers only,
// because device code includes this file. Pure functions, safe from any thread.
#ifndef NORMD_KERNELS_CERTIFICATE_H_
#define NORMD_KERNELS_CERTIFICATE_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/base/host_device.h"
#include "kernels/base/types.h"
#include "kernels/group_statistics.h"
#include "kernels/summation_order.h"

namespace normd {

inline constexpr double kUnit = 0x1p-53;             // u: half an ulp of 1
inline constexpr double kSecondOrder = 1 + 0x1p-20;  // products of errors, which the first-order bounds leave out

// The additions that a term of a sum passes through, at most: 32 in a partial sum of a chunk, or a block of 32
// positions, 5 in the fold of the partial sums, and one in each level of the fold of chunks, blocks and columns.
NORMD_HOST_DEVICE constexpr double AdditionsOf(int64_t parts) {
  return 37.0 + static_cast<double>(std::bit_width(static_cast<uint64_t>(parts > 0 ? parts - 1 : 0)));
}
NORMD_HOST_DEVICE constexpr double AdditionsInRows(int64_t segments, int64_t length) {
  return AdditionsOf(order::GroupChunks(segments, length));
}
NORMD_HOST_DEVICE constexpr double AdditionsInColumns(int64_t positions, int64_t columns) {
  return AdditionsOf(order::ColumnBlocks(positions)) + AdditionsOf(columns) - 37;
}
// The same where four positions are added up first: a square is rounded and takes part in three additions, and a block
// of 32 positions has 8 such sums and up to 3 terms that are left over, instead of 32 additions and 5 for lanes.
NORMD_HOST_DEVICE constexpr double AdditionsInShallowColumns(int64_t positions, int64_t columns) {
  return AdditionsInColumns(positions, columns) - 37 + 4 + 8 + 3;
}
// Likewise of ReduceShallowly: a chunk of 1,024 elements has 8 sums of four in each of 32 partial sums, one more and
// four single terms where it is not whole, and 5 additions in the fold of the partial sums.
NORMD_HOST_DEVICE constexpr double AdditionsInShallowRows(int64_t segments, int64_t length) {
  return AdditionsInRows(segments, length) - 37 + 4 + 8 + 1 + 4 + 5;
}

// Of sums in pairs about the mean rounded to f64 (AboutMean of kernels/cpu/pair_sums.h), for the bounds about a mean,
// which count it beside two: no difference and no addition is rounded to f64. The sum of d is at most u of n * |mean|,
// and rounding it and its pairs is off by products of errors. The sum of squares is rounded once, and once more where
// the square of the first sum is subtracted: the bounds without h have three.
inline constexpr double kAdditionsOfPairs = -2;

// |n - exact n| <= beta + kappa * |n|. An infinite kappa decides nothing: every element takes the slow road.
struct NormalisedBound {
  double beta = 0;
  double kappa = std::numeric_limits<double>::infinity();

  NORMD_HOST_DEVICE bool decides() const { return kappa < 0x1p-30; }
};

// What the sums of a group have gone through.
struct SumErrors {
  double additions = 0;  // that a term passes through: AdditionsInRows, AdditionsInColumns
  // The shift that was subtracted from the elements; it is not the one of the statistics where the mean took its place.
  double shift = 0;
  // The sum of squares, or of magnitudes, is 0: every element that was summed is equal to the shift. Squares of narrow
  // elements do not underflow.
  bool is_zero = false;
};

// 1 / D is in a range where products of it neither overflow nor lose digits.
NORMD_HOST_DEVICE inline bool InverseIsInRange(double inverse) { return inverse >= 0x1p-500 && inverse <= 0x1p+500; }

// Of groups whose sum of squares is 0: the mean is the shift, which is an element, and the centred elements are 0. An
// element that was not summed has the errors of statistics that are given.
NORMD_HOST_DEVICE inline NormalisedBound BoundOfEqual(double inverse) {
  NormalisedBound bound;
  if (inverse == 0 || InverseIsInRange(inverse)) bound.kappa = 9 * kUnit * kSecondOrder;
  return bound;
}

// Of groups whose elements about zero are squared or whose magnitudes are added, in f64: RMSNorm, ScaleNorm, LpNorm of
// 1 and 2. Squares of narrow elements are exact. S is off by the additions; half of that is in 1 / D, and the division
// by n, the sum with eps, the root, the sum with eps and the reciprocal add a rounding each, of which the first two are
// halved by the root. A sum of magnitudes has no root.
NORMD_HOST_DEVICE inline NormalisedBound BoundAboutZero(Statistic statistic, const SumErrors& sums,
                                                        const FinishedStatistics& group) {
  if (sums.is_zero) return BoundOfEqual(group.statistics.inverse.hi);
  const double of_sums = statistic == Statistic::kAbsSum ? sums.additions : sums.additions / 2;
  NormalisedBound bound;
  if (!(group.m2 > 0) || !InverseIsInRange(group.statistics.inverse.hi)) return bound;
  bound.kappa = (of_sums + 6) * kUnit * kSecondOrder;
  return bound;
}

// Of groups from which a mean is subtracted. With q = (mean - shift)^2 / variance, the sum of d = x - shift is off by
// (additions + 2) u n deviation sqrt(1 + q), d's own rounding included, and M2 by
//   [(additions + 4) (1 + q) + 2 (additions + 2) sqrt(q (1 + q)) + 2 q + 1] u M2.
// A mean that is one number is rounded once more, and so is the product of a mean and 1 / D. With a shift and a delta,
// x - shift may be rounded where the two differ much, by u (|x - mean| + |delta|).
NORMD_HOST_DEVICE inline NormalisedBound BoundAboutMean(double n, const SumErrors& sums,
                                                        const FinishedStatistics& group) {
  NormalisedBound bound;
  const double inverse = group.statistics.inverse.hi;
  if (sums.is_zero && group.mean == sums.shift) return BoundOfEqual(inverse);
  if (!(group.m2 > 0) || !InverseIsInRange(inverse)) return bound;
  const double deviation = std::sqrt(group.m2 / n);
  const double distance = group.mean - sums.shift;
  const double q = distance * distance / (deviation * deviation);
  if (!(q <= 0x1p+20)) return bound;
  const double h = sums.additions + 2;
  const double of_m2 = (h + 2) * (1 + q) + 2 * h * std::sqrt(q * (1 + q)) + 2 * q + 1;
  const bool once = group.statistics.delta.hi == 0;
  const double rest = once ? 2 * std::abs(group.mean) : 2 * deviation * std::sqrt(q);
  bound.beta = ((h + 1) * deviation * std::sqrt(1 + q) + rest) * inverse * kUnit * kSecondOrder;
  bound.kappa = (of_m2 / 2 + 9) * kUnit * kSecondOrder;
  return bound;
}

// The same for rows that are summed about 0, without a root and a little larger: sqrt(1 + q) <= 1 + q / 2,
// sqrt(q (1 + q)) <= q + 1 / 2, and the deviation is at most D. n may be fma(x, 1 / D, -mean / D), too: that rounds the
// product of the mean and 1 / D, as is counted, and its own result once, where the other form rounds twice.
//
// As numbers that are the same for all rows, so that a kernel calculates the bounds of many rows at once:
//   q = mean^2 n / M2,   beta = base + of_q * q + of_centre * |mean / D|,   kappa = kappa_base + kappa_of_q * q.
// They hold where q <= kMostQ, M2 > 0, and 1 / D is in range.
struct RowBoundTerms {
  double beta_base = 0, beta_of_q = 0, beta_of_centre = 0;
  double kappa_base = 0, kappa_of_q = 0;

  static constexpr double kMostQ = 0x1p+20;
};
NORMD_HOST_DEVICE inline RowBoundTerms TermsOfRowsAboutMean(double additions) {
  constexpr double kStep = kUnit * kSecondOrder;
  const double h = additions + 2;
  return {.beta_base = (h + 1) * kStep,
          .beta_of_q = (h + 1) / 2 * kStep,
          .beta_of_centre = 2 * kStep,
          .kappa_base = (h + 1.5 + 9) * kStep,   // half of (h + 2) + h + 1
          .kappa_of_q = (1.5 * h + 2) * kStep};  // half of (h + 2) + 2 h + 2
}

// Of rows about zero, as BoundAboutZero.
NORMD_HOST_DEVICE inline RowBoundTerms TermsOfRowsAboutZero(Statistic statistic, double additions) {
  const double of_sums = statistic == Statistic::kAbsSum ? additions : additions / 2;
  return {.kappa_base = (of_sums + 6) * kUnit * kSecondOrder};
}

// The same for columns and channels, which are summed about a shift of their own.
NORMD_HOST_DEVICE inline NormalisedBound BoundAboutShift(double n, const SumErrors& sums,
                                                         const FinishedStatistics& column) {
  NormalisedBound bound;
  const double inverse = column.statistics.inverse.hi;
  if (sums.is_zero && column.mean == sums.shift) return BoundOfEqual(inverse);
  if (!(column.m2 > 0) || !InverseIsInRange(inverse)) return bound;
  const double distance = column.mean - sums.shift;
  const double q = distance * distance * n / column.m2;
  if (!(q <= 0x1p+20)) return bound;
  const double h = sums.additions + 2;
  const double root = std::fmin(q + 0.5, 2.125 * q + 0.125);  // at least sqrt(q (1 + q))
  const double of_m2 = (h + 2) * (1 + q) + 2 * h * root + 2 * q + 1;
  const double rest = column.statistics.delta.hi == 0 ? 2 * std::abs(column.mean) * inverse : 2 * q + 1;
  bound.beta = ((h + 1) * (1 + q / 2) + rest) * kUnit * kSecondOrder;
  bound.kappa = (of_m2 / 2 + 9) * kUnit * kSecondOrder;
  return bound;
}

// Of statistics that are given, which are exact: the difference, the product, and the roundings of 1 / D.
inline constexpr double kKappaOfGiven = 7 * kUnit * kSecondOrder;
NORMD_HOST_DEVICE inline NormalisedBound BoundOfGiven(const FinishedStatistics& group) {
  NormalisedBound bound;
  if (!InverseIsInRange(group.statistics.inverse.hi)) return bound;
  bound.kappa = kKappaOfGiven;
  return bound;
}

// Of the mean and M2 of a group that are exact but for one rounding each: the mean's, and beside BoundOfGiven half of
// M2's and of the division by n. Where M2 is 0 all elements are equal to the mean.
NORMD_HOST_DEVICE inline NormalisedBound BoundOfMoments(double mean, double m2, double inverse) {
  NormalisedBound bound;
  if (!InverseIsInRange(inverse)) return bound;
  bound.beta = m2 == 0 ? 0 : std::abs(mean) * inverse * kUnit * kSecondOrder;
  bound.kappa = kKappaOfGiven + kUnit * kSecondOrder;
  return bound;
}

// What rounding y itself adds to the bound of an element, as a part of |y| and doubled, too. ApplyNearest adds it: it
// is less than the part of |b| in ElementBound, and 0 where y is 0, so that a group of zeros is decided at once.
inline constexpr double kRoundingOfY = 2 * kSecondOrder * kUnit;

// The bound of y for one w and b, or for the largest of many: |y - exact y| <= fixed + relative * |n w|. It is doubled,
// so that one comparison with the middle of y's own binade finds the middles of both neighbours: a middle below the
// next smaller power of two is a quarter of an ulp away, and a bound as large as that reaches the middle above, too.
struct ElementBound {
  double fixed = std::numeric_limits<double>::infinity();
  double relative = 0;
};
NORMD_HOST_DEVICE inline ElementBound BoundOfElements(const NormalisedBound& bound, double weight, double bias) {
  ElementBound doubled;
  if (!bound.decides()) return doubled;
  doubled.fixed = 2 * kSecondOrder * (std::abs(weight) * bound.beta + std::abs(bias) * kUnit);
  doubled.relative = 2 * kSecondOrder * (bound.kappa + 3 * kUnit);
  return doubled;
}

// The bound of every element of a row, for a test that sees y but not n: fixed + relative * |y|, where
//   fixed = base + of_beta * beta + of_kappa * kappa + of_centre * |mean / D|,
//   relative = relative_base + relative_of_kappa * kappa.
// `weight` and `bias` are the largest magnitudes of the row.
struct QuickBounds {
  double base = 0, of_beta = 0, of_kappa = 0, of_centre = 0;
  double relative_base = 0, relative_of_kappa = 0;
};

// Of f32 elements in f64: BoundOfElements with |n w| <= |y| + |b|, but for errors of y that its factor has room for.
NORMD_HOST_DEVICE inline QuickBounds QuickBoundsInF64(double weight, double bias) {
  constexpr double kDoubled = 2 * kSecondOrder;
  return {.base = kDoubled * 4 * kUnit * bias,
          .of_beta = kDoubled * weight,
          .of_kappa = kDoubled * bias,
          .relative_base = kDoubled * 3 * kUnit,
          .relative_of_kappa = kDoubled};
}

// Of 16-bit elements of a row in f32, v = 2^-24: y = fma(n, w, b) with n = fma(x, f, k), where f is 1 / D rounded to
// f32, k is -mean * f rounded to f32, and w and b are exact in f32. (x - mean) f is off by v |n|, hence n by
//   v |n| by f, v |mean / D| by k, v |n| by its own rounding, and by the bound of the statistics;
// |n w| <= |y| + |b|, and the rounding of y adds v |y|. As a function of |y|, which is at hand, that is
//   |y - exact y| <= 3 v |y| + 2 v |b| + v |w mean / D| + |w| beta + kappa (|y| + |b|).
// Without a mean it has no k, and n is rounded in a product. kappa is less than 2^-30; the factor 1 + 2^-5 has room for
// kappa and for products of errors. The part of |y| needs no doubling: it is far from a quarter of an ulp (2^-13 |y|),
// so that only the rest of the bound can reach the other middle. It then is a quarter of an ulp but for 2^-9 of that,
// and twice the rest, with the factor, reaches half an ulp, which no y is farther from its middle. Results of f32 that
// are subnormal are off by 2^-150, times a weight of at most 2^60.
//
// `of_sums`: the relative error of 1 / D, as a multiple of v, where sums were taken in f32, too: kOfRunsOfFour where
// squares of 16-bit elements, which are exact in f32, are added there four at a time (three roundings, halved by the
// root) and these sums in f64, if the sum is at least 2^-100, so that no square that was lost matters.
inline constexpr double kOfRunsOfFour = 1.5;
inline constexpr double kLeastSumOfRuns = 0x1p-100;
// The same error where y is calculated in f64, whose own errors fit into the factor. It needs no doubling where
// there is no bias, so that it is a small part of |y|.
inline constexpr double kRelativeOfRuns = kOfRunsOfFour * 0x1p-24 * (1 + 0x1p-5);
NORMD_HOST_DEVICE inline QuickBounds QuickBoundsInF32(double of_sums, double weight, double bias) {
  constexpr double kUnit32 = 0x1p-24 * (1 + 0x1p-5);
  return {.base = 2 * kUnit32 * (2 + of_sums) * bias + 0x1p-80,
          .of_beta = 2 * (1 + 0x1p-5) * weight,
          .of_centre = 2 * kUnit32 * weight,
          .relative_base = (3 + of_sums) * kUnit32};
}

// Of y = fma(x, f, g) with f = w / D and g = b - c, where c is the product of the mean and f: one number of each for
// every column or channel. The errors of 1 / D, of a weight and of f are a part of |n w|, which is at most |y| + |b|.
// The mean, c and g are rounded once each, and that of y comes last: |y - exact y| <= fixed + relative * |y|, doubled.
NORMD_HOST_DEVICE inline ElementBound BoundOfFolded(const NormalisedBound& bound, double c, double weight,
                                                    double bias) {
  ElementBound doubled;
  if (!bound.decides()) return doubled;
  const double of_rest = 3 * std::abs(c) + std::abs(bias);
  doubled.fixed = std::abs(weight) * bound.beta + (bound.kappa + 3 * kUnit) * std::abs(bias) + of_rest * kUnit;
  doubled.fixed *= 2 * kSecondOrder;
  doubled.relative = 2 * kSecondOrder * (bound.kappa + 4 * kUnit);
  return doubled;
}

// True if every number within `error` of `value` rounds to the same f32, the sign of a zero included.
NORMD_HOST_DEVICE inline bool RoundsToOneF32(double value, double error) {
  const double wide = error * kSecondOrder;
  const auto low = static_cast<float>(value - wide);
  const auto high = static_cast<float>(value + wide);
  return low == high && std::signbit(low) == std::signbit(high);
}

// The bound of QuickBoundsInF32 without a mean and a bias, in ulps of y in f32: v |y| is at most one. It holds where
// numbers are subnormal, too: an x / D that is subnormal is off by half an ulp, 2^-150, which the weight multiplies, y
// by half an ulp, and the parts of y from 1 / D, at most 2.5 v |y| where |y| is under 2^-125, are 1.25 of its ulps.
NORMD_HOST_DEVICE inline double UlpsInF32(double relative, double weight) {
  const double of_subnormal = weight / 2 + 2;
  const double of_y = relative * 0x1p+24;
  return of_y > of_subnormal ? of_y : of_subnormal;
}

// Of f32 elements about zero without a bias, in pairs of floats. With f = 1 / D, hi the f32 below f, c = kPairWidening:
//   p = x hi,  e = p - x hi (exact),  r = x up - e,  q = r w,  above = p w + q,  below = p w + (q - 2 c p w),
// where up is f (1 + c) - hi rounded to f32 and each operation is rounded to f32; the last one of each line is fused.
// The bounds are relative to y: up is off by 2^-47, because it is under 2^-23 f; r and q are under 1.5 * 2^-23 of their
// product and off by 1.5 * 2^-47 each, and so is q - 2 c p w. Before they are rounded to f32, |above| is y (1 + c) but
// for 4 * 2^-47 + kappa, and |below| is y (1 - c) but for 5.5 * 2^-47 + kappa. c is 8 * 2^-47, so that y lies between
// them if kappa is at most 2 * 2^-47, which leaves half a 2^-47 for products of errors and a weight that is itself
// rounded: if both round to the same f32, y does. It takes that e is exact and nothing underflows: |y| >= kLeastInPairs
// with a |w| of at most 2^20; or x = 0, of which all of this is a zero with the sign of x w.
inline constexpr double kPairWidening = 0x1p-44;
inline constexpr double kLeastInPairs = 0x1p-80;
inline constexpr double kMostWeightInPairs = 0x1p+20;
NORMD_HOST_DEVICE inline bool PairsDecide(const RowBoundTerms& rows) { return rows.kappa_base <= 0x1p-46; }

// ---- f64 elements, and those of a residual stream that is kept wide ----
//
// They are calculated in pairs of f64. An addition of pairs is off by v = 2^-104 of the magnitudes that it adds, a
// product, quotient or root by 4 v at most; bounds count in these.

inline constexpr double kPairUnit = 0x1p-104;

// What the elements themselves are off by, relative to their magnitude: h = x + scale * r is rounded to an f64, or to a
// pair where x is f64.
struct ElementErrors {
  double relative = 0;
};

// Of groups about zero. Beside the additions a term has its square, and S the steps from there to 1 / D.
NORMD_HOST_DEVICE inline NormalisedBound WideBoundAboutZero(const SumErrors& sums, const ElementErrors& elements,
                                                            const FinishedStatistics& group) {
  NormalisedBound bound;
  if (!(group.m2 > 0) || !InverseIsInRange(group.inverse_std)) return bound;
  bound.kappa = ((sums.additions + 32) * kPairUnit + 2 * elements.relative) * kSecondOrder;
  return bound;
}

// Of groups about a mean, as BoundAboutMean. The differences from shift and delta are exact but for what is beyond a
// pair. An element that is off by e |x| moves the mean by as much, on average, and M2 by 2 e (1 + |mean| / deviation).
NORMD_HOST_DEVICE inline NormalisedBound WideBoundAboutMean(double n, const SumErrors& sums,
                                                            const ElementErrors& elements,
                                                            const FinishedStatistics& group) {
  NormalisedBound bound;
  const double inverse = group.inverse_std;
  if (!(group.m2 > 0) || !InverseIsInRange(inverse)) return bound;
  const double deviation = std::sqrt(group.m2 / n);
  const double mean = std::abs(group.mean);
  const double distance = std::abs(group.mean - sums.shift);
  const double q = distance * distance / (deviation * deviation);
  if (!(q <= 0x1p+20)) return bound;
  const double h = sums.additions + 4;
  const double of_m2 = (h + 4) * (1 + q) + 2 * h * std::sqrt(q * (1 + q)) + 4 * q + 4;
  const double of_sums = (h + 4) * deviation * std::sqrt(1 + q) + 16 * distance;
  bound.beta = (of_sums * kPairUnit + elements.relative * (deviation + 2 * mean)) * inverse * kSecondOrder;
  bound.kappa = ((of_m2 + 32) * kPairUnit + elements.relative * (3 + mean / deviation)) * kSecondOrder;
  return bound;
}

// SumErrors::is_zero of wide elements, whose squares may be lost. With a largest of 2^-400 or more, an element that is
// not equal to the shift differs from it by 2^-453, or the largest does.
NORMD_HOST_DEVICE inline bool WideSumsAreZero(Statistic statistic, DoublePair sum, const Magnitude& magnitude,
                                              double scale) {
  if (SumsPowers(statistic)) return magnitude.largest_bits == 0;
  const bool shows = magnitude.largest() == 0 || magnitude.largest() * scale >= 0x1p-400;
  return sum.hi == 0 && magnitude.finite() && shows;
}

// BoundOfEqual of elements that are f64 themselves. Those of a stream that is kept wide may differ by less than a pair
// shows.
NORMD_HOST_DEVICE inline NormalisedBound WideBoundOfEqual(const FinishedStatistics& group) {
  NormalisedBound bound;
  if (InverseIsInRange(group.inverse_std)) bound.kappa = 32 * kPairUnit * kSecondOrder;
  return bound;
}

// Of LpNorm of whole order p, from 3 on, by kernels/slow_road/whole_power.h. A term is off by a quotient and p - 1
// products, of which the root leaves the p-th part, 8 v; the root itself is off by 32 v.
NORMD_HOST_DEVICE inline NormalisedBound WideBoundOfWholeOrder(const SumErrors& sums, const ElementErrors& elements,
                                                               const FinishedStatistics& group) {
  NormalisedBound bound;
  if (!(group.m2 > 0) || !InverseIsInRange(group.inverse_std)) return bound;
  bound.kappa = ((sums.additions + 64) * kPairUnit + 2 * elements.relative) * kSecondOrder;
  return bound;
}

NORMD_HOST_DEVICE inline NormalisedBound WideBoundOfGiven(bool centred, const ElementErrors& elements,
                                                          const FinishedStatistics& group) {
  NormalisedBound bound;
  if (!InverseIsInRange(group.inverse_std)) return bound;
  bound.beta = centred ? (elements.relative + kPairUnit) * std::abs(group.mean) * group.inverse_std * kSecondOrder : 0;
  bound.kappa = (32 * kPairUnit + 2 * elements.relative) * kSecondOrder;
  return bound;
}

// As BoundOfElements, for y as a pair; `unit` is kPairUnit, or kUnit where y is rounded to f64 before it is tested.
NORMD_HOST_DEVICE inline ElementBound BoundOfWideElements(const NormalisedBound& bound, double unit, double weight,
                                                          double bias) {
  ElementBound doubled;
  if (!bound.decides()) return doubled;
  doubled.fixed = 2 * kSecondOrder * (std::abs(weight) * bound.beta + std::abs(bias) * 8 * unit);
  doubled.relative = 2 * kSecondOrder * (bound.kappa + 16 * unit);
  return doubled;
}

// ---- PowerNorm ----

// Of a group of n channels whose squares are added as kernels/cpu/nearest_power.cc adds them: in four sums at least, of
// which each takes n / 4 + 8 squares at most. An addition of f64 is exact but for its error, and the errors are added
// up in f64, those of a squares to at most 2 a u of the sum; they are rounded twice a square, by a (a + 1) v of the
// sum. The folds, the division by n, the sum with eps and the reciprocal add less than 24 v.
//
// A term x^2 / (mean square + eps) is a pair, off by 2 v more. y is made of three pairs: x / D, 1 / sqrt(v + eps) times
// w, and the sum with b, which is off by 2 v of what it adds. The divisors take a root each.
struct PowerBound {
  double of_term = std::numeric_limits<double>::infinity();  // relative; infinite: decides nothing
  // |y - exact y| <= of_product * |n w| + of_bias * |b| in pairs.
  double of_product = of_term, of_bias = 0;
  // The same in f64, doubled as ElementBound is: f64_of_y * |y| + f64_of_bias * |b|. The squares are added in f64, a of
  // them and 12 more in the folds; half of that is in 1 / D, as in BoundAboutZero, and the factors of x, of which
  // w / sqrt(v + eps) is a pair that is rounded, and their product add a rounding each. So does y.
  double f64_of_y = of_term, f64_of_bias = 0;

  explicit PowerBound(int64_t n, double factor = 1) {
    const double a = static_cast<double>(n) / 4 + 8;
    const double of_square = (a * (a + 1) + 24) * kPairUnit * kSecondOrder;
    if (!(of_square * factor <= 0x1p-62)) return;
    of_term = (of_square + 2 * kPairUnit) * factor;
    of_product = (of_square / 2 + 32 * kPairUnit) * factor;
    of_bias = 4 * kPairUnit * factor;
    const double of_f64 = (a + 12) / 2 + 6 + 2;
    f64_of_y = 2 * kSecondOrder * (of_f64 + 1) * kUnit * factor;
    f64_of_bias = 2 * kSecondOrder * of_f64 * kUnit * factor;
  }
  // What rounding a pair leaves is at most half an ulp. The pair is decided if that still rounds away where it is
  // larger by this part: where it is half as large as the distance to a middle, 2^-55 of the pair, the part exceeds the
  // error.
  double slack() const { return of_term * 0x1p+56; }
};

}  // namespace normd

#endif  // NORMD_KERNELS_CERTIFICATE_H_
