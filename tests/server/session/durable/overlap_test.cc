// Steps that are applied while the group before them commits: which ones, what others see meanwhile, and what is left
// of either group when its transaction fails.
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/errors.h"
#include "tests/server/session/fixtures.h"
#include "tests/server/session/forwarding_table.h"
#include "tests/server/session/store_fixture.h"

namespace normd {
namespace {

using namespace session_test;  // NOLINT(google-build-using-namespace): the fixtures' words are this file's
using ::testing::Each;
using ::testing::SizeIs;

constexpr int kFirstGroup = 12;  // its sessions are the first ones
constexpr int kOthers = 8;       // as many as the writer waits for
constexpr int kAllSessions = kFirstGroup + kOthers + 1;
// The session whose transaction waits, so that the first group gathers behind it.
constexpr int kGate = kAllSessions - 1;

// What a test does to the two transactions after that of the gate.
struct Commits {
  std::function<void()> at_first = [] {};  // on the thread that writes: all rows are written, nothing is committed
  absl::Status first, second;              // errors of the commits
  std::atomic<int> writes{0};
  std::atomic<bool> first_ended{false};
};

class CommitTable : public ForwardingTable {
 public:
  CommitTable(std::unique_ptr<SessionTable> table, std::shared_future<void> gathered, Commits* commits)
      : ForwardingTable(std::move(table)), gathered_(std::move(gathered)), commits_(*commits) {}

  absl::StatusOr<Versions> Write(NextPart next) override {
    const int write = ++commits_.writes - kAllSessions;
    if (write == 1) gathered_.wait();
    if (write != 2 && write != 3) return ForwardingTable::Write(next);
    const absl::Status& status = write == 2 ? commits_.first : commits_.second;
    if (!status.ok()) {
      while (!next().empty()) {
      }
      if (write == 2) commits_.at_first();
      return status;
    }
    absl::StatusOr<Versions> versions = ForwardingTable::Write([&] {
      const absl::Span<const RowChange> part = next();
      if (part.empty() && write == 2) commits_.at_first();
      return part;
    });
    commits_.first_ended = true;
    return versions;
  }

 private:
  const std::shared_future<void> gathered_;
  Commits& commits_;
};

class OverlapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fixture_ = StoreFixture::Make(StoreKind::kSqlite);
    DurableStoreOptions options;
    options.durability = Durability::kProcess;
    store_ = fixture_->Open(options, &clock_, [this](std::unique_ptr<SessionTable> table) {
      return std::make_unique<CommitTable>(std::move(table), gathered_.get_future().share(), &commits_);
    });
    used_ = store_.get();
    for (int i = 0; i < kAllSessions; ++i) ASSERT_TRUE(Create(*store_, NewSession(Id(i), BatchSpec(), 3)).ok());
  }

  static std::string Id(int i) { return "s" + std::to_string(100 + i); }

  // A step that is counted in taken_ at the last moment before it is applied.
  Answer<CommitResult> StartStep(int i, uint64_t sequence) {
    StateUpdate update = Step(Id(i), MomentsOf({static_cast<double>(i), 4}, 3), StepId{"c", sequence});
    update.cancelled = [this] { return ++taken_, false; };
    return StartCommit(*used_, std::move(update));
  }

  // Writes a group of the first sessions; while it commits, `meanwhile` runs.
  void WriteFirstGroup(std::function<void()> meanwhile) {
    commits_.at_first = std::move(meanwhile);
    gate_ = StartStep(kGate, 1);
    while (commits_.writes < kAllSessions + 1) std::this_thread::yield();
    for (int i = 0; i < kFirstGroup; ++i) first_.push_back(StartStep(i, 1));
    gathered_.set_value();
    EXPECT_TRUE(gate_.get().ok());
  }
  // Starts a step of every other session and waits until the writer has taken them.
  void OverlapOthers() {
    const int before = taken_;
    for (int i = kFirstGroup; i < kFirstGroup + kOthers; ++i) others_.push_back(StartStep(i, 1));
    const absl::Time give_up = absl::Now() + absl::Seconds(3);
    while (taken_ < before + kOthers && absl::Now() < give_up) std::this_thread::yield();
    EXPECT_EQ(taken_, before + kOthers) << "nothing is applied while a group commits";
  }

  static bool Ready(const Answer<CommitResult>& answer) {
    return answer.wait_for(std::chrono::milliseconds(5)) == std::future_status::ready;
  }
  uint64_t Seen(int i) { return (*Get(*store_, Id(i)))->version; }
  std::vector<uint64_t> SeenOf(int begin, int end) {
    std::vector<uint64_t> seen;
    for (int i = begin; i < end; ++i) seen.push_back(Seen(i));
    return seen;
  }
  std::vector<uint64_t> SeenOfFirst() { return SeenOf(0, kFirstGroup); }
  std::vector<uint64_t> SeenOfOthers() { return SeenOf(kFirstGroup, kFirstGroup + kOthers); }
  // From here on the store has what is in the file.
  void Reopen() {
    store_ = nullptr;
    store_ = fixture_->Open({}, &clock_);
    used_ = store_.get();
  }

  ManualClock clock_;
  std::promise<void> gathered_;
  Commits commits_;
  std::atomic<int> taken_{0};
  std::unique_ptr<StoreFixture> fixture_;
  std::unique_ptr<SessionStore> store_;
  SessionStore* used_ = nullptr;  // *store_, also while it closes
  Answer<CommitResult> gate_;
  std::vector<Answer<CommitResult>> first_, others_;
};

TEST_F(OverlapTest, StepsOfOtherSessionsAreAppliedWhileAGroupCommitsAndNobodySeesEither) {
  std::vector<uint64_t> seen;
  bool answered = false;
  WriteFirstGroup([&] {
    OverlapOthers();
    seen = SeenOf(0, kFirstGroup + kOthers);
    const absl::StatusOr<std::vector<SessionPtr>> listed = List(*store_, {});
    for (const SessionPtr& session : *listed) seen.push_back(session->version);
    seen.pop_back();  // the gate's
    answered = Ready(first_.front()) || Ready(others_.front());
  });
  for (auto& step : first_) EXPECT_EQ(step.get()->version, 1);
  for (auto& step : others_) EXPECT_EQ(step.get()->version, 1);
  EXPECT_THAT(seen, SizeIs(2 * (kFirstGroup + kOthers)));
  EXPECT_THAT(seen, Each(0));
  EXPECT_FALSE(answered);
  EXPECT_EQ(commits_.writes, kAllSessions + 3) << "two transactions";
  EXPECT_THAT(SeenOfFirst(), Each(1));
  EXPECT_THAT(SeenOfOthers(), Each(1));
  Reopen();
  EXPECT_THAT(SeenOfFirst(), Each(1));
  EXPECT_THAT(SeenOfOthers(), Each(1));
  EXPECT_TRUE(StartStep(0, 1).get()->replayed);
  EXPECT_TRUE(StartStep(kFirstGroup, 1).get()->replayed);
}

TEST_F(OverlapTest, ACommitThatFailsChangesNothingAndTheStepsBehindItAreKept) {
  commits_.first = StoreFullError("a test");
  WriteFirstGroup([&] { OverlapOthers(); });
  for (auto& step : first_) EXPECT_EQ(step.get().status(), commits_.first);
  for (auto& step : others_) EXPECT_EQ(step.get()->version, 1);
  EXPECT_THAT(SeenOfFirst(), Each(0));
  EXPECT_THAT(SeenOfOthers(), Each(1));
  EXPECT_EQ(store_->stats().failed_groups, 1);
  Reopen();
  EXPECT_THAT(SeenOfFirst(), Each(0));
  EXPECT_THAT(SeenOfOthers(), Each(1));
  const absl::StatusOr<CommitResult> again = StartStep(0, 1).get();
  EXPECT_FALSE(again->replayed);
  EXPECT_EQ(again->version, 1);
  EXPECT_TRUE(StartStep(kFirstGroup, 1).get()->replayed);
}

TEST_F(OverlapTest, AGroupThatFailsBehindOneThatCommitsTakesNothingOfItAlong) {
  commits_.second = StoreFullError("a test");
  WriteFirstGroup([&] { OverlapOthers(); });
  for (auto& step : first_) EXPECT_EQ(step.get()->version, 1);
  for (auto& step : others_) EXPECT_EQ(step.get().status(), commits_.second);
  EXPECT_THAT(SeenOfFirst(), Each(1));
  EXPECT_THAT(SeenOfOthers(), Each(0));
  EXPECT_EQ(store_->stats().failed_groups, 1);
  EXPECT_FALSE(StartStep(kFirstGroup, 1).get()->replayed);
  EXPECT_TRUE(StartStep(0, 1).get()->replayed);
  Reopen();
  EXPECT_THAT(SeenOfFirst(), Each(1));
  EXPECT_EQ(Seen(kFirstGroup), 1);
  EXPECT_EQ(Seen(kFirstGroup + 1), 0);
}

// Nothing is applied to a state that may still fail.
TEST_F(OverlapTest, AStepOfASessionThatCommitsWaitsForWhatBecomesOfIt) {
  for (const bool fails : {false, true}) {
    if (fails) {
      TearDown();
      first_.clear();
      others_.clear();
      gathered_ = std::promise<void>();
      commits_.writes = 0;
      commits_.first = StoreFullError("a test");
      store_ = nullptr;
      SetUp();
    }
    Answer<CommitResult> again, next;
    Answer<SessionPtr> gone;
    WriteFirstGroup([&] {
      OverlapOthers();
      again = StartStep(0, 1);
      next = StartStep(1, 2);
      gone = Start<SessionPtr>([&](auto done) { store_->Delete(Id(2), std::nullopt, std::move(done)); });
      EXPECT_FALSE(Ready(again)) << "answered before it is known whether the step is kept";
    });
    for (auto& step : first_) EXPECT_EQ(step.get().status(), commits_.first);
    for (auto& step : others_) EXPECT_TRUE(step.get().ok());
    const absl::StatusOr<CommitResult> replay = again.get();
    EXPECT_EQ(replay->replayed, !fails);
    EXPECT_EQ(replay->version, 1);
    EXPECT_EQ(next.get()->version, fails ? 1 : 2);
    EXPECT_EQ(gone.get().value()->version, fails ? 0 : 1);
    EXPECT_EQ(store_->stats().sessions, kAllSessions - 1);
  }
}

TEST_F(OverlapTest, StepsThatWriteNothingDoNotHoldBackAGroupThatHasCommitted) {
  constexpr int kQueued = 8192;  // several groups
  std::atomic<int> queued{0};
  int taken = 0;
  uint64_t seen_at_last = 0;
  WriteFirstGroup([&] {
    for (; queued < kQueued; ++queued) {
      StateUpdate update = Step(Id(kFirstGroup), MomentsOf({std::nan(""), 4}, 3));  // changes nothing
      // On the writer's thread. The first one waits until all are queued and the group has committed.
      update.cancelled = [&] {
        while (queued < kQueued || !commits_.first_ended) std::this_thread::yield();
        if (taken % 1024 == 0) absl::SleepFor(absl::Milliseconds(5));  // until the end was noted
        if (++taken == kQueued) seen_at_last = Seen(0);
        return false;
      };
      others_.push_back(StartCommit(*store_, std::move(update)));
    }
  });
  for (auto& step : first_) EXPECT_TRUE(step.get().ok());
  for (auto& step : others_) EXPECT_EQ(step.get()->version, 0);
  EXPECT_EQ(seen_at_last, 1);
}

TEST_F(OverlapTest, AStepOfASessionThatIsNotInMemoryWaitsForTheTable) {
  int taken = 0;
  WriteFirstGroup([&] {
    for (int i = 0; i < kOthers; ++i) others_.push_back(StartStep(kAllSessions + i, 1));
    EXPECT_FALSE(Ready(others_.front()));
    taken = taken_;
  });
  for (auto& step : first_) EXPECT_TRUE(step.get().ok());
  for (auto& step : others_) EXPECT_EQ(step.get().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(taken, kFirstGroup + 1);
}

TEST_F(OverlapTest, AStoreThatClosesWritesBothGroups) {
  WriteFirstGroup([&] { OverlapOthers(); });
  Reopen();
  for (auto& step : first_) EXPECT_TRUE(step.get().ok());
  for (auto& step : others_) EXPECT_TRUE(step.get().ok());
  EXPECT_THAT(SeenOfFirst(), Each(1));
  EXPECT_THAT(SeenOfOthers(), Each(1));
}

}  // namespace
}  // namespace normd
