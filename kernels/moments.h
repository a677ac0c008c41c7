// Count, mean and second central moment of statistics groups, and how two of them merge: the only place of variance
// arithmetic in normd. Between Reduce and whatever uses statistics (sessions, pooled training, replies).
// Plain values, thread-compatible.
#ifndef NORMD_KERNELS_MOMENTS_H_
#define NORMD_KERNELS_MOMENTS_H_

#include <cstdint>
#include <vector>

namespace normd {

// One statistics group. For statistics about zero (RMS, L2, PowerNorm) mean is 0 and m2 the sum of squares.
struct Moment {
  double count = 0;
  double mean = 0;
  double m2 = 0;

  double BiasedVariance() const { return m2 / count; }
  // n - 1 in the divisor. REQUIRES: count > 1.
  double UnbiasedVariance() const { return m2 / (count - 1); }
};

// The moments of the union of two disjoint groups (Chan, Golub, LeVeque 1983): with d = m2 - m1 and n = n1 + n2,
// mean = m1 + d n2 / n, M2 = M2_1 + M2_2 + d^2 n1 n2 / n. An empty side returns the other unchanged.
Moment Merge(const Moment& a, const Moment& b);

// One Moment per statistics group of a plan, in the order of the kept axes.
using Moments = std::vector<Moment>;

}  // namespace normd

#endif  // NORMD_KERNELS_MOMENTS_H_
