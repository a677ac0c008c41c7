// Groups whose first rows are written while later changes are still checked and applied: what joins them, what others
// see meanwhile, and what is left of them when their transaction fails.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

constexpr int kSessions = 12;

// What a test does to one transaction.
struct Script {
  std::function<void()> at_begin = [] {};
  std::function<void()> after_first_part = [] {};
  bool fails = false;                           // after its first part
  std::vector<std::vector<std::string>> parts;  // ids of its rows
};

// The first Write waits for the test, so that changes gather behind it; the second one follows the script.
class ScriptedTable : public ForwardingTable {
 public:
  ScriptedTable(std::unique_ptr<SessionTable> table, std::atomic<int>* writes, std::shared_future<void> gathered,
                Script* script)
      : ForwardingTable(std::move(table)), writes_(*writes), gathered_(std::move(gathered)), script_(*script) {}

  absl::StatusOr<Versions> Write(NextPart next) override {
    const int write = ++writes_;
    if (write == kSessions + 1) gathered_.wait();
    if (write != kSessions + 2) return ForwardingTable::Write(next);
    script_.at_begin();
    const auto scripted = [&] {
      if (script_.parts.size() == 1) script_.after_first_part();
      const absl::Span<const RowChange> part = next();
      std::vector<std::string> ids;
      for (const RowChange& row : part) ids.push_back(row.id);
      script_.parts.push_back(std::move(ids));
      return part;
    };
    if (!script_.fails) return ForwardingTable::Write(scripted);
    scripted();
    return StoreFullError("a test");
  }

 private:
  std::atomic<int>& writes_;
  const std::shared_future<void> gathered_;
  Script& script_;
};

class WriteEarlyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fixture_ = StoreFixture::Make(StoreKind::kSqlite);
    store_ = fixture_->Open({}, &clock_, [this](std::unique_ptr<SessionTable> table) {
      return std::make_unique<ScriptedTable>(std::move(table), &writes_, gathered_.get_future().share(), &script_);
    });
    for (int i = 0; i < kSessions; ++i) ASSERT_TRUE(Create(*store_, NewSession(Id(i), BatchSpec(), 3)).ok());
  }

  static std::string Id(int i) { return "s" + std::to_string(100 + i); }
  static StateUpdate StepOf(int i, uint64_t sequence) {
    return Step(Id(i), MomentsOf({static_cast<double>(i), 4}, 3), StepId{"c", sequence});
  }

  Answer<CommitResult> StartStep(StateUpdate update) { return StartCommit(*store_, std::move(update)); }

  // Queues a step of every session behind a transaction that waits. `joining` runs when the writer has taken them all
  // and not yet applied one: what it asks for is taken when the first rows have been handed over.
  void QueueGroup(const std::function<void()>& joining = [] {}) {
    first_ = StartStep(StepOf(kSessions - 1, 1));
    while (writes_ < kSessions + 1) std::this_thread::yield();
    for (int i = 0; i < kSessions; ++i) {
      StateUpdate update = StepOf(i, 2);
      if (i == kSessions - 1) update.cancelled = [joining] { return joining(), false; };
      steps_.push_back(StartStep(std::move(update)));
    }
  }
  void WriteGroup() {
    gathered_.set_value();
    EXPECT_TRUE(first_.get().ok());
    for (const auto& step : steps_) step.wait();
  }

  uint64_t Seen(int i) { return (*Get(*store_, Id(i)))->version; }
  // What is in the file.
  uint64_t Kept(int i) {
    store_ = nullptr;
    store_ = fixture_->Open({}, &clock_);
    return Seen(i);
  }

  ManualClock clock_;
  std::atomic<int> writes_{0};
  std::promise<void> gathered_;
  Script script_;
  std::unique_ptr<StoreFixture> fixture_;
  std::unique_ptr<SessionStore> store_;
  Answer<CommitResult> first_;
  std::vector<Answer<CommitResult>> steps_;
};

TEST_F(WriteEarlyTest, AChangeThatComesWhileRowsAreWrittenJoinsTheirTransaction) {
  Answer<CommitResult> again;
  Answer<CommitResult> other;
  QueueGroup([&] {
    again = StartStep(StepOf(0, 3));  // its session's row has been handed over
    other = StartStep(StepOf(kSessions - 2, 3));
  });
  WriteGroup();
  for (auto& step : steps_) EXPECT_TRUE(step.get().ok());
  EXPECT_EQ(again.get()->version, 2);
  EXPECT_EQ(other.get()->version, 2);
  EXPECT_EQ(writes_, kSessions + 2) << "one transaction";
  ASSERT_GE(script_.parts.size(), 2);
  EXPECT_THAT(script_.parts.front(), SizeIs(4));
  EXPECT_EQ(Seen(0), 2);
  EXPECT_EQ(Kept(0), 2);
  EXPECT_EQ(Seen(1), 1);
  EXPECT_TRUE(Commit(*store_, StepOf(0, 3))->replayed);
}

TEST_F(WriteEarlyTest, NobodySeesRowsOfATransactionThatHasNotEnded) {
  QueueGroup();
  std::vector<uint64_t> seen;
  int answered = 0;
  script_.after_first_part = [&] {
    for (int i = 0; i < kSessions - 1; ++i) seen.push_back(Seen(i));
    const absl::StatusOr<std::vector<SessionPtr>> listed = List(*store_, {});
    for (const SessionPtr& session : *listed) seen.push_back(session->version);
    seen.pop_back();  // of the session that stepped before
    for (const auto& step : steps_) {
      answered += step.wait_for(std::chrono::seconds(0)) == std::future_status::ready ? 1 : 0;
    }
  };
  WriteGroup();
  for (auto& step : steps_) EXPECT_TRUE(step.get().ok());
  EXPECT_THAT(seen, SizeIs(2 * (kSessions - 1)));
  EXPECT_THAT(seen, Each(0));
  EXPECT_EQ(answered, 0);
  EXPECT_EQ(Seen(0), 1);
}

TEST_F(WriteEarlyTest, AFailedTransactionFailsAllThatJoinedItAndLeavesWhatWasThere) {
  Answer<CommitResult> again;
  Answer<SessionPtr> gone;
  script_.fails = true;
  QueueGroup([&] {
    again = StartStep(StepOf(0, 3));
    gone = Start<SessionPtr>([&](auto done) { store_->Delete(Id(1), std::nullopt, std::move(done)); });
  });
  WriteGroup();
  const absl::Status full = StoreFullError("a test");
  for (auto& step : steps_) EXPECT_EQ(step.get().status(), full);
  EXPECT_EQ(again.get().status(), full);
  EXPECT_EQ(gone.get().status(), full);
  for (int i = 0; i < kSessions - 1; ++i) EXPECT_EQ(Seen(i), 0);
  EXPECT_EQ(Seen(kSessions - 1), 1) << "the step of the transaction before";
  // Nothing of the failed steps is remembered, and nothing of those before is forgotten.
  EXPECT_FALSE(Commit(*store_, StepOf(0, 2))->replayed);
  EXPECT_TRUE(Commit(*store_, StepOf(kSessions - 1, 1))->replayed);
  EXPECT_EQ(store_->stats().failed_groups, 1);
  EXPECT_EQ(store_->stats().sessions, kSessions);
  EXPECT_EQ(Kept(0), 1);
}

TEST_F(WriteEarlyTest, ASessionIsPatchedDeletedAndMadeAnewAfterItsEarlyRow) {
  Answer<SessionPtr> patched;
  Answer<SessionPtr> gone;
  Answer<CommitResult> late;
  QueueGroup([&] {
    patched = Start<SessionPtr>([&](auto done) { store_->Update(Id(0), {.labels = {{{"k", "v"}}}}, std::move(done)); });
    gone = Start<SessionPtr>([&](auto done) { store_->Delete(Id(1), std::nullopt, std::move(done)); });
    late = StartStep(StepOf(1, 3));
  });
  WriteGroup();
  EXPECT_EQ(patched.get().value()->version, 2);
  EXPECT_EQ(gone.get().value()->version, 1);
  EXPECT_EQ(late.get().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(writes_, kSessions + 2);
  EXPECT_EQ(store_->stats().sessions, kSessions - 1);
  EXPECT_EQ(Get(*store_, Id(1)).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Create(*store_, NewSession(Id(1), BatchSpec(), 3)).ok());
  EXPECT_EQ(Kept(0), 2);
  EXPECT_EQ((*Get(*store_, Id(0)))->labels.at("k"), "v");
  EXPECT_EQ(Seen(1), 0);
}

TEST_F(WriteEarlyTest, AStepThatIsSentAgainBeforeItsRowIsDurableIsAReplayAndWaitsForIt) {
  Answer<CommitResult> again;
  QueueGroup([&] { again = StartStep(StepOf(0, 2)); });
  script_.after_first_part = [&] {
    EXPECT_EQ(again.wait_for(std::chrono::milliseconds(5)), std::future_status::timeout) << "answered too early";
  };
  WriteGroup();
  const absl::StatusOr<CommitResult> replay = again.get();
  EXPECT_TRUE(replay->replayed);
  EXPECT_EQ(replay->version, steps_[0].get()->version);
  EXPECT_EQ(Kept(0), 1);
}

// The table is busy: such a session is read when the transaction has ended.
TEST_F(WriteEarlyTest, AChangeOfASessionThatIsNotInMemoryWaitsForTheNextTransaction) {
  Answer<SessionPtr> created;
  Answer<CommitResult> step;
  QueueGroup([&] {
    created = Start<SessionPtr>([&](auto done) { store_->Create(NewSession("new", BatchSpec(), 3), std::move(done)); });
    step = StartStep(Step("new", MomentsOf({1, 2}, 3), StepId{"c", 1}));
  });
  WriteGroup();
  ASSERT_TRUE(created.get().ok());
  EXPECT_EQ(step.get()->version, 1);
  EXPECT_EQ(writes_, kSessions + 3);
}

TEST_F(WriteEarlyTest, AStoreThatClosesWritesTheTransactionUnderWayAndWhatWaitsBehindIt) {
  Answer<CommitResult> next;
  script_.at_begin = [&, store = store_.get()] {
    next = Start<CommitResult>([&](auto done) {
      store->Commit(Step(Id(0), MomentsOf({7, 8}, 3), StepId{"d", 1}), std::move(done));
    });
  };
  QueueGroup();
  gathered_.set_value();
  store_ = nullptr;
  EXPECT_TRUE(first_.get().ok());
  for (auto& step : steps_) EXPECT_TRUE(step.get().ok());
  EXPECT_TRUE(next.get().ok());
  EXPECT_EQ(Kept(0), 2);
}

}  // namespace
}  // namespace normd
