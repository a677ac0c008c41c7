// Every I/O of the SQLite store fails once, alone and with all that come after it: opening, migration, commit,
// checkpoint and recovery. Whatever happens: nothing acknowledged is lost, nothing is applied twice, reads go on, and
// what was refused can be sent again.
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "server/session/durable/durable_store.h"
#include "server/session/memory/memory_store.h"
#include "server/session/sqlite/sqlite_table.h"
#include "tests/server/session/fault_vfs_fixture.h"
#include "tests/server/session/fixtures.h"

namespace normd {
namespace {

using namespace session_test;  // NOLINT(google-build-using-namespace): the fixtures' words are this file's

constexpr uint64_t kSteps = 6;
constexpr int64_t kChannels = 700;  // several pages a state

struct Case {
  Fault fault;
  bool persistent;
};

void PrintTo(const Case& c, std::ostream* out) {
  constexpr const char* kNames[] = {"Eio", "Enospc", "ShortWrite", "Fsync"};
  *out << kNames[static_cast<size_t>(c.fault)] << (c.persistent ? "Persistent" : "Once");
}

Moments StepMoments(uint64_t sequence) { return MomentsOf({0.25 * static_cast<double>(sequence), 7}, kChannels); }

// What `version` steps make of a new session.
RunningState Expected(uint64_t version) {
  ManualClock clock;
  MemoryStore store(SessionLimits(), &clock);
  EXPECT_TRUE(Create(store, NewSession("a", BatchSpec(), kChannels)).ok());
  for (uint64_t i = 1; i <= version; ++i) EXPECT_TRUE(Commit(store, Step("a", StepMoments(i))).ok());
  return (*Get(store, "a"))->state;
}

class SqliteFaultTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    RegisterFaultVfs();
    PlanFault(Fault::kEio, 0, false);
    char name[] = "/tmp/normd-fault-XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override {
    PlanFault(Fault::kEio, 0, false);
    std::filesystem::remove_all(folder_);
  }

  absl::StatusOr<std::unique_ptr<DurableStore>> Open(DurableStoreOptions options = {}) {
    absl::StatusOr<std::unique_ptr<SqliteTable>> writer =
        SqliteTable::Open({.path = folder_ + "/normd.db", .vfs = kFaultVfsName, .checkpoint_frames = 4});
    if (!writer.ok()) return writer.status();
    StoreTables tables;
    for (auto* table : {&tables.reader, &tables.lister}) {
      absl::StatusOr<std::unique_ptr<SqliteTable>> reader = (*writer)->OpenReader();
      if (!reader.ok()) return reader.status();
      *table = *std::move(reader);
    }
    tables.writer = *std::move(writer);
    return DurableStore::Open(std::move(options), std::move(tables), &clock_);
  }

  // Creates and steps as far as the disk allows; what was acknowledged is in created_ and acknowledged_.
  void Work() {
    bool told = false;
    DurableStoreOptions options;
    options.observer.on_failed = [&told](std::string_view) { told = true; };
    const absl::StatusOr<std::unique_ptr<DurableStore>> opened = Open(std::move(options));
    if (!opened.ok()) {
      ++refused_;
      return;
    }
    DurableStore& store = **opened;
    created_ = Create(store, NewSession("a", BatchSpec(), kChannels)).ok();
    for (uint64_t i = 1; i <= kSteps; ++i) {
      attempted_ = i;
      const absl::StatusOr<CommitResult> result = Commit(store, Step("a", StepMoments(i), StepId{"c", i}));
      if (!result.ok()) {
        ++refused_;
        CheckRefusal(result.status(), store);
        break;
      }
      acknowledged_ = i;
    }
    EXPECT_EQ(told, GetParam().fault == Fault::kFsync && refused_ > 0) << "a failed flush, and nothing else, is final";
  }

  void CheckRefusal(const absl::Status& status, DurableStore& store) {
    const std::optional<ErrorDetail> detail = GetErrorDetail(status);
    ASSERT_TRUE(detail.has_value()) << status;
    if (GetParam().fault == Fault::kFsync) {
      EXPECT_TRUE(detail->reason == "STORE_FAILED" || detail->reason == "SESSION_NOT_FOUND") << status;
      // No retry, no acknowledgement, whatever the disk says now.
      PlanFault(Fault::kFsync, 0, false);
      EXPECT_EQ(GetErrorDetail(Create(store, NewSession("b", BatchSpec(), 1)).status())->reason, "STORE_FAILED");
      return;
    }
    // Reading from memory goes on.
    if (created_ && !GetParam().persistent) {
      EXPECT_EQ((*Get(store, "a"))->version, acknowledged_);
    }
  }

  // With a sound disk: what was acknowledged is there, no more than was attempted, and the rest can be sent again.
  void CheckAndFinish() {
    PlanFault(Fault::kEio, 0, false);
    const absl::StatusOr<std::unique_ptr<DurableStore>> store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    const absl::StatusOr<SessionPtr> found = Get(**store, "a");
    if (!found.ok()) {
      ASSERT_EQ(found.status().code(), absl::StatusCode::kNotFound) << found.status();
      ASSERT_FALSE(created_) << "an acknowledged session is gone";
      ASSERT_TRUE(Create(**store, NewSession("a", BatchSpec(), kChannels)).ok());
    }
    const uint64_t recovered = (*Get(**store, "a"))->version;
    ASSERT_GE(recovered, acknowledged_);
    ASSERT_LE(recovered, attempted_);
    ASSERT_EQ((*Get(**store, "a"))->state.mean, Expected(recovered).mean);
    for (uint64_t i = std::max<uint64_t>(acknowledged_, 1); i <= kSteps; ++i) {
      const absl::StatusOr<CommitResult> result = Commit(**store, Step("a", StepMoments(i), StepId{"c", i}));
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->replayed, i <= recovered);
      ASSERT_EQ(result->version, i);
    }
    ASSERT_EQ((*Get(**store, "a"))->state.mean, Expected(kSteps).mean);
  }

  ManualClock clock_;
  std::string folder_;
  bool created_ = false;
  uint64_t attempted_ = 0;
  uint64_t acknowledged_ = 0;
  int refused_ = 0;
};

INSTANTIATE_TEST_SUITE_P(All, SqliteFaultTest,
                         ::testing::Values(Case{Fault::kEio, false}, Case{Fault::kEio, true},
                                           Case{Fault::kEnospc, false}, Case{Fault::kEnospc, true},
                                           Case{Fault::kShortWrite, false}, Case{Fault::kShortWrite, true},
                                           Case{Fault::kFsync, false}, Case{Fault::kFsync, true}),
                         ::testing::PrintToStringParamName());

// A new store: opening, migration, commit, checkpoint.
TEST_P(SqliteFaultTest, EveryPointOfANewStore) {
  int refusals = 0;
  int64_t n = 1;
  for (;; ++n) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    created_ = false;
    attempted_ = acknowledged_ = 0;
    refused_ = 0;
    PlanFault(GetParam().fault, n, GetParam().persistent);
    Work();
    const bool happened = FaultHappened() || refused_ > 0;
    refusals += refused_;
    CheckAndFinish();
    if (HasFatalFailure()) FAIL() << "at point " << n;
    if (!happened) break;
  }
  RecordProperty("points", static_cast<int>(n - 1));
  EXPECT_GT(n, 10) << "hardly anything was made to fail";
  EXPECT_GT(refusals, 0);
}

// A store that was killed: its log is full, so that opening recovers and checkpoints.
TEST_P(SqliteFaultTest, SurvivesAFaultAtEveryPointOfRecovery) {
  const std::string crashed = folder_ + "-crashed";
  {
    const auto store = *Open();
    ASSERT_TRUE(Create(*store, NewSession("a", BatchSpec(), kChannels)).ok());
    for (uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(Commit(*store, Step("a", StepMoments(i), StepId{"c", i})).ok());
    // What kill -9 leaves.
    std::filesystem::create_directory(crashed);
    for (const char* file : {"/normd.db", "/normd.db-wal"}) std::filesystem::copy(folder_ + file, crashed + file);
  }
  int64_t n = 1;
  for (;; ++n) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(crashed, folder_);
    created_ = true;
    attempted_ = acknowledged_ = 3;
    refused_ = 0;
    PlanFault(GetParam().fault, n, GetParam().persistent);
    if (!Open().ok()) ++refused_;
    const bool happened = FaultHappened();
    CheckAndFinish();
    if (HasFatalFailure()) FAIL() << "at point " << n;
    if (!happened) break;
  }
  std::filesystem::remove_all(crashed);
  EXPECT_GT(n, 1);
}

}  // namespace
}  // namespace normd
