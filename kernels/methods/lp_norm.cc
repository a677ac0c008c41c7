#include <cmath>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

absl::Status ValidateLpNorm(const NormSpec& spec) {
  const auto& method = std::get<LpNormSpec>(spec.attributes);
  if (method.p.has_value() && !(*method.p >= 1)) {
    return OutOfRangeError(SpecPath(spec, "p"), NumberText(*method.p), "at least 1", KernelReason("P_OUT_OF_RANGE"));
  }
  if (!method.p.has_value() && method.order < 1) {
    return OutOfRangeError(SpecPath(spec, "order"), Concat(method.order), "at least 1",
                           KernelReason("ORDER_OUT_OF_RANGE"));
  }
  if (method.Power() != 2 && spec.eps_mode == EpsMode::kInsideSqrt) {
    return OutOfRangeError(SpecPath(spec, "eps_mode"), "EPS_MODE_INSIDE_SQRT",
                           "EPS_MODE_ADD_TO_ROOT or EPS_MODE_CLAMP_ROOT for an order other than 2, which takes no "
                           "square root",
                           KernelReason("EPS_MODE_NOT_SUPPORTED"));
  }
  absl::Status status = CheckAxis(spec, "axis", method.axis);
  return status.ok() ? CheckShapeOrAxes(spec) : status;
}

Statistic StatisticOf(const NormSpec& spec) {
  const double p = std::get<LpNormSpec>(spec.attributes).Power();
  if (p == 1) return Statistic::kAbsSum;
  if (p == 2) return Statistic::kSumSquares;
  return std::isinf(p) ? Statistic::kMaxAbs : Statistic::kPowerSum;
}

// LpNorm: y = x / D with D = R + eps by default, R = (sum |x|^p)^(1/p) over the axes (the largest |x| for p =
// infinity); y = 0 where D is 0. There are no parameters.
absl::Status LowerLpNorm(const NormSpec& spec, NormPlan* plan) {
  const auto& method = std::get<LpNormSpec>(spec.attributes);
  if (!method.axes.empty()) {
    if (absl::Status status = LowerShapeOrAxes(spec, plan); !status.ok()) return status;
  } else {
    const absl::StatusOr<int64_t> axis =
        ResolveAxis(PlanPath(spec, "axis"), method.axis, static_cast<int64_t>(plan->shape.size()));
    if (!axis.ok()) return axis.status();
    LowerAxes({*axis}, plan);
  }
  plan->p = method.Power();
  plan->zero_norm_gives_zero = true;
  plan->parameter_length = 0;
  plan->parameter_shape.clear();
  plan->parameter_order.extents.clear();
  plan->parameter_order.strides.clear();
  return absl::OkStatus();
}

}  // namespace

extern constinit const MethodDefinition kLpNorm = {
    .info = Info(Method::kLpNorm),
    .traits = {.takes_parameters = false},
    .validate = ValidateLpNorm,
    .statistic = StatisticOf,
    .lower = LowerLpNorm,
};

}  // namespace normd::methods
