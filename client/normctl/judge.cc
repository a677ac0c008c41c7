#include "client/normctl/judge.h"

#include <utility>

namespace normd::client {

Judgement Judge(DType dtype, absl::Span<const double> candidate, ExactAnswer answer, UlpOptions ulps) {
  Judgement out;
  StepReference steps;
  ulps.least = {};
  if (answer.has_steps) {
    out.nearest = CountNearestOfSteps(answer.t, answer.values, answer.affine, candidate);
    steps = ReferenceOfSteps(answer.t, answer.values, answer.affine, dtype, candidate, ulps.floor);
    ulps.least = steps.first_ulps;
    out.exact = std::move(steps.exact);
  } else {
    out.nearest = CountNearest(dtype, candidate, answer.values);
    out.exact = std::move(answer.values);
  }
  out.report = CompareUlps(dtype, candidate, out.exact, ulps);
  return out;
}

}  // namespace normd::client
