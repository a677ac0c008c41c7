// The CUDA backend on the one case list, its kernels emulated on the CPU: every byte is that of the CPU backend, EXACT and
// FAST, in any order of threads and blocks, and within the oracle's bounds by that.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"
#include "kernels/methods.h"
#include "tests/kernels/cases.h"
#include "tests/support/case.h"
#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

class DeviceAgreementTest : public testing::TestWithParam<Method> {
 protected:
  void SetUp() override {
    cuda_on_cpu::Reset();
    absl::StatusOr<std::unique_ptr<Backend>> cuda = MakeCudaBackend({.streams = 1}, cpu_.get());
    ASSERT_TRUE(cuda.ok()) << cuda.status();
    cuda_ = *std::move(cuda);
  }

  Outputs Execute(Backend& backend, const Case& c, const CaseData& data, int misalignment) {
    const absl::StatusOr<NormPlan> plan = PlanOf(c);
    EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
    if (!plan.ok()) return {};
    CaseRun run(backend, c, *plan, data, misalignment);
    const absl::Status status = RunJobs(backend, {run.MakeJob()});
    EXPECT_TRUE(status.ok()) << c.Name() << ": " << status;
    return run.TakeOutputs();
  }

  CaseData DataOf(const Case& c) {
    const absl::StatusOr<NormPlan> plan = PlanOf(c);
    return plan.ok() ? MakeData(c, *plan, 0) : CaseData();
  }

  const std::unique_ptr<Backend> cpu_ = MakeCpuBackend({.threads = 1, .inline_elements = int64_t{1} << 40});
  std::unique_ptr<Backend> cuda_;
};

TEST_P(DeviceAgreementTest, BytesAreThoseOfTheCpu) {
  uint64_t seed = 0;
  for (const Case& c : cases::AllOf(GetParam())) {
    cuda_on_cpu::SetSeed(seed++);
    const CaseData data = DataOf(c);
    EXPECT_EQ(DifferenceOf(Execute(*cuda_, c, data, 0), Execute(*cpu_, c, data, 0)), "") << c.Name();
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, DeviceAgreementTest, testing::ValuesIn(kAllMethods),
                         [](const auto& method) { return std::string(Info(method.param).name); });

}  // namespace
}  // namespace normd
