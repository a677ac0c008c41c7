#include "kernels/exact_sums/rounded_step.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/certificate.h"
#include "kernels/exact_sums/nearest_ratio.h"

namespace normd {
namespace {

using slow_road::Dyadic;

// What products and quotients of pairs lose where their low parts are no f64, and the least magnitude beside which
// that is nothing.
constexpr double kLost = 0x1p-1060;
constexpr double kLeast = 0x1p-900;

// The f64 nearest to every number within `error` of `value`; nothing if there are two, or none that is finite.
std::optional<double> NearestWithin(DoublePair value, double error) {
  // Twice: the two differences are rounded, too.
  const double wide = 2 * error + kLost;
  const double low = value.hi + (value.lo - wide), high = value.hi + (value.lo + wide);
  if (low != high || !std::isfinite(low) || std::abs(low) < kLeast) return std::nullopt;
  return low;
}

// over / under as a pair, which is off by 2^-106 of it if it is at least kLeast.
DoublePair PairOf(const Dyadic& over, const Dyadic& under) {
  const double nearest = NearestRatio(over, under);
  return {nearest, NearestRatio(over - Dyadic(nearest) * under, under)};
}

bool FitsPair(const Dyadic& exact, DoublePair pair) { return exact.sign() == 0 || pair.hi >= kLeast; }

}  // namespace

RoundedStep::RoundedStep(const StepWeight& weight, const Dyadic& divisor)
    : old_over_((weight.under - weight.over) * divisor),
      sum_over_(weight.over),
      under_(weight.under * divisor),
      of_old_(PairOf(old_over_, under_)),
      of_sum_(PairOf(sum_over_, under_)),
      fits_pairs_(FitsPair(old_over_, of_old_) && FitsPair(sum_over_, of_sum_)) {}

// The bound, in kPairUnit: an addition is off by 1 of the magnitudes that it adds, a product by 4, a ratio by less than
// 1. Each of the n values takes part in at most n additions.
double RoundedStep::Next(double old, size_t values, absl::FunctionRef<double(size_t)> value) const {
  DoublePair sum;
  double magnitude = 0;
  for (size_t i = 0; i < values; ++i) {
    sum = Add(sum, {value(i), 0});
    magnitude += std::abs(value(i));
  }
  if (fits_pairs_) {
    const DoublePair kept = Multiply(of_old_, {old, 0}), added = Multiply(of_sum_, sum);
    const bool is_zero = (old == 0 || old_over_.sign() == 0) && (magnitude == 0 || sum_over_.sign() == 0);
    if (is_zero && std::isfinite(old) && std::isfinite(magnitude)) return 0;
    const auto n = static_cast<double>(values);
    const double error = (8 * std::abs(kept.hi) + (8 + 2 * n) * magnitude * of_sum_.hi) * kPairUnit;
    if (const std::optional<double> decided = NearestWithin(Add(kept, added), error)) return *decided;
  }
  return Decide(old, values, value);
}

double RoundedStep::Decide(double old, size_t values, absl::FunctionRef<double(size_t)> value) const {
  bool is_finite = std::isfinite(old);
  double in_f64 = 0;
  for (size_t i = 0; i < values; ++i) {
    is_finite = is_finite && std::isfinite(value(i));
    in_f64 += value(i);
  }
  if (!is_finite) return of_old_.hi * old + of_sum_.hi * in_f64;
  Dyadic sum;
  for (size_t i = 0; i < values; ++i) sum = sum + Dyadic(value(i));
  return NearestRatio(old_over_ * Dyadic(old) + sum_over_ * sum, under_);
}

namespace {

bool IsFinite(const Moment& moment) {
  return moment.count > 0 && std::isfinite(moment.count) && std::isfinite(moment.mean) && std::isfinite(moment.m2);
}

// The sums of parts that are all finite and of at least one element.
Moment PoolExactly(absl::Span<const Moment> parts) {
  Dyadic count, sum, squares;
  for (const Moment& part : parts) {
    if (part.count == 0) continue;
    const Dyadic mean(part.mean);
    const Dyadic part_sum = Dyadic(part.count) * mean;
    count = count + Dyadic(part.count);
    sum = sum + part_sum;
    squares = squares + part_sum * mean + Dyadic(part.m2);
  }
  return {.count = NearestRatio(count, Dyadic::Integer(1)),
          .mean = NearestRatio(sum, count),
          .m2 = NearestRatio(squares * count - Square(sum), count)};
}

// The same in pairs of f64, where these decide. m2 is the sum of the parts' and of n_i (mean_i - mean)^2, whose terms
// are positive; an error e of the mean adds (sum of n_i) e^2 to it.
class PairPool {
 public:
  explicit PairPool(absl::Span<const Moment> parts) : parts_(parts) {
    for (const Moment& part : parts_) {
      if (part.count == 0) continue;
      count_ = Add(count_, {part.count, 0});
      const DoublePair product = TwoProduct(part.count, part.mean);
      sum_ = Add(sum_, product);
      magnitude_ += std::abs(product.hi);
      has_one_mean_ = has_one_mean_ && (mean_.hi == part.mean || count_.hi == part.count);
      mean_.hi = part.mean;
    }
    if (has_one_mean_) return;
    const DoublePair share = Reciprocal(count_);
    mean_ = Multiply(sum_, share);
    // The additions to the sum, those to the count, the reciprocal and the product.
    of_mean_ = (2 * Size() + 10) * magnitude_ * share.hi * kPairUnit + kLost;
  }

  // 1 / count is a pair whose low part is no subnormal number.
  bool fits_pairs() const { return count_.hi >= 0x1p-200 && count_.hi <= 0x1p+200; }
  std::optional<double> Count() const { return NearestWithin(count_, (Size() + 1) * count_.hi * kPairUnit); }
  std::optional<double> Mean() const {
    if (has_one_mean_) return mean_.hi + 0.0;
    return NearestWithin(mean_, of_mean_);
  }
  std::optional<double> M2() const {
    DoublePair m2;
    double distances = 0;  // the sum of n_i |mean_i - mean|
    for (const Moment& part : parts_) {
      if (part.count == 0) continue;
      const DoublePair distance = Add({part.mean, 0}, Negate(mean_));
      const DoublePair between = Multiply(Multiply(distance, distance), {part.count, 0});
      m2 = Add(m2, Add({part.m2, 0}, between));
      distances += std::abs(distance.hi) * part.count;
    }
    if (m2.hi == 0 && has_one_mean_) return 0;
    // A difference is off by the error of the mean, and by 1 of both: at most 2 of the difference, and 2 of the mean.
    const double of_distance = has_one_mean_ ? 0 : of_mean_ + 2 * std::abs(mean_.hi) * kPairUnit;
    const double of_between = 2 * distances * of_distance + count_.hi * of_distance * of_distance;
    return NearestWithin(m2, 2 * of_between + (2 * Size() + 20) * m2.hi * kPairUnit);
  }

 private:
  double Size() const { return static_cast<double>(parts_.size()); }

  const absl::Span<const Moment> parts_;
  DoublePair count_, sum_, mean_;
  bool has_one_mean_ = true;  // that of every part
  double magnitude_ = 0, of_mean_ = 0;
};

Moment MergeInOrder(absl::Span<const Moment> parts) {
  Moment merged;
  for (const Moment& part : parts) merged = Merge(merged, part);
  return merged;
}

}  // namespace

Moment NearestPool(absl::Span<const Moment> parts) {
  const auto says_nothing = [](const Moment& part) { return part.count == 0; };
  const auto used = parts.size() - static_cast<size_t>(std::count_if(parts.begin(), parts.end(), says_nothing));
  const auto fits = [&](const Moment& part) { return says_nothing(part) || IsFinite(part); };
  if (used <= 1 || !std::all_of(parts.begin(), parts.end(), fits)) return MergeInOrder(parts);
  const PairPool pool(parts);
  if (!pool.fits_pairs()) return PoolExactly(parts);
  const std::optional<double> count = pool.Count(), mean = pool.Mean(), m2 = pool.M2();
  if (count.has_value() && mean.has_value() && m2.has_value()) return {*count, *mean, *m2};
  return PoolExactly(parts);
}

}  // namespace normd
