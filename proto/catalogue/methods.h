// The methods, once for the kernels, the server and the clients: names, formulas, defaults, and texts for people. How a
// spec is checked and lowered is in kernels/methods/, a file a method. Constants.
#ifndef NORMD_PROTO_CATALOGUE_METHODS_H_
#define NORMD_PROTO_CATALOGUE_METHODS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace normd {

// One attribute of a method, as text for people.
struct AttributeInfo {
  std::string_view name;  // the field of the method's message
  std::string_view type;
  std::string_view default_value;
  std::string_view limits;
};

// As in v1.EpsMode; the kernels name the others (kernels/base/types.h).
enum class EpsMode : uint8_t;
inline constexpr EpsMode kEpsInsideSqrt{1}, kEpsAddToRoot{2};

// The description of a method, as text for people (MethodDescription of the wire), and its defaults.
struct MethodInfo {
  std::string_view name;   // "layer_norm": the field of NormSpec on the wire, and the name in replies
  std::string_view title;  // "LayerNorm"
  // y, in one line of plain text whose parts are joined by "; ". D is written out with the default eps mode.
  std::string_view formula;
  double default_eps;
  EpsMode default_eps_mode;
  bool subtracts_mean;
  std::string_view divides_by;
  std::string_view axes_bchw;  // the axes of [B,C,H,W] that the statistics are taken over
  std::string_view axes_bld;
  std::string_view axes_bc;
  bool depends_on_batch;  // whether a row's y depends on other rows, in training
  std::string_view parameters;
  bool training_equals_inference;
  std::string_view used_by;
  std::string_view when_to_choose;
  bool has_state;            // a session of the method learns from training steps
  bool takes_mask;           // positions may be left out of the statistics
  std::string_view example;  // the flags of an example of normctl METHOD, after the input
  std::span<const AttributeInfo> attributes;
};

namespace catalogue {

constexpr AttributeInfo Eps(std::string_view default_value) {
  return {"eps", "double", default_value, "finite, >= 0; 0 means none"};
}
constexpr AttributeInfo RootOf(std::string_view default_value) {
  return {"eps_mode", "enum EpsMode", default_value,
          "INSIDE_SQRT: sqrt(S + eps), ADD_TO_ROOT: R + eps, CLAMP_ROOT: max(R, eps)"};
}
inline constexpr AttributeInfo kCastOrder = {
    "cast_order", "enum CastOrder", "AFFINE_THEN_CAST",
    "AFFINE_THEN_CAST: one rounding to the tensor's type; CAST_THEN_AFFINE: round, then w and b in that type"};
inline constexpr AttributeInfo kWeightOffset = {"weight_offset", "double", "0", "0 or 1, added to w"};
inline constexpr AttributeInfo kLayout = {"layout", "enum Layout", "required",
                                          "CHANNELS_FIRST [N,C,*] or CHANNELS_LAST [N,*,C]"};
inline constexpr AttributeInfo kRunning = {
    "running", "RunningStatistics", "momentum 0.1 of NEW, UNBIASED variance",
    "momentum in [0, 1] (0.1 of NEW, 0.9 of OLD), momentum_of NEW or OLD, cumulative (then no momentum), variance "
    "UNBIASED or BIASED, single_value REFUSE or ZERO_VARIANCE, accept_non_finite, clip; weighting STEPS, or SAMPLES "
    "with prior_count, prior_mean, prior_variance, decay, max_count, normalize_with RUNNING or BATCH, nan_policy "
    "PROPAGATE or SKIP"};

inline constexpr AttributeInfo kBatchNormAttributes[] = {
    Eps("1e-5"), RootOf("INSIDE_SQRT"), kCastOrder, kLayout, kRunning, kWeightOffset,
};
inline constexpr AttributeInfo kLayerNormAttributes[] = {
    Eps("1e-5"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    {"normalized_shape", "repeated int64", "this or axes", "the trailing extents of x"},
    {"axes", "repeated int64", "this or normalized_shape",
     "distinct, from -rank to rank - 1; w and b have their extents in the order listed"},
    kWeightOffset,
};
inline constexpr AttributeInfo kInstanceNormAttributes[] = {
    Eps("1e-5"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    kLayout,
    {"track_running_statistics", "bool", "false", "true in sessions only; inference then uses the running values"},
    kRunning,
    kWeightOffset,
};
inline constexpr AttributeInfo kGroupNormAttributes[] = {
    Eps("1e-5"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    kLayout,
    {"num_groups", "int64", "required", ">= 1, divides C"},
    {"affine_per_group", "bool", "false", "true: w and b of length num_groups instead of C"},
    kWeightOffset,
};
inline constexpr AttributeInfo kRmsNormAttributes[] = {
    Eps("1e-6"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    {"normalized_shape", "repeated int64", "the last axis", "the trailing extents of x; or axes, not both"},
    {"axes", "repeated int64", "the last axis",
     "distinct, from -rank to rank - 1; w and b have their extents in the order listed"},
    kWeightOffset,
};
inline constexpr AttributeInfo kPRmsNormAttributes[] = {
    Eps("1e-6"),
    RootOf("INSIDE_SQRT"),
    kCastOrder,
    {"p", "double", "this or k", "in (0, 1]; k = p * d, computed on the decimal value of p"},
    {"k", "int64", "this or p", "1 to d, the extent of the last axis"},
    {"k_rounding", "enum KRounding", "CEIL", "CEIL or FLOOR, for p"},
    kWeightOffset,
};
inline constexpr AttributeInfo kScaleNormAttributes[] = {
    Eps("1e-5"),
    RootOf("ADD_TO_ROOT"),
    kCastOrder,
    kWeightOffset,
};
inline constexpr AttributeInfo kLpNormAttributes[] = {
    Eps("0"),
    {"eps_mode", "enum EpsMode", "ADD_TO_ROOT",
     "ADD_TO_ROOT: R + eps, CLAMP_ROOT: max(R, eps), INSIDE_SQRT: sqrt(S + eps), for order 2 only"},
    {"order", "int64", "this or p", ">= 1: the order-th root of the sum of |x|^order"},
    {"axis", "int64", "-1", "from -rank to rank - 1; or axes, not both"},
    {"p", "double", "this or order", ">= 1, any number; Infinity: the largest |x|"},
    {"axes", "repeated int64", "axis", "distinct, from -rank to rank - 1: one norm over all of them"},
};
inline constexpr AttributeInfo kPowerNormAttributes[] = {
    Eps("1e-5"),
    {"eps_mode", "enum EpsMode", "INSIDE_SQRT", "INSIDE_SQRT only"},
    kCastOrder,
    {"alpha_fwd", "double", "0.9", "in [0, 1]: the weight of the old phi"},
    {"warmup_iters", "int64", "10000", ">= 0: steps that divide by their own quadratic mean"},
    {"num_groups", "int64", "1", ">= 1, divides C: groups of the scaling before the statistics"},
    kWeightOffset,
    {"accept_non_finite", "bool", "false", "true: NaN and Inf enter phi"},
};

}  // namespace catalogue

// In the order of their numbers: those of Method, and of the fields of NormSpec.
inline constexpr std::array<MethodInfo, 9> kMethods = {{
    {.name = "batch_norm",
     .title = "BatchNorm",
     .formula = "y = (x - mean[c]) / sqrt(var[c] + eps) * w[c] + b[c]; training: mean and biased variance of "
                "the batch, inference: the running ones",
     .default_eps = 1e-5,
     .default_eps_mode = kEpsInsideSqrt,
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
     .has_state = true,
     .takes_mask = true,
     .example = "--layout channels-first --training",
     .attributes = catalogue::kBatchNormAttributes},
    {.name = "layer_norm",
     .title = "LayerNorm",
     .formula = "y = (x - mean) / sqrt(var + eps) * w + b; mean and biased variance over the normalised axes",
     .default_eps = 1e-5,
     .default_eps_mode = kEpsInsideSqrt,
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
     .has_state = false,
     .takes_mask = false,
     .example = "--weight w.npy --bias b.npy --eps 1e-6",
     .attributes = catalogue::kLayerNormAttributes},
    {.name = "instance_norm",
     .title = "InstanceNorm",
     .formula = "y = (x - mean[n,c]) / sqrt(var[n,c] + eps) * w[c] + b[c]; "
                "mean and biased variance over the spatial axes",
     .default_eps = 1e-5,
     .default_eps_mode = kEpsInsideSqrt,
     .subtracts_mean = true,
     .divides_by = "standard deviation",
     .axes_bchw = "H,W",
     .axes_bld = "L",
     .axes_bc = "none: one value a group",
     .depends_on_batch = false,
     .parameters = "w[C], b[C]; running mean[C], var[C] if tracked",
     .training_equals_inference = true,
     .used_by = "fast style transfer, CycleGAN, pix2pix",
     .when_to_choose = "image generation and style transfer, where the contrast of a single image must not matter; "
                       "tracked running values make inference differ from training",
     .has_state = true,
     .takes_mask = false,
     .example = "--layout channels-first",
     .attributes = catalogue::kInstanceNormAttributes},
    {.name = "group_norm",
     .title = "GroupNorm",
     .formula = "y = (x - mean[n,g]) / sqrt(var[n,g] + eps) * w[c] + b[c]; mean and biased variance over the C "
                "/ G channels of group g and the spatial axes",
     .default_eps = 1e-5,
     .default_eps_mode = kEpsInsideSqrt,
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
     .has_state = false,
     .takes_mask = false,
     .example = "--layout channels-first --num-groups 32",
     .attributes = catalogue::kGroupNormAttributes},
    {.name = "rms_norm",
     .title = "RMSNorm",
     .formula = "y = x / sqrt(mean(x^2) + eps) * w + b",
     .default_eps = 1e-6,
     .default_eps_mode = kEpsInsideSqrt,
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
     .has_state = false,
     .takes_mask = false,
     .example = "--weight w.npy",
     .attributes = catalogue::kRmsNormAttributes},
    {.name = "p_rms_norm",
     .title = "pRMSNorm",
     .formula = "y = x / sqrt(mean(x[0]^2 ... x[k-1]^2) + eps) * w + b; k = ceil(p * d) of the d elements of a row",
     .default_eps = 1e-6,
     .default_eps_mode = kEpsInsideSqrt,
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
     .has_state = false,
     .takes_mask = false,
     .example = "--p 0.0625 --weight w.npy",
     .attributes = catalogue::kPRmsNormAttributes},
    {.name = "scale_norm",
     .title = "ScaleNorm",
     .formula = "y = x / (sqrt(sum(x^2)) + eps) * w + b; w and b are one number each",
     .default_eps = 1e-5,
     .default_eps_mode = kEpsAddToRoot,
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
     .has_state = false,
     .takes_mask = false,
     .example = "--weight g.npy",
     .attributes = catalogue::kScaleNormAttributes},
    {.name = "lp_norm",
     .title = "LpNorm",
     .formula = "y = x / (sum(|x|^p)^(1/p) + eps); 0 where the norm is 0",
     .default_eps = 0,
     .default_eps_mode = kEpsAddToRoot,
     .subtracts_mean = false,
     .divides_by = "Lp norm",
     .axes_bchw = "listed, W by default",
     .axes_bld = "listed, D by default",
     .axes_bc = "listed, C by default",
     .depends_on_batch = false,
     .parameters = "none",
     .training_equals_inference = true,
     .used_by = "Sentence-BERT, CLIP and FaceNet embeddings, retrieval by cosine",
     .when_to_choose = "embeddings before a dot product (order 2), non-negative weights into shares (order 1), values "
                       "into [-1, 1] (p = Infinity)",
     .has_state = false,
     .takes_mask = false,
     .example = "--order 2",
     .attributes = catalogue::kLpNormAttributes},
    {.name = "power_norm",
     .title = "PowerNorm",
     .formula = "s = x / sqrt(mean over a group's channels of x^2 + eps); y = s / sqrt(v[c] + eps) * w[c] + b[c]; "
                "v[c] = mean of s^2 over all positions, in inference and after the warm-up the running phi[c]",
     .default_eps = 1e-5,
     .default_eps_mode = kEpsInsideSqrt,
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
     .has_state = true,
     .takes_mask = true,
     .example = "--training",
     .attributes = catalogue::kPowerNormAttributes},
}};

// The method of this name; null if there is none.
constexpr const MethodInfo* FindMethod(std::string_view name) {
  const auto found =
      std::find_if(kMethods.begin(), kMethods.end(), [&](const MethodInfo& m) { return m.name == name; });
  return found == kMethods.end() ? nullptr : &*found;
}

}  // namespace normd

#endif  // NORMD_PROTO_CATALOGUE_METHODS_H_
