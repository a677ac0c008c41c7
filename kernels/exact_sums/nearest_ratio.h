// The f64 nearest to a ratio of exact numbers: the one rounding of every statistic that comes from exact sums.
// In the path: kernels/exact_sums/nearest_moments.cc and nearest_step.cc. A pure function, safe from any thread.
#ifndef NORMD_KERNELS_EXACT_SUMS_NEAREST_RATIO_H_
#define NORMD_KERNELS_EXACT_SUMS_NEAREST_RATIO_H_

#include "kernels/slow_road/dyadic.h"

namespace normd {

// The f64 nearest to over / under, ties to even; +0 if `over` is 0, Inf if the ratio is beyond the largest f64.
// REQUIRES: `under` is above 0.
//
//   NearestRatio(Dyadic(1.0), Dyadic(3.0));  // 0x1.5555555555555p-2
double NearestRatio(const slow_road::Dyadic& over, const slow_road::Dyadic& under);

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_NEAREST_RATIO_H_
