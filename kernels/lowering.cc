#include "kernels/lowering.h"

#include <algorithm>

namespace normd {

namespace {

// Adjacent axes of the same kind (reduced or kept), merged into one extent.
struct Run {
  bool reduced;
  int64_t extent;
};
using Runs = absl::InlinedVector<Run, kMaxRank>;

bool Contains(absl::Span<const int64_t> axes, int64_t axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// Axes of extent 1 are left out, because they separate nothing.
Runs MergeAxes(absl::Span<const int64_t> shape, absl::Span<const int64_t> reduced_axes) {
  Runs runs;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    const bool reduced = Contains(reduced_axes, static_cast<int64_t>(axis));
    if (!runs.empty() && runs.back().reduced == reduced) {
      runs.back().extent *= shape[axis];
    } else {
      runs.push_back({reduced, shape[axis]});
    }
  }
  return runs;
}

// Sets the extents from `runs`, which alternate. Returns false if there are more runs than extents.
bool FitRuns(const Runs& runs, NormPlan* plan) {
  plan->keep0 = plan->reduce0 = plan->keep1 = plan->reduce1 = 1;
  const size_t skipped = !runs.empty() && runs.front().reduced ? 1 : 0;  // no keep0
  if (runs.size() + skipped > 4) return false;
  int64_t* const slots[] = {&plan->keep0, &plan->reduce0, &plan->keep1, &plan->reduce1};
  for (size_t i = 0; i < runs.size(); ++i) *slots[i + skipped] = runs[i].extent;
  return true;
}

// The fallback for shapes that do not fit four extents: one contiguous copy with the kept axes first, walked as Rows.
void PermuteIntoRows(absl::Span<const int64_t> axes, NormPlan* plan) {
  plan->keep0 = plan->reduce1 = 1;
  Shape reduced;
  for (size_t i = 0; i < plan->shape.size(); ++i) {
    const int64_t axis = static_cast<int64_t>(i);
    if (Contains(axes, axis)) {
      reduced.push_back(axis);
      plan->reduce1 *= plan->shape[i];
    } else {
      plan->permutation.push_back(axis);
      plan->keep0 *= plan->shape[i];
    }
  }
  plan->permutation.insert(plan->permutation.end(), reduced.begin(), reduced.end());
}

// Merges a group that is one contiguous piece into one row, and chooses the pattern by the innermost extent.
void FinishExtents(NormPlan* plan) {
  if (plan->keep1 == 1) {
    plan->reduce1 *= plan->reduce0;
    plan->reduce0 = 1;
  }
  plan->statistic_reduce1 = plan->reduce1;
  plan->pattern = plan->reduce1 == 1 && plan->keep1 > 1 ? Pattern::kColumns : Pattern::kRows;
}

// The order that takes the elements of w, which follow `axes` as listed, into memory order. Empty if the two orders are
// the same, axes of extent 1 aside. It is kept as strides, because a shape that was merely announced must not cost
// memory in proportion to its elements.
ParameterOrder OrderOf(absl::Span<const int64_t> shape, absl::Span<const int64_t> axes) {
  Shape listed;
  for (const int64_t axis : axes) {
    if (shape[axis] != 1) listed.push_back(axis);
  }
  Shape sorted = listed;
  std::sort(sorted.begin(), sorted.end());
  if (sorted == listed) return {};

  int64_t stride[kMaxRank] = {};  // of an axis in w
  int64_t length = 1;
  for (size_t i = listed.size(); i-- > 0;) {
    stride[listed[i]] = length;
    length *= shape[listed[i]];
  }
  ParameterOrder order;
  for (const int64_t axis : sorted) {
    order.extents.push_back(shape[axis]);
    order.strides.push_back(stride[axis]);
  }
  return order;
}

// Gives the plan `length` parameters: see AffineIndex::kChannel.
void UseChannelParameters(int64_t length, int64_t per_keep1, int64_t run, NormPlan* plan) {
  plan->affine_index = AffineIndex::kChannel;
  plan->channels_per_keep1 = per_keep1;
  plan->channel_run = std::max<int64_t>(1, run);
  plan->parameter_length = length;
  plan->parameter_shape = {length};
}

// N, C and the product of the spatial axes.
struct Extents {
  int64_t batch;
  int64_t channels;
  int64_t spatial;
};

Extents SplitShape(Layout layout, absl::Span<const int64_t> shape) {
  const size_t channel_axis = static_cast<size_t>(ChannelAxis(layout, static_cast<int64_t>(shape.size())));
  Extents extents = {shape[0], shape[channel_axis], 1};
  for (size_t axis = 1; axis < shape.size(); ++axis) {
    if (axis != channel_axis) extents.spatial *= shape[axis];
  }
  return extents;
}

// How the channels of one sample are divided into statistics groups.
struct Groups {
  int64_t count;
  int64_t channels;
  bool own_parameters;
};

void LowerSamples(Layout layout, const Extents& extents, const Groups& groups, NormPlan* plan) {
  const bool channels_last = layout == Layout::kChannelsLast;
  plan->keep0 = extents.batch;
  plan->keep1 = groups.count;
  plan->reduce0 = channels_last ? extents.spatial : 1;
  plan->reduce1 = channels_last ? groups.channels : groups.channels * extents.spatial;
  if (channels_last && groups.channels != 1) {
    // The columns of a group are adjacent, and each has its own parameters: merging the columns with the positions, as
    // FinishExtents does for one group, would lose the channel.
    plan->statistic_reduce1 = plan->reduce1;
    plan->pattern = Pattern::kColumns;
  } else {
    FinishExtents(plan);
  }
  if (groups.own_parameters) {
    UseChannelParameters(groups.count, 1, plan->reduce1, plan);
  } else {
    UseChannelParameters(extents.channels, groups.channels, channels_last ? 1 : extents.spatial, plan);
  }
  plan->statistics_shape = {extents.batch, groups.count};
  plan->num_channels = extents.channels;
}

}  // namespace

int ChannelAxis(Layout layout, int64_t rank) {
  return layout == Layout::kChannelsLast ? static_cast<int>(rank) - 1 : 1;
}

void LowerAxes(absl::Span<const int64_t> axes, NormPlan* plan) {
  if (!FitRuns(MergeAxes(plan->shape, axes), plan)) PermuteIntoRows(axes, plan);
  FinishExtents(plan);

  for (size_t axis = 0; axis < plan->shape.size(); ++axis) {
    if (!Contains(axes, static_cast<int64_t>(axis))) plan->statistics_shape.push_back(plan->shape[axis]);
  }
  if (plan->statistics_shape.empty()) plan->statistics_shape = {1};

  plan->affine_index = AffineIndex::kElement;
  for (const int64_t axis : axes) plan->parameter_shape.push_back(plan->shape[axis]);
  plan->parameter_length = ElementCount(plan->parameter_shape);
  plan->parameter_order = OrderOf(plan->shape, axes);
}

void UseScalarParameter(NormPlan* plan) { UseChannelParameters(1, 0, plan->reduce1, plan); }

void LowerChannels(Layout layout, NormPlan* plan) {
  const auto [batch, channels, spatial] = SplitShape(layout, plan->shape);
  const bool channels_last = layout == Layout::kChannelsLast;
  plan->reduce0 = channels_last ? batch * spatial : batch;
  plan->keep1 = channels;
  plan->reduce1 = channels_last ? 1 : spatial;
  FinishExtents(plan);
  UseChannelParameters(channels, 1, plan->reduce1, plan);
  plan->statistics_shape = {channels};
  plan->num_channels = channels;
}

void LowerInstances(Layout layout, NormPlan* plan) {
  const Extents extents = SplitShape(layout, plan->shape);
  LowerSamples(layout, extents, {.count = extents.channels, .channels = 1, .own_parameters = true}, plan);
}

void LowerGroups(Layout layout, int64_t groups, bool affine_per_group, NormPlan* plan) {
  const Extents extents = SplitShape(layout, plan->shape);
  const int64_t group_channels = extents.channels / groups;
  LowerSamples(layout, extents,
               {.count = groups, .channels = group_channels, .own_parameters = affine_per_group || group_channels == 1},
               plan);
}

void LowerPower(int64_t groups, NormPlan* plan) {
  const auto [batch, channels, spatial] = SplitShape(Layout::kChannelsLast, plan->shape);
  plan->reduce0 = batch * spatial;
  plan->keep1 = channels;
  plan->pattern = Pattern::kColumns;  // also for one channel: the group scale belongs to a position
  plan->power_groups = groups;
  UseChannelParameters(channels, 1, 1, plan);
  plan->statistics_shape = {channels};
  plan->num_channels = channels;
}

}  // namespace normd
