#include "server/wiring/store_copies.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/session/sqlite/sqlite_table.h"
#include "server/wiring/make_store.h"
#include "tests/server/session/fixtures.h"
#include "tests/server/wiring/small_store_config.h"

namespace normd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class StoreCopiesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/normd-copies-XXXXXX";
    folder_ = mkdtemp(name);
    config_.data_dir = folder_ + "/data";
    config_.session_store = "sqlite";
    config_.backup = config_.restore = folder_ + "/backup.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string File() const { return config_.data_dir + "/" + kSqliteFileName; }
  std::unique_ptr<SessionStore> Open() {
    auto store = OpenSessionStore(config_, {}, &clock_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  void Create(const std::string& prefix, int count) {
    const auto store = Open();
    for (int i = 0; i < count; ++i) {
      const std::string id = prefix + std::to_string(i);
      ASSERT_TRUE(session_test::Create(*store, session_test::NewSession(id, session_test::BatchSpec(), 100)).ok());
    }
  }
  // As kill -9 leaves it: with its log beside the file.
  void CreateAndKill(const std::string& prefix, int count) {
    const std::string live = config_.data_dir;
    config_.data_dir = folder_ + "/live";
    {
      const auto store = Open();
      for (int i = 0; i < count; ++i) {
        const std::string id = prefix + std::to_string(i);
        ASSERT_TRUE(session_test::Create(*store, session_test::NewSession(id, session_test::BatchSpec(), 100)).ok());
      }
      std::filesystem::remove_all(live);
      std::filesystem::copy(config_.data_dir, live, std::filesystem::copy_options::recursive);
    }
    config_.data_dir = live;
    ASSERT_GT(std::filesystem::file_size(File() + "-wal"), 0u);
  }
  absl::StatusOr<RestoredStore> Restore() { return RestoreSessionStore(config_, absl::FromUnixSeconds(1'700'000'000)); }
  std::string RestoreError() { return std::string(Restore().status().message()); }

  std::string folder_;
  Config config_ = SmallStoreConfig();
  session_test::ManualClock clock_;
};

TEST_F(StoreCopiesTest, ABackupIsCheckedRecordByRecord) {
  Create("s", 30);
  EXPECT_EQ(*BackupSessionStore(config_), 30);
  ASSERT_TRUE((*SqliteConnection::Open(File(), /*read_only=*/false, ""))
                  ->Execute("UPDATE states SET state = x'00' WHERE key = 7")
                  .ok());
  config_.backup += "2";
  const absl::Status damaged = BackupSessionStore(config_).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("1 of 30"));
}

TEST_F(StoreCopiesTest, ABackupOfNothingNamesTheFolder) {
  config_.data_dir = "/nonexistent";
  EXPECT_THAT(std::string(BackupSessionStore(config_).status().message()),
              AllOf(HasSubstr("/nonexistent/normd.db is not there"), HasSubstr("--data_dir")));
}

// A copy over normd.db would leave it with the log of the file before.
TEST_F(StoreCopiesTest, ARestoredStoreHasNothingOfTheStoreBefore) {
  Create("old", 3);
  ASSERT_TRUE(BackupSessionStore(config_).ok());
  CreateAndKill("late", 40);
  const absl::StatusOr<RestoredStore> restored = Restore();
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->records, 3);
  EXPECT_EQ(restored->before, File() + ".before-20231114T221320Z");
  {
    const auto store = Open();
    EXPECT_EQ(store->stats().sessions, 3);
    EXPECT_TRUE(session_test::Get(*store, "old0").ok());
    EXPECT_FALSE(session_test::Get(*store, "late0").ok());
  }
  // The store before is whole, with its log.
  std::filesystem::create_directory(folder_ + "/before");
  for (const char* suffix : {"", "-wal"}) {
    std::filesystem::copy(restored->before + suffix, folder_ + "/before/normd.db" + suffix);
  }
  config_.data_dir = folder_ + "/before";
  EXPECT_EQ(Open()->stats().sessions, 40);
}

TEST_F(StoreCopiesTest, AnEmptyFolderIsRestoredInto) {
  Create("old", 2);
  ASSERT_TRUE(BackupSessionStore(config_).ok());
  config_.data_dir = folder_ + "/new/deep";
  const absl::StatusOr<RestoredStore> restored = Restore();
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->before, "");
  EXPECT_EQ(Open()->stats().sessions, 2);
}

TEST_F(StoreCopiesTest, AFileThatIsNoBackupChangesNothing) {
  Create("old", 2);
  config_.restore = folder_ + "/none.db";
  EXPECT_THAT(RestoreError(), HasSubstr("none.db cannot be read: No such file"));
  config_.restore = folder_;
  EXPECT_THAT(RestoreError(), HasSubstr("is no file"));
  config_.restore = File();
  EXPECT_THAT(RestoreError(), HasSubstr("is the store itself"));
  config_.restore = folder_ + "/text.db";
  std::ofstream(config_.restore) << std::string(10'000, 'x');
  EXPECT_EQ(Restore().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(RestoreError(), HasSubstr("text.db is no whole copy that --backup has made"));
  std::ofstream(config_.restore + "-wal") << "x";
  EXPECT_THAT(RestoreError(), HasSubstr("text.db-wal"));
  EXPECT_EQ(Open()->stats().sessions, 2);
  EXPECT_FALSE(std::filesystem::exists(File() + ".restoring"));
}

TEST_F(StoreCopiesTest, AServerThatRunsIsNotRestoredOver) {
  Create("old", 2);
  ASSERT_TRUE(BackupSessionStore(config_).ok());
  const auto store = Open();
  EXPECT_THAT(RestoreError(), HasSubstr("another server uses this session store"));
}

TEST_F(StoreCopiesTest, ARestoreThatWasCutShortIsDoneAgain) {
  Create("old", 2);
  ASSERT_TRUE(BackupSessionStore(config_).ok());
  // As if the power had failed when the log was moved away and the file was not.
  std::filesystem::copy(config_.backup, File() + ".restored");
  EXPECT_EQ(OpenSessionStore(config_, {}, &clock_).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Restore().ok());
  EXPECT_EQ(Open()->stats().sessions, 2);
}

}  // namespace
}  // namespace normd
