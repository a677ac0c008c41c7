#include "server/make_store.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/session/sqlite/sqlite_table.h"
#include "tests/server/session/fixtures.h"
#include "tests/server/small_store_config.h"

namespace normd {
namespace {

using ::testing::HasSubstr;

class OpenStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/normd-open-XXXXXX";
    config_.data_dir = folder_ = mkdtemp(name);
    config_.session_store = "sqlite";
  }
  void TearDown() override {
    for (const char* folder : {"", "-killed"}) std::filesystem::remove_all(folder_ + folder);
  }

  std::string File() const { return config_.data_dir + "/" + kSqliteFileName; }

  std::string folder_;
  Config config_ = SmallStoreConfig();
  session_test::ManualClock clock_;
};

TEST_F(OpenStoreTest, ADamagedFileIsNamedAndTheWayOutIsABackup) {
  std::ofstream(File()) << std::string(10'000, 'x');
  const absl::Status status = OpenSessionStore(config_, {}, &clock_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(File()));
  EXPECT_THAT(message, HasSubstr("SQLite error 26"));
  EXPECT_THAT(message, HasSubstr("backup"));
  EXPECT_THAT(message, HasSubstr("bytes left"));
}

TEST_F(OpenStoreTest, ALogThatBreaksOffIsAWarning) {
  {
    const auto store = *OpenSessionStore(config_, {}, &clock_);
    for (int i = 0; i < 20; ++i) {
      const std::string id = "s" + std::to_string(i);
      ASSERT_TRUE(session_test::Create(*store, session_test::NewSession(id, session_test::BatchSpec(), 1)).ok());
    }
    // As after a kill: the log is not moved into the file.
    const auto options = std::filesystem::copy_options::recursive;
    std::filesystem::copy(config_.data_dir, config_.data_dir + "-killed", options);
  }
  config_.data_dir += "-killed";
  std::fstream log(File() + "-wal", std::ios::in | std::ios::out | std::ios::binary);
  log.seekp(32 + 5 * (24 + 4096) + 100);
  log.put('\x5a');
  log.close();
  std::string warning;
  StoreObserver observer;
  observer.on_warning = [&warning](std::string_view text) { warning = text; };
  const auto store = OpenSessionStore(config_, std::move(observer), &clock_);
  EXPECT_THAT(warning, HasSubstr("breaks off after frame 5"));
  EXPECT_THAT(warning, HasSubstr(File()));
}

TEST_F(OpenStoreTest, ABackupIsCheckedRecordByRecord) {
  {
    const auto store = *OpenSessionStore(config_, {}, &clock_);
    for (int i = 0; i < 30; ++i) {
      const std::string id = "s" + std::to_string(i);
      ASSERT_TRUE(session_test::Create(*store, session_test::NewSession(id, session_test::BatchSpec(), 100)).ok());
    }
  }
  config_.backup = config_.data_dir + "/copy.db";
  EXPECT_EQ(*BackupSessionStore(config_), 30);
  ASSERT_TRUE((*SqliteConnection::Open(File(), /*read_only=*/false, ""))
                  ->Execute("UPDATE states SET state = x'00' WHERE key = 7")
                  .ok());
  config_.backup += "2";
  const absl::Status damaged = BackupSessionStore(config_).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("1 of 30"));
}

// All of it stays in memory, so that what is promised of the process's memory holds for it, too.
TEST(MemoryStoreLimits, AreThoseOfMemory) {
  Config config = SmallStoreConfig();
  config.session_store = "memory";
  config.max_total_bytes = int64_t{64} << 30;
  config.max_resident_bytes = 4096;
  session_test::ManualClock clock;
  const auto store = *OpenSessionStore(config, {}, &clock);
  ASSERT_TRUE(session_test::Create(*store, session_test::NewSession("a", session_test::BatchSpec(), 64)).ok());
  const absl::Status full =
      session_test::Create(*store, session_test::NewSession("b", session_test::BatchSpec(), 128)).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("--max_resident_bytes"));
  config.max_total_bytes = 1024;
  EXPECT_EQ(LimitsOf(config, nullptr).max_total_bytes, 1024);
  EXPECT_EQ(LimitsOf(config, nullptr).total_bytes_option, "--max_total_bytes");
}

}  // namespace
}  // namespace normd
