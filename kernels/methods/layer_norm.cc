#include "kernels/base/errors.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

absl::Status ValidateLayerNorm(const NormSpec& spec) {
  if (spec.normalized_shape().empty() && spec.axes().empty()) {
    return MissingError(SpecPath(spec, "normalized_shape"), "normalized_shape or axes");
  }
  return CheckShapeOrAxes(spec);
}

}  // namespace

// LayerNorm (Ba, Kiros, Hinton 2016): y = (x - mean) / D * w + b with D = sqrt(S + eps) by default; the mean and S, the
// biased variance, are those of the trailing axes `normalized_shape` or of the listed `axes`.
extern constinit const MethodDefinition kLayerNorm = {
    .info = Info(Method::kLayerNorm),
    .traits = {},
    .validate = ValidateLayerNorm,
    .statistic = [](const NormSpec&) { return Statistic::kMeanVariance; },
    .lower = LowerShapeOrAxes,
};

}  // namespace normd::methods
