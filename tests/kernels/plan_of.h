// Plans of valid specs, for tests that look at them.
#ifndef NORMD_TESTS_KERNELS_PLAN_OF_H_
#define NORMD_TESTS_KERNELS_PLAN_OF_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/plan.h"

namespace normd {

inline constexpr Layout kBothLayouts[] = {Layout::kChannelsFirst, Layout::kChannelsLast};

// MakePlan for f32. A spec that is refused fails the test and gives an empty plan.
inline NormPlan PlanOf(const NormSpec& spec, const std::vector<int64_t>& shape, const PlanOptions& options = {}) {
  absl::StatusOr<NormPlan> plan = MakePlan(spec, DType::kF32, shape, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : NormPlan{};
}

}  // namespace normd

#endif  // NORMD_TESTS_KERNELS_PLAN_OF_H_
