#include "server/session/sqlite/sqlite_table.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/errors.h"
#include "server/session/durable/durable_store.h"
#include "tests/server/session/fixtures.h"

namespace normd {
namespace {

using namespace session_test;  // NOLINT(google-build-using-namespace): the fixture's words are this file's
using ::testing::HasSubstr;

class SqliteTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/normd-sqlite-XXXXXX";
    folder_ = mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path() const { return folder_ + "/normd.db"; }
  absl::StatusOr<std::unique_ptr<SqliteTable>> OpenTable() { return SqliteTable::Open({.path = Path()}); }
  std::unique_ptr<DurableStore> OpenStore() { return OpenStoreOn(*OpenTable()); }
  std::unique_ptr<DurableStore> OpenStoreOn(std::unique_ptr<SqliteTable> writer, DurableStoreOptions options = {}) {
    StoreTables tables;
    tables.reader = *writer->OpenReader();
    tables.lister = *writer->OpenReader();
    tables.checker = *writer->OpenReader();
    tables.writer = std::move(writer);
    return *DurableStore::Open(std::move(options), std::move(tables), &clock_);
  }
  void Execute(const std::string& sql) {
    const absl::Status status = (*SqliteConnection::Open(Path(), /*read_only=*/false, ""))->Execute(sql);
    ASSERT_TRUE(status.ok()) << status;
  }
  int64_t Query(const std::string& sql) {
    return *(*SqliteConnection::Open(Path(), /*read_only=*/true, ""))->QueryInt(sql);
  }

  ManualClock clock_;
  std::string folder_;
};

TEST_F(SqliteTableTest, ANewFileHasTheNewestSchemaAndALog) {
  const auto table = OpenTable();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(Query("PRAGMA user_version"), SqliteSchemaVersion());
  EXPECT_TRUE(std::filesystem::exists(Path() + "-wal"));
}

TEST_F(SqliteTableTest, AnOlderSchemaIsMigratedWithItsRows) {
  { ASSERT_TRUE(Create(*OpenStore(), NewSession("a", BatchSpec(), 3)).ok()); }
  Execute("DROP INDEX sessions_bytes; DROP TABLE clients; PRAGMA user_version = 1;");
  EXPECT_EQ((*Get(*OpenStore(), "a"))->num_channels, 3);
  EXPECT_EQ(Query("PRAGMA user_version"), SqliteSchemaVersion());
  EXPECT_EQ(Query("SELECT count(*) FROM sqlite_schema WHERE name = 'sessions_bytes'"), 1);
}

TEST_F(SqliteTableTest, AnErrorInAPartUndoesThePartsBeforeIt) {
  const std::unique_ptr<SqliteTable> table = *OpenTable();
  const RowVersion made = *(*table->Write({{{.kind = RowChange::Kind::kInsert, .id = "a", .state = "0"}}}))[0];
  // A key is taken twice: states has a row for the session that the second part makes.
  Execute("INSERT INTO states VALUES (2, 1, NULL, x'')");
  const RowChange parts[] = {{.kind = RowChange::Kind::kState, .id = "a", .expected = made, .state = "1"},
                             {.kind = RowChange::Kind::kInsert, .id = "b", .state = "0"}};
  size_t next = 0;
  const auto result = table->Write([&] { return absl::MakeConstSpan(parts).subspan(next++, 1); });
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(next, 2);
  const RowRequest request = {.id = "a", .known = {}};
  EXPECT_EQ((*table->Load({&request, 1}, 1 << 20))[0].version, made);
}

TEST_F(SqliteTableTest, APartFindsTheRowsOfEarlierParts) {
  const std::unique_ptr<SqliteTable> table = *OpenTable();
  const RowVersion made = *(*table->Write({{{.kind = RowChange::Kind::kInsert, .id = "a", .state = "0"}}}))[0];
  const RowChange parts[] = {
      {.kind = RowChange::Kind::kState, .id = "a", .expected = made, .state = "1"},
      {.kind = RowChange::Kind::kState, .id = "a", .expected = {made.key, made.revision + 1}, .state = "2"}};
  size_t next = 0;
  const auto versions = table->Write([&] {
    return next == std::size(parts) ? absl::Span<const RowChange>() : absl::MakeConstSpan(parts).subspan(next++, 1);
  });
  ASSERT_TRUE(versions.ok()) << versions.status();
  EXPECT_EQ((*versions)[1], (RowVersion{made.key, made.revision + 2}));
  const RowRequest request = {.id = "a", .known = {}};
  EXPECT_EQ((*table->Load({&request, 1}, 1 << 20))[0].state, "2");
}

// An older server has written all clients into the state; the first step afterwards moves them.
TEST_F(SqliteTableTest, StepIdsOfAnOlderSchemaMoveToTheirRows) {
  Moments moments = MomentsOf({1, 2}, 3);
  {
    const auto store = OpenStore();
    ASSERT_TRUE(Create(*store, NewSession("a", BatchSpec(), 3)).ok());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(Commit(*store, Step("a", moments, StepId{"c" + std::to_string(i), 1})).ok());
    }
  }
  EXPECT_EQ(Query("SELECT count(*) FROM clients"), 0) << "so few stay in the state";
  Execute("DROP TABLE clients; PRAGMA user_version = 2;");
  const auto store = OpenStore();
  for (int i = 3; i < 8; ++i) {
    ASSERT_TRUE(Commit(*store, Step("a", moments, StepId{"c" + std::to_string(i), 1}))->applied);
  }
  EXPECT_EQ(Query("SELECT count(*) FROM clients"), 8);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(Commit(*store, Step("a", moments, StepId{"c" + std::to_string(i), 1}))->replayed) << i;
  }
  ASSERT_TRUE(Delete(*store, "a").ok());
  EXPECT_EQ(Query("SELECT count(*) FROM clients"), 0);
}

TEST_F(SqliteTableTest, ColumnsThatContradictTheRecordAreReportedAndRewritten) {
  {
    const auto store = OpenStore();
    Session session = NewSession("a", BatchSpec(), 3);
    session.ttl = absl::Hours(1);
    ASSERT_TRUE(Create(*store, session).ok());
  }
  Execute("UPDATE sessions SET bytes = -1000000000000; UPDATE states SET expires_at = 5;");
  DurableStoreOptions options = {.sweep_interval = absl::Milliseconds(5)};
  const auto store = OpenStoreOn(*OpenTable(), std::move(options));
  EXPECT_EQ(store->stats().bytes, 0) << "a number that cannot be does not count";
  while (Query("SELECT min(bytes) FROM sessions") < 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_GT(Query("SELECT expires_at FROM states"), 1'000'000);
  EXPECT_TRUE(Get(*store, "a").ok()) << "it has not expired";
  EXPECT_EQ(store->stats().damaged, 1);
}

// The sealed record decides what is served; the columns are how lists find it.
TEST_F(SqliteTableTest, ASessionThatIsReadIsFoundByItsLabelsAndListedAgain) {
  {
    const auto store = OpenStore();
    Session session = NewSession("a", BatchSpec(), 3);
    session.ttl = absl::Hours(1);
    session.labels = {{"team", "vision"}};
    ASSERT_TRUE(Create(*store, session).ok());
  }
  Execute("UPDATE sessions SET labels = 'junk'; UPDATE states SET expires_at = 9000000000000000;");
  DurableStoreOptions options = {.sweep_interval = absl::Milliseconds(5)};
  const auto store = OpenStoreOn(*OpenTable(), std::move(options));
  const ListQuery query = {.labels = {{"team", "vision"}}};
  EXPECT_TRUE(List(*store, query)->empty());
  EXPECT_EQ((*Get(*store, "a"))->labels.at("team"), "vision");
  EXPECT_GE(store->stats().damaged, 1);
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (List(*store, query)->empty() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(List(*store, query)->size(), 1U);
  EXPECT_LT(Query("SELECT expires_at FROM states"), 9'000'000'000'000'000);
}

TEST_F(SqliteTableTest, InADamagedFileAMissingRowMayBeLost) {
  {
    const auto store = OpenStore();
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(Create(*store, NewSession("s" + std::to_string(i), BatchSpec(), 1)).ok());
    }
  }
  // The index of names loses one of them.
  Execute(
      "PRAGMA writable_schema = ON; CREATE TABLE spare (id TEXT UNIQUE);"
      "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_spare_1')"
      " WHERE name = 'sqlite_autoindex_sessions_1';");
  absl::Status told;
  DurableStoreOptions options;
  options.observer.on_file_damaged = [&told](const absl::Status& damage) { told = damage; };
  absl::StatusOr<std::unique_ptr<SqliteTable>> table = OpenTable();
  if (!table.ok()) {
    EXPECT_EQ(table.status().code(), absl::StatusCode::kDataLoss);
    return;
  }
  const auto store = OpenStoreOn(*std::move(table), std::move(options));
  EXPECT_EQ(told.code(), absl::StatusCode::kDataLoss) << told;
  EXPECT_TRUE(store->stats().file_damaged);
  EXPECT_EQ(Get(*store, "s7").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Commit(*store, Step("s7", MomentsOf({1, 2}, 1))).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Create(*store, NewSession("s7", BatchSpec(), 1)).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SqliteTableTest, ABackupThatFailsLeavesNoFile) {
  const auto store = OpenStore();
  ASSERT_TRUE(Create(*store, NewSession("a", BatchSpec(), 3)).ok());
  const std::string copy = folder_ + "/copy.db";
  const auto reader = *SqliteTable::Open({.path = Path(), .read_only = true});
  // No file may be longer than two pages.
  struct rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const struct rlimit small = {.rlim_cur = 8192, .rlim_max = before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const absl::Status status = reader->BackupTo(copy);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(std::filesystem::exists(copy));
}

TEST_F(SqliteTableTest, ANewerSchemaIsRefusedAndNamesBoth) {
  ASSERT_TRUE(OpenTable().ok());
  Execute("PRAGMA user_version = 99");
  const absl::Status status = OpenTable().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("99"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(SqliteSchemaVersion())));
}

TEST_F(SqliteTableTest, ASecondServerIsKeptOut) {
  const auto first = OpenTable();
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(std::string(OpenTable().status().message()), HasSubstr("another server"));
  EXPECT_TRUE((*first)->OpenReader().ok());
}

TEST_F(SqliteTableTest, AFileThatIsNoDatabaseIsDataLoss) {
  std::ofstream(Path()) << std::string(10'000, 'x');
  EXPECT_EQ(OpenTable().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SqliteTableTest, APageThatWasOverwrittenIsDataLossAndNotAnEmptyStore) {
  {
    const auto store = OpenStore();
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(Create(*store, NewSession("s" + std::to_string(i), BatchSpec(), 100)).ok());
    }
  }
  const int file = open(Path().c_str(), O_WRONLY);
  const std::string garbage(4096, '\x5a');
  for (int page = 1; page < 12; ++page) {
    ASSERT_EQ(pwrite(file, garbage.data(), garbage.size(), page * 4096), 4096);
  }
  close(file);
  const absl::StatusOr<std::unique_ptr<SqliteTable>> table = OpenTable();
  if (!table.ok()) {
    EXPECT_EQ(table.status().code(), absl::StatusCode::kDataLoss) << table.status();
    return;
  }
  EXPECT_EQ((*table)->Page({}, absl::UnixEpoch()).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ((*table)->Load({{{.id = "s7", .known = {}}}}, 1 << 20).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SqliteTableTest, ABackupMadeUnderLoadIsOneMomentOfTheStore) {
  const auto store = OpenStore();
  for (const char* id : {"a", "b"}) ASSERT_TRUE(Create(*store, NewSession(id, BatchSpec(), 64)).ok());
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> acknowledged{0};
  // b follows a: at no moment it is ahead, or more than a step behind.
  std::thread trainer([&] {
    for (uint64_t i = 1; !stop; ++i) {
      for (const char* id : {"a", "b"}) {
        EXPECT_TRUE(Commit(*store, Step(id, MomentsOf({1.0 * static_cast<double>(i), 2}, 64), StepId{"c", i})).ok());
      }
      acknowledged = i;
    }
  });
  while (acknowledged < 50) std::this_thread::yield();
  const uint64_t before = acknowledged;
  const std::string copy = folder_ + "/copy.db";
  const auto reader = *SqliteTable::Open({.path = Path(), .read_only = true});
  EXPECT_EQ(reader->BackupTo(copy), absl::OkStatus());
  EXPECT_EQ(reader->BackupTo(copy).code(), absl::StatusCode::kAlreadyExists);
  stop = true;
  trainer.join();

  const auto restored = OpenStoreOn(*SqliteTable::Open({.path = copy}));
  const uint64_t a = (*Get(*restored, "a"))->version;
  const uint64_t b = (*Get(*restored, "b"))->version;
  EXPECT_GE(a, before);
  EXPECT_TRUE(a == b || a == b + 1) << a << " and " << b;
  EXPECT_TRUE(Commit(*restored, Step("a", MomentsOf({1.0 * static_cast<double>(a), 2}, 64), StepId{"c", a}))->replayed);
}

TEST_F(SqliteTableTest, ReportsItsCheckpointsAndTheBytesOfItsLog) {
  std::atomic<int> checkpoints{0};
  const auto table = *SqliteTable::Open(
      {.path = Path(), .checkpoint_frames = 4, .on_checkpoint = [&checkpoints](absl::Duration) { ++checkpoints; }});
  for (int i = 0; i < 20; ++i) {
    const RowChange row = {
        .kind = RowChange::Kind::kInsert, .id = "s" + std::to_string(i), .head = std::string(5000, 'h')};
    ASSERT_TRUE(table->Write({row}).ok());
  }
  EXPECT_GT(checkpoints, 0);
  EXPECT_GT(table->LogBytes(), 4096);
}

}  // namespace
}  // namespace normd
