// Asks a server for the exact answer that normctl verify compares with.
#ifndef NORMD_CLIENT_NORMCTL_EXACT_ANSWER_H_
#define NORMD_CLIENT_NORMCTL_EXACT_ANSWER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/tensor.h"
#include "client/normctl/cast_steps.h"
#include "normd/v1/normalizer.pb.h"

namespace normd::client {

struct ExactAnswer {
  v1::Applied applied;
  std::vector<double> values;  // y; the normalised values if `has_steps`
  // True if the answer is rounded to T, the dtype of x, before `affine` is applied.
  bool has_steps = false;
  DType t = v1::DTYPE_UNSPECIFIED;
  AffineStep affine;
};

// The answer to `request`, whose target is set, with x in f64, which every dtype widens to without an error. `spec` is
// that of the target. Parameters need no widening: their values are used as they are. h that is rounded to the dtype of
// x by definition is rounded before x is widened.
absl::StatusOr<ExactAnswer> AskExactAnswer(Client& client, const v1::NormSpec& spec, v1::NormalizeRequest request);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMCTL_EXACT_ANSWER_H_
