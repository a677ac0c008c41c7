// How many elements of a candidate are the nearest value: the value of T that the exact result rounds to, ties to even.
// Stricter than an error of half an ulp, which both neighbours of a tie have, and the measure of normctl verify for
// programs that promise correct rounding. Pure functions.
#ifndef NORMD_CLIENT_NORMCTL_NEAREST_H_
#define NORMD_CLIENT_NORMCTL_NEAREST_H_

#include <cstdint>

#include "absl/types/span.h"
#include "client/cpp/tensor.h"
#include "client/normctl/cast_steps.h"

namespace normd::client {

struct NearestCount {
  int64_t nearest = 0;
  // The exact answer is an f64 with an error of its own, and where it lies next to the middle between two values of T
  // it does not tell which of them is nearer. These elements are one of the two.
  int64_t undecided = 0;
};

// `exact` is the answer in f64, within 4 ulp. For a `dtype` of F64 the nearest value is the answer itself. NaN is the
// nearest of NaN; 0 and -0 are equal.
//
//   CountNearest(v1::DTYPE_BF16, {1.0, 1.0078125}, {1.001, 1.001});  // 1 is the nearest, 1.0078125 is not
//
// REQUIRES: equal lengths.
NearestCount CountNearest(DType dtype, absl::Span<const double> candidate, absl::Span<const double> exact);

// The same of an answer that is rounded between its steps: `normalised` to `t`, then after the product with the weight
// and after the sum with the bias, each once. REQUIRES: as ReferenceOfSteps.
NearestCount CountNearestOfSteps(DType t, absl::Span<const double> normalised, const AffineStep& affine,
                                 absl::Span<const double> candidate);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_NEAREST_H_
