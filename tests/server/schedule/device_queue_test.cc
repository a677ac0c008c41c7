#include "server/schedule/device_queue.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/errors.h"
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

// Counts who asks what time it is: a thread that waits for a time looks, and waits again.
class CountingClock : public ManualClock {
 public:
  absl::Time Now() override {
    ++looks_;
    return ManualClock::Now();
  }
  int looks() const { return looks_; }

 private:
  std::atomic<int> looks_{0};
};

class Queueing : public ::testing::Test {
 protected:
  // One launch in the device at a time, so that what is submitted behind it waits.
  void Start(QueueOptions options = {.max_in_flight = 1}) {
    queue_.reset();
    device_.emplace();
    QueueObserver observer;
    observer.on_launch = [this](int64_t submissions) { sizes_.push_back(submissions); };
    observer.on_dropped = [this](absl::StatusCode why) { drops_.push_back(why); };
    queue_.emplace(&*device_, options, &clock_, std::move(observer));
  }

  // The callers of launch number `launch`, job by job.
  std::vector<uint64_t> Callers(size_t launch) const {
    std::vector<uint64_t> callers;
    const auto launches = device_->launches();
    if (launch >= launches.size()) return callers;
    for (const FakeDevice::Seen& seen : launches[launch]) callers.push_back(static_cast<uint64_t>(seen.first));
    return callers;
  }
  std::vector<const void*> Inputs(size_t launch) const {
    std::vector<const void*> inputs;
    const auto launches = device_->launches();
    for (const FakeDevice::Seen& seen : launches.at(launch)) inputs.push_back(seen.x);
    return inputs;
  }
  void ReleaseAll() {
    while (device_->held() > 0) device_->Release();
  }

  CountingClock clock_;
  std::vector<int64_t> sizes_;
  std::vector<absl::StatusCode> drops_;
  std::optional<FakeDevice> device_;
  std::optional<DeviceQueue> queue_;  // goes before the device that it borrows
};

TEST_F(Queueing, AFreeDeviceGetsASubmissionAtOnce) {
  Start();
  Rows rows(1, 4, 64);
  rows.SubmitTo(*queue_);
  EXPECT_EQ(device_->held(), 1u);
  device_->Release();
  EXPECT_TRUE(rows.status.ok()) << rows.status;
}

TEST_F(Queueing, WorkThatWaitsForABusyDeviceIsOneLaunchOfAnyNumbersOfRows) {
  Start();
  Rows first(1, 4, 64), a(2, 1, 64), b(3, 300, 64), c(4, 17, 64);
  for (Rows* rows : {&first, &a, &b, &c}) rows->SubmitTo(*queue_);
  EXPECT_EQ(device_->launches().size(), 1u);
  device_->Release();
  EXPECT_THAT(Callers(1), ElementsAre(2, 3, 4));
  ReleaseAll();
  EXPECT_THAT(sizes_, ElementsAre(1, 3));
  for (const Rows* rows : {&first, &a, &b, &c}) {
    EXPECT_TRUE(rows->status.ok()) << rows->status;
    EXPECT_EQ(rows->dones, 1);
    EXPECT_TRUE(HasBytesOfASingleCall(*rows));
  }
}

TEST_F(Queueing, AsManyLaunchesAsAllowedAreInTheDeviceAtOnce) {
  Start({.max_in_flight = 2});
  Rows a(1, 1, 64), b(2, 1, 64), c(3, 1, 64);
  for (Rows* rows : {&a, &b, &c}) rows->SubmitTo(*queue_);
  EXPECT_EQ(device_->held(), 2u);
  ReleaseAll();
  EXPECT_THAT(sizes_, ElementsAre(1, 1, 1));
}

TEST_F(Queueing, RowsOfOtherKindsNeverTravelTogether) {
  Start();
  Rows first(1, 1, 8), shorter(2, 1, 64), longer(3, 1, 65);
  Rows fast(4, RowsPlan(1, 64, Precision::kFast));
  Rows layer_norm(5, RowsPlan(1, 64, Precision::kExact, Method::kLayerNorm));
  for (Rows* rows : {&first, &shorter, &longer, &fast, &layer_norm}) rows->SubmitTo(*queue_);
  ReleaseAll();
  EXPECT_THAT(sizes_, ElementsAre(1, 1, 1, 1, 1));
}

TEST_F(Queueing, JobsThatCannotShareALaunchAreLaunchedAlone) {
  Start();
  Rows first(1, 1, 8), columns1(2, RowsPlan(4, 16, Precision::kExact, Method::kBatchNorm));
  Rows columns2(3, RowsPlan(4, 16, Precision::kExact, Method::kBatchNorm)), in_place1(4, 1, 64), in_place2(5, 1, 64);
  for (Rows* rows : {&first, &columns1, &columns2}) rows->SubmitTo(*queue_);
  for (Rows* rows : {&in_place1, &in_place2}) {
    Job job = rows->MakeJob();
    job.y = rows->x.data();
    queue_->Submit({job}, rows->context, [rows](absl::Status status) { rows->status = std::move(status); });
  }
  ReleaseAll();
  EXPECT_THAT(sizes_, ElementsAre(1, 1, 1, 1, 1));
  for (const Rows* rows : {&columns1, &columns2, &in_place1, &in_place2}) EXPECT_TRUE(rows->status.ok());
}

TEST_F(Queueing, KindsOfRowsAreServedInTheOrderOfTheirOldestSubmission) {
  Start();
  Rows first(1, 1, 8), a(2, 1, 64), b(3, 1, 128), c(4, 1, 32), a2(5, 1, 64), b2(6, 1, 128);
  for (Rows* rows : {&first, &a, &b, &c, &a2, &b2}) rows->SubmitTo(*queue_);
  ReleaseAll();
  EXPECT_THAT(Callers(1), ElementsAre(2, 5));
  EXPECT_THAT(Callers(2), ElementsAre(3, 6));
  EXPECT_THAT(Callers(3), ElementsAre(4));
}

TEST_F(Queueing, CallersTakeTurnsEvenIfOneQueuesMany) {
  Start({.max_in_flight = 1, .limits = {.max_jobs = 4}});
  Rows first(9, 1, 8);
  first.SubmitTo(*queue_);
  std::vector<std::unique_ptr<Rows>> pile;
  pile.reserve(6);
  for (int i = 0; i < 6; ++i) pile.push_back(std::make_unique<Rows>(1, 1, 64));
  for (auto& rows : pile) rows->SubmitTo(*queue_);
  Rows b1(2, 1, 64), b2(2, 1, 64), c(3, 1, 64);
  for (Rows* rows : {&b1, &b2, &c}) rows->SubmitTo(*queue_);
  ReleaseAll();
  EXPECT_THAT(Callers(1), ElementsAre(1, 2, 3, 1));
  EXPECT_THAT(Callers(2), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(Callers(3), ElementsAre(1));
}

TEST_F(Queueing, ACallerWithLittleOfAnotherKindDoesNotWaitForAPileThatIsLaunchedOneByOne) {
  Start();
  Rows first(9, 1, 8);
  first.SubmitTo(*queue_);
  std::vector<std::unique_ptr<Rows>> pile;
  pile.reserve(5);
  for (int i = 0; i < 5; ++i) {
    pile.push_back(std::make_unique<Rows>(1, RowsPlan(4, 16, Precision::kExact, Method::kBatchNorm)));
  }
  for (auto& rows : pile) rows->SubmitTo(*queue_);
  Rows late(2, 1, 64);
  late.SubmitTo(*queue_);
  ReleaseAll();
  EXPECT_THAT(Callers(1), ElementsAre(1));
  EXPECT_THAT(Callers(2), ElementsAre(2));
}

TEST_F(Queueing, TheOrderOfOneCallerIsKept) {
  Start({.max_in_flight = 1, .limits = {.max_jobs = 2}});
  Rows first(1, 1, 8), a(2, 1, 64), b(2, 1, 64), c(2, 1, 64), d(2, 1, 64);
  for (Rows* rows : {&first, &a, &b, &c, &d}) rows->SubmitTo(*queue_);
  ReleaseAll();
  EXPECT_THAT(Inputs(1), ElementsAre(a.x.data(), b.x.data()));
  EXPECT_THAT(Inputs(2), ElementsAre(c.x.data(), d.x.data()));
}

TEST_F(Queueing, ALaunchHasNoMoreBytesThanAllowedUnlessItsFirstSubmissionHas) {
  constexpr int64_t kRow = 64 * 2 * sizeof(float);
  Start({.max_in_flight = 1, .limits = {.max_bytes = 10 * kRow}});
  Rows first(1, 1, 8), a(2, 6, 64), b(3, 4, 64), c(4, 1, 64), large(5, 50, 64);
  for (Rows* rows : {&first, &a, &b, &c, &large}) rows->SubmitTo(*queue_);
  ReleaseAll();
  EXPECT_THAT(Callers(1), ElementsAre(2, 3));
  EXPECT_THAT(Callers(2), ElementsAre(4));
  EXPECT_THAT(Callers(3), ElementsAre(5));
}

TEST_F(Queueing, ASubmissionOfSeveralJobsIsDoneOnce) {
  Start();
  Rows first(1, 1, 8), a(2, 3, 64), b(2, 5, 64), c(3, 1, 64);
  first.SubmitTo(*queue_);
  int dones = 0;
  queue_->Submit({a.MakeJob(), b.MakeJob()}, a.context, [&dones](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    ++dones;
  });
  c.SubmitTo(*queue_);
  ReleaseAll();
  EXPECT_EQ(dones, 1);
  EXPECT_THAT(Callers(1), ElementsAre(2, 2, 3));
  EXPECT_TRUE(HasBytesOfASingleCall(a) && HasBytesOfASingleCall(b) && HasBytesOfASingleCall(c));
}

TEST_F(Queueing, AnEmptyListIsDoneAtOnce) {
  Start();
  int dones = 0;
  queue_->Submit({}, RequestContext(), [&dones](const absl::Status& status) { dones += status.ok() ? 1 : 0; });
  EXPECT_EQ(dones, 1);
}

TEST_F(Queueing, CancelledAndExpiredWorkIsDroppedBeforeItIsLaunched) {
  Start();
  const std::function<bool()> yes = [] { return true; };
  const std::function<bool()> no = [] { return false; };
  Rows first(1, 1, 8), cancelled(2, 1, 64), expired(3, 1, 64), wanted(4, 1, 64);
  cancelled.context.cancelled = &yes;
  wanted.context.cancelled = &no;
  expired.context.deadline = clock_.Now() + absl::Seconds(1);
  wanted.context.deadline = clock_.Now() + absl::Seconds(3);
  for (Rows* rows : {&first, &cancelled, &expired, &wanted}) rows->SubmitTo(*queue_);
  clock_.Advance(absl::Seconds(1));
  ReleaseAll();
  EXPECT_THAT(Callers(1), ElementsAre(4));
  EXPECT_EQ(cancelled.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(expired.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(GetErrorDetail(expired.status)->reason, "DEADLINE_PASSED");
  EXPECT_TRUE(wanted.status.ok());
  EXPECT_THAT(drops_, ElementsAre(absl::StatusCode::kCancelled, absl::StatusCode::kDeadlineExceeded));
}

TEST_F(Queueing, WhenAllOfALaunchIsGoneTheNextOneComesAtOnce) {
  Start();
  const std::function<bool()> yes = [] { return true; };
  Rows first(1, 1, 8), gone(2, 1, 64), wanted(3, 1, 128);
  gone.context.cancelled = &yes;
  for (Rows* rows : {&first, &gone, &wanted}) rows->SubmitTo(*queue_);
  device_->Release();
  EXPECT_EQ(gone.dones, 1);
  EXPECT_THAT(Callers(1), ElementsAre(3));
  ReleaseAll();
}

TEST_F(Queueing, ADoneMaySubmitAgain) {
  Start();
  const std::function<bool()> yes = [] { return true; };
  Rows first(1, 1, 8), dropped(2, 1, 64), next(3, 1, 64);
  dropped.context.cancelled = &yes;
  dropped.on_done = [&] { next.SubmitTo(*queue_); };  // would stand still if a lock were held
  first.SubmitTo(*queue_);
  dropped.SubmitTo(*queue_);
  ReleaseAll();
  EXPECT_TRUE(next.status.ok()) << next.status;
}

TEST_F(Queueing, AMergedLaunchThatDoesNotFitIsRunAgainOneByOneAndOnlyTheGuiltyFail) {
  for (const absl::Status& error : {absl::ResourceExhaustedError("device memory"), absl::InternalError("a bug")}) {
    SCOPED_TRACE(error.ToString());
    Start();
    Rows first(1, 1, 8), small(2, 1, 64), huge(3, 100, 64), small2(4, 2, 64);
    device_->judge = [error](const std::vector<Job>& jobs) {
      const bool fits =
          std::all_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.plan->StatisticsGroups() < 100; });
      return fits ? absl::OkStatus() : error;
    };
    for (Rows* rows : {&first, &small, &huge, &small2}) rows->SubmitTo(*queue_);
    ReleaseAll();
    EXPECT_THAT(Callers(1), ElementsAre(2, 3, 4));
    EXPECT_THAT(Callers(2), ElementsAre(2));
    EXPECT_THAT(Callers(3), ElementsAre(3));
    EXPECT_THAT(Callers(4), ElementsAre(4));
    EXPECT_EQ(huge.status, error);
    EXPECT_TRUE(HasBytesOfASingleCall(small) && HasBytesOfASingleCall(small2));
    for (const Rows* rows : {&small, &small2}) EXPECT_TRUE(rows->status.ok()) << rows->status;
    for (const Rows* rows : {&first, &small, &huge, &small2}) EXPECT_EQ(rows->dones, 1);
  }
}

TEST_F(Queueing, ALostDeviceFailsAllWaitingWorkWithoutAnotherTry) {
  Start();
  Rows first(1, 1, 8), a(2, 1, 64), b(3, 1, 64);
  for (Rows* rows : {&first, &a, &b}) rows->SubmitTo(*queue_);
  device_->Release();
  device_->Release(absl::UnavailableError("lost"));
  EXPECT_EQ(device_->launches().size(), 2u);
  ReleaseAll();
  EXPECT_TRUE(absl::IsUnavailable(a.status) && absl::IsUnavailable(b.status));
}

TEST_F(Queueing, DestructionLaunchesWaitingWorkAndWaitsForAll) {
  Start();
  Rows first(1, 1, 8), waiting(2, 1, 64);
  first.SubmitTo(*queue_);
  waiting.SubmitTo(*queue_);
  std::atomic<bool> destroyed = false;
  std::thread destroyer([&] {
    queue_.reset();
    destroyed = true;
  });
  device_->Release();
  EXPECT_FALSE(destroyed);
  device_->Release();
  destroyer.join();
  EXPECT_TRUE(first.status.ok() && waiting.status.ok());
}

// ---- the delay

// Until `what` holds; a test that waits for ever is ended by its limit.
template <typename What>
void Await(const What& what) {
  while (!what()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

constexpr QueueOptions kDelayed = {.max_in_flight = 1, .limits = {.max_jobs = 3, .max_delay = absl::Milliseconds(20)}};

TEST_F(Queueing, ADelayWaitsForCompanyUntilItIsOver) {
  Start(kDelayed);
  Rows a(1, 1, 64), b(2, 1, 64);
  a.SubmitTo(*queue_);
  clock_.Advance(absl::Milliseconds(19));
  b.SubmitTo(*queue_);
  // The queue's own thread looks again after each wait, which real time ends and which does not count.
  const int looks = clock_.looks();
  Await([&] { return clock_.looks() >= looks + 3; });
  EXPECT_EQ(device_->held(), 0u);
  clock_.Advance(absl::Milliseconds(1));
  Await([&] { return device_->held() == 1; });
  EXPECT_THAT(Callers(0), ElementsAre(1, 2));
  ReleaseAll();
}

TEST_F(Queueing, AFullLaunchAndWorkThatIsLaunchedAloneDoNotWaitForTheDelay) {
  Start(kDelayed);
  Rows a(1, 1, 64), b(2, 1, 64), c(3, 1, 64), alone(4, RowsPlan(4, 16, Precision::kExact, Method::kBatchNorm));
  for (Rows* rows : {&a, &b, &c}) rows->SubmitTo(*queue_);
  EXPECT_EQ(device_->held(), 1u);
  ReleaseAll();
  alone.SubmitTo(*queue_);
  EXPECT_EQ(device_->held(), 1u);
  ReleaseAll();
}

TEST_F(Queueing, ADelayTakesNoMoreThanHalfOfTheTimeUntilADeadline) {
  Start(kDelayed);
  Rows patient(1, 1, 64), urgent(2, 1, 64);
  urgent.context.deadline = clock_.Now() + absl::Milliseconds(8);
  patient.SubmitTo(*queue_);
  urgent.SubmitTo(*queue_);
  clock_.Advance(absl::Milliseconds(4));
  Await([&] { return device_->held() == 1; });
  EXPECT_THAT(Callers(0), ElementsAre(1, 2));
  ReleaseAll();
  EXPECT_TRUE(urgent.status.ok());
}

TEST_F(Queueing, DestructionDoesNotWaitForADelay) {
  Start({.max_in_flight = 1, .limits = {.max_delay = absl::Hours(1)}});
  device_->holds = false;
  Rows rows(1, 1, 64);
  rows.SubmitTo(*queue_);
  EXPECT_EQ(rows.dones, 0);
  queue_.reset();
  EXPECT_TRUE(rows.status.ok());
}

// ---- many threads

TEST(QueueingStress, EveryThreadGetsItsOwnBytesFromSharedLaunches) {
  constexpr int kThreads = 4, kRounds = 150;
  SystemClock clock;
  FakeDevice fake;
  fake.judge = [](const std::vector<Job>& jobs) {
    return jobs.size() > 3 ? absl::ResourceExhaustedError("too many") : absl::OkStatus();
  };
  DeviceQueue queue(&fake, {.max_in_flight = 2, .limits = {.max_delay = absl::Microseconds(50)}}, &clock);
  std::atomic<bool> stop = false;
  std::thread worker([&] {
    while (!stop || fake.held() > 0) fake.held() > 0 ? fake.Release() : std::this_thread::yield();
  });
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&queue, t] {
      for (int round = 0; round < kRounds; ++round) {
        Rows a(static_cast<uint64_t>(t), 1 + round % 5, 32 + 32 * (round % 3));
        Rows b(static_cast<uint64_t>(t), 2, 64);
        std::atomic<int> left = 2;
        for (Rows* rows : {&a, &b}) rows->on_done = [&left] { --left; };
        for (Rows* rows : {&a, &b}) rows->SubmitTo(queue);
        Await([&left] { return left == 0; });
        EXPECT_TRUE(a.status.ok() && b.status.ok());
        if (round % 16 == 0) {
          EXPECT_TRUE(HasBytesOfASingleCall(a) && HasBytesOfASingleCall(b));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  worker.join();
}

TEST_F(Queueing, CountsWorkThatWaitsForItsLaunch) {
  Start();
  Rows first(1, 1, 8), a(2, 1, 64), b(3, 1, 65);
  first.SubmitTo(*queue_);
  EXPECT_EQ(queue_->wait_stats().waiting, 0) << "launched at once";
  a.SubmitTo(*queue_);
  clock_.Advance(absl::Seconds(1));
  b.SubmitTo(*queue_);
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(queue_->wait_stats().waiting, 2);
  EXPECT_EQ(queue_->wait_stats().oldest, absl::Seconds(3));
  ReleaseAll();
  EXPECT_EQ(queue_->wait_stats().waiting, 0);
  EXPECT_EQ(queue_->wait_stats().oldest, absl::ZeroDuration());
}

}  // namespace
}  // namespace normd
