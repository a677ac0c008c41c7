#include "kernels/methods/common.h"

#include <algorithm>
#include <cmath>

#include "kernels/lowering.h"

namespace normd::methods {
namespace {

absl::Status CheckAxes(const NormSpec& spec) {
  if (spec.axes().size() > kMaxRank) {
    return AmountError(SpecPath(spec, "axes"), Concat(spec.axes().size(), " axes"),
                       Concat("at most ", kMaxRank, " axes"), KernelReason("AXES_OUT_OF_RANGE"));
  }
  for (size_t i = 0; i < spec.axes().size(); ++i) {
    absl::Status status = CheckAxis(spec, Concat("axes[", i, "]"), spec.axes()[i]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> ListedAxes(const NormSpec& spec, int64_t rank) {
  Shape axes;
  for (size_t i = 0; i < spec.axes().size(); ++i) {
    const std::string path = PlanPath(spec, Concat("axes[", i, "]"));
    const absl::StatusOr<int64_t> axis = ResolveAxis(path, spec.axes()[i], rank);
    if (!axis.ok()) return axis.status();
    if (std::find(axes.begin(), axes.end(), *axis) != axes.end()) {
      return OutOfRangeError(path, Concat(spec.axes()[i]), "an axis that is not listed before",
                             KernelReason("DUPLICATE_AXIS"));
    }
    axes.push_back(*axis);
  }
  return axes;
}

absl::StatusOr<Shape> TrailingAxes(const NormSpec& spec, absl::Span<const int64_t> shape) {
  const absl::Span<const int64_t> wanted = spec.normalized_shape();
  const bool fits = wanted.size() <= shape.size();
  const size_t first = fits ? shape.size() - wanted.size() : 0;
  if (!fits || shape.subspan(first) != wanted) {
    return OutOfRangeError(PlanPath(spec, "normalized_shape"), ShapeText(wanted),
                           Concat("the trailing extents of x, whose shape is ", ShapeText(shape)),
                           KernelReason("SHAPE_MISMATCH"));
  }
  Shape axes;
  for (size_t axis = first; axis < shape.size(); ++axis) axes.push_back(static_cast<int64_t>(axis));
  return axes;
}

// Far beyond any data, and small enough that no sum of squares of them overflows: (2e130)^2 * 1e18 = 4e278.
constexpr double kMostSampleValue = 1e130;
constexpr double kMostSamples = 1e18;

absl::Status CheckSampleNumber(const NormSpec& spec, std::string_view field, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return OutOfRangeError(SpecPath(spec, Concat("running.", field)), NumberText(value),
                         Concat("between ", NumberText(least), " and ", NumberText(most)),
                         KernelReason("SAMPLES_OUT_OF_RANGE"));
}

absl::Status CheckSampleNumbers(const NormSpec& spec) {
  const SampleSpec& samples = spec.running().samples;
  const double max_count = samples.max_count.value_or(1);
  absl::Status status = CheckSampleNumber(spec, "prior_count", samples.prior_count, 0, kMostSamples);
  if (status.ok())
    status = CheckSampleNumber(spec, "prior_mean", samples.prior_mean, -kMostSampleValue, kMostSampleValue);
  if (status.ok()) status = CheckSampleNumber(spec, "prior_variance", samples.prior_variance, 0, kMostSampleValue);
  if (status.ok() && !(samples.decay > 0 && samples.decay <= 1)) {
    status = OutOfRangeError(SpecPath(spec, "running.decay"), NumberText(samples.decay), "above 0 and at most 1",
                             KernelReason("SAMPLES_OUT_OF_RANGE"));
  }
  if (status.ok() && !(max_count > 0 && max_count <= kMostSamples)) {
    status =
        OutOfRangeError(SpecPath(spec, "running.max_count"), NumberText(max_count),
                        Concat("above 0 and at most ", NumberText(kMostSamples)), KernelReason("SAMPLES_OUT_OF_RANGE"));
  }
  return status;
}

// Samples are counted, so a weight of a step has no place here.
absl::Status CheckSamples(const NormSpec& spec) {
  const RunningSpec& running = spec.running();
  const RunningSpec defaults;
  if (TraitsOf(spec.method()).steps_by_sample) {
    return NotAllowedError(SpecPath(spec, "running.weighting"),
                           Concat(Info(spec.method()).name, " has no statistics of all samples"));
  }
  const auto refuse = [&spec](std::string_view field) {
    return NotAllowedError(SpecPath(spec, Concat("running.", field)), "WEIGHTING_SAMPLES counts samples, not steps");
  };
  if (running.momentum.has_value()) return refuse("momentum");
  if (running.momentum_of != defaults.momentum_of) return refuse("momentum_of");
  if (running.cumulative) return refuse("cumulative");
  if (running.single_value != defaults.single_value) return refuse("single_value");
  if (running.accept_non_finite) return refuse("accept_non_finite");
  absl::Status status = CheckEnum(spec, "running.normalize_with", running.normalize_with, NormalizeWith::kRunning,
                                  "NORMALIZE_WITH_BATCH or NORMALIZE_WITH_RUNNING");
  if (status.ok()) {
    status = CheckEnum(spec, "running.nan_policy", running.nan_policy, NanPolicy::kSkip,
                       "NAN_POLICY_PROPAGATE or NAN_POLICY_SKIP");
  }
  if (!status.ok()) return status;
  if (running.nan_policy == NanPolicy::kSkip && running.normalize_with == NormalizeWith::kBatch) {
    return NotAllowedError(SpecPath(spec, "running.nan_policy"), "NAN_POLICY_SKIP needs NORMALIZE_WITH_RUNNING");
  }
  return CheckSampleNumbers(spec);
}

absl::Status CheckNoSamples(const NormSpec& spec) {
  const RunningSpec& running = spec.running();
  const SampleSpec none;
  const SampleSpec& given = running.samples;
  const auto refuse = [&spec](std::string_view field) {
    return NotAllowedError(SpecPath(spec, Concat("running.", field)), "it needs WEIGHTING_SAMPLES");
  };
  if (given.prior_count != none.prior_count) return refuse("prior_count");
  if (given.prior_mean != none.prior_mean) return refuse("prior_mean");
  if (given.prior_variance != none.prior_variance) return refuse("prior_variance");
  if (given.decay != none.decay) return refuse("decay");
  if (given.max_count != none.max_count) return refuse("max_count");
  if (running.nan_policy != NanPolicy::kPropagate) return refuse("nan_policy");
  return running.normalize_with == NormalizeWith::kBatch ? absl::OkStatus() : refuse("normalize_with");
}

absl::Status CheckClip(const NormSpec& spec) {
  const std::optional<double> clip = spec.running().clip;
  if (!clip.has_value() || (*clip > 0 && std::isfinite(*clip))) return absl::OkStatus();
  return OutOfRangeError(SpecPath(spec, "running.clip"), NumberText(*clip), "above 0 and finite",
                         KernelReason("CLIP_OUT_OF_RANGE"));
}

// The fields of WEIGHTING_STEPS.
absl::Status CheckSteps(const NormSpec& spec) {
  const RunningSpec& running = spec.running();
  if (running.momentum.has_value() && !(*running.momentum >= 0 && *running.momentum <= 1)) {
    return MomentumError(SpecPath(spec, "running.momentum"), *running.momentum);
  }
  if (running.momentum.has_value() && running.cumulative) {
    return ExclusiveError(SpecPath(spec, "running.momentum"), "cumulative");
  }
  absl::Status status = CheckEnum(spec, "running.momentum_of", running.momentum_of, MomentumOf::kOld,
                                  "MOMENTUM_OF_NEW or MOMENTUM_OF_OLD");
  if (!status.ok()) return status;
  status = CheckEnum(spec, "running.single_value", running.single_value, SingleValue::kZeroVariance,
                     "SINGLE_VALUE_REFUSE or SINGLE_VALUE_ZERO_VARIANCE");
  return status.ok() ? CheckNoSamples(spec) : status;
}

}  // namespace

std::string SpecPath(const NormSpec& spec, std::string_view field) {
  return Concat(Info(spec.method()).name, ".", field);
}

std::string PlanPath(const NormSpec& spec, std::string_view field) { return Concat("spec.", SpecPath(spec, field)); }

absl::Status CheckLayout(const NormSpec& spec) {
  if (spec.layout() == Layout::kUnspecified) {
    return MissingError(SpecPath(spec, "layout"), "LAYOUT_CHANNELS_FIRST or LAYOUT_CHANNELS_LAST");
  }
  return CheckEnum(spec, "layout", spec.layout(), Layout::kChannelsLast,
                   "LAYOUT_CHANNELS_FIRST or LAYOUT_CHANNELS_LAST");
}

absl::Status CheckLayoutAndRunning(const NormSpec& spec) {
  const RunningSpec& running = spec.running();
  absl::Status status = CheckLayout(spec);
  if (!status.ok()) return status;
  status = CheckEnum(spec, "running.weighting", running.weighting, Weighting::kSamples,
                     "WEIGHTING_STEPS or WEIGHTING_SAMPLES");
  if (!status.ok()) return status;
  status = running.CountsSamples() ? CheckSamples(spec) : CheckSteps(spec);
  if (status.ok()) status = CheckClip(spec);
  if (!status.ok()) return status;
  return CheckEnum(spec, "running.variance", running.variance, RunningVariance::kBiased,
                   "RUNNING_VARIANCE_UNBIASED or RUNNING_VARIANCE_BIASED");
}

absl::Status CheckGroups(const NormSpec& spec) {
  if (spec.num_groups() >= 1) return absl::OkStatus();
  return OutOfRangeError(SpecPath(spec, "num_groups"), Concat(spec.num_groups()), "at least 1",
                         KernelReason("NUM_GROUPS_OUT_OF_RANGE"));
}

absl::Status CheckGroupsOf(const NormSpec& spec, int64_t channels, int64_t most) {
  if (spec.num_groups() <= most && channels % spec.num_groups() == 0) return absl::OkStatus();
  const std::string_view limit = spec.num_groups() > most ? "at most" : "a divisor of";
  return OutOfRangeError(PlanPath(spec, "num_groups"), Concat(spec.num_groups()),
                         Concat(limit, " the number of channels, ", channels), KernelReason("NUM_GROUPS_OUT_OF_RANGE"));
}

absl::Status CheckAxis(const NormSpec& spec, std::string_view field, int64_t axis) {
  if (axis >= -kMaxRank && axis < kMaxRank) return absl::OkStatus();
  return OutOfRangeError(SpecPath(spec, field), Concat(axis), Concat("between ", -kMaxRank, " and ", kMaxRank - 1),
                         KernelReason("AXIS_OUT_OF_RANGE"));
}

absl::Status CheckShapeOrAxes(const NormSpec& spec) {
  if (!spec.normalized_shape().empty() && !spec.axes().empty()) {
    return ExclusiveError(SpecPath(spec, "axes"), "normalized_shape");
  }
  if (spec.normalized_shape().size() > kMaxRank) {
    return RankError(SpecPath(spec, "normalized_shape"), static_cast<int64_t>(spec.normalized_shape().size()), 1,
                     kMaxRank);
  }
  for (size_t i = 0; i < spec.normalized_shape().size(); ++i) {
    if (spec.normalized_shape()[i] < 0) {
      return DimensionError(SpecPath(spec, Concat("normalized_shape[", i, "]")), spec.normalized_shape()[i]);
    }
  }
  return CheckAxes(spec);
}

absl::StatusOr<int64_t> ResolveAxis(std::string_view path, int64_t axis, int64_t rank) {
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  return OutOfRangeError(path, Concat(axis), Concat("between ", -rank, " and ", rank - 1, " for rank ", rank),
                         KernelReason("AXIS_OUT_OF_RANGE"));
}

absl::Status LowerShapeOrAxes(const NormSpec& spec, NormPlan* plan) {
  if (spec.normalized_shape().empty() && spec.axes().empty()) {
    LowerLastAxis(plan);
    return absl::OkStatus();
  }
  const absl::StatusOr<Shape> axes = spec.axes().empty() ? TrailingAxes(spec, plan->shape)
                                                         : ListedAxes(spec, static_cast<int64_t>(plan->shape.size()));
  if (!axes.ok()) return axes.status();
  LowerAxes(*axes, plan);
  return absl::OkStatus();
}

void LowerLastAxis(NormPlan* plan) { LowerAxes({static_cast<int64_t>(plan->shape.size()) - 1}, plan); }

}  // namespace normd::methods
