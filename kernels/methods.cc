#include "kernels/methods.h"

namespace normd {

namespace {

// Attributes that several methods share.
constexpr AttributeInfo Eps(std::string_view default_value) {
  return {"eps", "double", default_value, "finite, >= 0; 0 means none"};
}
constexpr AttributeInfo RootOf(std::string_view default_value) {
  return {"eps_mode", "enum EpsMode", default_value,
          "INSIDE_SQRT: sqrt(S + eps), ADD_TO_ROOT: R + eps, CLAMP_ROOT: max(R, eps)"};
}
constexpr AttributeInfo kCastOrder = {
    "cast_order", "enum CastOrder", "AFFINE_THEN_CAST",
    "AFFINE_THEN_CAST: one rounding to the tensor's type; CAST_THEN_AFFINE: round, then w and b in that type"};
constexpr AttributeInfo kWeightOffset = {"weight_offset", "double", "0", "0 or 1, added to w"};
constexpr AttributeInfo kLayout = {"layout", "enum Layout", "required",
                                   "CHANNELS_FIRST [N,C,*] or CHANNELS_LAST [N,*,C]"};
constexpr AttributeInfo kRunning = {
    "running", "RunningStatistics", "momentum 0.1 of NEW, UNBIASED variance",
    "momentum in [0, 1] (0.1 of NEW, 0.9 of OLD), momentum_of NEW or OLD, cumulative (then no momentum), variance "
    "UNBIASED or BIASED, single_value REFUSE or ZERO_VARIANCE, accept_non_finite"};

constexpr AttributeInfo kBatchNormAttributes[] = {
    Eps("1e-5"), RootOf("INSIDE_SQRT"), kCastOrder, kLayout, kRunning, kWeightOffset,
};

constexpr AttributeInfo kLayerNormAttributes[] = {
    Eps("1e-5"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    {"normalized_shape", "repeated int64", "this or axes", "the trailing extents of x"},
    {"axes", "repeated int64", "this or normalized_shape",
     "distinct, from -rank to rank - 1; w and b have their extents in the order listed"},
    kWeightOffset,
};

constexpr AttributeInfo kInstanceNormAttributes[] = {
    Eps("1e-5"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    kLayout,
    {"track_running_statistics", "bool", "false", "true in sessions only; inference then uses the running values"},
    kRunning,
    kWeightOffset,
};

constexpr AttributeInfo kGroupNormAttributes[] = {
    Eps("1e-5"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    kLayout,
    {"num_groups", "int64", "required", ">= 1, divides C"},
    {"affine_per_group", "bool", "false", "true: w and b of length num_groups instead of C"},
    kWeightOffset,
};

constexpr AttributeInfo kRmsNormAttributes[] = {
    Eps("1e-6"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    {"axes", "repeated int64", "the last axis",
     "distinct, from -rank to rank - 1; w and b have their extents in the order listed"},
    kWeightOffset,
};

constexpr AttributeInfo kPRmsNormAttributes[] = {
    Eps("1e-6"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    {"p", "double", "this or k", "in (0, 1]; k = p * d, computed on the decimal value of p"},
    {"k", "int64", "this or p", "1 to d, the extent of the last axis"},
    {"k_rounding", "enum KRounding", "CEIL", "CEIL or FLOOR, for p"},
    kWeightOffset,
};

constexpr AttributeInfo kScaleNormAttributes[] = {
    Eps("1e-5"),
    RootOf("ADD_TO_ROOT"),
    kCastOrder,
    kWeightOffset,
};

constexpr AttributeInfo kLpNormAttributes[] = {
    Eps("0"),
    {"eps_mode", "enum EpsMode", "ADD_TO_ROOT",
     "ADD_TO_ROOT: R + eps, CLAMP_ROOT: max(R, eps), INSIDE_SQRT: sqrt(S + eps), for order 2 only"},
    {"order", "int64", "required", "1: sum of |x|, 2: square root of the sum of squares"},
    {"axis", "int64", "-1", "from -rank to rank - 1"},
};

constexpr AttributeInfo kPowerNormAttributes[] = {
    Eps("1e-5"),
    {"eps_mode", "enum EpsMode", "INSIDE_SQRT", "INSIDE_SQRT only"},
    kCastOrder,
    {"alpha_fwd", "double", "0.9", "in [0, 1]: the weight of the old phi"},
    {"warmup_iters", "int64", "10000", ">= 0: steps that divide by their own quadratic mean"},
    {"num_groups", "int64", "1", ">= 1, divides C: groups of the scaling before the statistics"},
    kWeightOffset,
    {"accept_non_finite", "bool", "false", "true: NaN and Inf enter phi"},
};

// In the order of kAllMethods.
constexpr MethodInfo kMethods[] = {
    {.method = Method::kBatchNorm,
     .name = "batch_norm",
     .title = "BatchNorm",
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
    {.method = Method::kLayerNorm,
     .name = "layer_norm",
     .title = "LayerNorm",
     .default_eps = 1e-5,
     .default_eps_mode = EpsMode::kInsideSqrt,
     .subtracts_mean = true,
     .divides_by = "standard deviation",
     .axes_bchw = "C,H,W",
     .axes_bld = "D",
     .axes_bc = "C",
     .depends_on_batch = false,
     .parameters = "w, b of the normalised shape",
     .training_equals_inference = true,
     .used_by = "BERT, GPT-2, GPT-3, ViT, Whisper",
     .when_to_choose = "transformers and recurrent networks; any batch size, sequences of unequal length",
     .attributes = kLayerNormAttributes},
    {.method = Method::kInstanceNorm,
     .name = "instance_norm",
     .title = "InstanceNorm",
     .default_eps = 1e-5,
     .default_eps_mode = EpsMode::kInsideSqrt,
     .subtracts_mean = true,
     .divides_by = "standard deviation",
     .axes_bchw = "H,W",
     .axes_bld = "L",
     .axes_bc = "none: one value a set",
     .depends_on_batch = false,
     .parameters = "w[C], b[C]; running mean[C], var[C] if tracked",
     .training_equals_inference = true,
     .used_by = "fast style transfer, CycleGAN, pix2pix",
     .when_to_choose = "image generation and style transfer, where the contrast of a single image must not matter; "
                       "tracked running values make inference differ from training",
     .attributes = kInstanceNormAttributes},
    {.method = Method::kGroupNorm,
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
     .attributes = kGroupNormAttributes},
    {.method = Method::kRmsNorm,
     .name = "rms_norm",
     .title = "RMSNorm",
     .default_eps = 1e-6,
     .default_eps_mode = EpsMode::kInsideSqrt,
     .subtracts_mean = false,
     .divides_by = "root mean square",
     .axes_bchw = "W",
     .axes_bld = "D",
     .axes_bc = "C",
     .depends_on_batch = false,
     .parameters = "w, optional b of the axes' extents",
     .training_equals_inference = true,
     .used_by = "LLaMA, T5, Mistral, Qwen, Gemma (weight_offset 1)",
     .when_to_choose = "large language models: cheaper than LayerNorm, as good where the mean carries nothing",
     .attributes = kRmsNormAttributes},
    {.method = Method::kPRmsNorm,
     .name = "p_rms_norm",
     .title = "pRMSNorm",
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
    {.method = Method::kScaleNorm,
     .name = "scale_norm",
     .title = "ScaleNorm",
     .default_eps = 1e-5,
     .default_eps_mode = EpsMode::kAddToRoot,
     .subtracts_mean = false,
     .divides_by = "L2 norm",
     .axes_bchw = "W",
     .axes_bld = "D",
     .axes_bc = "C",
     .depends_on_batch = false,
     .parameters = "one scalar w, optional scalar b",
     .training_equals_inference = true,
     .used_by = "Transformers without Tears (Nguyen and Salazar 2019)",
     .when_to_choose = "translation in low-resource languages and small transformers: one learned length for all rows",
     .attributes = kScaleNormAttributes},
    {.method = Method::kLpNorm,
     .name = "lp_norm",
     .title = "LpNorm",
     .default_eps = 0,
     .default_eps_mode = EpsMode::kAddToRoot,
     .subtracts_mean = false,
     .divides_by = "L1 or L2 norm",
     .axes_bchw = "one axis, W by default",
     .axes_bld = "one axis, D by default",
     .axes_bc = "one axis, C by default",
     .depends_on_batch = false,
     .parameters = "none",
     .training_equals_inference = true,
     .used_by = "Sentence-BERT, CLIP and FaceNet embeddings, retrieval by cosine",
     .when_to_choose = "embeddings before a dot product (order 2), non-negative weights into shares (order 1)",
     .attributes = kLpNormAttributes},
    {.method = Method::kPowerNorm,
     .name = "power_norm",
     .title = "PowerNorm",
     .default_eps = 1e-5,
     .default_eps_mode = EpsMode::kInsideSqrt,
     .subtracts_mean = false,
     .divides_by = "quadratic mean, after group scaling",
     .axes_bchw = "-",
     .axes_bld = "B,L",
     .axes_bc = "B",
     .depends_on_batch = true,
     .parameters = "w[C], b[C]; running phi[C]",
     .training_equals_inference = false,
     .used_by = "the PowerNorm paper (Shen et al. 2020): machine translation, language models",
     .when_to_choose = "transformers that want BatchNorm's cheap inference without its unstable batch mean",
     .attributes = kPowerNormAttributes},
};

}  // namespace

absl::Span<const MethodInfo> AllMethods() { return kMethods; }

const MethodInfo& Info(Method method) { return kMethods[static_cast<int>(method) - 1]; }

}  // namespace normd
