// The reference of an answer that is rounded between its steps (CAST_THEN_AFFINE, the order of LLaMA and ONNX): the
// normalised value is rounded to T, then multiplied by w and b is added, each rounded to T. Pure functions.
#ifndef NORMD_CLIENT_NORMCTL_CAST_STEPS_H_
#define NORMD_CLIENT_NORMCTL_CAST_STEPS_H_

#include <vector>

#include "absl/types/span.h"
#include "client/cpp/tensor.h"

namespace normd::client {

// `value`, rounded to f64 first, rounded to the nearest value of `t`, ties to even; too large a value is infinite.
double RoundTo(DType t, long double value);

// The affine step, element by element. An empty vector stands for none.
struct AffineStep {
  std::vector<double> weight, bias;
};

struct StepReference {
  std::vector<double> exact;       // what the last step gives before it is rounded
  std::vector<double> first_ulps;  // how far the first rounding is from the normalised value, in ulps of T
};

// A rounding of the normalised value may go to either neighbour in T, and each is right within an ulp. So the reference
// of an element starts from the neighbour from which `candidate` comes with the smaller error, which is the larger of
// the errors of its two steps. `judged` is the dtype whose ulps count for the candidate.
// REQUIRES: `normalised` and `candidate`, and the vectors of `affine` that are not empty, have equal lengths.
StepReference ReferenceOfSteps(DType t, absl::Span<const double> normalised, const AffineStep& affine, DType judged,
                               absl::Span<const double> candidate, double floor);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_CAST_STEPS_H_
