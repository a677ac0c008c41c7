#include "kernels/methods/common.h"

namespace normd::methods {
// RMSNorm (Zhang and Sennrich 2019): y = x / D * w + b with D = sqrt(S + eps) by default; S is the mean of squares of
// the last axis, of the trailing axes `normalized_shape`, or of the listed `axes`.
extern constinit const MethodDefinition kRmsNorm = {
    .info = Info(Method::kRmsNorm),
    .traits = {},
    .validate = CheckShapeOrAxes,
    .statistic = [](const NormSpec&) { return Statistic::kMeanSquare; },
    .lower = LowerShapeOrAxes,
};

}  // namespace normd::methods
