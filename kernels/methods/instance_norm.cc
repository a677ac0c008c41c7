#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

// InstanceNorm (Ulyanov, Vedaldi, Lempitsky 2016): y = (x - mean) / D * w + b with D = sqrt(S + eps) by default; the
// mean and S, the biased variance, are those of each sample and channel over the spatial axes. Inference with running
// statistics is the inference of BatchNorm.
absl::Status LowerInstanceNorm(const NormSpec& spec, NormPlan* plan) {
  if (plan->given_statistics) {
    LowerChannels(spec.layout(), plan);
  } else {
    LowerInstances(spec.layout(), plan);
  }
  return absl::OkStatus();
}

}  // namespace

extern constinit const MethodDefinition kInstanceNorm = {
    .info = Info(Method::kInstanceNorm),
    .traits = {.has_channels = true, .has_layout = true, .state = StateKind::kMeanVariance, .steps_by_sample = true},
    .validate = CheckLayoutAndRunning,
    .statistic = [](const NormSpec&) { return Statistic::kMeanVariance; },
    .lower = LowerInstanceNorm,
};

}  // namespace normd::methods
