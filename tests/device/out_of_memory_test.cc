// What the device leaves to the host takes host memory: where there is none the job list fails with the reason, and the
// stream worker serves the next one.
#include <memory>

#include "gtest/gtest.h"
#include "tests/device/device_runs.h"
#include "tests/kernels/call.h"
#include "tests/kernels/cases.h"
#include "tests/support/constants.h"
#include "tests/support/failing_new.h"

namespace normd {
namespace {

void ExpectRefusedWithoutMemory(const Case& c, const CaseData& data, double bound_factor, size_t size_bytes) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend({.streams = 1, .nearest = {.bound_factor = bound_factor}});
  const std::unique_ptr<Backend> cpu = InlineCpuBackend();
  CaseRun run(*cuda, c, *PlanOf(c), data, 0);
  {
    const FailingNew failing(size_bytes);
    const absl::Status status = RunJobs(*cuda, {run.MakeJob()});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << c.Name() << ": " << status;
    EXPECT_EQ(status.message(), "the host has no memory left for what the device leaves to it");
    EXPECT_GT(failing.failures(), 0) << c.Name() << ": nothing was left to the host";
  }
  EXPECT_EQ(DifferenceOf(Execute(*cuda, c, data), Execute(*cpu, c, data)), "") << c.Name();
}

class DeviceOutOfMemoryTest : public testing::Test {
 protected:
  DeviceOutOfMemoryTest() { cuda_on_cpu::Reset(); }
};

// With these bounds a few elements of a row, or all, are the host's: it reads one group, or the whole job. 1 + w is
// rounded, so that the device does not decide them itself.
TEST_F(DeviceOutOfMemoryTest, RefusesElementsThatTheHostWouldDecide) {
  constexpr size_t kElements = 70'001;
  Case row = cases::On(cases::Over({kElements}, Method::kRmsNorm), {1, kElements});
  row.weight = DType::kF64;
  row.spec.weight_offset = 1;
  CaseData data = DataOf(row);
  data.weight = cases::Pack(DType::kF64, cases::Values(kElements, 0.1));
  for (const double bound_factor : {1e4, kInf}) {
    ExpectRefusedWithoutMemory(row, data, bound_factor, kElements * sizeof(float));
  }
}

// The kernels of the CPU take scratch in threads of their own pool.
TEST_F(DeviceOutOfMemoryTest, RefusesJobsThatTheHostWouldRun) {
  constexpr size_t kElements = 3 * 7'001;
  const Case c = cases::On(cases::LpOver(3, {1}), {3, 7'001});
  ExpectRefusedWithoutMemory(c, DataOf(c), 1, kElements * sizeof(double));
}

}  // namespace
}  // namespace normd
