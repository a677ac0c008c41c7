#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

absl::Status ValidatePRmsNorm(const NormSpec& spec) {
  const auto& [p, k, k_rounding] = std::get<PRmsNormSpec>(spec.attributes);
  if (!p.has_value() && !k.has_value()) return MissingError(SpecPath(spec, "p"), "p or k");
  if (p.has_value() && k.has_value()) {
    return ExclusiveError(SpecPath(spec, "k"), "p");
  }
  if (p.has_value() && !(*p > 0 && *p <= 1)) {
    return OutOfRangeError(SpecPath(spec, "p"), NumberText(*p), "above 0 and at most 1",
                           KernelReason("P_OUT_OF_RANGE"));
  }
  if (k.has_value() && *k < 1) {
    return OutOfRangeError(SpecPath(spec, "k"), Concat(*k), "at least 1", KernelReason("K_OUT_OF_RANGE"));
  }
  return CheckEnum(spec, "k_rounding", k_rounding, KRounding::kFloor, "K_ROUNDING_CEIL or K_ROUNDING_FLOOR");
}

// k for rows of d elements: 0 for an empty row, whatever p says.
absl::StatusOr<int64_t> PartialCount(const NormSpec& spec, int64_t d) {
  const auto& [p, k, k_rounding] = std::get<PRmsNormSpec>(spec.attributes);
  if (k.has_value()) {
    if (*k <= d) return *k;
    return OutOfRangeError(PlanPath(spec, "k"), Concat(*k), Concat("between 1 and the last extent of x, ", d),
                           KernelReason("K_OUT_OF_RANGE"));
  }
  const int64_t length = PartialLength(*p, d, k_rounding);
  if (length >= 1 || d == 0) return length;
  return OutOfRangeError(PlanPath(spec, "p"), NumberText(*p),
                         Concat("large enough that floor(p * ", d, ") is at least 1"), KernelReason("K_OUT_OF_RANGE"));
}

// pRMSNorm (Zhang and Sennrich 2019): y = x / D * w + b over the last axis with D = sqrt(S + eps) by default; S is the
// mean of squares of the first k of its d elements.
absl::Status LowerPRmsNorm(const NormSpec& spec, NormPlan* plan) {
  const absl::StatusOr<int64_t> k = PartialCount(spec, plan->shape.back());
  if (!k.ok()) return k.status();
  plan->k = *k;
  LowerLastAxis(plan);
  plan->statistic_reduce1 = plan->k;
  return absl::OkStatus();
}

}  // namespace

extern constinit const MethodDefinition kPRmsNorm = {
    .info = Info(Method::kPRmsNorm),
    .traits = {},
    .validate = ValidatePRmsNorm,
    .statistic = [](const NormSpec&) { return Statistic::kMeanSquare; },
    .lower = LowerPRmsNorm,
};

}  // namespace normd::methods
