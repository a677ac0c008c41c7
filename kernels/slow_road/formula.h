// What a statistics group computes, and the numbers that enter: the input of the slow road.
// In the path: made by kernels/cpu, read by exact_statistics.cc and group.cc. Plain values.
#ifndef NORMD_KERNELS_SLOW_ROAD_FORMULA_H_
#define NORMD_KERNELS_SLOW_ROAD_FORMULA_H_

#include <cstdint>
#include <optional>

#include "kernels/base/types.h"
#include "kernels/group_statistics.h"
#include "kernels/pairs.h"

namespace normd::slow_road {

// The largest whole order of an LpNorm that integers of Dyadic::kMaxWords words decide. With u = x - m * eps, which is
// at least 0, a decision compares u^p with m^p times the sum of |x|^p. An f64 spans 2,099 bits. u spans 2,214, because
// m is about x / D and D is at least x: the last bit of m * eps is 2^-1127 D^-1 x or more. 6 * 2,214 is 13,284. An f32
// spans 277 bits, and u, whose eps is an f64, 1,290: 10 of these are 12,900. x + scale * r spans 2,376 bits where both
// are f32 or shorter, and 4,229 otherwise. Each factor may take 63 bits more, since numbers begin at a word.
constexpr int LargestWholeOrder(bool is_f64, bool keeps_residual) {
  if (keeps_residual) return is_f64 ? 3 : 5;
  return is_f64 ? 6 : 10;
}

// An element: the number x + scale * r. `r` is -0, which leaves x as it is, unless a residual stream is kept wide.
struct Element {
  double x = 0;
  double r = -0.0;
};

// What is done with a normalised element. The weight is the sum of two numbers, because weight + weight_offset may not
// fit one.
struct Affine {
  DoublePair weight = {1, 0};
  double bias = -0.0;  // -0: absent
  // PowerNorm: the v of the element's channel. y is divided by sqrt(v + eps), beside the group's own divisor.
  std::optional<double> variance;
};

// What a group computes.
struct Formula {
  Statistic statistic = Statistic::kMeanVariance;
  DivisorRule rule;     // of kPowerSum: p is whole and at most LargestWholeOrder
  int64_t counted = 0;  // the elements that enter the statistic
  double scale = 1;     // of the residual
  // Statistics that are given: S (or R) is `given_variance`. Nothing is summed, and `given_mean` is subtracted where
  // the statistic has a mean.
  bool is_given = false;
  double given_mean = 0, given_variance = 0;

  bool centred() const { return statistic == Statistic::kMeanVariance; }
  // The statistic is R itself and no square of it.
  bool is_norm() const { return statistic == Statistic::kAbsSum || SumsPowers(statistic); }
};

}  // namespace normd::slow_road

#endif  // NORMD_KERNELS_SLOW_ROAD_FORMULA_H_
