// The nearest value to a quotient of exact numbers: the one rounding of means, of moments and of every other statistic
// that comes from exact sums. In the path: kernels/slow_road/group.cc, kernels/exact_sums and
// kernels/cpu/run_nearest_power.cc. A pure function, safe from any thread.
#ifndef NORMD_KERNELS_SLOW_ROAD_QUOTIENT_H_
#define NORMD_KERNELS_SLOW_ROAD_QUOTIENT_H_

#include "kernels/slow_road/dyadic.h"
#include "kernels/slow_road/format.h"

namespace normd::slow_road {

// The value of `format` nearest to over / under, ties to even; +0 if `over` is 0, Inf if the quotient is beyond the
// largest value. REQUIRES: `under` is above 0.
//
//   RoundQuotient(FormatOf(DType::kF64), Dyadic(1.0), Dyadic(3.0));  // 0x1.5555555555555p-2
double RoundQuotient(const Format& format, const Dyadic& over, const Dyadic& under);

}  // namespace normd::slow_road

#endif  // NORMD_KERNELS_SLOW_ROAD_QUOTIENT_H_
