#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

constexpr AttributeInfo kGroupNormAttributes[] = {
    Eps("1e-5"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    kLayout,
    {"num_groups", "int64", "required", ">= 1, divides C"},
    {"affine_per_group", "bool", "false", "true: w and b of length num_groups instead of C"},
    kWeightOffset,
};

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
    .info = {.method = Method::kGroupNorm,
             .name = "group_norm",
             .title = "GroupNorm",
             .formula = "y = (x - mean[n,g]) / sqrt(var[n,g] + eps) * w[c] + b[c]; mean and biased variance over the C "
                        "/ G channels of group g and the spatial axes",
             .default_eps = 1e-5,
             .default_eps_mode = EpsMode::kInsideSqrt,
             .subtracts_mean = true,
             .divides_by = "standard deviation",
             .axes_bchw = "C/G,H,W",
             .axes_bld = "L,D/G",
             .axes_bc = "C/G",
             .depends_on_batch = false,
             .parameters = "w[C], b[C], or w[G], b[G] if asked",
             .training_equals_inference = true,
             .used_by = "Stable Diffusion's U-Net and VAE, DETR, Detectron2's Mask R-CNN (GN variant)",
             .when_to_choose =
                 "convolutional networks with small batches: detection, segmentation, diffusion; 32 groups is usual",
             .attributes = kGroupNormAttributes},
    .traits = {.has_channels = true, .has_layout = true},
    .validate = ValidateGroupNorm,
    .statistic = [](const NormSpec&) { return Statistic::kMeanVariance; },
    .lower = LowerGroupNorm,
};

}  // namespace normd::methods
