#include "kernels/exact_sums/nearest_moments.h"

#include <cmath>
#include <limits>
#include <optional>

#include "kernels/exact_sums/nearest_ratio.h"
#include "kernels/exact_sums/nearest_within.h"
#include "kernels/exact_sums/pair_of_sum.h"
#include "kernels/pairs.h"

namespace normd {
namespace {

using slow_road::Dyadic;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of finite elements. Every operation on pairs is off by 2^-102 at most: of its result, or, of the difference, of its
// terms. The square of the sum over the count is no more than the sum of squares.
template <typename Sums>
std::optional<Moment> MomentByPairs(const Sums& sums) {
  if (sums.count() == 0 || sums.non_finite().Any()) return std::nullopt;
  const auto count = static_cast<double>(sums.count());
  const DoublePair sum = PairOfSum(sums.sum()), squares = PairOfSum(sums.squares());
  const DoublePair mean = Divide(sum, count);
  const DoublePair m2 = Add(squares, Negate(Divide(Multiply(sum, sum), count)));
  const std::optional<double> nearest_mean = NearestWithin(mean, std::abs(mean.hi) * 0x1p-100);
  if (!nearest_mean.has_value()) return std::nullopt;
  const std::optional<double> nearest_m2 = NearestWithin(m2, squares.hi * 0x1p-98);
  if (!nearest_m2.has_value()) return std::nullopt;
  return Moment{.count = count, .mean = *nearest_mean, .m2 = *nearest_m2};
}

template <typename Sums>
Moment NearestMomentOf(const Sums& sums) {
  const std::optional<Moment> moment = MomentByPairs(sums);
  return moment.has_value() ? *moment : NearestMoment(sums.Totals());
}

}  // namespace

Dyadic ScaledVariance(const ExactTotals& totals) {
  return Dyadic::Integer(totals.count) * totals.squares - totals.sum * totals.sum;
}

Moment NearestMoment(const ExactTotals& totals) {
  if (totals.count == 0) return {};
  const auto count = static_cast<double>(totals.count);
  if (totals.non_finite.Any()) return {.count = count, .mean = totals.non_finite.Sum(), .m2 = kNaN};
  const Dyadic n = Dyadic::Integer(totals.count);
  return {.count = count, .mean = NearestRatio(totals.sum, n), .m2 = NearestRatio(ScaledVariance(totals), n)};
}

Moment NearestMoment(const NarrowExactSums& sums) { return NearestMomentOf(sums); }
Moment NearestMoment(const WideExactSums& sums) { return NearestMomentOf(sums); }

Moment NearestMomentAboutZero(const ExactTotals& totals) {
  const auto count = static_cast<double>(totals.count);
  if (totals.non_finite.nan) return {.count = count, .mean = 0, .m2 = kNaN};
  if (totals.non_finite.Any()) return {.count = count, .mean = 0, .m2 = kInfinity};
  return {.count = count, .mean = 0, .m2 = NearestRatio(totals.squares, Dyadic::Integer(1))};
}

}  // namespace normd
