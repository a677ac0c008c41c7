#include "kernels/exact_sums/nearest_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/exact_sums/nearest_moments.h"
#include "kernels/exact_sums/nearest_ratio.h"

namespace normd {
namespace {

using slow_road::Dyadic;

// A fraction, whose denominator is above 0.
struct Fraction {
  Dyadic over, under;
};

double Mixed(const StepWeight& weight, double old, const Fraction& value) {
  const Dyadic kept = (weight.under - weight.over) * value.under * Dyadic(old);
  return NearestRatio(kept + weight.over * value.over, weight.under * value.under);
}

// Of numbers that are not all finite.
double MixedInF64(const StepWeight& weight, double old, double value) {
  const double a = NearestRatio(weight.over, weight.under);
  return (1 - a) * old + a * value;
}

Dyadic SumOf(DoublePair pair) { return Dyadic(pair.hi) + Dyadic(pair.lo); }

// The f64 nearest to a ratio, and the f64 nearest to what it leaves out; nothing of an infinity.
DoublePair NearestPair(const Dyadic& over, const Dyadic& under) {
  const double nearest = NearestRatio(over, under);
  if (!std::isfinite(nearest)) return {nearest, 0};
  return {nearest, NearestRatio(over - Dyadic(nearest) * under, under)};
}

}  // namespace

StepWeight StepWeight::Of(const RunningSpec& running, uint64_t num_batches) {
  const Dyadic one = Dyadic::Integer(1);
  if (running.cumulative) return {one, Dyadic::Integer(std::max<uint64_t>(1, num_batches))};
  const Dyadic momentum(running.ResolvedMomentum());
  return {running.momentum_of == MomentumOf::kNew ? momentum : one - momentum, one};
}

void StepStatistics::Add(const ExactTotals& instance) {
  count_ = instance.count;
  ++instances_;
  non_finite_.Include(instance.non_finite);
  sums_ = sums_ + instance.sum;
  scaled_variances_ = scaled_variances_ + ScaledVariance(instance);
}

double StepStatistics::NextMean(const StepWeight& weight, double old) const {
  if (instances_ == 0) return old;
  const Dyadic n = Dyadic::Integer(count_) * Dyadic::Integer(instances_);
  if (!is_finite()) return MixedInF64(weight, old, non_finite_.Sum());
  if (!std::isfinite(old)) return MixedInF64(weight, old, NearestRatio(sums_, n));
  return Mixed(weight, old, {sums_, n});
}

double StepStatistics::NextVariance(const StepWeight& weight, RunningVariance variance, double old) const {
  const bool unbiased = variance == RunningVariance::kUnbiased;
  if (instances_ == 0 || (unbiased && count_ == 1)) return old;
  const Dyadic n = Dyadic::Integer(count_) * Dyadic::Integer(instances_);
  const Dyadic under = n * Dyadic::Integer(unbiased ? count_ - 1 : count_);
  if (!is_finite()) return MixedInF64(weight, old, std::numeric_limits<double>::quiet_NaN());
  if (!std::isfinite(old)) return MixedInF64(weight, old, NearestRatio(scaled_variances_, under));
  return Mixed(weight, old, {scaled_variances_, under});
}

// With N = count * fading, m the mean before, S and Q the sums of the step and T = N + n:
//   m2 * fading + M2 + (S / n - m)^2 * N * n / T  =  [(m2 * fading + Q + N m^2) T - (N m + S)^2] / T,
// which divides by nothing but T.
PairMoment NearestMerge(const PairMoment& state, double fading, const ExactTotals& step) {
  if (step.count == 0) return state;
  const PairMoment before = state.count.hi == 0 ? PairMoment{} : state;
  const Dyadic seen = SumOf(before.count) * Dyadic(fading);
  const Dyadic mean = SumOf(before.mean);
  const Dyadic total = seen + Dyadic::Integer(step.count);
  const Dyadic sum = seen * mean + step.sum;
  const Dyadic squares = SumOf(before.m2) * Dyadic(fading) + step.squares + seen * mean * mean;
  return {.count = NearestPair(total, Dyadic::Integer(1)),
          .mean = NearestPair(sum, total),
          .m2 = NearestPair(squares * total - sum * sum, total)};
}

}  // namespace normd
