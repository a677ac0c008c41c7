#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

// ScaleNorm (Nguyen and Salazar 2019): y = x / D * w + b with D = R + eps by default; R is the L2 norm of the last
// axis, w and b are one number each.
absl::Status LowerScaleNorm(const NormSpec&, NormPlan* plan) {
  LowerLastAxis(plan);
  UseScalarParameter(plan);
  return absl::OkStatus();
}

}  // namespace

extern constinit const MethodDefinition kScaleNorm = {
    .info = Info(Method::kScaleNorm),
    .traits = {.parameter_shape_rank = 1},
    .validate = [](const NormSpec&) { return absl::OkStatus(); },
    .statistic = [](const NormSpec&) { return Statistic::kSumSquares; },
    .lower = LowerScaleNorm,
};

}  // namespace normd::methods
