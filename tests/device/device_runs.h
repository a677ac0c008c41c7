// What the tests of the emulated CUDA backend share: devices, backends, runs of cases. REQUIRES: inside a GoogleTest
// test.
#ifndef NORMD_TESTS_DEVICE_DEVICE_RUNS_H_
#define NORMD_TESTS_DEVICE_DEVICE_RUNS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"
#include "tests/support/case.h"
#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/support/run_case.h"

namespace normd {

inline constexpr cuda_on_cpu::Device kSm80 = {.major = 8, .minor = 0, .shared_optin_bytes = 163 * 1024};
inline constexpr cuda_on_cpu::Device kSm89 = {.major = 8, .minor = 9, .shared_optin_bytes = 99 * 1024};
inline constexpr cuda_on_cpu::Device kSm90 = {};

inline std::unique_ptr<Backend> InlineCpuBackend() {
  return MakeCpuBackend({.threads = 1, .inline_elements = int64_t{1} << 40, .grain_elements = int64_t{1} << 40});
}

inline std::unique_ptr<Backend> EmulatedCudaBackend(const Backend* host,
                                                    const CudaBackendOptions& options = {.streams = 1}) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(options, host);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return backend.ok() ? *std::move(backend) : nullptr;
}

inline CaseData DataOf(const Case& c) {
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
  return plan.ok() ? MakeData(c, *plan, 0) : CaseData();
}

inline Outputs Execute(Backend& backend, const Case& c, const CaseData& data, int misalignment = 0) {
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
  if (!plan.ok()) return {};
  CaseRun run(backend, c, *plan, data, misalignment);
  const absl::Status status = RunJobs(backend, {run.MakeJob()});
  EXPECT_TRUE(status.ok()) << c.Name() << ": " << status;
  return run.TakeOutputs();
}

}  // namespace normd

#endif  // NORMD_TESTS_DEVICE_DEVICE_RUNS_H_
