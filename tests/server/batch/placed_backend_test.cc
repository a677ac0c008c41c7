#include "server/batch/placed_backend.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <optional>
#include <thread>

#include "kernels/errors.h"
#include "server/base/clock.h"
#include "server/batch/batching_backend.h"
#include "tests/server/batch/fixtures.h"

namespace normd {
namespace {

using batch_test::FakeDevice;
using batch_test::HasBytesOfASingleCall;
using batch_test::RowsPlan;
using batch_test::Work;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kInlineElements = 1024;

// Costs by which the device is worth it from 200'000 bytes on.
constexpr DeviceCost kCpuCost = {.fixed_us = 0, .bytes_per_us = 1000};
constexpr DeviceCost kDeviceCost = {.fixed_us = 100, .bytes_per_us = 2000};

class Placement : public ::testing::Test {
 protected:
  Placement() {
    auto device = std::make_unique<FakeDevice>();
    device_ = device.get();
    device_->holds = false;
    PlacementObserver observer;
    observer.on_jobs = [this](Device where, int64_t jobs) { jobs_[where == Device::kCuda ? 1 : 0] += jobs; };
    observer.on_fallback = [this](FallbackReason reason) { fallbacks_.push_back(reason); };
    observer.on_lost = [this](const absl::Status&) { ++lost_told_; };
    placed_.emplace(MakeCpuBackend({.threads = 2, .inline_elements = kInlineElements}), std::move(device),
                    PlacementOptions{
                        .cpu = kCpuCost, .device = kDeviceCost, .device_name = "cuda:0", .fast_device_bytes = 64 << 10},
                    std::move(observer));
  }

  // Submits all as one list and waits.
  absl::Status Run(const std::vector<Work*>& works) { return RunOn(*placed_, works); }
  static absl::Status RunOn(Backend& backend, const std::vector<Work*>& works) {
    std::vector<Job> jobs;
    jobs.reserve(works.size());
    for (Work* work : works) jobs.push_back(work->MakeJob());
    std::promise<absl::Status> result;
    backend.Submit(std::move(jobs), [&result](absl::Status status) { result.set_value(std::move(status)); });
    return result.get_future().get();
  }
  Device Ran(Work& work) {
    work.status = Run({&work});
    EXPECT_TRUE(work.status.ok()) << work.status;
    EXPECT_TRUE(HasBytesOfASingleCall(work));
    EXPECT_EQ(work.executed.kernel.compare(0, 4, work.executed.device == Device::kCuda ? "cuda" : "cpu/"), 0);
    return work.executed.device;
  }
  Device Ran(NormPlan plan, Device asked = Device::kAuto) {
    Work work(1, std::move(plan));
    work.errand.device = asked;
    return Ran(work);
  }

  std::atomic<int64_t> jobs_[2] = {0, 0};
  std::vector<FallbackReason> fallbacks_;
  int lost_told_ = 0;
  FakeDevice* device_ = nullptr;
  std::optional<PlacedBackend> placed_;
};

// 8 bytes an element are moved.
NormPlan Cheap() { return RowsPlan(20, 1000); }
NormPlan Worthwhile() { return RowsPlan(40, 1000); }

TEST_F(Placement, ExactWorkGoesWhereItCostsLeast) {
  EXPECT_EQ(Ran(Cheap()), Device::kCpu);
  EXPECT_EQ(Ran(Worthwhile()), Device::kCuda);
  EXPECT_EQ(jobs_[0], 1);
  EXPECT_EQ(jobs_[1], 1);
}

TEST_F(Placement, ExactWorkGoesToTheOtherSideOfAQueue) {
  device_->holds = true;
  Work first(1, Worthwhile()), second(2, Worthwhile());
  first.SubmitTo(*placed_);
  EXPECT_EQ(device_->held(), 1u);
  EXPECT_EQ(Ran(second), Device::kCpu);  // 160 us of queue are more than what the device would save
  device_->Release();
  EXPECT_EQ(first.executed.device, Device::kCuda);
  device_->holds = false;
  EXPECT_EQ(Ran(second), Device::kCuda);
}

TEST_F(Placement, SmallListsRunInlineOnTheCpu) {
  Work work(1, RowsPlan(1, kInlineElements));
  work.SubmitTo(*placed_);
  EXPECT_EQ(work.dones, 1);
  EXPECT_EQ(work.executed.device, Device::kCpu);
  EXPECT_EQ(placed_->inline_elements(), kInlineElements);
}

TEST_F(Placement, ARequestMayForceADevice) {
  EXPECT_EQ(Ran(RowsPlan(1, 8), Device::kCuda), Device::kCuda);
  EXPECT_EQ(Ran(Worthwhile(), Device::kCpu), Device::kCpu);
}

TEST_F(Placement, TensorsInItsMemoryForceTheDevice) {
  Work work(1, RowsPlan(1, 8));
  Job job = work.MakeJob();
  job.in_cuda.x = true;
  placed_->Submit({job}, [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  EXPECT_EQ(work.executed.device, Device::kCuda);
}

TEST_F(Placement, FastGoesToTheDeviceByItsShapeAloneWhateverTheLoad) {
  const NormPlan small = RowsPlan(15, 1024, Precision::kFast), large = RowsPlan(16, 1024, Precision::kFast);
  EXPECT_EQ(Ran(small), Device::kCpu);
  EXPECT_EQ(Ran(large), Device::kCuda);
  EXPECT_EQ(placed_->Choose(small, Device::kAuto)->device, Device::kCpu);
  EXPECT_EQ(placed_->Choose(large, Device::kAuto)->device, Device::kCuda);
  EXPECT_EQ(placed_->KernelName(large), "cuda/fake");
  device_->holds = true;
  std::vector<std::unique_ptr<Work>> queue;
  queue.reserve(20);
  for (int i = 0; i < 20; ++i) queue.push_back(std::make_unique<Work>(1, large));
  for (auto& work : queue) work->SubmitTo(*placed_);
  EXPECT_EQ(device_->held(), 20u);
  EXPECT_EQ(Ran(small), Device::kCpu);
  while (device_->held() > 0) device_->Release();
  for (auto& work : queue) EXPECT_EQ(work->executed.device, Device::kCuda);
}

TEST_F(Placement, FastInAListGoesWhereItWouldGoAlone) {
  Work small(1, RowsPlan(1, 64, Precision::kFast)), large(1, RowsPlan(16, 1024, Precision::kFast));
  Work exact(1, Worthwhile()), forced(1, RowsPlan(1, 8)), on_cpu(1, Worthwhile());
  forced.errand.device = Device::kCuda;
  on_cpu.errand.device = Device::kCpu;
  const std::vector<Work*> all = {&small, &large, &exact, &forced, &on_cpu};
  ASSERT_TRUE(Run(all).ok());
  EXPECT_EQ(small.executed.device, Device::kCpu);
  EXPECT_EQ(large.executed.device, Device::kCuda);
  EXPECT_EQ(exact.executed.device, Device::kCuda);
  EXPECT_EQ(forced.executed.device, Device::kCuda);
  EXPECT_EQ(on_cpu.executed.device, Device::kCpu);
  for (const Work* work : all) EXPECT_TRUE(HasBytesOfASingleCall(*work));
}

TEST_F(Placement, ALostDeviceInTheMiddleOfALaunchLeavesItsWorkToTheCpu) {
  device_->holds = true;
  Work in_flight(1, Worthwhile()), later(2, Worthwhile());
  std::promise<void> done;
  in_flight.on_done = [&done] { done.set_value(); };
  in_flight.SubmitTo(*placed_);
  device_->Release(absl::UnavailableError("lost"));
  done.get_future().wait();
  EXPECT_TRUE(in_flight.status.ok()) << in_flight.status;
  EXPECT_TRUE(in_flight.executed.fell_back);
  EXPECT_EQ(in_flight.executed.device, Device::kCpu);
  EXPECT_EQ(in_flight.executed.kernel.compare(0, 4, "cpu/"), 0);
  EXPECT_TRUE(HasBytesOfASingleCall(in_flight));
  EXPECT_EQ(Ran(later), Device::kCpu);
  EXPECT_FALSE(later.executed.fell_back);
  EXPECT_THAT(fallbacks_, ElementsAre(FallbackReason::kLost));
  EXPECT_EQ(lost_told_, 1);
  EXPECT_EQ(device_->launches().size(), 1u);
  EXPECT_EQ(placed_->Calibration(), "AUTO runs on the CPU: cuda:0 was lost");
}

TEST_F(Placement, FastWorkOfALostDeviceIsShownAndCountedEachTime) {
  device_->judge = [](const std::vector<Job>&) { return absl::UnavailableError("lost"); };
  const NormPlan plan = RowsPlan(16, 1024, Precision::kFast);
  for (int i = 0; i < 2; ++i) {
    Work work(1, plan);
    EXPECT_EQ(Ran(work), Device::kCpu);
    EXPECT_TRUE(work.executed.fell_back);
  }
  EXPECT_THAT(fallbacks_, ElementsAre(FallbackReason::kLost, FallbackReason::kLost));
  EXPECT_TRUE(placed_->Choose(plan, Device::kAuto)->fell_back);
}

TEST_F(Placement, WhatDoesNotFitTheDeviceRunsOnTheCpuAndTheDeviceGoesOn) {
  device_->judge = [](const std::vector<Job>&) { return absl::ResourceExhaustedError("full"); };
  Work large(1, Worthwhile());
  EXPECT_EQ(Ran(large), Device::kCpu);
  EXPECT_TRUE(large.executed.fell_back);
  EXPECT_THAT(fallbacks_, ElementsAre(FallbackReason::kFull));
  device_->judge = nullptr;
  EXPECT_EQ(Ran(Worthwhile()), Device::kCuda);
}

TEST_F(Placement, OtherErrorsOfTheDeviceAreTheCallers) {
  device_->judge = [](const std::vector<Job>&) { return absl::CancelledError("gone"); };
  Work work(1, Worthwhile());
  EXPECT_TRUE(absl::IsCancelled(Run({&work})));
  EXPECT_THAT(fallbacks_, IsEmpty());
}

TEST_F(Placement, WorkThatTheCpuCannotTakeOverHasTheErrorOfTheDevice) {
  device_->judge = [](const std::vector<Job>&) { return absl::ResourceExhaustedError("full"); };
  Work in_memory(1, Worthwhile()), in_place(2, RowsPlan(16, 1024, Precision::kFast)), forced(3, Worthwhile());
  forced.errand.device = Device::kCuda;
  Job jobs[] = {in_memory.MakeJob(), in_place.MakeJob(), forced.MakeJob()};
  jobs[0].in_cuda.y = true;
  jobs[1].y = in_place.x.data();
  for (const Job& job : jobs) {
    placed_->Submit({job}, [](const absl::Status& status) { EXPECT_TRUE(absl::IsResourceExhausted(status)); });
  }
  EXPECT_THAT(fallbacks_, IsEmpty());
  EXPECT_EQ(jobs_[1], 3);
}

TEST_F(Placement, ExactWorkThatReplacesItsInputStaysOnTheCpuUnlessItIsForced) {
  Work work(1, Worthwhile());
  Job job = work.MakeJob();
  job.y = work.x.data();
  std::promise<void> done;
  placed_->Submit({job}, [&done](const absl::Status&) { done.set_value(); });
  done.get_future().wait();
  EXPECT_EQ(work.executed.device, Device::kCpu);
  job.errand.device = Device::kCuda;
  placed_->Submit({job}, [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  EXPECT_EQ(work.executed.device, Device::kCuda);
}

TEST_F(Placement, ALostDeviceThatIsAskedForIsRefusedBeforeAnythingRuns) {
  device_->judge = [](const std::vector<Job>&) { return absl::UnavailableError("lost"); };
  EXPECT_EQ(Ran(Worthwhile()), Device::kCpu);
  Work forced(1, RowsPlan(1, 8)), other(1, RowsPlan(1, 8));
  forced.errand.device = Device::kCuda;
  const absl::Status status = Run({&other, &forced});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(status)->reason, "DEVICE_NOT_AVAILABLE");
  EXPECT_EQ(placed_->Choose(forced.plan, Device::kCuda).status(), status);
  EXPECT_EQ(other.y, std::vector<float>(other.y.size()));
}

TEST_F(Placement, APlanThatTheDeviceHasNoKernelForRunsOnTheCpuAndIsRefusedWhereItIsForced) {
  device_->supports = [](const NormPlan& plan) { return plan.pattern == Pattern::kRows; };
  const NormPlan columns = RowsPlan(400, 100, Precision::kExact, Method::kBatchNorm);
  EXPECT_TRUE(placed_->Supports(columns));
  EXPECT_EQ(Ran(columns), Device::kCpu);
  EXPECT_EQ(placed_->Choose(columns, Device::kAuto)->device, Device::kCpu);
  const absl::Status refused = placed_->Choose(columns, Device::kCuda).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("no kernel for this plan"));
  Work forced(1, columns);
  forced.errand.device = Device::kCuda;
  EXPECT_EQ(Run({&forced}), refused);
}

TEST_F(Placement, WithoutADeviceEverythingRunsOnTheCpu) {
  PlacedBackend alone(MakeCpuBackend({}), nullptr, {});
  Work work(1, Worthwhile()), forced(2, Worthwhile());
  EXPECT_TRUE(RunOn(alone, {&work}).ok());
  EXPECT_EQ(work.executed.device, Device::kCpu);
  EXPECT_FALSE(work.executed.fell_back);
  forced.errand.device = Device::kCuda;
  EXPECT_EQ(RunOn(alone, {&forced}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(alone.Calibration(), "AUTO runs on the CPU");
}

TEST_F(Placement, InputsInPiecesArePutTogetherForADeviceThatNeedsThemSo) {
  Work work(1, RowsPlan(2, 300));
  work.errand.device = Device::kCuda;
  EXPECT_TRUE(placed_->TakesSegments(work.plan));
  EXPECT_FALSE(placed_->TakesSegments(Worthwhile()));  // whoever makes such jobs brings the room
  const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(work.x.data()), work.x.size() * 4);
  const Segment pieces[] = {bytes.subspan(0, 7), bytes.subspan(7)};
  Job job = work.MakeJob();
  job.x = nullptr;
  job.x_segments = pieces;
  placed_->Submit({job}, [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  EXPECT_TRUE(HasBytesOfASingleCall(work));
}

TEST_F(Placement, SaysHowItPlacesWork) {
  EXPECT_EQ(
      placed_->Calibration(),
      "cpu 0.0 us + 1.0 GB/s; cuda:0 100.0 us + 2.0 GB/s both ways over PCIe; FAST: cuda:0 from 65536 bytes of x");
}

// The whole of it, as a server has it: callers on several threads, and a device that is lost under way.
TEST(PlacementStress, EveryCallIsAnsweredWithItsBytesWhenTheDeviceIsLostUnderWay) {
  constexpr int kThreads = 4, kRounds = 60;
  SystemClock clock;
  auto device = std::make_unique<FakeDevice>();
  std::atomic<int> launches = 0;
  device->holds = false;
  device->judge = [&launches](const std::vector<Job>&) {
    return ++launches > kRounds ? absl::UnavailableError("lost") : absl::OkStatus();
  };
  auto batching = std::make_unique<BatchingBackend>(std::move(device), BatchingOptions{}, &clock);
  std::atomic<int> fallbacks = 0;
  PlacementObserver observer;
  observer.on_fallback = [&fallbacks](FallbackReason) { ++fallbacks; };
  PlacedBackend placed(MakeCpuBackend({.threads = 2, .inline_elements = kInlineElements}), std::move(batching),
                       {.cpu = kCpuCost, .device = {.fixed_us = 0, .bytes_per_us = 1500}}, std::move(observer));
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&placed, t] {
      for (int round = 0; round < kRounds; ++round) {
        Work work(static_cast<uint64_t>(t), 4 + round % 7, 512);
        std::atomic<bool> done = false;
        work.on_done = [&done] { done = true; };
        work.SubmitTo(placed);
        while (!done) std::this_thread::sleep_for(std::chrono::microseconds(50));
        EXPECT_TRUE(work.status.ok()) << work.status;
        EXPECT_TRUE(HasBytesOfASingleCall(work));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(placed.lost());
  EXPECT_GE(fallbacks, 1);
}

}  // namespace
}  // namespace normd
