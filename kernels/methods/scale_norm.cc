#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

constexpr AttributeInfo kScaleNormAttributes[] = {
    Eps("1e-5"),
    RootOf("ADD_TO_ROOT"),
    kCastOrder,
    kWeightOffset,
};

// ScaleNorm (Nguyen and Salazar 2019): y = x / D * w + b with D = R + eps by default; R is the L2 norm of the last
// axis, w and b are one number each.
absl::Status LowerScaleNorm(const NormSpec&, NormPlan* plan) {
  LowerLastAxis(plan);
  UseScalarParameter(plan);
  return absl::OkStatus();
}

}  // namespace

extern constinit const MethodDefinition kScaleNorm = {
    .info = {.method = Method::kScaleNorm,
             .name = "scale_norm",
             .title = "ScaleNorm",
             .formula = "y = x / (sqrt(sum(x^2)) + eps) * w + b; w and b are one number each",
             .default_eps = 1e-5,
             .default_eps_mode = EpsMode::kAddToRoot,
             .subtracts_mean = false,
             .divides_by = "L2 norm",
             .axes_bchw = "W",
             .axes_bld = "D",
             .axes_bc = "C",
             .depends_on_batch = false,
             .parameters = "one scalar w, optional scalar b",
             .training_equals_inference = true,
             .used_by = "Transformers without Tears (Nguyen and Salazar 2019)",
             .when_to_choose =
                 "translation in low-resource languages and small transformers: one learned length for all rows",
             .attributes = kScaleNormAttributes},
    .traits = {.parameter_shape_rank = 1},
    .validate = [](const NormSpec&) { return absl::OkStatus(); },
    .statistic = [](const NormSpec&) { return Statistic::kSumSquares; },
    .lower = LowerScaleNorm,
};

}  // namespace normd::methods
