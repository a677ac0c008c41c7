// What a training step makes of running statistics where the statistics of the batch came as f64 (Moment) and not as
// exact sums: they are taken as the numbers that they are, and the new value is rounded once.
// In the path: sessions call it for steps without exact sums (server/session/running_state.cc). Plain values and pure
// functions.
#ifndef NORMD_KERNELS_EXACT_SUMS_ROUNDED_STEP_H_
#define NORMD_KERNELS_EXACT_SUMS_ROUNDED_STEP_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/exact_sums/nearest_step.h"
#include "kernels/moments.h"
#include "kernels/pairs.h"
#include "kernels/slow_road/dyadic.h"

namespace normd {

// One statistic of one step, for all channels: the f64 nearest to (1 - a) * old + a * (v_0 + v_1 + ...) / divisor, in
// which nothing is rounded before. It is calculated in pairs of f64, which takes some 20 ns; where these leave two
// numbers in question, which ordinary data never does, integers decide in about 1 us.
//
//   // Running variances, UNBIASED, of 4 values in a batch: m2 / 3.
//   const RoundedStep step(StepWeight::Of(running, num_batches), Dyadic::Integer(3));
//   var = step.Next(var, 1, [&](size_t) { return moment.m2; });
class RoundedStep {
 public:
  // REQUIRES: `divisor` is above 0.
  RoundedStep(const StepWeight& weight, const slow_road::Dyadic& divisor);

  // Where `old` or a value is not finite, the formula is calculated in f64.
  double Next(double old, size_t values, absl::FunctionRef<double(size_t)> value) const;

 private:
  double Decide(double old, size_t values, absl::FunctionRef<double(size_t)> value) const;

  // The new value is old * old_over_ / under_ + sum * sum_over_ / under_, and these ratios as pairs.
  slow_road::Dyadic old_over_, sum_over_, under_;
  DoublePair of_old_, of_sum_;
  bool fits_pairs_ = false;  // the ratios do
};

// The moments of the union of disjoint sets of elements: count, mean and m2 are each the f64 nearest to what the given
// numbers say, so that the order of the parts does not matter. Parts without elements say nothing. Where a number is
// not finite, the parts are merged in their order (Merge in kernels/moments.h).
//
//   NearestPool({{2, 2, 2}, {2, 7, 8}});  // {4, 4.5, 35}: of [1, 3] and [5, 9]
Moment NearestPool(absl::Span<const Moment> parts);

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_ROUNDED_STEP_H_
