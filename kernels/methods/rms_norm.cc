#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

constexpr AttributeInfo kRmsNormAttributes[] = {
    Eps("1e-6"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    {"normalized_shape", "repeated int64", "the last axis", "the trailing extents of x; or axes, not both"},
    {"axes", "repeated int64", "the last axis",
     "distinct, from -rank to rank - 1; w and b have their extents in the order listed"},
    kWeightOffset,
};

}  // namespace

// RMSNorm (Zhang and Sennrich 2019): y = x / D * w + b with D = sqrt(S + eps) by default; S is the mean of squares of
// the last axis, of the trailing axes `normalized_shape`, or of the listed `axes`.
extern constinit const MethodDefinition kRmsNorm = {
    .info = {.method = Method::kRmsNorm,
             .name = "rms_norm",
             .title = "RMSNorm",
             .formula = "y = x / sqrt(mean(x^2) + eps) * w + b",
             .default_eps = 1e-6,
             .default_eps_mode = EpsMode::kInsideSqrt,
             .subtracts_mean = false,
             .divides_by = "root mean square",
             .axes_bchw = "W",
             .axes_bld = "D",
             .axes_bc = "C",
             .depends_on_batch = false,
             .parameters = "w, optional b of the axes' extents",
             .training_equals_inference = true,
             .used_by = "LLaMA, T5, Mistral, Qwen, Gemma (weight_offset 1)",
             .when_to_choose = "large language models: cheaper than LayerNorm, as good where the mean carries nothing",
             .attributes = kRmsNormAttributes},
    .traits = {},
    .validate = CheckShapeOrAxes,
    .statistic = [](const NormSpec&) { return Statistic::kMeanSquare; },
    .lower = LowerShapeOrAxes,
};

}  // namespace normd::methods
