#include "tests/support/nearest_state.h"

#include <cstddef>
#include <cstdint>

#include "tests/support/oracle_groups.h"

namespace normd::oracle {
namespace {

// A fraction, so that 1 / num_batches and the mean of a batch are exact. The denominator is positive.
struct Fraction {
  Dyadic over, under{1};
};

Fraction WeightOfNew(const RunningRule& rule, uint64_t num_batches) {
  if (rule.cumulative) return {Dyadic(1), Dyadic(Wide(num_batches))};
  if (rule.momentum_of_old) return {Dyadic(1) - Dyadic(Wide(rule.momentum)), Dyadic(1)};
  return {Dyadic(Wide(rule.momentum)), Dyadic(1)};
}

// (1 - a) * old + a * value, rounded once to f64.
Wide Mixed(const Fraction& a, Wide old, const Fraction& value) {
  const Divisor under = {.r = a.under * value.under, .q = {}};
  const Dyadic kept = (a.under - a.over) * value.under * Dyadic(old), added = a.over * value.over;
  const Real real = {.a = kept + added, .divisor = &under, .b = {}};
  const Wide estimate = Approximate(real.a) / Approximate(under.r);
  return Decode(Type::kF64, RoundToNearest(Type::kF64, real, estimate).bits);
}

}  // namespace

bool StepNearest(const Spec& spec, const Input& input, const RunningRule& rule, RunningValues& state) {
  const ExactGroups groups(spec, input);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].count > 0 && !groups[g].is_finite) return false;
  }
  state.version += 1;
  state.num_batches += 1;
  const Fraction a = WeightOfNew(rule, state.num_batches);
  const size_t channels = state.mean.size(), instances = groups.size() / channels;
  for (size_t c = 0; c < channels; ++c) {
    // All instances of a channel have the same number of elements.
    const int64_t count = instances == 0 ? 0 : groups[c].count;
    if (count == 0) continue;
    Fraction mean, variance;
    for (size_t i = 0; i < instances; ++i) {
      mean.over += groups[i * channels + c].sum;
      variance.over += groups.ScaledVarianceOf(i * channels + c);
    }
    const Dyadic n{Wide(count)}, all = n * Dyadic(Wide(instances));
    mean.under = all;
    variance.under = all * (rule.biased ? n : Dyadic(Wide(count - 1)));
    state.mean[c] = Mixed(a, state.mean[c], mean);
    if (rule.biased || count > 1) state.var[c] = Mixed(a, state.var[c], variance);
  }
  return true;
}

}  // namespace normd::oracle
