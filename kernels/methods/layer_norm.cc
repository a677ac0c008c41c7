#include "kernels/base/errors.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

constexpr AttributeInfo kLayerNormAttributes[] = {
    Eps("1e-5"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    {"normalized_shape", "repeated int64", "this or axes", "the trailing extents of x"},
    {"axes", "repeated int64", "this or normalized_shape",
     "distinct, from -rank to rank - 1; w and b have their extents in the order listed"},
    kWeightOffset,
};

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
    .info = {.method = Method::kLayerNorm,
             .name = "layer_norm",
             .title = "LayerNorm",
             .formula = "y = (x - mean) / sqrt(var + eps) * w + b; mean and biased variance over the normalised axes",
             .default_eps = 1e-5,
             .default_eps_mode = EpsMode::kInsideSqrt,
             .subtracts_mean = true,
             .divides_by = "standard deviation",
             .axes_bchw = "C,H,W",
             .axes_bld = "D",
             .axes_bc = "C",
             .depends_on_batch = false,
             .parameters = "w, b of the normalised shape",
             .training_equals_inference = true,
             .used_by = "BERT, GPT-2, GPT-3, ViT, Whisper",
             .when_to_choose = "transformers and recurrent networks; any batch size, sequences of unequal length",
             .attributes = kLayerNormAttributes},
    .traits = {},
    .validate = ValidateLayerNorm,
    .statistic = [](const NormSpec&) { return Statistic::kMeanVariance; },
    .lower = LowerShapeOrAxes,
};

}  // namespace normd::methods
