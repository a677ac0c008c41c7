// v of PowerNorm to the nearest value: the terms of each channel, x^2 / (mean square of the position + eps), are
// rounded once to f64, their sum is exact, and their mean, v, is rounded once. In the path: run_nearest_power.cc asks
// for it unless the job gives v; AddTerms of nearest_power.h does the work, and what that leaves comes from the slow
// road. Borrows the run. Threads: the sums are shared among those of the pool.
#ifndef NORMD_KERNELS_CPU_NEAREST_POWER_TERMS_H_
#define NORMD_KERNELS_CPU_NEAREST_POWER_TERMS_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/certificate.h"
#include "kernels/cpu/run.h"

namespace normd::cpu {

// A job of PowerNorm, as both of its passes see it.
struct PowerRun {
  const Run& run;
  int64_t channels = run.plan.keep1;
  int64_t size = run.plan.keep1 / run.plan.power_groups;  // of a group of channels
  PowerBound bound{size, run.nearest.bound_factor};
  // False: every element goes to the slow road. A stream that is kept wide does, because f64 has not all of its digits.
  bool uses_kernels = bound.slack() <= 0x1p-4 && run.given_residual.data == nullptr && !run.nearest.exact_first;
};

// v of a channel, and the sum of its terms rounded to f64. NaN: a term is NaN, or no position counts.
struct ChannelDivisor {
  double v = std::numeric_limits<double>::quiet_NaN();
  double m2 = std::numeric_limits<double>::quiet_NaN();
};

std::vector<ChannelDivisor> DivisorsOf(const PowerRun& power);

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_NEAREST_POWER_TERMS_H_
