// The geometry of MakePlan: how each family of methods becomes [keep0, reduce0, keep1, reduce1], an access pattern and
// parameter indices (see NormPlan).
// In the path: called by the `lower` functions in kernels/methods/ alone, with arguments that they have checked; no
// function here can fail. Each reads plan->shape and plan->elements, and writes the extents, the pattern, the parameter
// fields and the shape of the statistics. Pure; safe from any thread.
#ifndef NORMD_KERNELS_LOWERING_H_
#define NORMD_KERNELS_LOWERING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/plan.h"

namespace normd {

// One statistics group for each index over the axes that are not in `axes`, and one parameter for each index over
// `axes`, in the order listed: LayerNorm, RMSNorm, LpNorm. REQUIRES: `axes` is not empty and distinct, and 0 <= axis <
// rank.
void LowerAxes(absl::Span<const int64_t> axes, NormPlan* plan);

// Replaces the parameters of a plan by one value for all elements: ScaleNorm. REQUIRES: the plan was lowered over the
// last axis.
void UseScalarParameter(NormPlan* plan);

// One statistics group for each channel, over all other axes: BatchNorm, and InstanceNorm with given statistics.
// REQUIRES: rank >= 2, a layout.
void LowerChannels(Layout layout, NormPlan* plan);

// One statistics group for each sample and channel, over the spatial axes: InstanceNorm. REQUIRES: rank >= 2, a layout.
void LowerInstances(Layout layout, NormPlan* plan);

// `groups` statistics groups for each sample, each over its C / groups channels and the spatial axes: GroupNorm.
// `affine_per_group`: one w and b for each group instead of each channel. REQUIRES: rank >= 2, a layout, groups >= 1
// divides C.
void LowerGroups(Layout layout, int64_t groups, bool affine_per_group, NormPlan* plan);

// One statistics group for each channel (the last axis), over all positions, after each position was scaled by groups
// of channels: PowerNorm. REQUIRES: rank >= 2, groups >= 1 divides C.
void LowerPower(int64_t groups, NormPlan* plan);

// The axis of the channels: 1 for channels-first, the last one for channels-last. REQUIRES: rank >= 2, a layout.
int ChannelAxis(Layout layout, int64_t rank);

}  // namespace normd

#endif  // NORMD_KERNELS_LOWERING_H_
