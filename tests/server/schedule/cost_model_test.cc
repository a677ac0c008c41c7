#include "server/schedule/cost_model.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cpu/backend.h"
#include "server/schedule/job_list.h"
#include "tests/server/session/fixtures.h"
#include "tests/support/fake_device.h"

namespace normd {
namespace {

using session_test::ManualClock;

// A device that takes 30 us and a microsecond for each 20'000 bytes, by a clock that it moves itself.
class CostModel : public ::testing::Test {
 protected:
  CostModel() {
    device_.holds = false;
    device_.judge = [this](const std::vector<Job>& jobs) {
      clock_.Advance(absl::Microseconds(30) + absl::Nanoseconds(BytesMoved(jobs) / 20));
      return absl::OkStatus();
    };
  }

  ManualClock clock_;
  FakeDevice device_;
};

TEST_F(CostModel, FindsTheFixedTimeAndTheRateOfADevice) {
  const absl::StatusOr<DeviceCost> cost = MeasureCost(device_, clock_);
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_NEAR(cost->fixed_us, 30, 0.1);
  EXPECT_NEAR(cost->bytes_per_us, 20'000, 10);
  EXPECT_NEAR(cost->Microseconds(2'000'000), 130, 0.2);
  EXPECT_EQ(CostText(*cost), "30.0 us + 20.0 GB/s");
}

TEST_F(CostModel, EndsWhenItsTimeIsSpent) {
  const absl::Time start = clock_.Now();
  ASSERT_TRUE(MeasureCost(device_, clock_, absl::Milliseconds(20)).ok());
  // Beside the budget: the first runs, and what had begun.
  EXPECT_LT(clock_.Now() - start, absl::Milliseconds(22));
}

TEST_F(CostModel, TheFirstRunDoesNotCount) {
  int runs = 0;
  device_.judge = [&](const std::vector<Job>& jobs) {
    clock_.Advance(runs++ == 0 ? absl::Seconds(1) : absl::Nanoseconds(BytesMoved(jobs) / 20));
    return absl::OkStatus();
  };
  const absl::StatusOr<DeviceCost> cost = MeasureCost(device_, clock_);
  EXPECT_LT(cost->fixed_us, 1);
}

TEST_F(CostModel, AClockThatStandsStillKeepsNobody) {
  device_.judge = nullptr;
  EXPECT_TRUE(MeasureCost(device_, clock_, absl::Microseconds(10)).ok());
}

TEST_F(CostModel, AnErrorOfTheDeviceIsTheResult) {
  device_.judge = [](const std::vector<Job>&) { return absl::UnavailableError("lost"); };
  EXPECT_TRUE(absl::IsUnavailable(MeasureCost(device_, clock_).status()));
}

TEST_F(CostModel, MeasuresACpuBackendThatRunsOnItsOwnThreads) {
  SystemClock wall;
  const std::unique_ptr<Backend> cpu = MakeCpuBackend({.threads = 2, .inline_elements = 0});
  const absl::StatusOr<DeviceCost> cost = MeasureCost(*cpu, wall, absl::Milliseconds(2));
  ASSERT_TRUE(cost.ok()) << cost.status();
  EXPECT_GT(cost->bytes_per_us, 1);
  EXPECT_GE(cost->fixed_us, 0);
}

}  // namespace
}  // namespace normd
