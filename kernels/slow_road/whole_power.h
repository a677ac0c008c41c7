// Powers and roots of whole order in pairs of f64: what LpNorm of order 3 and more is summed with where its results are
// rounded to the nearest value. power_sum.h, which takes any order, is off by 2^-55; these by a few roundings of pairs.
// In the path: kernels/cpu/run_job.cc and kernels/slow_road/group.cc. Pure functions, safe from any thread.
#ifndef NORMD_KERNELS_SLOW_ROAD_WHOLE_POWER_H_
#define NORMD_KERNELS_SLOW_ROAD_WHOLE_POWER_H_

#include "kernels/pairs.h"
#include "kernels/power_sum.h"

namespace normd::slow_road {

// v^p, within p * 2^-102 of itself where nothing leaves the range. REQUIRES: p >= 1.
inline DoublePair WholePower(DoublePair v, int p) {
  DoublePair power = v;
  for (int i = 1; i < p; ++i) power = Multiply(power, v);
  return power;
}

// sum^(1 / p), within 2^-99 of itself; 0 for a sum of 0. One step of Newton's method takes PowerRoot from 2^-52 to
// p * 2^-105, and the roundings of p products, divided by p, come on top. REQUIRES: as PowerRoot, and p <= 16.
inline DoublePair WholeRoot(DoublePair sum, int p) {
  if (!(sum.hi > 0)) return {};
  const double root = PowerRoot(sum, p).hi;
  const DoublePair slope = WholePower({root, 0}, p - 1);
  const DoublePair missing = Add(sum, Negate(Multiply(slope, {root, 0})));
  return Add({root, 0}, {missing.hi / (p * slope.hi), 0});
}

}  // namespace normd::slow_road

#endif  // NORMD_KERNELS_SLOW_ROAD_WHOLE_POWER_H_
