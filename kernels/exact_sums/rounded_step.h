// What a training step makes of running statistics where the statistics of the batch came as f64 (Moment) and not as
// exact sums: they are taken as the numbers that they are, and the new value is rounded once.
// In the path: sessions call it for steps without exact sums (server/session/running_state.cc). Plain values and pure
// functions.
#ifndef NORMD_KERNELS_EXACT_SUMS_ROUNDED_STEP_H_
#define NORMD_KERNELS_EXACT_SUMS_ROUNDED_STEP_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "kernels/exact_sums/nearest_step.h"
#include "kernels/moments.h"
#include "kernels/slow_road/dyadic.h"

namespace normd {

// One statistic of one step: each channel's running value becomes the f64 nearest to
//   (1 - a) * old + a * (v_0 + v_1 + ...) / divisor
// with v_i the channel's number in instance i, and nothing rounded before. It is calculated in pairs of f64, which
// takes 7 ns a channel; where these leave two neighbours in question, 512 bits decide in 20 to 60 ns
// (kernels/exact_sums/modular_sum.h). Ordinary data does that where the new value is the middle of two f64: about half
// of the time with momentum 0.5, or at step 2 of a mean of all. Integers of any size take 0.2 us, for the rest.
//
//   // Running variances, UNBIASED, of batches of 4 values: m2 / 3.
//   const RoundedStep step(StepWeight::Of(running, num_batches), Dyadic::Integer(3));
//   step.Apply(moments, &Moment::m2, &state->var);
class RoundedStep {
 public:
  // REQUIRES: `divisor` is above 0.
  RoundedStep(const StepWeight& weight, const slow_road::Dyadic& divisor);

  // `moments`: of the channels of the first instance, then of the next. Where a number is not finite, the channel's
  // formula is calculated in f64. Returns how many channels had to be decided with integers of any size, which takes
  // 0.2 us: 0 but for what is not finite, cancels or is hundreds of binary digits apart. REQUIRES: at least one
  // instance.
  size_t Apply(absl::Span<const Moment> moments, double Moment::*member, std::vector<double>* running) const;

 private:
  // A factor as a pair, and its high part in two numbers of 26 bits, so that products with it are exact.
  struct Factor {
    slow_road::Dyadic over;  // the factor is over / under_
    double hi = 0, lo = 0, upper = 0, lower = 0;

    Factor(const slow_road::Dyadic& numerator, const slow_road::Dyadic& denominator);
    bool fits_pairs() const;
  };
  struct Block;  // some channels

  // Between which two numbers the new values lie.
  void CalculateInPairs(Block* block) const;
  void CalculateScaled(size_t i, Block* block) const;
  std::optional<double> DecideBetween(const Block& block, size_t i, absl::Span<const Moment> moments,
                                      double Moment::*member, size_t channels) const;
  double Decide(double old, absl::Span<const Moment> moments, double Moment::*member, size_t channels) const;

  const slow_road::Dyadic under_;
  const Factor of_old_, of_sum_;
};

// The f64 nearest to the sum of `values`, in any order; where one is not finite, the sum in f64.
//
//   NearestSum({0x1p+53, 1, 1});  // 2^53 + 2; one by one in f64 the sum would stay at 2^53
double NearestSum(absl::Span<const double> values);

// The moments of the union of disjoint sets of elements: count, mean and m2 are each the f64 nearest to what the given
// numbers say, so that the order of the parts does not matter. Parts without elements say nothing. Where a mean or m2
// is not finite, these two are merged in the parts' order (Merge in kernels/moments.h).
//
//   NearestPool({{2, 2, 2}, {2, 7, 8}});  // {4, 4.5, 35}: of [1, 3] and [5, 9]
Moment NearestPool(absl::Span<const Moment> parts);

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_ROUNDED_STEP_H_
