#include "tests/support/oracle_state.h"

#include <cstddef>

namespace normd::oracle {
namespace {

Wide NewWeight(const RunningRule& rule, uint64_t num_batches) {
  if (rule.cumulative) return Wide(1) / Wide(num_batches);
  return rule.momentum_of_old ? Wide(1) - rule.momentum : Wide(rule.momentum);
}

void Mix(Wide a, Wide value, Wide& running) { running = (Wide(1) - a) * running + a * value; }

bool AllFinite(const std::vector<BatchStatistics>& batch) {
  for (const BatchStatistics& b : batch) {
    if (b.count > 0 && !(IsFinite(b.mean) && IsFinite(b.variance))) return false;
  }
  return true;
}

// The variance to mix in, and whether there is one: a single value has no unbiased variance.
bool NewVariance(const RunningRule& rule, const BatchStatistics& batch, Wide& variance) {
  variance = batch.variance;
  if (rule.biased) return true;
  if (batch.count < 2) return false;
  variance = batch.variance * batch.count / (batch.count - 1);
  return true;
}

}  // namespace

RunningValues RunningValues::Initial(int64_t channels) {
  RunningValues state;
  state.mean.assign(static_cast<size_t>(channels), Wide(0));
  state.var.assign(static_cast<size_t>(channels), Wide(1));
  return state;
}

void SampleHistory::Add(const std::vector<double>& samples, double weight) {
  const Wide n = Wide(weight) * Wide(static_cast<int64_t>(samples.size()));
  const Wide fading = decay_ == 1 ? Wide(1) : Exp2(n * Log2(Wide(decay_)));
  prior_weight_ *= fading;
  for (Sample& sample : samples_) sample.weight *= fading;
  for (const double value : samples) samples_.push_back({Wide(value), Wide(weight)});
}

SampleHistory::Statistics SampleHistory::Now() const {
  Statistics now = {.count = prior_weight_, .mean = prior_weight_ * prior_.mean, .m2 = prior_weight_ * prior_.variance};
  for (const Sample& sample : samples_) {
    now.count += sample.weight;
    now.mean += sample.weight * sample.value;
  }
  if (now.count == 0) return {.count = 0, .mean = prior_.mean, .m2 = 0};
  now.mean = now.mean / now.count;
  now.m2 += prior_weight_ * (prior_.mean - now.mean) * (prior_.mean - now.mean);
  for (const Sample& sample : samples_) {
    now.m2 += sample.weight * (sample.value - now.mean) * (sample.value - now.mean);
  }
  return now;
}

SampleHistory::Statistics UnionOf(const std::vector<KnownMoment>& sets) {
  SampleHistory::Statistics all;
  for (const KnownMoment& set : sets) {
    all.count += set.count;
    all.mean += Wide(set.count) * set.mean;
  }
  all.mean = all.mean / all.count;
  for (const KnownMoment& set : sets) {
    all.m2 += set.m2 + Wide(set.count) * (set.mean - all.mean) * (set.mean - all.mean);
  }
  return all;
}

PowerValues PowerValues::Initial(int64_t channels) {
  PowerValues state;
  state.phi.assign(static_cast<size_t>(channels), Wide(1));
  return state;
}

bool StepBatchNorm(const RunningRule& rule, const std::vector<BatchStatistics>& batch, RunningValues& state) {
  return StepInstanceNorm(rule, batch, state);  // a batch is its own only instance
}

bool StepInstanceNorm(const RunningRule& rule, const std::vector<BatchStatistics>& instances, RunningValues& state) {
  if (!rule.accept_non_finite && !AllFinite(instances)) return false;
  state.version += 1;
  state.num_batches += 1;
  const Wide a = NewWeight(rule, state.num_batches);
  const size_t channels = state.mean.size();
  const size_t n = channels == 0 ? 0 : instances.size() / channels;
  for (size_t c = 0; c < channels; ++c) {
    Wide mean = 0, variance = 0;
    bool any = n > 0, has_variance = n > 0;
    for (size_t i = 0; i < n; ++i) {
      const BatchStatistics& instance = instances[i * channels + c];
      Wide one = 0;
      any = any && instance.count > 0;
      has_variance = NewVariance(rule, instance, one) && has_variance;
      mean += instance.mean / n;
      variance += one / n;
    }
    if (!any) continue;  // an empty batch
    Mix(a, mean, state.mean[c]);
    if (has_variance) Mix(a, variance, state.var[c]);
  }
  return true;
}

PowerStep StepPowerNorm(const PowerRule& rule, int64_t count, const std::vector<Wide>& v, PowerValues& state) {
  PowerStep step;
  bool finite = true;
  for (const Wide value : v) finite = finite && (count == 0 || IsFinite(value));
  const int64_t iters = state.iters + 1;
  step.divisor = iters <= rule.warmup_iters ? v : state.phi;
  step.applied = finite || rule.accept_non_finite;
  if (!step.applied) return step;
  state.version += 1;
  state.iters = iters;
  if (count == 0) return step;
  for (size_t c = 0; c < state.phi.size(); ++c) {
    Wide& phi = state.phi[c];
    if (iters < rule.warmup_iters) phi = phi * (iters - 1) / iters + v[c] / iters;
    phi = Wide(rule.alpha_fwd) * phi + (Wide(1) - rule.alpha_fwd) * v[c];
  }
  return step;
}

}  // namespace normd::oracle
