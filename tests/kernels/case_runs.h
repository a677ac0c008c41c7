// Runs of cases on any backend, for tests that compare one with another, or one with itself. Threads: one.
// REQUIRES: inside a GoogleTest test, which fails where something cannot be run.
#ifndef NORMD_TESTS_KERNELS_CASE_RUNS_H_
#define NORMD_TESTS_KERNELS_CASE_RUNS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/support/case.h"
#include "tests/support/judge_nearest.h"
#include "tests/support/run_case.h"

namespace normd {

// Everything on the calling thread.
inline std::unique_ptr<Backend> InlineCpuBackend() {
  return MakeCpuBackend({.threads = 1, .inline_elements = int64_t{1} << 40, .grain_elements = int64_t{1} << 40});
}

inline CaseData DataOf(const Case& c) {
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
  return plan.ok() ? MakeData(c, *plan, 0) : CaseData();
}

// Whether the results of a case are the nearest values. Those of other cases are bounded, and their bits are those of
// an order of sums.
inline bool IsNearest(const Case& c) {
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
  return plan.ok() && plan->precision == Precision::kExact && HasNearest(c, *plan);
}

// What is left of `all` for tests that run a case in several ways and compare the bytes: a tenth of the cases whose
// results are the nearest values, because equal bytes follow from those, and every other case.
inline std::vector<Case> ForComparingBytes(const std::vector<Case>& all) {
  std::vector<Case> chosen;
  int64_t nearest = 0;
  for (const Case& c : all) {
    if (!IsNearest(c) || nearest++ % 10 == 0) chosen.push_back(c);
  }
  return chosen;
}

inline Outputs Execute(Backend& backend, const Case& c, const CaseData& data, int misalignment = 0,
                       bool moments = true) {
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
  if (!plan.ok()) return {};
  CaseRun run(backend, c, *plan, data, misalignment);
  Job job = run.MakeJob();
  if (!moments) job.moments = nullptr;
  const absl::Status status = RunJobs(backend, {job});
  EXPECT_TRUE(status.ok()) << c.Name() << ": " << status;
  return run.TakeOutputs();
}

}  // namespace normd

#endif  // NORMD_TESTS_KERNELS_CASE_RUNS_H_
