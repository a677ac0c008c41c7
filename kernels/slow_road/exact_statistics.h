// The statistics of a group as exact numbers.
// In the path: kernels/slow_road/group.cc, for what pairs of f64 leave undecided. Pure functions, plain values.
#ifndef NORMD_KERNELS_SLOW_ROAD_EXACT_STATISTICS_H_
#define NORMD_KERNELS_SLOW_ROAD_EXACT_STATISTICS_H_

#include <optional>

#include "absl/functional/function_ref.h"
#include "kernels/slow_road/dyadic.h"
#include "kernels/slow_road/formula.h"
#include "kernels/slow_road/real.h"

namespace normd::slow_road {

// Calls its argument with the elements that enter the statistic of a group, in pieces and in any order.
using ElementReader = absl::FunctionRef<void(absl::FunctionRef<void(const Element* elements, int64_t n)>)>;

// A centred element is (count * element - sum) / count, and the divisor is `count` times D: nothing is divided.
struct ExactStatistics {
  KeptDyadic count, sum;
  KeptDyadic m2;                   // times `count`; R^p of kPowerSum
  std::optional<Divisor> divisor;  // empty: it is 0
};

// x + scale * r.
Dyadic ExactValue(const Formula& formula, const Element& element);
ExactStatistics SumExactly(const Formula& formula, ElementReader reader);

}  // namespace normd::slow_road

#endif  // NORMD_KERNELS_SLOW_ROAD_EXACT_STATISTICS_H_
