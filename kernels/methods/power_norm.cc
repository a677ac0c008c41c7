#include <algorithm>

#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

absl::Status ValidatePowerNorm(const NormSpec& spec) {
  const auto& power = std::get<PowerNormSpec>(spec.attributes);
  if (spec.eps_mode.has_value() && *spec.eps_mode != EpsMode::kInsideSqrt) {
    return OutOfRangeError(SpecPath(spec, "eps_mode"),
                           *spec.eps_mode == EpsMode::kAddToRoot ? "EPS_MODE_ADD_TO_ROOT" : "EPS_MODE_CLAMP_ROOT",
                           "EPS_MODE_INSIDE_SQRT", KernelReason("EPS_MODE_NOT_SUPPORTED"));
  }
  if (!(power.alpha_fwd >= 0 && power.alpha_fwd <= 1)) {
    return OutOfRangeError(SpecPath(spec, "alpha_fwd"), NumberText(power.alpha_fwd), "between 0 and 1",
                           KernelReason("ALPHA_FWD_OUT_OF_RANGE"));
  }
  if (power.warmup_iters < 0) {
    return OutOfRangeError(SpecPath(spec, "warmup_iters"), Concat(power.warmup_iters), "at least 0",
                           KernelReason("WARMUP_ITERS_OUT_OF_RANGE"));
  }
  return CheckGroups(spec);
}

// PowerNorm (Shen et al. 2020), channels on the last axis. Each group of C / num_groups channels of a position is
// scaled: s = x / sqrt(mean(x^2) + eps). Then y = s / sqrt(S + eps) * w + b, where S is the mean of s^2 of each channel
// over all positions; a session's phi takes the place of S in inference, and in training after warmup_iters steps. A
// tensor without channels takes one group, which is the default.
absl::Status LowerPowerNorm(const NormSpec& spec, NormPlan* plan) {
  const int64_t channels = plan->shape.back();
  const int64_t most = std::max<int64_t>(1, channels);
  if (absl::Status status = CheckGroupsOf(spec, channels, most); !status.ok()) return status;
  LowerPower(spec.num_groups(), plan);
  return absl::OkStatus();
}

}  // namespace

extern constinit const MethodDefinition kPowerNorm = {
    .info = Info(Method::kPowerNorm),
    .traits = {.has_channels = true,
               .has_fast = false,
               .state = StateKind::kQuadraticMean,
               .commit_gives_divisor = true},
    .validate = ValidatePowerNorm,
    .statistic = [](const NormSpec&) { return Statistic::kMeanSquare; },
    .lower = LowerPowerNorm,
};

}  // namespace normd::methods
