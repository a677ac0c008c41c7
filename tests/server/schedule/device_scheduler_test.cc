#include "server/schedule/device_scheduler.h"

#include <gmock/gmock.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/errors.h"
#include "kernels/cpu/backend.h"
#include "server/base/clock.h"
#include "tests/server/schedule/fixtures.h"
#include "tests/server/session/fixtures.h"
#include "tests/support/fake_device.h"

namespace normd {
namespace {

using schedule_test::HasBytesOfASingleCall;
using schedule_test::Rows;
using schedule_test::RowsPlan;
using session_test::ManualClock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int64_t kInlineElements = 1024;

// Costs by which the device is worth it from 200'000 bytes on.
constexpr DeviceCost kCpuCost = {.fixed_us = 0, .bytes_per_us = 1000};
constexpr DeviceCost kDeviceCost = {.fixed_us = 100, .bytes_per_us = 2000};

// 8 bytes an element are moved.
NormPlan Cheap() { return RowsPlan(20, 1000); }
NormPlan Worthwhile() { return RowsPlan(40, 1000); }

// A device that takes no parameters but those that it prepared itself.
class ParticularDevice : public FakeDevice {
 public:
  using FakeDevice::FakeDevice;

  std::shared_ptr<const PreparedParameters> Prepare(std::shared_ptr<const HostParameters> parameters) const override {
    return std::make_shared<Own>(this, std::move(parameters));
  }
  void Submit(std::vector<Job> jobs, Done done) override {
    for (const Job& job : jobs) {
      const auto* const parameters = dynamic_cast<const Own*>(job.parameters);
      EXPECT_TRUE(parameters != nullptr && parameters->device == this);
    }
    FakeDevice::Submit(std::move(jobs), std::move(done));
  }

 private:
  struct Own : PreparedParameters {
    Own(const ParticularDevice* the_device, std::shared_ptr<const HostParameters> host)
        : PreparedParameters(std::move(host)), device(the_device) {}

    const ParticularDevice* const device;
  };
};

class Scheduling : public ::testing::Test {
 protected:
  Scheduling() { Start({kDeviceCost}); }

  // A scheduler over one device for each cost. They answer at once; what they hold is not merged.
  template <typename Fake = FakeDevice>
  void Start(const std::vector<DeviceCost>& costs) {
    scheduler_.reset();
    devices_.clear();
    std::vector<ScheduledDevice> scheduled;
    for (const DeviceCost& cost : costs) {
      const int number = static_cast<int>(devices_.size());
      devices_.push_back(std::make_unique<Fake>(number));
      devices_.back()->holds = false;
      scheduled.push_back({.name = "cuda:" + std::to_string(number),
                           .backend = devices_.back().get(),
                           .cost = cost,
                           .queue = {.max_in_flight = 32}});
    }
    device_ = devices_.front().get();
    scheduler_ = std::make_unique<DeviceScheduler>(cpu_.get(), kCpuCost, std::move(scheduled), &clock_, Observer());
  }

  // Submits all as one Work and waits.
  absl::Status Run(const std::vector<Rows*>& all) { return RunOn(*scheduler_, all); }
  static absl::Status RunOn(DeviceScheduler& scheduler, const std::vector<Rows*>& all) {
    Work work;
    std::vector<Executed> executed;
    for (Rows* rows : all) {
      work.jobs.push_back(rows->MakeJob());
      work.devices.push_back(rows->device);
    }
    work.executed = &executed;
    absl::Status status = SubmitAndWait(scheduler, std::move(work));
    EXPECT_TRUE(executed.empty() || executed.size() == all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      all[i]->executed.clear();
      if (i < executed.size()) all[i]->executed.push_back(executed[i]);
    }
    return status;
  }
  // The same for a job that was made by hand.
  absl::Status RunJob(const Job& job, Device asked = Device::kAuto, std::vector<Executed>* executed = nullptr) {
    Work work;
    work.jobs = {job};
    if (asked != Device::kAuto) work.devices = {asked};
    work.executed = executed;
    return SubmitAndWait(*scheduler_, std::move(work));
  }
  static absl::Status SubmitAndWait(DeviceScheduler& scheduler, Work work) {
    std::promise<absl::Status> result;
    scheduler.Submit(std::move(work), [&result](absl::Status status) { result.set_value(std::move(status)); });
    return result.get_future().get();
  }

  Device Ran(Rows& rows) {
    rows.status = Run({&rows});
    EXPECT_TRUE(rows.status.ok()) << rows.status;
    EXPECT_TRUE(HasBytesOfASingleCall(rows));
    if (!rows.executed.empty()) {
      const std::string& kernel = rows.executed.front().kernel;
      EXPECT_EQ(kernel.substr(0, 4), rows.ran() == Device::kCuda ? "cuda" : "cpu/");
    }
    return rows.ran();
  }
  Device Ran(NormPlan plan, Device asked = Device::kAuto) {
    Rows rows(1, std::move(plan));
    rows.device = asked;
    return Ran(rows);
  }

  // The callers of all that went to device `number`, job by job.
  std::vector<uint64_t> Callers(size_t number) const {
    std::vector<uint64_t> callers;
    for (const auto& launch : devices_[number]->launches()) {
      for (const FakeDevice::Seen& seen : launch) callers.push_back(static_cast<uint64_t>(seen.first));
    }
    return callers;
  }
  void HoldAll(bool holds) {
    for (const auto& device : devices_) device->holds = holds;
  }
  void ReleaseAll() {
    for (const auto& device : devices_) {
      while (device->held() > 0) device->Release();
    }
  }

  ManualClock clock_;
  std::atomic<int64_t> jobs_[2] = {0, 0};
  std::vector<FallbackReason> fallbacks_;
  std::vector<std::string> lost_;
  std::vector<int64_t> launches_;
  std::vector<absl::StatusCode> drops_;
  const std::unique_ptr<Backend> cpu_ = MakeCpuBackend({.threads = 2, .inline_elements = kInlineElements});
  std::vector<std::unique_ptr<FakeDevice>> devices_;
  FakeDevice* device_ = nullptr;  // the first of them
  std::unique_ptr<DeviceScheduler> scheduler_;

 private:
  SchedulerObserver Observer() {
    SchedulerObserver observer;
    observer.on_jobs = [this](Device where, int64_t jobs) { jobs_[where == Device::kCuda ? 1 : 0] += jobs; };
    observer.on_fallback = [this](FallbackReason reason) { fallbacks_.push_back(reason); };
    observer.on_lost = [this](const std::string& device, const absl::Status&) { lost_.push_back(device); };
    observer.queues.on_launch = [this](int64_t submissions) { launches_.push_back(submissions); };
    observer.queues.on_dropped = [this](absl::StatusCode why) { drops_.push_back(why); };
    return observer;
  }
};

// ---- where work goes

TEST_F(Scheduling, WhatTheCpuAloneDoesStaysThere) {
  NormPlan plan = Worthwhile();
  EXPECT_EQ(Ran(plan), Device::kCuda);
  plan.clip = 3;
  EXPECT_EQ(Ran(plan), Device::kCpu);
  plan.clip.reset();
  plan.counts_samples = true;
  EXPECT_EQ(Ran(plan), Device::kCpu);
  EXPECT_THAT(scheduler_->Choose(plan, Device::kCuda, {}).status().message(),
              HasSubstr("the device has no kernel for this plan"));
}

TEST_F(Scheduling, ExactWorkGoesWhereItCostsLeast) {
  EXPECT_EQ(Ran(Cheap()), Device::kCpu);
  EXPECT_EQ(Ran(Worthwhile()), Device::kCuda);
  EXPECT_EQ(jobs_[0], 1);
  EXPECT_EQ(jobs_[1], 1);
}

TEST_F(Scheduling, ExactWorkGoesToTheOtherSideOfAQueue) {
  device_->holds = true;
  Rows first(1, Worthwhile()), second(2, Worthwhile());
  first.SubmitTo(*scheduler_);
  EXPECT_EQ(device_->held(), 1u);
  EXPECT_EQ(Ran(second), Device::kCpu);  // 160 us of queue are more than what the device would save
  device_->Release();
  EXPECT_EQ(first.ran(), Device::kCuda);
  device_->holds = false;
  EXPECT_EQ(Ran(second), Device::kCuda);
}

TEST_F(Scheduling, SmallListsRunInlineOnTheCpu) {
  const NormPlan plan = RowsPlan(1, kInlineElements - 64);  // a group costs as much as 64 elements
  EXPECT_EQ(plan.Work(), kInlineElements);
  Rows rows(1, plan);
  rows.SubmitTo(*scheduler_);
  ASSERT_EQ(rows.dones, 1);
  EXPECT_EQ(rows.ran(), Device::kCpu);
  EXPECT_EQ(jobs_[0], 1);
  EXPECT_EQ(scheduler_->inline_elements(), kInlineElements);
}

TEST_F(Scheduling, ARequestMayForceADevice) {
  EXPECT_EQ(Ran(RowsPlan(1, 8), Device::kCuda), Device::kCuda);
  EXPECT_EQ(Ran(Worthwhile(), Device::kCpu), Device::kCpu);
  EXPECT_EQ(jobs_[0], 1);
  EXPECT_EQ(jobs_[1], 1);
}

TEST_F(Scheduling, AnyTensorInItsMemoryForcesTheDevice) {
  for (size_t which = 0; which < 4; ++which) {
    SCOPED_TRACE(which);
    Rows rows(1, RowsPlan(1, 8));
    Job job = rows.MakeJob();
    MemorySpace* const spaces[] = {&job.x_space, &job.residual.space, &job.y_space, &job.h_space};
    *spaces[which] = CudaSpace(0);
    EXPECT_TRUE(RunJob(job, Device::kAuto, &rows.executed).ok());
    EXPECT_EQ(rows.ran(), Device::kCuda);
    EXPECT_TRUE(HasBytesOfASingleCall(rows));
  }
  EXPECT_EQ(device_->launches().size(), 4u);
}

TEST_F(Scheduling, RecordsDeviceAndKernelOfEveryJobAlsoOnTheCpuAlone) {
  Rows on_cpu(1, Worthwhile()), cheap(2, RowsPlan(2, 1000)), small(3, RowsPlan(1, 8)), forced(3, RowsPlan(1, 8));
  on_cpu.device = Device::kCpu;
  ASSERT_TRUE(Run({&on_cpu, &cheap}).ok());
  ASSERT_TRUE(Run({&small}).ok());
  for (const Rows* rows : {&on_cpu, &cheap, &small}) {
    ASSERT_THAT(rows->executed, SizeIs(1));
    EXPECT_EQ(rows->ran(), Device::kCpu);
  }
  forced.device = Device::kCuda;
  ASSERT_TRUE(Run({&on_cpu, &forced}).ok());
  EXPECT_THAT(on_cpu.executed, SizeIs(1));  // of the list, which says what ran each of it
  EXPECT_EQ(on_cpu.ran(), Device::kCpu);
  EXPECT_EQ(forced.ran(), Device::kCuda);
}

TEST_F(Scheduling, FastOnTheHostStaysOnTheCpuWhateverItsShapeAndTheLoad) {
  const NormPlan small = RowsPlan(1, 2000, Precision::kFast), large = RowsPlan(256, 1024, Precision::kFast);
  ASSERT_EQ(large.precision, Precision::kFast);
  EXPECT_EQ(Ran(RowsPlan(256, 1024)), Device::kCuda);  // what EXACT of that shape does
  EXPECT_EQ(scheduler_->Choose(small, Device::kAuto)->device, Device::kCpu);
  EXPECT_EQ(scheduler_->Choose(large, Device::kAuto)->device, Device::kCpu);
  EXPECT_EQ(Ran(small), Device::kCpu);
  EXPECT_EQ(Ran(large), Device::kCpu);
  // All at once, so that most of them find a queue at the CPU and none at the device.
  std::vector<std::unique_ptr<Rows>> queue;
  queue.reserve(20);
  for (int i = 0; i < 20; ++i) queue.push_back(std::make_unique<Rows>(1, large));
  std::atomic<int> left = 20;
  std::promise<void> done;
  for (auto& rows : queue) {
    rows->on_done = [&left, &done] {
      if (--left == 0) done.set_value();
    };
  }
  for (auto& rows : queue) rows->SubmitTo(*scheduler_);
  done.get_future().wait();
  for (auto& rows : queue) EXPECT_EQ(rows->ran(), Device::kCpu);
  EXPECT_EQ(jobs_[0], 22);
  EXPECT_EQ(device_->launches().size(), 1u);
}

TEST_F(Scheduling, FastGoesToADeviceThatItNamesOrLiesOnWhateverTheLoad) {
  const NormPlan plan = RowsPlan(16, 1024, Precision::kFast);
  EXPECT_EQ(scheduler_->Choose(plan, Device::kCuda)->device, Device::kCuda);
  EXPECT_EQ(scheduler_->Choose(plan, Device::kAuto, CudaSpace(0))->kernel, "cuda/fake");
  device_->holds = true;
  std::vector<std::unique_ptr<Rows>> queue;
  queue.reserve(20);
  for (int i = 0; i < 20; ++i) {
    queue.push_back(std::make_unique<Rows>(1, plan));
    queue.back()->device = Device::kCuda;
  }
  for (auto& rows : queue) rows->SubmitTo(*scheduler_);
  EXPECT_EQ(device_->held(), 20u);
  EXPECT_EQ(Ran(plan), Device::kCpu);
  ReleaseAll();
  for (auto& rows : queue) EXPECT_EQ(rows->ran(), Device::kCuda);
  device_->holds = false;
  Rows in_memory(2, plan);
  Job job = in_memory.MakeJob();
  job.x_space = CudaSpace(0);
  EXPECT_TRUE(RunJob(job, Device::kAuto, &in_memory.executed).ok());
  EXPECT_EQ(in_memory.ran(), Device::kCuda);
  EXPECT_TRUE(HasBytesOfASingleCall(in_memory));
}

TEST_F(Scheduling, EachJobOfAListGoesWhereItWouldGoAlone) {
  Rows small(1, RowsPlan(1, 64, Precision::kFast)), large(2, RowsPlan(256, 1024, Precision::kFast));
  Rows named(3, RowsPlan(16, 1024, Precision::kFast)), exact(4, Worthwhile()), forced(5, RowsPlan(1, 8));
  Rows on_cpu(6, Worthwhile());
  named.device = forced.device = Device::kCuda;
  on_cpu.device = Device::kCpu;
  const std::vector<Rows*> all = {&small, &large, &named, &exact, &forced, &on_cpu};
  ASSERT_TRUE(Run(all).ok());
  EXPECT_EQ(small.ran(), Device::kCpu);
  EXPECT_EQ(large.ran(), Device::kCpu);
  EXPECT_EQ(named.ran(), Device::kCuda);
  EXPECT_EQ(exact.ran(), Device::kCuda);
  EXPECT_EQ(forced.ran(), Device::kCuda);
  EXPECT_EQ(on_cpu.ran(), Device::kCpu);
  for (const Rows* rows : all) EXPECT_TRUE(HasBytesOfASingleCall(*rows));
}

TEST_F(Scheduling, ExactWorkThatReplacesItsInputStaysOnTheCpuUnlessItIsForced) {
  Rows rows(1, Worthwhile());
  Job job = rows.MakeJob();
  job.y = rows.x.data();
  EXPECT_TRUE(RunJob(job, Device::kAuto, &rows.executed).ok());
  EXPECT_EQ(rows.ran(), Device::kCpu);
  EXPECT_EQ(jobs_[1], 0);
  EXPECT_TRUE(RunJob(job, Device::kCuda, &rows.executed).ok());
  EXPECT_EQ(rows.ran(), Device::kCuda);
}

TEST_F(Scheduling, APlanThatTheDeviceHasNoKernelForRunsOnTheCpuAndIsRefusedWhereItIsForced) {
  device_->supports = [](const NormPlan& plan) { return plan.pattern == Pattern::kRows; };
  const NormPlan columns = RowsPlan(400, 100, Precision::kExact, Method::kBatchNorm);
  EXPECT_TRUE(scheduler_->Supports(columns));
  EXPECT_EQ(Ran(columns), Device::kCpu);
  EXPECT_EQ(scheduler_->Choose(columns, Device::kAuto)->device, Device::kCpu);
  const absl::Status refused = scheduler_->Choose(columns, Device::kCuda).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("no kernel for this plan"));
  Rows forced(1, columns);
  forced.device = Device::kCuda;
  EXPECT_EQ(Run({&forced}), refused);
}

TEST_F(Scheduling, WithoutADeviceEverythingRunsOnTheCpu) {
  DeviceScheduler alone(cpu_.get());
  Rows rows(1, Worthwhile()), forced(2, Worthwhile());
  EXPECT_TRUE(RunOn(alone, {&rows}).ok());
  EXPECT_TRUE(HasBytesOfASingleCall(rows));
  EXPECT_EQ(rows.ran(), Device::kCpu);
  EXPECT_FALSE(rows.fell_back());
  forced.device = Device::kCuda;
  EXPECT_EQ(RunOn(alone, {&forced}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(alone.Calibration(), "AUTO runs on the CPU");
}

TEST_F(Scheduling, ScatteredInputsAreGatheredForADeviceThatNeedsThemContiguous) {
  Rows rows(1, RowsPlan(2, 300));
  EXPECT_TRUE(scheduler_->AcceptsScattered(rows.plan));
  EXPECT_FALSE(scheduler_->AcceptsScattered(Worthwhile()));  // whoever makes such jobs brings the room
  const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(rows.x.data()), rows.x.size() * 4);
  const Segment pieces[] = {bytes.subspan(0, 7), bytes.subspan(7)};
  Job job = rows.MakeJob();
  job.x = nullptr;
  job.x_segments = pieces;
  EXPECT_TRUE(RunJob(job, Device::kCuda).ok());
  EXPECT_THAT(Callers(0), ElementsAre(1));
  EXPECT_TRUE(HasBytesOfASingleCall(rows));
}

TEST_F(Scheduling, WorkThatNobodyWaitsForIsNotLaunched) {
  const std::function<bool()> yes = [] { return true; };
  Rows cancelled(1, RowsPlan(1, 8)), expired(2, RowsPlan(1, 8)), wanted(3, RowsPlan(1, 8));
  cancelled.context.cancelled = &yes;
  expired.context.deadline = clock_.Now();
  wanted.context.deadline = clock_.Now() + absl::Seconds(1);
  for (Rows* rows : {&cancelled, &expired, &wanted}) {
    rows->device = Device::kCuda;
    rows->SubmitTo(*scheduler_);
  }
  EXPECT_EQ(cancelled.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(expired.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(wanted.status.ok()) << wanted.status;
  EXPECT_THAT(Callers(0), ElementsAre(3));
  EXPECT_THAT(launches_, ElementsAre(1));
  EXPECT_THAT(drops_, ElementsAre(absl::StatusCode::kCancelled, absl::StatusCode::kDeadlineExceeded));
}

TEST_F(Scheduling, SaysHowItPlacesWork) {
  EXPECT_EQ(scheduler_->Calibration(), "cpu 0.0 us + 1.0 GB/s; cuda:0 100.0 us + 2.0 GB/s both ways over PCIe");
}

// ---- devices that are lost, or full

TEST_F(Scheduling, ALostDeviceInTheMiddleOfALaunchLeavesItsWorkToTheCpu) {
  device_->holds = true;
  Rows in_flight(1, Worthwhile()), later(2, Worthwhile());
  std::promise<void> done;
  in_flight.on_done = [&done] { done.set_value(); };
  in_flight.SubmitTo(*scheduler_);
  device_->Release(absl::UnavailableError("lost"));
  done.get_future().wait();
  EXPECT_TRUE(in_flight.status.ok()) << in_flight.status;
  ASSERT_THAT(in_flight.executed, SizeIs(1));
  EXPECT_TRUE(in_flight.fell_back());
  EXPECT_EQ(in_flight.ran(), Device::kCpu);
  EXPECT_EQ(in_flight.executed.front().kernel.substr(0, 4), "cpu/");
  EXPECT_TRUE(HasBytesOfASingleCall(in_flight));
  EXPECT_EQ(Ran(later), Device::kCpu);
  EXPECT_FALSE(later.fell_back());
  EXPECT_THAT(fallbacks_, ElementsAre(FallbackReason::kLost));
  EXPECT_THAT(lost_, ElementsAre("cuda:0"));
  EXPECT_EQ(device_->launches().size(), 1u);
  EXPECT_EQ(scheduler_->Calibration(), "cpu 0.0 us + 1.0 GB/s; cuda:0 was lost");
}

TEST_F(Scheduling, EveryLaunchThatALostDeviceHadIsShownAndCounted) {
  device_->holds = true;
  Rows first(1, Worthwhile()), second(2, RowsPlan(80, 1000));  // worth the queue behind the first
  std::promise<void> first_done, second_done;
  first.on_done = [&first_done] { first_done.set_value(); };
  second.on_done = [&second_done] { second_done.set_value(); };
  first.SubmitTo(*scheduler_);
  second.SubmitTo(*scheduler_);
  EXPECT_EQ(device_->held(), 2u);
  while (device_->held() > 0) device_->Release(absl::UnavailableError("lost"));
  first_done.get_future().wait();
  second_done.get_future().wait();
  for (const Rows* rows : {&first, &second}) {
    EXPECT_TRUE(rows->status.ok()) << rows->status;
    EXPECT_TRUE(rows->fell_back());
    EXPECT_TRUE(HasBytesOfASingleCall(*rows));
  }
  EXPECT_THAT(fallbacks_, ElementsAre(FallbackReason::kLost, FallbackReason::kLost));
  EXPECT_THAT(lost_, ElementsAre("cuda:0"));  // told once
}

TEST_F(Scheduling, WorkThatDoesNotFitTheDeviceRunsOnTheCpuAndTheDeviceGoesOn) {
  device_->judge = [](const std::vector<Job>&) { return absl::ResourceExhaustedError("full"); };
  Rows large(1, Worthwhile());
  EXPECT_EQ(Ran(large), Device::kCpu);
  EXPECT_TRUE(large.fell_back());
  EXPECT_THAT(fallbacks_, ElementsAre(FallbackReason::kFull));
  EXPECT_THAT(lost_, IsEmpty());
  device_->judge = nullptr;
  EXPECT_EQ(Ran(Worthwhile()), Device::kCuda);
}

TEST_F(Scheduling, OtherErrorsOfTheDeviceAreTheCallers) {
  device_->judge = [](const std::vector<Job>&) { return absl::CancelledError("gone"); };
  Rows rows(1, Worthwhile());
  EXPECT_TRUE(absl::IsCancelled(Run({&rows})));
  EXPECT_THAT(fallbacks_, IsEmpty());
}

TEST_F(Scheduling, AnErrorOfOneJobIsTheListsAndTheRestRunsAllTheSame) {
  device_->judge = [](const std::vector<Job>&) { return absl::ResourceExhaustedError("full"); };
  Rows forced(1, RowsPlan(1, 8)), on_cpu(2, Worthwhile());
  forced.device = Device::kCuda;
  on_cpu.device = Device::kCpu;
  EXPECT_TRUE(absl::IsResourceExhausted(Run({&forced, &on_cpu})));
  EXPECT_TRUE(HasBytesOfASingleCall(on_cpu));
}

TEST_F(Scheduling, WorkThatTheCpuCannotTakeOverHasTheErrorOfTheDevice) {
  device_->judge = [](const std::vector<Job>&) { return absl::ResourceExhaustedError("full"); };
  Rows in_memory(1, Worthwhile()), in_place(2, RowsPlan(16, 1024, Precision::kFast)), forced(3, Worthwhile());
  Job jobs[] = {in_memory.MakeJob(), in_place.MakeJob(), forced.MakeJob()};
  jobs[0].y_space = CudaSpace(0);
  jobs[1].y = in_place.x.data();
  EXPECT_TRUE(absl::IsResourceExhausted(RunJob(jobs[0])));
  EXPECT_TRUE(absl::IsResourceExhausted(RunJob(jobs[1], Device::kCuda)));
  EXPECT_TRUE(absl::IsResourceExhausted(RunJob(jobs[2], Device::kCuda)));
  EXPECT_THAT(fallbacks_, IsEmpty());
  EXPECT_EQ(jobs_[1], 3);
  EXPECT_EQ(jobs_[0], 0);
}

TEST_F(Scheduling, ALostDeviceThatIsAskedForIsRefusedBeforeAnythingRuns) {
  device_->judge = [](const std::vector<Job>&) { return absl::UnavailableError("lost"); };
  EXPECT_EQ(Ran(Worthwhile()), Device::kCpu);
  Rows forced(1, RowsPlan(1, 8)), other(1, RowsPlan(1, 8));
  forced.device = Device::kCuda;
  const absl::Status status = Run({&other, &forced});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetErrorDetail(status)->reason, "DEVICE_NOT_AVAILABLE");
  EXPECT_EQ(scheduler_->Choose(forced.plan, Device::kCuda).status(), status);
  EXPECT_EQ(other.y, std::vector<float>(other.y.size()));
  Job in_memory = other.MakeJob();
  in_memory.x_space = CudaSpace(0);
  EXPECT_EQ(RunJob(in_memory), status);
  EXPECT_EQ(device_->launches().size(), 1u);
}

// ---- several devices

TEST_F(Scheduling, TensorsGoToTheDeviceThatTheyLieOnWhateverTheLoad) {
  Start({kDeviceCost, kDeviceCost});
  HoldAll(true);
  Rows queued(1, Worthwhile()), second(2, RowsPlan(1, 8)), both_first(3, RowsPlan(1, 8)),
      both_second(4, RowsPlan(1, 8));
  Job job = queued.MakeJob();
  job.x_space = job.y_space = CudaSpace(1);
  Work work;
  work.jobs = {job};
  absl::Status status = absl::UnknownError("not done");
  scheduler_->Submit(std::move(work), [&status](absl::Status s) { status = std::move(s); });
  EXPECT_EQ(devices_[1]->held(), 1u);
  HoldAll(false);
  job = second.MakeJob();
  job.y_space = CudaSpace(1);
  EXPECT_TRUE(RunJob(job, Device::kCuda).ok());  // also where the other one has less to do
  Work both;
  both.jobs = {both_second.MakeJob(), both_first.MakeJob()};
  both.jobs[0].x_space = CudaSpace(1);
  both.jobs[1].x_space = CudaSpace(0);
  EXPECT_TRUE(SubmitAndWait(*scheduler_, std::move(both)).ok());
  ReleaseAll();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Callers(0), ElementsAre(3));
  EXPECT_THAT(Callers(1), ElementsAre(1, 2, 4));
  for (const Rows* rows : {&queued, &second, &both_first, &both_second}) EXPECT_TRUE(HasBytesOfASingleCall(*rows));
}

TEST_F(Scheduling, TensorsOnADeviceThatIsNotOursAreRefused) {
  Start({kDeviceCost, kDeviceCost});
  Rows rows(1, RowsPlan(1, 8));
  Job job = rows.MakeJob();
  job.x_space = CudaSpace(2);
  const absl::Status refused = RunJob(job);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(scheduler_->Choose(rows.plan, Device::kAuto, CudaSpace(2)).status(), refused);
  EXPECT_TRUE(scheduler_->Choose(rows.plan, Device::kAuto, CudaSpace(1)).ok());
  EXPECT_EQ(jobs_[0], 0);
  EXPECT_EQ(jobs_[1], 0);
}

TEST_F(Scheduling, AutoTakesTheCheapestDevice) {
  Start({kDeviceCost, {.fixed_us = 10, .bytes_per_us = 2000}, kDeviceCost});
  Rows rows(7, Worthwhile());
  EXPECT_EQ(Ran(rows), Device::kCuda);
  EXPECT_THAT(Callers(1), ElementsAre(7));
}

TEST_F(Scheduling, AutoGoesToAnotherDeviceWhereTheFirstHasAQueue) {
  Start({kDeviceCost, kDeviceCost});
  HoldAll(true);
  Rows first(1, Worthwhile()), second(2, Worthwhile()), third(3, Worthwhile());
  first.SubmitTo(*scheduler_);
  second.SubmitTo(*scheduler_);
  EXPECT_EQ(Ran(third), Device::kCpu);  // now both have one
  ReleaseAll();
  EXPECT_THAT(Callers(0), ElementsAre(1));
  EXPECT_THAT(Callers(1), ElementsAre(2));
  for (const Rows* rows : {&first, &second}) EXPECT_TRUE(HasBytesOfASingleCall(*rows));
}

TEST_F(Scheduling, WorkThatNamesCudaGoesToTheDeviceWithTheLeastQueuedBytes) {
  Start({kDeviceCost, kDeviceCost});
  HoldAll(true);
  Rows a(1, RowsPlan(40, 1000)), b(2, RowsPlan(10, 1000)), c(3, RowsPlan(40, 1000)), d(4, RowsPlan(1, 1000));
  Rows e(5, RowsPlan(1, 1000));
  for (Rows* rows : {&a, &b, &c, &d, &e}) rows->device = Device::kCuda;
  for (Rows* rows : {&a, &b, &c, &d}) rows->SubmitTo(*scheduler_);
  EXPECT_THAT(Callers(0), ElementsAre(1, 4));
  EXPECT_THAT(Callers(1), ElementsAre(2, 3));
  while (devices_[1]->held() > 0) devices_[1]->Release();
  e.SubmitTo(*scheduler_);
  EXPECT_THAT(Callers(1), ElementsAre(2, 3, 5));  // what is done is no longer queued
  ReleaseAll();
  for (const Rows* rows : {&a, &b, &c, &d, &e}) EXPECT_TRUE(HasBytesOfASingleCall(*rows));
}

TEST_F(Scheduling, APlanThatOneDeviceHasNoKernelForGoesToTheOther) {
  Start({kDeviceCost, kDeviceCost});
  devices_[0]->supports = [](const NormPlan&) { return false; };
  EXPECT_EQ(Ran(Worthwhile()), Device::kCuda);
  EXPECT_EQ(Ran(RowsPlan(1, 8), Device::kCuda), Device::kCuda);
  EXPECT_EQ(devices_[1]->launches().size(), 2u);
}

TEST_F(Scheduling, ALostDeviceLeavesTheOthersInUse) {
  Start({kDeviceCost, kDeviceCost});
  devices_[0]->judge = [](const std::vector<Job>&) { return absl::UnavailableError("lost"); };
  Rows first(1, Worthwhile()), second(2, Worthwhile()), forced(3, RowsPlan(1, 8)), in_memory(4, RowsPlan(1, 8));
  EXPECT_EQ(Ran(first), Device::kCpu);
  EXPECT_TRUE(first.fell_back());
  EXPECT_EQ(Ran(second), Device::kCuda);
  forced.device = Device::kCuda;
  EXPECT_EQ(Ran(forced), Device::kCuda);
  Job job = in_memory.MakeJob();
  job.x_space = CudaSpace(0);
  EXPECT_EQ(RunJob(job).code(), absl::StatusCode::kFailedPrecondition);
  job.x_space = CudaSpace(1);
  EXPECT_TRUE(RunJob(job).ok());
  EXPECT_THAT(Callers(0), ElementsAre(1));
  EXPECT_THAT(Callers(1), ElementsAre(2, 3, 4));
  EXPECT_THAT(lost_, ElementsAre("cuda:0"));
  EXPECT_EQ(scheduler_->Calibration(),
            "cpu 0.0 us + 1.0 GB/s; cuda:0 was lost; cuda:1 100.0 us + 2.0 GB/s both ways over PCIe");
}

// ---- parameters

// One weight for each element of a row, none of them 1.
std::shared_ptr<const HostParameters> Weights(int64_t length) {
  std::vector<float> weight(static_cast<size_t>(length));
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = 2 + static_cast<float>(i);
  ParameterViews views;
  views.weight.shape = {length};
  views.weight.data = weight.data();
  views.weight.size_bytes = length * SizeOf(DType::kF32);
  return std::make_shared<const HostParameters>(ConvertParameters(views, /*weight_offset=*/0));
}

// Whether the rows have other bytes than they would have without parameters.
bool AreWeighted(Rows& rows) {
  const PreparedParameters* const parameters = std::exchange(rows.parameters, nullptr);
  const bool weighted = !HasBytesOfASingleCall(rows);
  rows.parameters = parameters;
  return weighted;
}

TEST_F(Scheduling, EachDeviceAndTheCpuGetTheirOwnFormOfTheParameters) {
  Start<ParticularDevice>({kDeviceCost, kDeviceCost});
  const std::shared_ptr<const HostParameters> host = Weights(1000);
  const std::shared_ptr<const PreparedParameters> parameters = scheduler_->Prepare(host);
  EXPECT_EQ(&parameters->host(), host.get());
  Rows on_first(1, RowsPlan(2, 1000)), on_second(2, RowsPlan(2, 1000)), cheapest(3, Worthwhile());
  Rows inlined(4, RowsPlan(1, 1000)), on_cpu(5, Worthwhile());
  on_cpu.device = Device::kCpu;
  const std::vector<Rows*> all = {&on_first, &on_second, &cheapest, &inlined, &on_cpu};
  for (Rows* rows : all) rows->parameters = parameters.get();
  Work in_memory;
  in_memory.jobs = {on_second.MakeJob(), on_first.MakeJob()};
  in_memory.jobs[0].x_space = CudaSpace(1);
  in_memory.jobs[1].x_space = CudaSpace(0);
  EXPECT_TRUE(SubmitAndWait(*scheduler_, std::move(in_memory)).ok());
  EXPECT_EQ(Ran(cheapest), Device::kCuda);
  EXPECT_EQ(Ran(inlined), Device::kCpu);
  EXPECT_EQ(Ran(on_cpu), Device::kCpu);
  EXPECT_THAT(Callers(0), ElementsAre(1, 3));
  EXPECT_THAT(Callers(1), ElementsAre(2));
  for (Rows* rows : all) EXPECT_TRUE(HasBytesOfASingleCall(*rows) && AreWeighted(*rows));
}

TEST_F(Scheduling, TheCpuThatTakesWorkOverHasItsParameters) {
  Start<ParticularDevice>({kDeviceCost, kDeviceCost});
  devices_[0]->judge = [](const std::vector<Job>&) { return absl::ResourceExhaustedError("full"); };
  devices_[1]->judge = [](const std::vector<Job>&) { return absl::UnavailableError("lost"); };
  const std::shared_ptr<const PreparedParameters> parameters = scheduler_->Prepare(Weights(1000));
  Rows from_full(1, Worthwhile()), from_lost(2, Worthwhile());
  from_full.parameters = from_lost.parameters = parameters.get();
  EXPECT_EQ(Ran(from_full), Device::kCpu);
  EXPECT_THAT(Callers(0), ElementsAre(1));
  devices_[0]->supports = [](const NormPlan&) { return false; };
  EXPECT_EQ(Ran(from_lost), Device::kCpu);
  EXPECT_THAT(Callers(1), ElementsAre(2));
  for (Rows* rows : {&from_full, &from_lost}) {
    EXPECT_TRUE(rows->fell_back());
    EXPECT_TRUE(AreWeighted(*rows));
  }
  EXPECT_THAT(fallbacks_, ElementsAre(FallbackReason::kFull, FallbackReason::kLost));
}

TEST_F(Scheduling, WithoutADeviceTheParametersAreTheCpus) {
  DeviceScheduler alone(cpu_.get());
  const std::shared_ptr<const PreparedParameters> parameters = alone.Prepare(Weights(1000));
  Rows rows(1, Worthwhile());
  rows.parameters = parameters.get();
  EXPECT_TRUE(RunOn(alone, {&rows}).ok());
  EXPECT_TRUE(HasBytesOfASingleCall(rows) && AreWeighted(rows));
}

// ---- many threads

// The whole of it, as a server has it: callers on several threads, and one of two devices that is lost under way.
TEST(SchedulingStress, EveryCallIsAnsweredWithItsBytesWhenADeviceIsLostUnderWay) {
  constexpr int kThreads = 4, kRounds = 60, kLaunches = 16;
  SteadyClock clock;
  FakeDevice lost(0), other(1);
  std::atomic<int> launches = 0, fallbacks = 0;
  lost.holds = other.holds = false;
  lost.judge = [&launches](const std::vector<Job>&) {
    return ++launches > kLaunches ? absl::UnavailableError("lost") : absl::OkStatus();
  };
  SchedulerObserver observer;
  observer.on_fallback = [&fallbacks](FallbackReason) { ++fallbacks; };
  const std::unique_ptr<Backend> cpu = MakeCpuBackend({.threads = 2, .inline_elements = kInlineElements});
  constexpr DeviceCost kNoFixedCost = {.fixed_us = 0, .bytes_per_us = 1500};
  DeviceScheduler scheduler(cpu.get(), kCpuCost,
                            {{.name = "cuda:0", .backend = &lost, .cost = kNoFixedCost},
                             {.name = "cuda:1", .backend = &other, .cost = kNoFixedCost}},
                            &clock, std::move(observer));
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&scheduler, t] {
      for (int round = 0; round < kRounds; ++round) {
        Rows rows(static_cast<uint64_t>(t), 4 + round % 7, 512);
        std::promise<void> done;
        rows.on_done = [&done] { done.set_value(); };
        rows.SubmitTo(scheduler);
        done.get_future().wait();
        EXPECT_TRUE(rows.status.ok()) << rows.status;
        EXPECT_TRUE(HasBytesOfASingleCall(rows));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(fallbacks, 1);
  EXPECT_THAT(scheduler.Calibration(), HasSubstr("; cuda:0 was lost; cuda:1 0.0 us"));
  EXPECT_THAT(other.launches(), Not(IsEmpty()));
}

}  // namespace
}  // namespace normd
