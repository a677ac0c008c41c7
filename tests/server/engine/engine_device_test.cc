// Where a call runs and when: what the engine tells the scheduler of it, and what the reply says afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/errors.h"
#include "kernels/cpu/backend.h"
#include "server/base/clock.h"
#include "server/base/steady_time.h"
#include "server/engine/engine.h"
#include "server/engine/prepared_call.h"
#include "server/schedule/device_scheduler.h"
#include "tests/server/engine/fixtures.h"
#include "tests/support/fake_device.h"

namespace normd {
namespace {

using engine_test::BytesOf;
using engine_test::CallTo;
using engine_test::Floats;
using engine_test::LayerSpec;
using session_test::BatchSpec;
using session_test::PowerSpec;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kInlineElements = 256;
constexpr int64_t kRows = 16, kRowElements = 64;  // of a call that AUTO gives to the device

// The clock of deadlines, as far ahead of it as a test says.
class ClockAhead : public Clock {
 public:
  absl::Time Now() override { return SteadyNow() + absl::Nanoseconds(ahead_.load()); }
  void Advance(absl::Duration by) { ahead_ += absl::ToInt64Nanoseconds(by); }

 private:
  std::atomic<int64_t> ahead_{0};
};

// An engine over a CPU and a device that is cheaper whenever AUTO may choose it, and that has one launch at a time.
class EngineDeviceTest : public ::testing::Test {
 protected:
  using Reply = std::future<absl::StatusOr<CallReply>>;

  EngineDeviceTest() {
    device_.holds = false;
    for (size_t i = 0; i < large_.elements.size(); ++i) large_.elements[i] = static_cast<float>(i % 37) - 5;
  }
  void TearDown() override { ReleaseAll(); }

  Reply Start(Call call) {
    std::promise<absl::StatusOr<CallReply>> promise;
    Reply reply = promise.get_future();
    engine_.Submit(std::move(call), [promise = std::move(promise)](absl::StatusOr<CallReply> result) mutable {
      promise.set_value(std::move(result));
    });
    return reply;
  }
  CallReply Run(Call call) {
    absl::StatusOr<CallReply> reply = Start(std::move(call)).get();
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *std::move(reply) : CallReply();
  }

  Call Large(Device device = Device::kAuto) const {
    Call call = CallTo(LayerSpec({kRowElements}), large_.View());
    call.device = device;
    return call;
  }
  Call Small(Device device = Device::kAuto) const {
    Call call = CallTo(LayerSpec({4}), small_.View());
    call.device = device;
    return call;
  }
  // As large, and known in a launch by its first element.
  TensorView Numbered(float number, int64_t row_elements = kRowElements) {
    Floats& rows = inputs_.emplace_back(large_);
    rows.shape = {kRows, row_elements};
    rows.elements.resize(static_cast<size_t>(kRows * row_elements), 1.0F);
    rows.elements[0] = number;
    return rows.View();
  }
  Call NumberedCall(float number, int64_t row_elements = kRowElements) {
    return CallTo(LayerSpec({row_elements}), Numbered(number, row_elements));
  }
  uint64_t VersionOf(const std::string& session) { return (*session_test::Get(store_, session))->version; }

  // What the device was given so far: the numbers of each launch, in order.
  std::vector<std::vector<float>> Launches() const {
    std::vector<std::vector<float>> launches;
    for (const auto& launch : device_.launches()) {
      launches.emplace_back();
      for (const FakeDevice::Seen& job : launch) launches.back().push_back(job.first);
    }
    return launches;
  }
  // Also what is launched only when something before it ends.
  void ReleaseAll() {
    while (device_.held() > 0) device_.Release();
  }

  const Floats small_ = {.shape = {1, 4}, .elements = {1, 2, 3, 4}};
  Floats large_ = {.shape = {kRows, kRowElements}, .elements = std::vector<float>(kRows * kRowElements)};
  std::deque<Floats> inputs_;
  ClockAhead clock_;
  SystemClock store_clock_;
  FakeDevice device_;
  const std::unique_ptr<Backend> cpu_ = MakeCpuBackend({.threads = 2, .inline_elements = kInlineElements});
  DeviceScheduler scheduler_{cpu_.get(),
                             {.fixed_us = 1000, .bytes_per_us = 1},
                             {{.backend = &device_, .cost = {.bytes_per_us = 1000}, .queue = {.max_in_flight = 1}}},
                             &clock_};
  MemoryStore store_{SessionLimits(), &store_clock_};
  // Nothing waits before it is in the device's queue.
  Resources resources_;
  Engine engine_{&scheduler_, &store_, &resources_, {.max_large_calls = 100}};
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

// The first half may go to the device; the one that makes y may not, because y replaces x.
TEST_F(EngineDeviceTest, AReplyNamesTheDeviceAndKernel) {
  Call call = CallTo(NormSpec{.attributes = PowerNormSpec()}, Numbered(1), Mode::kTraining);
  WantedOutput y = OutputKind::kY;
  y.shared = SharedBytes{.data = reinterpret_cast<std::byte*>(inputs_.back().elements.data()),
                         .size_bytes = call.x.size_bytes,
                         .region = "r-1"};
  call.outputs = {y};
  const CallReply reply = Run(std::move(call));
  EXPECT_EQ(device_.launches().size(), 1u) << "the half that computes the statistics";
  EXPECT_EQ(reply.applied.device, Device::kCpu);
  EXPECT_EQ(reply.applied.kernel.rfind("cpu/", 0), 0u) << reply.applied.kernel;
}

// FAST does not promise the same bytes everywhere, so what the device has to do must not decide about them.
TEST_F(EngineDeviceTest, AFastCallStaysOnTheCpuUnlessItNamesTheDevice) {
  Call call = Large();
  call.precision = Precision::kFast;
  EXPECT_EQ(Run(call).applied.device, Device::kCpu);
  EXPECT_THAT(Launches(), IsEmpty());
  call.device = Device::kCuda;
  EXPECT_EQ(Run(call).applied.device, Device::kCuda);
}

TEST_F(EngineDeviceTest, ACallThatCannotBeComputedWhereItWasSentSaysSo) {
  device_.judge = [](const std::vector<Job>&) { return absl::ResourceExhaustedError("full"); };
  const CallReply reply = Run(Large());
  EXPECT_EQ(reply.applied.device, Device::kCpu);
  EXPECT_EQ(reply.applied.kernel.rfind("cpu/", 0), 0u);
  EXPECT_TRUE(reply.applied.device_fallback);
}

TEST_F(EngineDeviceTest, ASmallCallRunsOnTheDeviceThatItNames) {
  const CallReply reply = Run(Small(Device::kCuda));
  EXPECT_EQ(reply.applied.device, Device::kCuda);
  EXPECT_EQ(device_.launches().size(), 1u);
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
  device_.judge = [](const std::vector<Job>&) { return absl::ResourceExhaustedError("full"); };
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
  EXPECT_TRUE(device_.launches().empty());
}

TEST_F(EngineDeviceTest, BothHalvesOfACallMustRunOnTheDeviceThatItNames) {
  device_.supports = [](const NormPlan& plan) { return !plan.given_statistics; };
  Call call = CallTo(NormSpec{.attributes = PowerNormSpec()}, large_.View(), Mode::kTraining);
  call.device = Device::kCuda;
  const absl::Status refused = Start(std::move(call)).get().status();
  EXPECT_EQ(GetErrorDetail(refused)->reason, "DEVICE_NOT_AVAILABLE");
  EXPECT_TRUE(device_.launches().empty());
}

// ---- calls that wait for the device

struct Asked {
  uint64_t caller;
  float number;
};
constexpr Asked kTwoCallers[] = {{1, 11}, {1, 12}, {1, 13}, {2, 21}};

TEST_F(EngineDeviceTest, CallersTakeTurnsOnTheDevice) {
  device_.holds = true;
  std::vector<Reply> replies;
  int64_t row_elements = kRowElements;  // rows of one length would be one launch
  for (const Asked& asked : kTwoCallers) {
    Call call = NumberedCall(asked.number, row_elements++);
    call.caller = asked.caller;
    replies.push_back(Start(std::move(call)));
  }
  EXPECT_THAT(Launches(), ElementsAre(ElementsAre(11)));
  ReleaseAll();
  EXPECT_THAT(Launches(), ElementsAre(ElementsAre(11), ElementsAre(12), ElementsAre(21), ElementsAre(13)));
  for (Reply& reply : replies) EXPECT_TRUE(reply.get().ok());
}

TEST_F(EngineDeviceTest, CallsWithRowsOfOneKindThatWaitTogetherAreOneLaunchInOrderOfTurns) {
  device_.holds = true;
  std::vector<Reply> replies;
  for (const Asked& asked : kTwoCallers) {
    Call call = NumberedCall(asked.number);
    call.caller = asked.caller;
    replies.push_back(Start(std::move(call)));
  }
  ReleaseAll();
  EXPECT_THAT(Launches(), ElementsAre(ElementsAre(11), ElementsAre(12, 21, 13)));
  for (size_t i = 0; i < replies.size(); ++i) {
    const absl::StatusOr<CallReply> reply = replies[i].get();
    ASSERT_TRUE(reply.ok()) << reply.status();
    Call alone = NumberedCall(kTwoCallers[i].number);
    alone.device = Device::kCpu;
    EXPECT_EQ(BytesOf(reply->outputs[0]), BytesOf(Run(std::move(alone)).outputs[0])) << kTwoCallers[i].number;
  }
}

TEST_F(EngineDeviceTest, ACallWhoseCallerGoesWhileItWaitsForTheDeviceIsNeverLaunched) {
  device_.holds = true;
  std::atomic<bool> gone = false;
  Call waiting = NumberedCall(2), waiting_too = NumberedCall(3);
  waiting.cancelled = [&gone] { return gone.load(); };
  waiting_too.cancelled = [] { return false; };
  Reply first = Start(NumberedCall(1)), dropped = Start(std::move(waiting)), kept = Start(std::move(waiting_too));
  EXPECT_THAT(Launches(), ElementsAre(ElementsAre(1)));
  gone = true;
  ReleaseAll();
  EXPECT_THAT(Launches(), ElementsAre(ElementsAre(1), ElementsAre(3)));
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(dropped.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(kept.get().ok());
}

TEST_F(EngineDeviceTest, AStepWhoseDeadlinePassesWhileItWaitsForTheDeviceIsNeitherLaunchedNorCommitted) {
  for (const char* id : {"late", "in_time"}) {
    ASSERT_TRUE(session_test::Create(store_, session_test::NewSession(id, BatchSpec(), kRowElements)).ok());
  }
  device_.holds = true;
  Call late = CallTo("late", Numbered(2), Mode::kTraining), in_time = CallTo("in_time", Numbered(3), Mode::kTraining);
  late.deadline = SteadyNow() + absl::Hours(1);
  in_time.deadline = SteadyNow() + absl::Hours(10);
  Reply first = Start(NumberedCall(1)), dropped = Start(std::move(late)), kept = Start(std::move(in_time));
  EXPECT_THAT(Launches(), ElementsAre(ElementsAre(1)));
  clock_.Advance(absl::Hours(2));
  ReleaseAll();
  EXPECT_THAT(Launches(), ElementsAre(ElementsAre(1), ElementsAre(3)));
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(dropped.get().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(kept.get().ok());
  EXPECT_EQ(VersionOf("late"), 0);
  EXPECT_EQ(VersionOf("in_time"), 1);
}

TEST_F(EngineDeviceTest, TheHalfAfterACommitIsNeverDropped) {
  ASSERT_TRUE(session_test::Create(store_, session_test::NewSession("pn", PowerSpec(1), kRowElements)).ok());
  device_.holds = true;
  std::atomic<bool> gone = false;
  Call step = CallTo("pn", Numbered(1), Mode::kTraining);
  step.deadline = SteadyNow() + absl::Hours(1);
  step.cancelled = [&gone] { return gone.load(); };
  Reply stepped = Start(std::move(step)), other = Start(NumberedCall(2));
  // The first half ends, the other call takes the device, and the second half waits for it.
  device_.Release();
  EXPECT_THAT(Launches(), ElementsAre(ElementsAre(1), ElementsAre(2)));
  EXPECT_EQ(VersionOf("pn"), 1);
  gone = true;
  clock_.Advance(absl::Hours(2));
  ReleaseAll();
  EXPECT_THAT(Launches(), ElementsAre(ElementsAre(1), ElementsAre(2), ElementsAre(1)));
  const absl::StatusOr<CallReply> reply = stepped.get();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->applied.device, Device::kCuda);
  EXPECT_EQ(reply->outputs.size(), 1u);
  EXPECT_TRUE(other.get().ok());
}

}  // namespace
}  // namespace normd
