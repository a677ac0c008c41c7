#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

constexpr AttributeInfo kPRmsNormAttributes[] = {
    Eps("1e-6"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    {"p", "double", "this or k", "in (0, 1]; k = p * d, computed on the decimal value of p"},
    {"k", "int64", "this or p", "1 to d, the extent of the last axis"},
    {"k_rounding", "enum KRounding", "CEIL", "CEIL or FLOOR, for p"},
    kWeightOffset,
};

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
    .info = {.method = Method::kPRmsNorm,
             .name = "p_rms_norm",
             .title = "pRMSNorm",
             .formula =
                 "y = x / sqrt(mean(x[0]^2 ... x[k-1]^2) + eps) * w + b; k = ceil(p * d) of the d elements of a row",
             .default_eps = 1e-6,
             .default_eps_mode = EpsMode::kInsideSqrt,
             .subtracts_mean = false,
             .divides_by = "root mean square of the first k",
             .axes_bchw = "first k of W",
             .axes_bld = "first k of D",
             .axes_bc = "first k of C",
             .depends_on_batch = false,
             .parameters = "w, optional b of the last extent",
             .training_equals_inference = true,
             .used_by = "the RMSNorm paper (Zhang and Sennrich 2019), p = 6.25 %",
             .when_to_choose = "models trained with it: the statistic is estimated from a part of the row",
             .attributes = kPRmsNormAttributes},
    .traits = {},
    .validate = ValidatePRmsNorm,
    .statistic = [](const NormSpec&) { return Statistic::kMeanSquare; },
    .lower = LowerPRmsNorm,
};

}  // namespace normd::methods
