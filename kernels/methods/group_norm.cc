#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

absl::Status ValidateGroupNorm(const NormSpec& spec) {
  absl::Status status = CheckLayout(spec);
  return status.ok() ? CheckGroups(spec) : status;
}

// GroupNorm (Wu and He 2018): y = (x - mean) / D * w + b with D = sqrt(S + eps) by default; the mean and S, the biased
// variance, are those of each sample and group of C / num_groups channels, over these channels and the spatial axes. A
// tensor without channels has no groups and is refused.
absl::Status LowerGroupNorm(const NormSpec& spec, NormPlan* plan) {
  const int64_t channels = plan->shape[ChannelAxis(spec.layout(), static_cast<int64_t>(plan->shape.size()))];
  if (absl::Status status = CheckGroupsOf(spec, channels, channels); !status.ok()) return status;
  LowerGroups(spec.layout(), spec.num_groups(), std::get<GroupNormSpec>(spec.attributes).affine_per_group, plan);
  return absl::OkStatus();
}

}  // namespace

extern constinit const MethodDefinition kGroupNorm = {
    .info = Info(Method::kGroupNorm),
    .traits = {.has_channels = true, .has_layout = true},
    .validate = ValidateGroupNorm,
    .statistic = [](const NormSpec&) { return Statistic::kMeanVariance; },
    .lower = LowerGroupNorm,
};

}  // namespace normd::methods
