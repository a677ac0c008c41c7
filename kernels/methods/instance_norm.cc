#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

constexpr AttributeInfo kInstanceNormAttributes[] = {
    Eps("1e-5"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    kLayout,
    {"track_running_statistics", "bool", "false", "true in sessions only; inference then uses the running values"},
    kRunning,
    kWeightOffset,
};

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
    .info = {.method = Method::kInstanceNorm,
             .name = "instance_norm",
             .title = "InstanceNorm",
             .formula = "y = (x - mean[n,c]) / sqrt(var[n,c] + eps) * w[c] + b[c]; "
                        "mean and biased variance over the spatial axes",
             .default_eps = 1e-5,
             .default_eps_mode = EpsMode::kInsideSqrt,
             .subtracts_mean = true,
             .divides_by = "standard deviation",
             .axes_bchw = "H,W",
             .axes_bld = "L",
             .axes_bc = "none: one value a group",
             .depends_on_batch = false,
             .parameters = "w[C], b[C]; running mean[C], var[C] if tracked",
             .training_equals_inference = true,
             .used_by = "fast style transfer, CycleGAN, pix2pix",
             .when_to_choose =
                 "image generation and style transfer, where the contrast of a single image must not matter; "
                 "tracked running values make inference differ from training",
             .attributes = kInstanceNormAttributes},
    .traits = {.has_channels = true, .has_layout = true, .state = StateKind::kMeanVariance, .steps_by_sample = true},
    .validate = CheckLayoutAndRunning,
    .statistic = [](const NormSpec&) { return Statistic::kMeanVariance; },
    .lower = LowerInstanceNorm,
};

}  // namespace normd::methods
