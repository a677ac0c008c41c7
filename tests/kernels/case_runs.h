// Runs of cases on any backend, for tests that compare one with another, or one with itself. Threads: one.
// REQUIRES: inside a GoogleTest test, which fails where something cannot be run.
#ifndef NORMD_TESTS_KERNELS_CASE_RUNS_H_
#define NORMD_TESTS_KERNELS_CASE_RUNS_H_

#include <cstdint>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/support/case.h"
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

// Without `moments` none are wanted: see NormPlan::SumsMomentsApart.
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
