// ValidateSpec: what is wrong with a spec whatever tensor it meets.
#include <cmath>
#include <string>

#include "kernels/errors.h"
#include "kernels/methods.h"
#include "kernels/norm.h"
#include "kernels/text.h"

namespace normd {

namespace {

// The path of a field of the spec's method, relative to NormSpec: "layer_norm.eps".
std::string Path(const NormSpec& spec, std::string_view field) { return Concat(Info(spec.method).name, ".", field); }

// The enumerators are 1 to `last`; `names` lists them for the message.
template <typename Enum>
absl::Status CheckEnum(const NormSpec& spec, std::string_view field, Enum value, Enum last, std::string_view names) {
  const int number = static_cast<int>(value);
  if (number >= 1 && number <= static_cast<int>(last)) return absl::OkStatus();
  return OutOfRangeError(Path(spec, field), Concat(number), names, "UNKNOWN_ENUM_VALUE");
}

absl::Status CheckLayout(const NormSpec& spec) {
  if (spec.layout == Layout::kUnspecified) {
    return MissingError(Path(spec, "layout"), "LAYOUT_CHANNELS_FIRST or LAYOUT_CHANNELS_LAST");
  }
  return CheckEnum(spec, "layout", spec.layout, Layout::kChannelsLast, "LAYOUT_CHANNELS_FIRST or LAYOUT_CHANNELS_LAST");
}

// What every method has, or every method with parameters.
absl::Status CheckCommon(const NormSpec& spec) {
  if (spec.eps.has_value() && !(std::isfinite(*spec.eps) && *spec.eps >= 0)) {
    return EpsError(Path(spec, "eps"), *spec.eps);
  }
  if (spec.eps_mode.has_value()) {
    absl::Status status = CheckEnum(spec, "eps_mode", *spec.eps_mode, EpsMode::kClampRoot,
                                    "EPS_MODE_INSIDE_SQRT, EPS_MODE_ADD_TO_ROOT or EPS_MODE_CLAMP_ROOT");
    if (!status.ok()) return status;
  }
  if (spec.method == Method::kLpNorm) return absl::OkStatus();  // no parameters, nothing to do with them
  if (spec.weight_offset != 0 && spec.weight_offset != 1) {
    return OutOfRangeError(Path(spec, "weight_offset"), NumberText(spec.weight_offset), "0 or 1",
                           "WEIGHT_OFFSET_OUT_OF_RANGE");
  }
  return CheckEnum(spec, "cast_order", spec.cast_order, CastOrder::kCastThenAffine,
                   "CAST_ORDER_AFFINE_THEN_CAST or CAST_ORDER_CAST_THEN_AFFINE");
}

absl::Status CheckRunning(const NormSpec& spec) {
  const RunningSpec& running = spec.running;
  if (running.momentum.has_value() && !(*running.momentum >= 0 && *running.momentum <= 1)) {
    return MomentumError(Path(spec, "running.momentum"), *running.momentum);
  }
  if (running.momentum.has_value() && running.cumulative) {
    return NotAllowedError(Path(spec, "running.momentum"), "cumulative statistics take no momentum");
  }
  absl::Status status = CheckEnum(spec, "running.momentum_of", running.momentum_of, MomentumOf::kOld,
                                  "MOMENTUM_OF_NEW or MOMENTUM_OF_OLD");
  if (!status.ok()) return status;
  status = CheckEnum(spec, "running.variance", running.variance, RunningVariance::kBiased,
                     "RUNNING_VARIANCE_UNBIASED or RUNNING_VARIANCE_BIASED");
  if (!status.ok()) return status;
  return CheckEnum(spec, "running.single_value", running.single_value, SingleValue::kZeroVariance,
                   "SINGLE_VALUE_REFUSE or SINGLE_VALUE_ZERO_VARIANCE");
}

absl::Status CheckGroups(const NormSpec& spec) {
  if (spec.num_groups >= 1) return absl::OkStatus();
  return OutOfRangeError(Path(spec, "num_groups"), Concat(spec.num_groups), "at least 1", "NUM_GROUPS_OUT_OF_RANGE");
}

// An axis that no rank allows.
absl::Status CheckAxis(const NormSpec& spec, std::string_view field, int64_t axis) {
  if (axis >= -kMaxRank && axis < kMaxRank) return absl::OkStatus();
  return OutOfRangeError(Path(spec, field), Concat(axis), Concat("between ", -kMaxRank, " and ", kMaxRank - 1),
                         "AXIS_OUT_OF_RANGE");
}

absl::Status CheckAxes(const NormSpec& spec) {
  if (spec.axes.size() > kMaxRank) {
    return OutOfRangeError(Path(spec, "axes"), Concat(spec.axes.size(), " axes"), Concat("at most ", kMaxRank, " axes"),
                           "AXES_OUT_OF_RANGE");
  }
  for (size_t i = 0; i < spec.axes.size(); ++i) {
    absl::Status status = CheckAxis(spec, Concat("axes[", i, "]"), spec.axes[i]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckLayerNorm(const NormSpec& spec) {
  if (spec.normalized_shape.empty() && spec.axes.empty()) {
    return MissingError(Path(spec, "normalized_shape"), "given, or axes");
  }
  if (!spec.normalized_shape.empty() && !spec.axes.empty()) {
    return NotAllowedError(Path(spec, "axes"), "normalized_shape and axes exclude each other");
  }
  if (spec.normalized_shape.size() > kMaxRank) {
    return RankError(Path(spec, "normalized_shape"), static_cast<int64_t>(spec.normalized_shape.size()), 1, kMaxRank);
  }
  for (size_t i = 0; i < spec.normalized_shape.size(); ++i) {
    if (spec.normalized_shape[i] < 0) {
      return DimensionError(Path(spec, Concat("normalized_shape[", i, "]")), spec.normalized_shape[i]);
    }
  }
  return CheckAxes(spec);
}

absl::Status CheckPartial(const NormSpec& spec) {
  if (!spec.p.has_value() && !spec.k.has_value()) return MissingError(Path(spec, "p"), "given, or k");
  if (spec.p.has_value() && spec.k.has_value()) return NotAllowedError(Path(spec, "k"), "p and k exclude each other");
  if (spec.p.has_value() && !(*spec.p > 0 && *spec.p <= 1)) {
    return OutOfRangeError(Path(spec, "p"), NumberText(*spec.p), "above 0 and at most 1", "P_OUT_OF_RANGE");
  }
  if (spec.k.has_value() && *spec.k < 1) {
    return OutOfRangeError(Path(spec, "k"), Concat(*spec.k), "at least 1", "K_OUT_OF_RANGE");
  }
  return CheckEnum(spec, "k_rounding", spec.k_rounding, KRounding::kFloor, "K_ROUNDING_CEIL or K_ROUNDING_FLOOR");
}

absl::Status CheckLp(const NormSpec& spec) {
  if (spec.order != 1 && spec.order != 2) {
    return OutOfRangeError(Path(spec, "order"), Concat(spec.order), "1 or 2", "ORDER_OUT_OF_RANGE");
  }
  if (spec.order == 1 && spec.eps_mode == EpsMode::kInsideSqrt) {
    return OutOfRangeError(Path(spec, "eps_mode"), "EPS_MODE_INSIDE_SQRT",
                           "EPS_MODE_ADD_TO_ROOT or EPS_MODE_CLAMP_ROOT for order 1, which takes no square root",
                           "EPS_MODE_NOT_SUPPORTED");
  }
  return CheckAxis(spec, "axis", spec.axis);
}

absl::Status CheckPower(const NormSpec& spec) {
  if (spec.eps_mode.has_value() && *spec.eps_mode != EpsMode::kInsideSqrt) {
    return OutOfRangeError(Path(spec, "eps_mode"),
                           *spec.eps_mode == EpsMode::kAddToRoot ? "EPS_MODE_ADD_TO_ROOT" : "EPS_MODE_CLAMP_ROOT",
                           "EPS_MODE_INSIDE_SQRT", "EPS_MODE_NOT_SUPPORTED");
  }
  if (!(spec.alpha_fwd >= 0 && spec.alpha_fwd <= 1)) {
    return OutOfRangeError(Path(spec, "alpha_fwd"), NumberText(spec.alpha_fwd), "between 0 and 1",
                           "ALPHA_FWD_OUT_OF_RANGE");
  }
  if (spec.warmup_iters < 0) {
    return OutOfRangeError(Path(spec, "warmup_iters"), Concat(spec.warmup_iters), "at least 0",
                           "WARMUP_ITERS_OUT_OF_RANGE");
  }
  return CheckGroups(spec);
}

}  // namespace

absl::Status ValidateSpec(const NormSpec& spec) {
  const int number = static_cast<int>(spec.method);
  if (number < static_cast<int>(Method::kBatchNorm) || number > static_cast<int>(Method::kPowerNorm)) {
    return OutOfRangeError("method", Concat(number), "one of the methods of NormSpec", "UNKNOWN_METHOD");
  }
  if (absl::Status status = CheckCommon(spec); !status.ok()) return status;
  switch (spec.method) {
    case Method::kBatchNorm:
    case Method::kInstanceNorm:
      if (absl::Status status = CheckLayout(spec); !status.ok()) return status;
      return CheckRunning(spec);
    case Method::kGroupNorm:
      if (absl::Status status = CheckLayout(spec); !status.ok()) return status;
      return CheckGroups(spec);
    case Method::kLayerNorm:
      return CheckLayerNorm(spec);
    case Method::kRmsNorm:
      return CheckAxes(spec);
    case Method::kPRmsNorm:
      return CheckPartial(spec);
    case Method::kLpNorm:
      return CheckLp(spec);
    case Method::kPowerNorm:
      return CheckPower(spec);
    case Method::kScaleNorm:
      break;
  }
  return absl::OkStatus();
}

}  // namespace normd
