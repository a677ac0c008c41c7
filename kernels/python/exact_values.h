// The real numbers behind y, to about twice the digits of an f64: what y as the nearest f64 leaves out.
// In the path: golden.cc, after a backend has calculated y. Pure functions, safe from any thread.
#ifndef NORMD_KERNELS_PYTHON_EXACT_VALUES_H_
#define NORMD_KERNELS_PYTHON_EXACT_VALUES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/parameters.h"

namespace normd {

// Elements of a tensor, by their indices in memory order, which are those of the three arrays.
struct ExactElements {
  absl::Span<const int64_t> indices;
  const double* high;  // y
  double* low;         // the f64 nearest to what high leaves out
  double* bound;       // |y - (high + low)| is at most this
};

// Writes `low` and `bound` of the elements, and leaves both alone where high is no more than the nearest f64: where it
// or a number of its group is not finite, and for LpNorm of a p other than 1, 2 and infinity.
// REQUIRES: x, and a residual if there is one, are f64; the plan is of CastOrder::kAffineThenCast; `parameters` are in
// the plan's order.
void FindLowParts(const Job& job, const HostParameters& parameters, const ExactElements& elements);

}  // namespace normd

#endif  // NORMD_KERNELS_PYTHON_EXACT_VALUES_H_
