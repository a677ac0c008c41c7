// A job that finds no host memory for its scratch fails with the reason; the process and the next job go on.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/case_runs.h"
#include "tests/kernels/cases.h"
#include "tests/support/failing_new.h"

namespace normd {
namespace {

TEST(OutOfMemoryTest, JobsWithoutScratchAreRefusedAndTheNextOnesServed) {
  // x + residual needs scratch where h is not wanted: inline, in a task, and in the range of a loop.
  constexpr int64_t kElements = 3 * 7001;
  Case c = cases::With(cases::On(cases::Over({7001}), {3, 7001}), DType::kF32);
  c.residual = ResidualCase{.dtype = DType::kF32};
  const CaseData data = DataOf(c);
  for (const int64_t inline_elements : {int64_t{1} << 40, int64_t{0}}) {
    const std::unique_ptr<Backend> backend =
        MakeCpuBackend({.threads = 3, .inline_elements = inline_elements, .grain_elements = 500});
    for (const int count : {1, 5}) {
      std::vector<std::unique_ptr<CaseRun>> runs;
      std::vector<Job> jobs;
      for (int i = 0; i < count; ++i) {
        runs.push_back(std::make_unique<CaseRun>(*backend, c, *PlanOf(c), data, 0));
        jobs.push_back(runs.back()->MakeJob());
        jobs.back().h = nullptr;
      }
      {
        const FailingNew failing(kElements * sizeof(float));
        const absl::Status status = RunJobs(*backend, jobs);
        EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
        EXPECT_EQ(status.message(), "the host has no memory left for the scratch of the job");
        EXPECT_GT(failing.failures(), 0);
      }
      EXPECT_EQ(RunJobs(*backend, jobs), absl::OkStatus());
    }
  }
}

}  // namespace
}  // namespace normd
