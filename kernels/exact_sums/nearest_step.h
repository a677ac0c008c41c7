// What a training step makes of running statistics, rounded once: the f64 nearest to (1 - a) * old + a * new, where a
// and the statistics of the batch are exact.
// In the path: sessions call it for steps whose moments came with exact sums (server/session/running_state.h). Plain
// values and pure functions.
#ifndef NORMD_KERNELS_EXACT_SUMS_NEAREST_STEP_H_
#define NORMD_KERNELS_EXACT_SUMS_NEAREST_STEP_H_

#include <cstdint>

#include "kernels/exact_sums/exact_sums.h"
#include "kernels/pairs.h"
#include "kernels/slow_road/dyadic.h"
#include "kernels/spec.h"

namespace normd {

// The weight a = over / under of the new value, in [0, 1]. 1 / num_batches is no f64, nor is 1 - momentum always one.
struct StepWeight {
  slow_road::Dyadic over, under;

  // As RunningSpec::NewWeight, exactly. `num_batches` includes the step that is being made.
  static StepWeight Of(const RunningSpec& running, uint64_t num_batches);
};

// The statistics of the batch that one channel's step mixes in. BatchNorm has one instance; a tracking InstanceNorm
// has N of them and takes the means of their means and of their variances.
//
//   StepStatistics batch;
//   batch.Add(sums.Totals());
//   const StepWeight a = StepWeight::Of(running, ++num_batches);
//   mean = batch.NextMean(a, mean);
//   var = batch.NextVariance(a, running.variance, var);
class StepStatistics {
 public:
  // REQUIRES: all instances have the same count, and `instance` is of at least one element. At most 2^53 elements are
  // added altogether.
  void Add(const ExactTotals& instance);

  bool is_finite() const { return !non_finite_.Any(); }
  uint64_t count() const { return count_; }  // of each instance

  // The running mean and variance after the step. Unbiased variances of one element leave `old`, because one element
  // has none. Where the statistics or `old` are not finite, the formula is calculated in f64. Without an instance,
  // `old`.
  double NextMean(const StepWeight& weight, double old) const;
  double NextVariance(const StepWeight& weight, RunningVariance variance, double old) const;

 private:
  uint64_t count_ = 0, instances_ = 0;
  NonFinite non_finite_;
  slow_road::Dyadic sums_;              // of the instances' sums
  slow_road::Dyadic scaled_variances_;  // of count^2 times their variances
};

// The state of a channel that counts samples (Weighting::kSamples), each number as the nearest f64 and what that leaves
// out.
struct PairMoment {
  DoublePair count, mean, m2;
};

// That state after it has seen the samples of `step`: the pairs nearest to count, mean and m2 of both, with the state
// as given. `fading` is what the weight of the samples seen before is multiplied by, decay^n as one f64; 1 without
// decay. An empty step leaves the state; of a state whose count is 0 nothing is left.
//
//   NearestMerge({.count = {2, 0}, .mean = {2, 0}, .m2 = {2, 0}}, 1, totals);  // of [1, 3], then of what totals is of
//
// REQUIRES: the state and the step are finite, count and m2 are not negative, and fading is in [0, 1].
PairMoment NearestMerge(const PairMoment& state, double fading, const ExactTotals& step);

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_NEAREST_STEP_H_
