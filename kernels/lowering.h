// The geometry half of MakePlan: how each family of methods becomes [keep0, reduce0, keep1, reduce1], a pattern and
// affine indices. Called by the methods alone, with arguments that they have checked; nothing here can fail.
// Every function reads plan->shape and plan->elements and fills the extents, the pattern, the parameters and the
// statistics' shape. Pure; safe from any thread.
#ifndef NORMD_KERNELS_LOWERING_H_
#define NORMD_KERNELS_LOWERING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/plan.h"

namespace normd {

// One statistics group for every index of the axes that are not in `axes`; parameters per element of the axes, in the
// order listed. REQUIRES: axes distinct, 0 <= axis < rank, at least one.
void LowerAxes(absl::Span<const int64_t> axes, NormPlan* plan);

// The same with one parameter for all elements (ScaleNorm). REQUIRES: plan lowered over the last axis.
void UseScalarParameter(NormPlan* plan);

// One set per channel over everything else: BatchNorm, and InstanceNorm with given statistics. REQUIRES: rank >= 2.
void LowerChannels(Layout layout, NormPlan* plan);

// One set per sample and channel, over the spatial axes: InstanceNorm. REQUIRES: rank >= 2.
void LowerInstances(Layout layout, NormPlan* plan);

// `groups` groups per sample, each over its channels and the spatial axes: GroupNorm. REQUIRES: rank >= 2, groups >= 1
// divides C.
void LowerGroups(Layout layout, int64_t groups, bool affine_per_group, NormPlan* plan);

// PowerNorm: per channel (the last axis) over all positions, after scaling per position and group.
void LowerPower(int64_t groups, NormPlan* plan);

// The axis that holds the channels. REQUIRES: rank >= 2, a layout.
int ChannelAxis(Layout layout, int64_t rank);

}  // namespace normd

#endif  // NORMD_KERNELS_LOWERING_H_
