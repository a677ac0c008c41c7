#include "server/batch/batching_backend.h"

#include <gmock/gmock.h>

#include <atomic>
#include <optional>
#include <thread>

#include "kernels/errors.h"
#include "tests/server/batch/fixtures.h"
#include "tests/server/session/fixtures.h"

namespace normd {
namespace {

using batch_test::FakeDevice;
using batch_test::HasBytesOfASingleCall;
using batch_test::RowsPlan;
using batch_test::Work;
using session_test::ManualClock;
using ::testing::ElementsAre;

class Batching : public ::testing::Test {
 protected:
  // One launch in the device at a time, so that what is submitted behind it waits.
  void Start(BatchingOptions options = {.max_in_flight = 1}) {
    auto device = std::make_unique<FakeDevice>();
    device_ = device.get();
    BatchObserver observer;
    observer.on_launch = [this](int64_t submissions) { sizes_.push_back(submissions); };
    observer.on_dropped = [this](absl::StatusCode why) { drops_.push_back(why); };
    batching_.emplace(std::move(device), options, &clock_, std::move(observer));
  }

  // The callers of launch number `launch`, job by job.
  std::vector<uint64_t> Callers(size_t launch) const {
    std::vector<uint64_t> callers;
    const auto launches = device_->launches();
    if (launch >= launches.size()) return callers;
    for (const FakeDevice::Seen& seen : launches[launch]) callers.push_back(seen.caller);
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

  ManualClock clock_;
  std::vector<int64_t> sizes_;
  std::vector<absl::StatusCode> drops_;
  FakeDevice* device_ = nullptr;
  std::optional<BatchingBackend> batching_;
};

TEST_F(Batching, AFreeDeviceGetsASubmissionAtOnce) {
  Start();
  Work work(1, 4, 64);
  work.SubmitTo(*batching_);
  EXPECT_EQ(device_->held(), 1u);
  device_->Release();
  EXPECT_TRUE(work.status.ok()) << work.status;
}

TEST_F(Batching, WhatWaitsForABusyDeviceIsTheNextLaunchWhateverItsNumbersOfRows) {
  Start();
  Work first(1, 4, 64), a(2, 1, 64), b(3, 300, 64), c(4, 17, 64);
  for (Work* work : {&first, &a, &b, &c}) work->SubmitTo(*batching_);
  EXPECT_EQ(device_->launches().size(), 1u);
  device_->Release();
  EXPECT_THAT(Callers(1), ElementsAre(2, 3, 4));
  ReleaseAll();
  EXPECT_THAT(sizes_, ElementsAre(1, 3));
  for (const Work* work : {&first, &a, &b, &c}) {
    EXPECT_TRUE(work->status.ok()) << work->status;
    EXPECT_EQ(work->dones, 1);
    EXPECT_TRUE(HasBytesOfASingleCall(*work));
  }
}

TEST_F(Batching, AsManyLaunchesAsAllowedAreInTheDeviceAtOnce) {
  Start({.max_in_flight = 2});
  Work a(1, 1, 64), b(2, 1, 64), c(3, 1, 64);
  for (Work* work : {&a, &b, &c}) work->SubmitTo(*batching_);
  EXPECT_EQ(device_->held(), 2u);
  ReleaseAll();
  EXPECT_THAT(sizes_, ElementsAre(1, 1, 1));
}

TEST_F(Batching, RowsOfOtherKindsNeverTravelTogether) {
  Start();
  Work first(1, 1, 8), shorter(2, 1, 64), longer(3, 1, 65);
  Work fast(4, RowsPlan(1, 64, Precision::kFast));
  Work layer_norm(5, RowsPlan(1, 64, Precision::kExact, Method::kLayerNorm));
  for (Work* work : {&first, &shorter, &longer, &fast, &layer_norm}) work->SubmitTo(*batching_);
  ReleaseAll();
  EXPECT_THAT(sizes_, ElementsAre(1, 1, 1, 1, 1));
}

TEST_F(Batching, WhatIsNotPlainRowsOrReplacesItsInputIsLaunchedAlone) {
  Start();
  Work first(1, 1, 8), columns1(2, RowsPlan(4, 16, Precision::kExact, Method::kBatchNorm));
  Work columns2(3, RowsPlan(4, 16, Precision::kExact, Method::kBatchNorm)), in_place1(4, 1, 64), in_place2(5, 1, 64);
  for (Work* work : {&first, &columns1, &columns2}) work->SubmitTo(*batching_);
  for (Work* work : {&in_place1, &in_place2}) {
    Job job = work->MakeJob();
    job.y = work->x.data();
    batching_->Submit({job}, [work](absl::Status status) { work->status = std::move(status); });
  }
  ReleaseAll();
  EXPECT_THAT(sizes_, ElementsAre(1, 1, 1, 1, 1));
  for (const Work* work : {&columns1, &columns2, &in_place1, &in_place2}) EXPECT_TRUE(work->status.ok());
}

TEST_F(Batching, KindsOfRowsAreServedInTheOrderOfTheirOldestSubmission) {
  Start();
  Work first(1, 1, 8), a(2, 1, 64), b(3, 1, 128), c(4, 1, 32), a2(5, 1, 64), b2(6, 1, 128);
  for (Work* work : {&first, &a, &b, &c, &a2, &b2}) work->SubmitTo(*batching_);
  ReleaseAll();
  EXPECT_THAT(Callers(1), ElementsAre(2, 5));
  EXPECT_THAT(Callers(2), ElementsAre(3, 6));
  EXPECT_THAT(Callers(3), ElementsAre(4));
}

TEST_F(Batching, CallersTakeTurnsHoweverMuchOneOfThemPilesUp) {
  Start({.max_in_flight = 1, .limits = {.max_jobs = 4}});
  Work first(9, 1, 8);
  first.SubmitTo(*batching_);
  std::vector<std::unique_ptr<Work>> pile;
  pile.reserve(6);
  for (int i = 0; i < 6; ++i) pile.push_back(std::make_unique<Work>(1, 1, 64));
  for (auto& work : pile) work->SubmitTo(*batching_);
  Work b1(2, 1, 64), b2(2, 1, 64), c(3, 1, 64);
  for (Work* work : {&b1, &b2, &c}) work->SubmitTo(*batching_);
  ReleaseAll();
  EXPECT_THAT(Callers(1), ElementsAre(1, 2, 3, 1));
  EXPECT_THAT(Callers(2), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(Callers(3), ElementsAre(1));
}

TEST_F(Batching, ACallerWithLittleOfAnotherKindDoesNotWaitForAPileThatIsLaunchedOneByOne) {
  Start();
  Work first(9, 1, 8);
  first.SubmitTo(*batching_);
  std::vector<std::unique_ptr<Work>> pile;
  pile.reserve(5);
  for (int i = 0; i < 5; ++i) {
    pile.push_back(std::make_unique<Work>(1, RowsPlan(4, 16, Precision::kExact, Method::kBatchNorm)));
  }
  for (auto& work : pile) work->SubmitTo(*batching_);
  Work late(2, 1, 64);
  late.SubmitTo(*batching_);
  ReleaseAll();
  EXPECT_THAT(Callers(1), ElementsAre(1));
  EXPECT_THAT(Callers(2), ElementsAre(2));
}

TEST_F(Batching, TheOrderOfOneCallerIsKept) {
  Start({.max_in_flight = 1, .limits = {.max_jobs = 2}});
  Work first(1, 1, 8), a(2, 1, 64), b(2, 1, 64), c(2, 1, 64), d(2, 1, 64);
  for (Work* work : {&first, &a, &b, &c, &d}) work->SubmitTo(*batching_);
  ReleaseAll();
  EXPECT_THAT(Inputs(1), ElementsAre(a.x.data(), b.x.data()));
  EXPECT_THAT(Inputs(2), ElementsAre(c.x.data(), d.x.data()));
}

TEST_F(Batching, ALaunchHasNoMoreBytesThanAllowedUnlessItsFirstSubmissionHas) {
  constexpr int64_t kRow = 64 * 2 * sizeof(float);
  Start({.max_in_flight = 1, .limits = {.max_bytes = 10 * kRow}});
  Work first(1, 1, 8), a(2, 6, 64), b(3, 4, 64), c(4, 1, 64), large(5, 50, 64);
  for (Work* work : {&first, &a, &b, &c, &large}) work->SubmitTo(*batching_);
  ReleaseAll();
  EXPECT_THAT(Callers(1), ElementsAre(2, 3));
  EXPECT_THAT(Callers(2), ElementsAre(4));
  EXPECT_THAT(Callers(3), ElementsAre(5));
}

TEST_F(Batching, ASubmissionOfSeveralJobsIsDoneOnce) {
  Start();
  Work first(1, 1, 8), a(2, 3, 64), b(2, 5, 64), c(3, 1, 64);
  first.SubmitTo(*batching_);
  int dones = 0;
  batching_->Submit({a.MakeJob(), b.MakeJob()}, [&dones](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    ++dones;
  });
  c.SubmitTo(*batching_);
  ReleaseAll();
  EXPECT_EQ(dones, 1);
  EXPECT_THAT(Callers(1), ElementsAre(2, 2, 3));
  EXPECT_TRUE(HasBytesOfASingleCall(a) && HasBytesOfASingleCall(b) && HasBytesOfASingleCall(c));
}

TEST_F(Batching, AnEmptyListIsDoneAtOnce) {
  Start();
  int dones = 0;
  batching_->Submit({}, [&dones](const absl::Status& status) { dones += status.ok() ? 1 : 0; });
  EXPECT_EQ(dones, 1);
}

TEST_F(Batching, CancelledAndExpiredWorkIsDroppedBeforeItIsLaunched) {
  Start();
  const std::function<bool()> yes = [] { return true; };
  const std::function<bool()> no = [] { return false; };
  Work first(1, 1, 8), cancelled(2, 1, 64), expired(3, 1, 64), wanted(4, 1, 64);
  cancelled.errand.cancelled = &yes;
  wanted.errand.cancelled = &no;
  expired.errand.deadline = clock_.Now() + absl::Seconds(1);
  wanted.errand.deadline = clock_.Now() + absl::Seconds(3);
  for (Work* work : {&first, &cancelled, &expired, &wanted}) work->SubmitTo(*batching_);
  clock_.Advance(absl::Seconds(1));
  ReleaseAll();
  EXPECT_THAT(Callers(1), ElementsAre(4));
  EXPECT_EQ(cancelled.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(expired.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(GetErrorDetail(expired.status)->reason, "DEADLINE_PASSED");
  EXPECT_TRUE(wanted.status.ok());
  EXPECT_THAT(drops_, ElementsAre(absl::StatusCode::kCancelled, absl::StatusCode::kDeadlineExceeded));
}

TEST_F(Batching, WhenAllOfALaunchIsGoneTheNextOneComesAtOnce) {
  Start();
  const std::function<bool()> yes = [] { return true; };
  Work first(1, 1, 8), gone(2, 1, 64), wanted(3, 1, 128);
  gone.errand.cancelled = &yes;
  for (Work* work : {&first, &gone, &wanted}) work->SubmitTo(*batching_);
  device_->Release();
  EXPECT_EQ(gone.dones, 1);
  EXPECT_THAT(Callers(1), ElementsAre(3));
  ReleaseAll();
}

TEST_F(Batching, ADoneMaySubmitAgain) {
  Start();
  const std::function<bool()> yes = [] { return true; };
  Work first(1, 1, 8), dropped(2, 1, 64), next(3, 1, 64);
  dropped.errand.cancelled = &yes;
  dropped.on_done = [&] { next.SubmitTo(*batching_); };  // would stand still if a lock were held
  first.SubmitTo(*batching_);
  dropped.SubmitTo(*batching_);
  ReleaseAll();
  EXPECT_TRUE(next.status.ok()) << next.status;
}

TEST_F(Batching, AMergedLaunchThatDoesNotFitIsRunAgainOneByOneAndOnlyTheGuiltyFail) {
  for (const absl::Status& error : {absl::ResourceExhaustedError("device memory"), absl::InternalError("a bug")}) {
    SCOPED_TRACE(error.ToString());
    Start();
    Work first(1, 1, 8), small(2, 1, 64), huge(3, 100, 64), small2(4, 2, 64);
    device_->judge = [error](const std::vector<Job>& jobs) {
      const bool fits = std::all_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.plan->Sets() < 100; });
      return fits ? absl::OkStatus() : error;
    };
    for (Work* work : {&first, &small, &huge, &small2}) work->SubmitTo(*batching_);
    ReleaseAll();
    EXPECT_THAT(Callers(1), ElementsAre(2, 3, 4));
    EXPECT_THAT(Callers(2), ElementsAre(2));
    EXPECT_THAT(Callers(3), ElementsAre(3));
    EXPECT_THAT(Callers(4), ElementsAre(4));
    EXPECT_EQ(huge.status, error);
    EXPECT_TRUE(HasBytesOfASingleCall(small) && HasBytesOfASingleCall(small2));
    for (const Work* work : {&small, &small2}) EXPECT_TRUE(work->status.ok()) << work->status;
    for (const Work* work : {&first, &small, &huge, &small2}) EXPECT_EQ(work->dones, 1);
  }
}

TEST_F(Batching, ALostDeviceIsToldToEverybodyWithoutAnotherTry) {
  Start();
  Work first(1, 1, 8), a(2, 1, 64), b(3, 1, 64);
  for (Work* work : {&first, &a, &b}) work->SubmitTo(*batching_);
  device_->Release();
  device_->Release(absl::UnavailableError("lost"));
  EXPECT_EQ(device_->launches().size(), 2u);
  ReleaseAll();
  EXPECT_TRUE(absl::IsUnavailable(a.status) && absl::IsUnavailable(b.status));
}

TEST_F(Batching, DestructionWaitsForWhatIsLaunchedAndLaunchesWhatWaits) {
  Start();
  Work first(1, 1, 8), waiting(2, 1, 64);
  first.SubmitTo(*batching_);
  waiting.SubmitTo(*batching_);
  std::atomic<bool> destroyed = false;
  std::thread destroyer([&] {
    batching_.reset();
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

constexpr BatchingOptions kDelayed = {.max_in_flight = 1,
                                      .limits = {.max_jobs = 3, .max_delay = absl::Milliseconds(20)}};

TEST_F(Batching, ADelayWaitsForCompanyUntilItIsOver) {
  Start(kDelayed);
  Work a(1, 1, 64), b(2, 1, 64);
  a.SubmitTo(*batching_);
  clock_.Advance(absl::Milliseconds(19));
  b.SubmitTo(*batching_);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // of real time, which does not count
  EXPECT_EQ(device_->held(), 0u);
  clock_.Advance(absl::Milliseconds(1));
  Await([&] { return device_->held() == 1; });
  EXPECT_THAT(Callers(0), ElementsAre(1, 2));
  ReleaseAll();
}

TEST_F(Batching, AFullLaunchAndWorkThatIsLaunchedAloneDoNotWaitForTheDelay) {
  Start(kDelayed);
  Work a(1, 1, 64), b(2, 1, 64), c(3, 1, 64), alone(4, RowsPlan(4, 16, Precision::kExact, Method::kBatchNorm));
  for (Work* work : {&a, &b, &c}) work->SubmitTo(*batching_);
  EXPECT_EQ(device_->held(), 1u);
  ReleaseAll();
  alone.SubmitTo(*batching_);
  EXPECT_EQ(device_->held(), 1u);
  ReleaseAll();
}

TEST_F(Batching, ADelayTakesNoMoreThanHalfOfTheTimeUntilADeadline) {
  Start(kDelayed);
  Work patient(1, 1, 64), urgent(2, 1, 64);
  urgent.errand.deadline = clock_.Now() + absl::Milliseconds(8);
  patient.SubmitTo(*batching_);
  urgent.SubmitTo(*batching_);
  clock_.Advance(absl::Milliseconds(4));
  Await([&] { return device_->held() == 1; });
  EXPECT_THAT(Callers(0), ElementsAre(1, 2));
  ReleaseAll();
  EXPECT_TRUE(urgent.status.ok());
}

TEST_F(Batching, DestructionDoesNotWaitForADelay) {
  Start({.max_in_flight = 1, .limits = {.max_delay = absl::Hours(1)}});
  device_->holds = false;
  Work work(1, 1, 64);
  work.SubmitTo(*batching_);
  EXPECT_EQ(work.dones, 0);
  batching_.reset();
  EXPECT_TRUE(work.status.ok());
}

// ---- many threads

TEST(BatchingStress, EveryThreadGetsItsOwnBytesWhateverTravelsTogether) {
  constexpr int kThreads = 4, kRounds = 150;
  SystemClock clock;
  auto device = std::make_unique<FakeDevice>();
  FakeDevice* const fake = device.get();
  fake->judge = [](const std::vector<Job>& jobs) {
    return jobs.size() > 3 ? absl::ResourceExhaustedError("too many") : absl::OkStatus();
  };
  BatchingBackend batching(std::move(device), {.max_in_flight = 2, .limits = {.max_delay = absl::Microseconds(50)}},
                           &clock);
  std::atomic<bool> stop = false;
  std::thread worker([&] {
    while (!stop || fake->held() > 0) fake->held() > 0 ? fake->Release() : std::this_thread::yield();
  });
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&batching, t] {
      for (int round = 0; round < kRounds; ++round) {
        Work a(static_cast<uint64_t>(t), 1 + round % 5, 32 + 32 * (round % 3));
        Work b(static_cast<uint64_t>(t), 2, 64);
        std::atomic<int> left = 2;
        for (Work* work : {&a, &b}) work->on_done = [&left] { --left; };
        for (Work* work : {&a, &b}) work->SubmitTo(batching);
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

}  // namespace
}  // namespace normd
