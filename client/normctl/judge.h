// Judges another program's tensor by the exact answer. In the path: normctl verify, after AskExactAnswer. Pure
// function.
#ifndef NORMD_CLIENT_NORMCTL_JUDGE_H_
#define NORMD_CLIENT_NORMCTL_JUDGE_H_

#include <vector>

#include "absl/types/span.h"
#include "client/normctl/exact_answer.h"
#include "client/normctl/nearest.h"
#include "client/normctl/ulps.h"

namespace normd::client {

struct Judgement {
  NearestCount nearest;
  UlpReport report;
  std::vector<double> exact;  // what the last step gives before it is rounded; y itself if the answer has no steps
};

// `dtype` is the one whose ulps count. `ulps.least` is ignored: an answer with steps brings its own.
// REQUIRES: the answer has as many values as the candidate.
Judgement Judge(DType dtype, absl::Span<const double> candidate, ExactAnswer answer, UlpOptions ulps);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_JUDGE_H_
