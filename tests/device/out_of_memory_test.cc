// What the device leaves to the host takes host memory: where there is none the job list fails with the reason, and the
// stream worker serves the next one.
#include <memory>

#include "gtest/gtest.h"
#include "tests/device/device_runs.h"
#include "tests/kernels/cases.h"
#include "tests/support/constants.h"
#include "tests/support/failing_new.h"

namespace normd {
namespace {

void ExpectRefusedWithoutMemory(const Case& c, double bound_factor, size_t size_bytes) {
  const std::unique_ptr<Backend> cuda = EmulatedCudaBackend({.streams = 1, .nearest = {.bound_factor = bound_factor}});
  const std::unique_ptr<Backend> cpu = InlineCpuBackend();
  const CaseData data = DataOf(c);
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

// With these bounds a few elements of a row, or all, are the host's: it reads one group, or the whole job.
TEST_F(DeviceOutOfMemoryTest, RefusesElementsThatTheHostWouldDecide) {
  constexpr size_t kElements = 70'001;
  const Case row = cases::With(cases::On(cases::Over({kElements}), {1, kElements}), DType::kF32);
  for (const double bound_factor : {1e4, kInf}) {
    ExpectRefusedWithoutMemory(row, bound_factor, kElements * sizeof(float));
  }
}

// The kernels of the CPU take scratch in threads of their own pool.
TEST_F(DeviceOutOfMemoryTest, RefusesJobsThatTheHostWouldRun) {
  constexpr size_t kElements = 3 * 7'001;
  ExpectRefusedWithoutMemory(cases::With(cases::On(cases::LpOver(3, {1}), {3, 7'001}), DType::kF32), 1,
                             kElements * sizeof(double));
}

}  // namespace
}  // namespace normd
