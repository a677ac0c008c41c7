#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

// BatchNorm (Ioffe and Szegedy 2015): y = (x - mean) / D * w + b with D = sqrt(S + eps) by default. In training the
// mean and S, the biased variance, are those of each channel over all other axes; in inference they are the running
// ones.
absl::Status LowerBatchNorm(const NormSpec& spec, NormPlan* plan) {
  LowerChannels(spec.layout(), plan);
  return absl::OkStatus();
}

}  // namespace

extern constinit const MethodDefinition kBatchNorm = {
    .info = Info(Method::kBatchNorm),
    .traits = {.has_channels = true,
               .has_layout = true,
               .refuses_single_values = true,
               .state = StateKind::kMeanVariance},
    .validate = CheckLayoutAndRunning,
    .statistic = [](const NormSpec&) { return Statistic::kMeanVariance; },
    .lower = LowerBatchNorm,
};

}  // namespace normd::methods
