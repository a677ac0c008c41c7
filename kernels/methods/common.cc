#include "kernels/methods/common.h"

#include <algorithm>

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
