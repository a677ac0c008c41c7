// What others see while a transaction is under way, and after it failed: a table whose writing waits for the test.
#include <atomic>
#include <future>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "server/base/errors.h"
#include "server/base/mutex.h"
#include "server/session/durable/durable_store.h"
#include "server/session/sqlite/sqlite_table.h"
#include "tests/server/session/fixtures.h"
#include "tests/server/session/forwarding_table.h"
#include "tests/server/session/store_fixture.h"

namespace normd {
namespace {

using namespace session_test;  // NOLINT(google-build-using-namespace): the fixtures' words are this file's

// A gate in front of a table's Write.
class WriteGate {
 public:
  std::atomic<bool> loads_fail{false};

  absl::Status Pass() {
    MutexLock lock(mu_);
    ++waiting_;
    changed_.SignalAll();
    while (closed_) changed_.Wait(mu_);
    --waiting_;
    return status_;
  }
  void Close() {
    MutexLock lock(mu_);
    closed_ = true;
  }
  // The write that waits fails with `status`, or goes on.
  void Open(absl::Status status = absl::OkStatus()) {
    MutexLock lock(mu_);
    closed_ = false;
    status_ = std::move(status);
    changed_.SignalAll();
  }
  void WaitForWriter() {
    MutexLock lock(mu_);
    while (waiting_ == 0) changed_.Wait(mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

class GatedTable : public ForwardingTable {
 public:
  GatedTable(std::unique_ptr<SessionTable> table, WriteGate* gate) : ForwardingTable(std::move(table)), gate_(gate) {}
  absl::StatusOr<std::vector<SessionRow>> Load(absl::Span<const RowRequest> requests, int64_t max_bytes) override {
    if (gate_->loads_fail) return StoreUnavailableError("a test");
    return ForwardingTable::Load(requests, max_bytes);
  }
  absl::StatusOr<Versions> Write(NextPart next) override {
    const absl::Status status = gate_->Pass();
    if (!status.ok()) return status;
    return ForwardingTable::Write(next);
  }

 private:
  WriteGate* const gate_;
};

class PublicationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fixture_ = StoreFixture::Make(StoreKind::kSqlite);
    store_ = fixture_->Open({}, &clock_, [this](std::unique_ptr<SessionTable> table) {
      return std::make_unique<GatedTable>(std::move(table), &gate_);
    });
    ASSERT_TRUE(Create(*store_, NewSession("a", BatchSpec(), 3)).ok());
    gate_.Close();
  }
  void TearDown() override { gate_.Open(); }

  Answer<CommitResult> StartStep(uint64_t sequence) {
    return StartCommit(*store_,
                       Step("a", MomentsOf({1.0 * static_cast<double>(sequence), 4}, 3), StepId{"c", sequence}));
  }
  uint64_t Seen() { return (*Get(*store_, "a"))->version; }

  ManualClock clock_;
  WriteGate gate_;
  std::unique_ptr<StoreFixture> fixture_;
  std::unique_ptr<SessionStore> store_;
};

// A table that others share, whose writing waits when it is done: the rows are there and not published yet.
class LateTable : public GatedTable {
 public:
  LateTable(std::unique_ptr<SessionTable> table, WriteGate* gate) : GatedTable(std::move(table), &open_), late_(gate) {}
  bool shared() const override { return true; }
  absl::StatusOr<Versions> Write(NextPart next) override {
    auto versions = GatedTable::Write(next);
    const absl::Status status = late_->Pass();
    if (!status.ok()) return status;
    return versions;
  }

 private:
  WriteGate open_;
  WriteGate* const late_;
};

TEST(TotalsTest, ASessionIsCountedOnceThatIsWrittenWhileTheTableIsCounted) {
  ManualClock clock;
  WriteGate gate;
  const std::unique_ptr<StoreFixture> fixture = StoreFixture::Make(StoreKind::kSqlite);
  DurableStoreOptions options;
  options.sweep_interval = absl::Milliseconds(50);
  const std::unique_ptr<SessionStore> store = fixture->Open(options, &clock, [&](std::unique_ptr<SessionTable> table) {
    return std::make_unique<LateTable>(std::move(table), &gate);
  });
  ASSERT_TRUE(Create(*store, NewSession("a", BatchSpec(), 3)).ok());
  gate.Close();
  std::future<bool> created =
      std::async(std::launch::async, [&] { return Create(*store, NewSession("b", BatchSpec(), 3)).ok(); });
  gate.WaitForWriter();
  absl::SleepFor(absl::Milliseconds(120));  // counted twice
  gate.Open();
  ASSERT_TRUE(created.get());
  EXPECT_EQ(store->stats().sessions, 2);
}

TEST_F(PublicationTest, NobodySeesAnUpdateThatIsNotDurable) {
  std::future<absl::StatusOr<CommitResult>> first = StartStep(1);
  gate_.WaitForWriter();
  EXPECT_EQ(Seen(), 0);
  EXPECT_EQ((*List(*store_, {}))[0]->version, 0);
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout) << "answered too early";
  gate_.Open();
  EXPECT_EQ(first.get()->version, 1);
  EXPECT_EQ(Seen(), 1);
}

TEST_F(PublicationTest, AFailedTransactionChangesNothingAndTheNextOneIsServed) {
  std::future<absl::StatusOr<CommitResult>> first = StartStep(1);
  gate_.WaitForWriter();
  std::future<absl::StatusOr<CommitResult>> second = StartStep(2);
  gate_.Open(StoreFullError("a test"));
  EXPECT_EQ(GetErrorDetail(first.get().status())->reason, "STORE_FULL");
  const absl::Status later = second.get().status();
  EXPECT_TRUE(later.ok() || GetErrorDetail(later)->reason == "STORE_FULL") << later;
  EXPECT_EQ(Seen(), later.ok() ? 1 : 0);
  gate_.Open();
  EXPECT_FALSE(StartStep(3).get()->replayed);
  EXPECT_EQ(store_->stats().sessions, 1);
  EXPECT_GE(store_->stats().failed_groups, 1);
}

// A group has taken a session's step ids out of memory when it finds that another session cannot be read.
TEST_F(PublicationTest, AFailedReadForgetsNoStepIds) {
  std::future<absl::StatusOr<CommitResult>> first = StartStep(1);
  gate_.WaitForWriter();
  std::future<absl::StatusOr<CommitResult>> second = StartStep(2);
  std::promise<absl::Status> other;
  store_->Commit(Step("not-in-memory", MomentsOf({1, 2}, 3)), [&](auto r) { other.set_value(r.status()); });
  gate_.loads_fail = true;
  gate_.Open();
  ASSERT_TRUE(first.get().ok());
  EXPECT_EQ(second.get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(other.get_future().get().code(), absl::StatusCode::kUnavailable);
  gate_.loads_fail = false;
  EXPECT_TRUE(StartStep(1).get()->replayed);
  EXPECT_EQ(StartStep(2).get()->version, 2);
}

TEST_F(PublicationTest, ASessionThatIsBeingCreatedOrDeletedIsWhatItWas) {
  std::promise<absl::Status> created;
  store_->Create(NewSession("b", BatchSpec(), 3), [&](auto r) { created.set_value(r.status()); });
  gate_.WaitForWriter();
  EXPECT_EQ(Get(*store_, "b").status().code(), absl::StatusCode::kNotFound);
  gate_.Open(StoreUnavailableError("a test"));
  EXPECT_EQ(created.get_future().get().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Get(*store_, "b").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->stats().sessions, 1);

  gate_.Close();
  std::promise<absl::Status> deleted;
  store_->Delete("a", std::nullopt, [&](auto r) { deleted.set_value(r.status()); });
  gate_.WaitForWriter();
  EXPECT_TRUE(Get(*store_, "a").ok());
  gate_.Open(StoreUnavailableError("a test"));
  EXPECT_FALSE(deleted.get_future().get().ok());
  EXPECT_TRUE(Get(*store_, "a").ok());
}

}  // namespace
}  // namespace normd
