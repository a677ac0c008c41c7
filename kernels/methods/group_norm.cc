#include "kernels/lowering.h"
#include "kernels/methods/common.h"

namespace normd::methods {
namespace {

constexpr AttributeInfo kAttributes[] = {
    Eps("1e-5"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    kLayout,
    {"num_groups", "int64", "required", ">= 1, divides C"},
    {"affine_per_group", "bool", "false", "true: w and b of length num_groups instead of C"},
    kWeightOffset,
};

absl::Status Validate(const NormSpec& spec) {
  absl::Status status = CheckLayout(spec);
  return status.ok() ? CheckGroups(spec) : status;
}

// Mean and variance of each sample's group of channels. No channels make no groups.
absl::Status Lower(const NormSpec& spec, NormPlan* plan) {
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
             .attributes = kAttributes},
    .traits = {.has_channels = true, .has_layout = true},
    .validate = Validate,
    .statistic = [](const NormSpec&) { return Statistic::kMeanVariance; },
    .lower = Lower,
};

}  // namespace normd::methods
