// The f64 nearest to a ratio of exact numbers: the one rounding of every statistic that comes from exact sums.
// In the path: kernels/exact_sums/nearest_moments.cc and nearest_step.cc. A pure function, safe from any thread.
#ifndef NORMD_KERNELS_EXACT_SUMS_NEAREST_RATIO_H_
#define NORMD_KERNELS_EXACT_SUMS_NEAREST_RATIO_H_

#include "kernels/slow_road/dyadic.h"
#include "kernels/slow_road/format.h"
#include "kernels/slow_road/quotient.h"

namespace normd {

// slow_road::RoundQuotient in f64.
//
//   NearestRatio(Dyadic(1.0), Dyadic(3.0));  // 0x1.5555555555555p-2
inline double NearestRatio(const slow_road::Dyadic& over, const slow_road::Dyadic& under) {
  return slow_road::RoundQuotient(slow_road::FormatOf(DType::kF64), over, under);
}

}  // namespace normd

#endif  // NORMD_KERNELS_EXACT_SUMS_NEAREST_RATIO_H_
