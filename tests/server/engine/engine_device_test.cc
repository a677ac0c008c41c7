// Where a call runs: what the engine tells the backend of it, and what the reply says afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/errors.h"
#include "server/batch/placed_backend.h"
#include "server/engine/engine.h"
#include "server/engine/prepared_call.h"
#include "tests/server/batch/fixtures.h"
#include "tests/server/engine/fixtures.h"

namespace normd {
namespace {

using batch_test::FakeDevice;
using engine_test::BytesOf;
using engine_test::CallTo;
using engine_test::Floats;
using engine_test::LayerSpec;

constexpr int64_t kInlineElements = 256;

// An engine over a CPU and a device that is cheaper whenever AUTO may choose it.
class EngineDeviceTest : public ::testing::Test {
 protected:
  EngineDeviceTest() {
    for (size_t i = 0; i < large_.elements.size(); ++i) large_.elements[i] = static_cast<float>(i % 37) - 5;
  }

  std::unique_ptr<PlacedBackend> MakePlaced() {
    auto device = std::make_unique<FakeDevice>();
    device_ = device.get();
    device_->holds = false;
    return std::make_unique<PlacedBackend>(
        MakeCpuBackend({.threads = 2, .inline_elements = kInlineElements}), std::move(device),
        PlacementOptions{.cpu = {.fixed_us = 1000, .bytes_per_us = 1}, .device = {.bytes_per_us = 1000}});
  }

  CallReply Run(Call call) {
    std::promise<absl::StatusOr<CallReply>> promise;
    engine_.Submit(std::move(call), [&](absl::StatusOr<CallReply> reply) { promise.set_value(std::move(reply)); });
    absl::StatusOr<CallReply> reply = promise.get_future().get();
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *std::move(reply) : CallReply();
  }
  Call Large(Device device = Device::kAuto) const {
    Call call = CallTo(LayerSpec({64}), large_.View());
    call.device = device;
    return call;
  }
  Call Small(Device device = Device::kAuto) const {
    Call call = CallTo(LayerSpec({4}), small_.View());
    call.device = device;
    return call;
  }

  const Floats small_ = {.shape = {1, 4}, .elements = {1, 2, 3, 4}};
  Floats large_ = {.shape = {16, 64}, .elements = std::vector<float>(1024)};
  SystemClock clock_;
  FakeDevice* device_ = nullptr;
  std::unique_ptr<PlacedBackend> backend_ = MakePlaced();
  MemoryStore store_{SessionLimits(), &clock_};
  Engine engine_{backend_.get(), &store_};
};

TEST_F(EngineDeviceTest, AReplySaysWhichDeviceAndKernelRan) {
  const CallReply on_device = Run(Large()), on_cpu = Run(Large(Device::kCpu)), small = Run(Small());
  EXPECT_EQ(on_device.applied.device, Device::kCuda);
  EXPECT_EQ(on_device.applied.kernel, "cuda/fake");
  EXPECT_FALSE(on_device.applied.device_fallback);
  EXPECT_EQ(on_cpu.applied.device, Device::kCpu);
  EXPECT_EQ(on_cpu.applied.kernel.rfind("cpu/", 0), 0u);
  EXPECT_EQ(small.applied.device, Device::kCpu);
  EXPECT_EQ(BytesOf(on_device.outputs[0]), BytesOf(on_cpu.outputs[0]));
}

TEST_F(EngineDeviceTest, ACallThatCannotBeComputedWhereItWasSentSaysSo) {
  device_->judge = [](const std::vector<Job>&) { return absl::ResourceExhaustedError("full"); };
  const CallReply reply = Run(Large());
  EXPECT_EQ(reply.applied.device, Device::kCpu);
  EXPECT_EQ(reply.applied.kernel.rfind("cpu/", 0), 0u);
  EXPECT_TRUE(reply.applied.device_fallback);
}

TEST_F(EngineDeviceTest, ASmallCallRunsOnTheDeviceThatItNames) {
  const CallReply reply = Run(Small(Device::kCuda));
  EXPECT_EQ(reply.applied.device, Device::kCuda);
  EXPECT_EQ(device_->launches().size(), 1u);
}

TEST_F(EngineDeviceTest, ASmallCallThatNamesTheDeviceIsNotPreparedToRunInline) {
  EXPECT_TRUE(Run(Small()).prepared->runs_inline);
  EXPECT_TRUE(Run(Small(Device::kCpu)).prepared->runs_inline);
  EXPECT_FALSE(Run(Small(Device::kCuda)).prepared->runs_inline);
  EXPECT_FALSE(Run(Large()).prepared->runs_inline);
}

TEST_F(EngineDeviceTest, APreparedCallIsSentWhereItGoesNow) {
  Call again = Large();
  again.prepared = Run(Large()).prepared;
  device_->judge = [](const std::vector<Job>&) { return absl::ResourceExhaustedError("full"); };
  const CallReply reply = Run(std::move(again));
  EXPECT_EQ(reply.applied.device, Device::kCpu);
  EXPECT_TRUE(reply.applied.device_fallback);
}

TEST_F(EngineDeviceTest, ACallThatIsOnlyCheckedSaysWhereItWouldRun) {
  Call call = Small(Device::kCuda);
  call.validate_only = true;
  const CallReply reply = Run(std::move(call));
  EXPECT_EQ(reply.applied.device, Device::kCuda);
  EXPECT_EQ(reply.applied.kernel, "cuda/fake");
  EXPECT_TRUE(device_->launches().empty());
}

TEST_F(EngineDeviceTest, BothHalvesOfACallMustRunOnTheDeviceThatItNames) {
  device_->supports = [](const NormPlan& plan) { return !plan.given_statistics; };
  Call call = CallTo(NormSpec{.attributes = PowerNormSpec()}, large_.View(), Mode::kTraining);
  call.device = Device::kCuda;
  std::promise<absl::Status> status;
  engine_.Submit(std::move(call), [&](const absl::StatusOr<CallReply>& reply) { status.set_value(reply.status()); });
  const absl::Status refused = status.get_future().get();
  EXPECT_EQ(GetErrorDetail(refused)->reason, "DEVICE_NOT_AVAILABLE");
  EXPECT_TRUE(device_->launches().empty());
}

TEST_F(EngineDeviceTest, TheBackendLearnsWhoAsksAndUntilWhen) {
  std::deque<Errand> errands;
  bool could_be_cancelled = false;
  device_->judge = [&](const std::vector<Job>& jobs) {
    errands.push_back(jobs.front().errand);
    could_be_cancelled = errands.back().cancelled != nullptr && !(*errands.back().cancelled)();
    return absl::OkStatus();
  };
  Call call = Large();
  call.caller = 7;
  call.deadline = absl::FromUnixSeconds(4'000'000'000);
  call.cancelled = [] { return false; };
  Run(std::move(call));
  ASSERT_EQ(errands.size(), 1u);
  EXPECT_EQ(errands[0].caller, 7u);
  EXPECT_EQ(errands[0].deadline, absl::FromUnixSeconds(4'000'000'000));
  EXPECT_TRUE(could_be_cancelled);
}

TEST_F(EngineDeviceTest, TheHalfAfterACommitIsNeverDropped) {
  std::vector<Errand> errands;
  device_->judge = [&](const std::vector<Job>& jobs) {
    errands.push_back(jobs.front().errand);
    return absl::OkStatus();
  };
  Call call = CallTo(NormSpec{.attributes = PowerNormSpec()}, large_.View(), Mode::kTraining);
  call.device = Device::kCuda;
  call.deadline = absl::FromUnixSeconds(4'000'000'000);
  call.cancelled = [] { return false; };
  EXPECT_EQ(Run(std::move(call)).applied.device, Device::kCuda);
  ASSERT_EQ(errands.size(), 2u);
  EXPECT_NE(errands[0].cancelled, nullptr);
  EXPECT_EQ(errands[1].cancelled, nullptr);
  EXPECT_EQ(errands[1].deadline, absl::InfiniteFuture());
}

}  // namespace
}  // namespace normd
