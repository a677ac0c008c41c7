#include "server/session/sqlite/sqlite_log.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "server/session/sqlite/sqlite.h"

namespace normd {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHeaderBytes = 32;
constexpr size_t kFrameBytes = 24 + kPageBytes;

class SqliteLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/normd-log-XXXXXX";
    folder_ = mkdtemp(name);
    const auto connection = *SqliteConnection::Open(folder_ + "/a.db", /*read_only=*/false, "");
    ASSERT_TRUE(connection->Execute("PRAGMA journal_mode = WAL; CREATE TABLE t (x)").ok());
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(connection->Execute("INSERT INTO t VALUES (1)").ok());
    // As a server that was killed leaves it.
    std::filesystem::copy_file(folder_ + "/a.db-wal", Log());
    frames_ = static_cast<int64_t>((std::filesystem::file_size(Log()) - kHeaderBytes) / kFrameBytes);
    ASSERT_GE(frames_, 20);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Log() const { return folder_ + "/killed-wal"; }
  void Damage(size_t at) {
    std::fstream file(Log(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put('\x5a');
  }

  std::string folder_;
  int64_t frames_ = 0;
};

TEST_F(SqliteLogTest, AWholeLogHasLostNothing) {
  EXPECT_EQ(ReadSqliteLog(Log()).frames, frames_);
  EXPECT_EQ(ReadSqliteLog(Log()).lost_commits, 0);
}

TEST_F(SqliteLogTest, CommitsBehindADamagedFrameAreLost) {
  Damage(kHeaderBytes + 9 * kFrameBytes + 100);
  EXPECT_EQ(ReadSqliteLog(Log()).frames, 9);
  EXPECT_EQ(ReadSqliteLog(Log()).lost_commits, frames_ - 9) << "each frame here is a commit";
}

TEST_F(SqliteLogTest, AnEndThatWasCutLosesNothingMore) {
  std::filesystem::resize_file(Log(), kHeaderBytes + 9 * kFrameBytes + 1000);
  EXPECT_EQ(ReadSqliteLog(Log()).frames, 9);
  EXPECT_EQ(ReadSqliteLog(Log()).lost_commits, 0);
}

TEST_F(SqliteLogTest, AFileThatIsNoLogHasNoCommits) {
  EXPECT_EQ(ReadSqliteLog(folder_ + "/nothing").frames, 0);
  std::ofstream(folder_ + "/other") << std::string(10'000, 'x');
  EXPECT_EQ(ReadSqliteLog(folder_ + "/other").frames, 0);
}

}  // namespace
}  // namespace normd
