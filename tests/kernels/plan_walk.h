// A plan read element by element, as plan.h describes its fields: the meaning of a plan without a kernel.
// For tests of MakePlan: what each method says about an element is compared with what the plan says.
#ifndef NORMD_TESTS_KERNELS_PLAN_WALK_H_
#define NORMD_TESTS_KERNELS_PLAN_WALK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/plan.h"

namespace normd {

// "keep0 reduce0 keep1 reduce1 rows|columns"
inline std::string Geometry(const NormPlan& plan) {
  return std::to_string(plan.keep0) + " " + std::to_string(plan.reduce0) + " " + std::to_string(plan.keep1) + " " +
         std::to_string(plan.reduce1) + (plan.pattern == Pattern::kRows ? " rows" : " columns");
}

struct PlannedElement {
  int64_t group = -1;      // which statistics group it belongs to
  int64_t parameter = -1;  // index into w and b
  bool counted = false;    // whether it enters the statistic

  bool operator==(const PlannedElement& other) const = default;
};

// The index on every axis of element `linear` of `shape` in memory order.
inline std::vector<int64_t> AxisIndices(absl::Span<const int64_t> shape, int64_t linear) {
  std::vector<int64_t> indices(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    indices[axis] = linear % shape[axis];
    linear /= shape[axis];
  }
  return indices;
}

// The place of element `linear` of x in the copy that plan.permutation asks for.
inline int64_t PermutedIndex(const NormPlan& plan, int64_t linear) {
  if (plan.permutation.empty()) return linear;
  const std::vector<int64_t> indices = AxisIndices(plan.shape, linear);
  int64_t permuted = 0;
  for (const int64_t axis : plan.permutation) permuted = permuted * plan.shape[axis] + indices[axis];
  return permuted;
}

// The index into w of parameter `at` in the order that the plan takes them.
inline int64_t OrderedParameter(const ParameterOrder& order, int64_t at) {
  if (order.empty()) return at;
  const std::vector<int64_t> indices = AxisIndices(order.extents, at);
  int64_t index = 0;
  for (size_t axis = 0; axis < indices.size(); ++axis) index += indices[axis] * order.strides[axis];
  return index;
}

// One entry for every element of x, in memory order.
inline std::vector<PlannedElement> WalkPlan(const NormPlan& plan) {
  std::vector<PlannedElement> elements(plan.elements);
  for (int64_t linear = 0; linear < plan.elements; ++linear) {
    int64_t rest = PermutedIndex(plan, linear);
    const int64_t r1 = rest % plan.reduce1;
    rest /= plan.reduce1;
    const int64_t k1 = rest % plan.keep1;
    rest /= plan.keep1;
    const int64_t r0 = rest % plan.reduce0;
    const int64_t k0 = rest / plan.reduce0;
    PlannedElement& element = elements[linear];
    element.group = k0 * plan.keep1 + k1;
    element.counted = r1 < plan.statistic_reduce1;
    if (plan.affine_index == AffineIndex::kChannel) {
      element.parameter = k1 * plan.channels_per_keep1 + r1 / plan.channel_run;
    } else {
      element.parameter = OrderedParameter(plan.parameter_order, r0 * plan.reduce1 + r1);
    }
  }
  return elements;
}

}  // namespace normd

#endif  // NORMD_TESTS_KERNELS_PLAN_WALK_H_
