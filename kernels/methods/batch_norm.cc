#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

constexpr AttributeInfo kBatchNormAttributes[] = {
    Eps("1e-5"), RootOf("INSIDE_SQRT"), kCastOrder, kLayout, kRunning, kWeightOffset,
};

// BatchNorm (Ioffe and Szegedy 2015): y = (x - mean) / D * w + b with D = sqrt(S + eps) by default. In training the
// mean and S, the biased variance, are those of each channel over all other axes; in inference they are the running
// ones.
absl::Status LowerBatchNorm(const NormSpec& spec, NormPlan* plan) {
  LowerChannels(spec.layout(), plan);
  return absl::OkStatus();
}

}  // namespace

extern constinit const MethodDefinition kBatchNorm = {
    .info = {.method = Method::kBatchNorm,
             .name = "batch_norm",
             .title = "BatchNorm",
             .formula = "y = (x - mean[c]) / sqrt(var[c] + eps) * w[c] + b[c]; training: mean and biased variance of "
                        "the batch, inference: the running ones",
             .default_eps = 1e-5,
             .default_eps_mode = EpsMode::kInsideSqrt,
             .subtracts_mean = true,
             .divides_by = "standard deviation",
             .axes_bchw = "B,H,W",
             .axes_bld = "B,L",
             .axes_bc = "B",
             .depends_on_batch = true,
             .parameters = "w[C], b[C]; running mean[C], var[C]",
             .training_equals_inference = false,
             .used_by = "ResNet, Inception, MobileNet, EfficientNet, YOLO",
             .when_to_choose =
                 "convolutional networks trained with batches of 16 or more; costs nothing at inference, where it "
                 "is a fixed map per channel",
             .attributes = kBatchNormAttributes},
    .traits = {.has_channels = true,
               .has_layout = true,
               .takes_mask = true,
               .refuses_single_values = true,
               .state = StateKind::kMeanVariance},
    .validate = CheckLayoutAndRunning,
    .statistic = [](const NormSpec&) { return Statistic::kMeanVariance; },
    .lower = LowerBatchNorm,
};

}  // namespace normd::methods
