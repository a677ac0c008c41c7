#include "kernels/exact_sums/nearest_moments.h"

#include <limits>

#include "kernels/exact_sums/nearest_ratio.h"

namespace normd {
namespace {

using slow_road::Dyadic;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

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

Moment NearestMomentAboutZero(const ExactTotals& totals) {
  const auto count = static_cast<double>(totals.count);
  if (totals.non_finite.nan) return {.count = count, .mean = 0, .m2 = kNaN};
  if (totals.non_finite.Any()) return {.count = count, .mean = 0, .m2 = kInfinity};
  return {.count = count, .mean = 0, .m2 = NearestRatio(totals.squares, Dyadic::Integer(1))};
}

}  // namespace normd
