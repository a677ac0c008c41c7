// What the caller wants: NormSpec, a method with its attributes. Read this file first.
// In the path: rpc's codec or a session makes a spec, ValidateSpec checks what needs no tensor, and MakePlan
// (kernels/plan.h) combines the spec with a shape. Plain values, thread-compatible.
//
// In the formulas below S is the statistic of a group (biased variance, mean square or sum of squares), R = sqrt(S) or
// the norm of the group, and D the divisor that eps_mode makes of S or R. w and b are the affine parameters: an absent
// w is 1, an absent b is 0. kernels/plan.h says what a statistics group is.
#ifndef NORMD_KERNELS_SPEC_H_
#define NORMD_KERNELS_SPEC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/types.h"

namespace normd {

// What running statistics are made of: a mixture of the statistics of each step, or the statistics of all samples.
enum class Weighting : uint8_t { kSteps = 1, kSamples = 2 };
// Which statistics the y of a training step uses: its own, or the session's after it.
enum class NormalizeWith : uint8_t { kBatch = 1, kRunning = 2 };

// What a NaN among the samples does to the statistics of its channel: kPropagate makes them NaN, to kSkip it is no
// sample. Its y is NaN in any case.
enum class NanPolicy : uint8_t { kPropagate = 1, kSkip = 2 };

// How running statistics of all samples begin and move (Weighting::kSamples). A step with n samples per channel is
// merged into the N samples before it, which count N * decay^n by then: see Merge in kernels/moments.h.
struct SampleSpec {
  // The state begins with `prior_count` samples of this mean and variance. >= 0; the mean may be negative. While a
  // channel has count 0, or with kUnbiased at most 1, its running variance is prior_variance.
  double prior_count = 0;
  double prior_mean = 0;
  double prior_variance = 1;
  double decay = 1;  // in (0, 1]: what the weight of a sample is multiplied by for each later sample of its channel
  std::optional<double> max_count;  // above 0: a channel whose count has reached it moves no more
};

// How a training step moves the running statistics of a session (BatchNorm, tracking InstanceNorm). kSteps:
// running = (1 - a) * running + a * new, for the mean and for the variance of each channel. kSamples (BatchNorm alone):
// the statistics of all samples, as SampleSpec says; the fields of the other weighting have their defaults.
struct RunningSpec {
  Weighting weighting = Weighting::kSteps;
  SampleSpec samples;
  // Which statistics the y of a training step on a session uses: its own, or (kSamples alone) the session's after it.
  NormalizeWith normalize_with = NormalizeWith::kBatch;
  // In [0, 1]. Absent: 0.1 for kNew, 0.9 for kOld.
  std::optional<double> momentum;
  // kNew: a = momentum, so that 0 freezes the statistics and 1 replaces them. kOld: a = 1 - momentum.
  MomentumOf momentum_of = MomentumOf::kNew;
  // True: a = 1 / num_batches, which makes `running` the mean over all steps; `momentum` must be absent.
  bool cumulative = false;
  // The new variance of n values: M2 / (n - 1) for kUnbiased, M2 / n for kBiased. The output of the step always uses
  // the biased variance, unless it uses the running statistics. kSteps: where n is 1, kUnbiased (and InstanceNorm,
  // always) leaves the running variance as it is.
  RunningVariance variance = RunningVariance::kUnbiased;
  // BatchNorm training with one value per channel: kRefuse is INVALID_ARGUMENT, kZeroVariance gives variance 0, y = b.
  SingleValue single_value = SingleValue::kRefuse;
  // True: NaN and Inf may enter the running statistics. False: a step that has them leaves the state as it is.
  bool accept_non_finite = false;
  // Limits y to [-clip, clip] after w and b; each limit is rounded to the dtype of x. Above 0, finite; absent: no
  // limit.
  std::optional<double> clip;
  NanPolicy nan_policy = NanPolicy::kPropagate;  // kSkip: kSamples with NormalizeWith::kRunning alone

  bool CountsSamples() const { return weighting == Weighting::kSamples; }
  // Whether training with one value per channel is refused. Samples may come one by one.
  bool RefusesSingleValue() const { return !CountsSamples() && single_value == SingleValue::kRefuse; }
  // The weight a of the new value. `num_batches` includes the step that is being made.
  double NewWeight(uint64_t num_batches) const;
  // The given momentum, or the default of momentum_of.
  double ResolvedMomentum() const;
};

// ---- The attributes of each method: the fields of its message in norm.proto ----

// y = (x - mean) / D * w + b with the statistics of each channel over all other axes. Rank >= 2.
struct BatchNormSpec {
  Layout layout = Layout::kUnspecified;  // required
  RunningSpec running;
};

// y = (x - mean) / D * w + b over the trailing axes or over the listed ones. Exactly one of the two is not empty.
struct LayerNormSpec {
  std::vector<int64_t> normalized_shape;  // the trailing extents of x, 1 to 8 of them, each >= 0
  std::vector<int64_t> axes;              // 1 to 8 distinct axes from -rank to rank - 1; w and b follow this order
};

// y = (x - mean) / D * w + b with the statistics of each sample and channel over the spatial axes. Rank >= 2.
struct InstanceNormSpec {
  Layout layout = Layout::kUnspecified;  // required
  // True (sessions only): training steps move running statistics, and inference uses these instead of those of x.
  bool track_running_statistics = false;
  RunningSpec running;  // used if track_running_statistics
};

// y = (x - mean) / D * w + b with the statistics of each sample and group of C / num_groups adjacent channels, over
// these channels and the spatial axes. Rank >= 2.
struct GroupNormSpec {
  Layout layout = Layout::kUnspecified;  // required
  int64_t num_groups = 1;                // >= 1, divides C
  bool affine_per_group = false;         // true: w and b have num_groups elements; false: C
};

// y = x / D * w + b, S = mean(x^2), over the trailing axes or over the listed ones, as for LayerNormSpec. At most one
// of the two is not empty; if both are empty, over the last axis.
struct RmsNormSpec {
  std::vector<int64_t> normalized_shape;
  std::vector<int64_t> axes;
};

// y = x / D * w + b over the d elements of the last axis, S = mean(x^2) of the first k of them. Exactly one of p and k.
struct PRmsNormSpec {
  std::optional<double> p;                  // in (0, 1]: k = p * d, rounded by k_rounding
  std::optional<int64_t> k;                 // 1 to d
  KRounding k_rounding = KRounding::kCeil;  // of the decimal value of p times d: see PartialLength
};

// y = x / D * w + b over the last axis, R = sqrt(sum(x^2)); w and b are one number each.
struct ScaleNormSpec {};

// y = x / D over one axis or over the listed ones, R = (sum |x|^p)^(1/p); y = 0 where D is 0. No parameters.
struct LpNormSpec {
  int64_t order = 2;          // p as an integer, >= 1; ignored if `p` is given
  int64_t axis = -1;          // from -rank to rank - 1; ignored if `axes` is not empty
  std::optional<double> p;    // >= 1; infinity: R is the largest |x|
  std::vector<int64_t> axes;  // up to 8 distinct axes from -rank to rank - 1, one norm over all of them

  // The p in use.
  double Power() const { return p.value_or(static_cast<double>(order)); }
};

// s = x / sqrt(mean(x^2) + eps) for each position and group of C / num_groups adjacent channels (the last axis), then
// y = s / sqrt(v + eps) * w + b, v = mean(s^2) of each channel over all positions. A session's phi takes the place of v
// in inference, and in training after the warm-up. After training step t: phi = phi * (t - 1) / t + v / t while
// t < warmup_iters, and then in every case phi = alpha_fwd * phi + (1 - alpha_fwd) * v. Rank >= 2.
struct PowerNormSpec {
  int64_t num_groups = 1;        // >= 1, divides C
  double alpha_fwd = 0.9;        // in [0, 1]
  int64_t warmup_iters = 10000;  // >= 0: the first warmup_iters steps divide by their own v, later ones by the old phi
  bool accept_non_finite = false;  // as in RunningSpec
};

// The numbers equal those of NormSpec's oneof on the wire.
enum class Method : uint8_t {
  kBatchNorm = 1,
  kLayerNorm,
  kInstanceNorm,
  kGroupNorm,
  kRmsNorm,
  kPRmsNorm,
  kScaleNorm,
  kLpNorm,
  kPowerNorm,
};

// The alternatives are in the order of Method.
using MethodSpec = std::variant<BatchNormSpec, LayerNormSpec, InstanceNormSpec, GroupNormSpec, RmsNormSpec,
                                PRmsNormSpec, ScaleNormSpec, LpNormSpec, PowerNormSpec>;

inline constexpr std::array<Method, std::variant_size_v<MethodSpec>> kAllMethods = [] {
  std::array<Method, std::variant_size_v<MethodSpec>> all = {};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Method>(i + 1);
  return all;
}();

// A method with its attributes. ValidateSpec and MakePlan refuse values outside the ranges above. Example:
// `NormSpec{.eps = 1e-6, .attributes = RmsNormSpec()}` is RMSNorm over the last axis.
struct NormSpec {
  // Finite, >= 0; 0 means no eps. Absent: 1e-5, but 1e-6 for RMSNorm and pRMSNorm, and 0 for LpNorm.
  std::optional<double> eps;
  // How eps enters the divisor: kInsideSqrt D = sqrt(S + eps), kAddToRoot D = R + eps, kClampRoot D = max(R, eps).
  // Absent: kInsideSqrt, but kAddToRoot for ScaleNorm and LpNorm. PowerNorm takes kInsideSqrt alone; LpNorm takes
  // kInsideSqrt only for p = 2.
  std::optional<EpsMode> eps_mode;
  // When y is rounded to the dtype T of x. kAffineThenCast: once, after w and b. kCastThenAffine: (x - mean) / D or x /
  // D is rounded to T, then the product with w, then the sum with b. LpNorm ignores this field and weight_offset.
  CastOrder cast_order = CastOrder::kAffineThenCast;
  // 0 or 1, added to a w that is given. An absent w is 1 in any case.
  double weight_offset = 0;

  MethodSpec attributes = LayerNormSpec();

  Method method() const { return static_cast<Method>(attributes.index() + 1); }

  // Attributes that several methods share. For a method without the attribute: kUnspecified, the default RunningSpec,
  // an empty span, 1 group, and false.
  Layout layout() const;
  const RunningSpec& running() const;
  absl::Span<const int64_t> normalized_shape() const;
  absl::Span<const int64_t> axes() const;
  int64_t num_groups() const;
  bool accepts_non_finite() const;

  // True if a session of this spec has running state: BatchNorm, PowerNorm, tracking InstanceNorm.
  bool HasState() const;
};

// Makes the checks that need no tensor: eps, momentum, p, k, groups, axes, orders, modes. INVALID_ARGUMENT with field,
// value and limit; field paths are relative to the NormSpec message ("layer_norm.eps"). MakePlan calls ValidateSpec,
// and sessions call it when they are created.
absl::Status ValidateSpec(const NormSpec& spec);

}  // namespace normd

#endif  // NORMD_KERNELS_SPEC_H_
