// Count, mean and second central moment of statistics groups, and the one function that merges two of them.
// In the path: the reduce pass writes them; training steps, pooled training (CommitMoments) and replies read them.
// Plain values, thread-compatible.
#ifndef NORMD_KERNELS_MOMENTS_H_
#define NORMD_KERNELS_MOMENTS_H_

#include <cstdint>
#include <vector>

namespace normd {

// The moments of one statistics group: m2 is the sum of (x - mean)^2. For statistics about zero (RMS, L2, PowerNorm)
// the mean is 0 and m2 is the sum of squares; for a norm that is not L2, m2 is the norm.
struct Moment {
  double count = 0;
  double mean = 0;
  double m2 = 0;

  // m2 / n.
  double BiasedVariance() const { return m2 / count; }
  // m2 / (n - 1). REQUIRES: count > 1.
  double UnbiasedVariance() const { return m2 / (count - 1); }
};

// The moments of the union of two disjoint sets of elements (Chan, Golub, LeVeque 1983). With d = mean_2 - mean_1 and
// n = n_1 + n_2: mean = mean_1 + d n_2 / n and M2 = M2_1 + M2_2 + d^2 n_1 n_2 / n. If one side is empty, the other is
// returned unchanged.
Moment Merge(const Moment& a, const Moment& b);

// One Moment per statistics group of a plan, in the order of the kept axes.
using Moments = std::vector<Moment>;

// The smallest and the largest sample of each group, in the order of its moments; NaN: not known. Empty: none is known.
struct Extremes {
  std::vector<double> min, max;

  bool empty() const { return min.empty(); }
};

}  // namespace normd

#endif  // NORMD_KERNELS_MOMENTS_H_
