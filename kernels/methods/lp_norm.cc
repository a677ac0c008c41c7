#include "kernels/errors.h"
#include "kernels/methods/common.h"
#include "kernels/norm_lower.h"
#include "kernels/text.h"

namespace normd::methods {
namespace {

constexpr AttributeInfo kAttributes[] = {
    Eps("0"),
    {"eps_mode", "enum EpsMode", "ADD_TO_ROOT",
     "ADD_TO_ROOT: R + eps, CLAMP_ROOT: max(R, eps), INSIDE_SQRT: sqrt(S + eps), for order 2 only"},
    {"order", "int64", "required", "1: sum of |x|, 2: square root of the sum of squares"},
    {"axis", "int64", "-1", "from -rank to rank - 1"},
};

absl::Status Validate(const NormSpec& spec) {
  const auto& [order, axis] = std::get<LpNormSpec>(spec.attributes);
  if (order != 1 && order != 2) {
    return OutOfRangeError(SpecPath(spec, "order"), Concat(order), "1 or 2", "ORDER_OUT_OF_RANGE");
  }
  if (order == 1 && spec.eps_mode == EpsMode::kInsideSqrt) {
    return OutOfRangeError(SpecPath(spec, "eps_mode"), "EPS_MODE_INSIDE_SQRT",
                           "EPS_MODE_ADD_TO_ROOT or EPS_MODE_CLAMP_ROOT for order 1, which takes no square root",
                           "EPS_MODE_NOT_SUPPORTED");
  }
  return CheckAxis(spec, "axis", axis);
}

Statistic StatisticOf(const NormSpec& spec) {
  return std::get<LpNormSpec>(spec.attributes).order == 1 ? Statistic::kAbsSum : Statistic::kSumSquares;
}

// x / R of one axis, R its L1 or L2 norm; 0 where R is 0.
absl::Status Lower(const NormSpec& spec, NormPlan* plan) {
  const absl::StatusOr<int64_t> axis = ResolveAxis(PlanPath(spec, "axis"), std::get<LpNormSpec>(spec.attributes).axis,
                                                   static_cast<int64_t>(plan->shape.size()));
  if (!axis.ok()) return axis.status();
  LowerAxes({*axis}, plan);
  plan->zero_norm_gives_zero = true;
  plan->parameter_length = 0;
  plan->parameter_shape.clear();
  return absl::OkStatus();
}

}  // namespace

extern constinit const MethodDefinition kLpNorm = {
    .info = {.method = Method::kLpNorm,
             .name = "lp_norm",
             .title = "LpNorm",
             .default_eps = 0,
             .default_eps_mode = EpsMode::kAddToRoot,
             .subtracts_mean = false,
             .divides_by = "L1 or L2 norm",
             .axes_bchw = "one axis, W by default",
             .axes_bld = "one axis, D by default",
             .axes_bc = "one axis, C by default",
             .depends_on_batch = false,
             .parameters = "none",
             .training_equals_inference = true,
             .used_by = "Sentence-BERT, CLIP and FaceNet embeddings, retrieval by cosine",
             .when_to_choose = "embeddings before a dot product (order 2), non-negative weights into shares (order 1)",
             .attributes = kAttributes},
    .traits = {.takes_parameters = false},
    .validate = Validate,
    .statistic = StatisticOf,
    .lower = Lower,
};

}  // namespace normd::methods
