#include "server/wiring/make_store.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/session/sqlite/sqlite_table.h"
#include "tests/server/session/fixtures.h"
#include "tests/server/wiring/small_store_config.h"

namespace normd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_THAT(message, HasSubstr("put a backup in its place (--restore)"));
  EXPECT_THAT(message, Not(HasSubstr("bytes left")));
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

// What SQLite only has a number for.
TEST_F(OpenStoreTest, AFileThatCanBeNoStoreIsNamedWithItsFault) {
  const auto error = [this] {
    const absl::Status status = OpenSessionStore(config_, {}, &clock_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("bytes left")));
    return std::string(status.message());
  };
  ASSERT_TRUE(std::filesystem::create_directory(File()));
  EXPECT_THAT(error(), HasSubstr(File() + ": is a folder"));
  std::filesystem::remove(File());
  ASSERT_EQ(mkfifo(File().c_str(), 0600), 0);
  EXPECT_THAT(error(), HasSubstr(File() + ": is no regular file"));
  std::filesystem::remove(File());
  ASSERT_TRUE(std::filesystem::create_directory(File() + "-wal"));
  EXPECT_THAT(error(), HasSubstr(File() + "-wal: is a folder"));
  std::filesystem::remove(File() + "-wal");
  std::filesystem::create_symlink(File(), File());
  EXPECT_THAT(error(), HasSubstr("Too many levels of symbolic links"));
  std::filesystem::remove(File());
  std::ofstream(File() + ".restored") << "x";
  EXPECT_THAT(error(), HasSubstr("run normd --restore=FILE again"));
}

// Memory keeps nothing without power, whatever is flushed to it.
TEST_F(OpenStoreTest, AStoreInMemoryPromisesNoPowerSafety) {
  struct statfs info = {};
  if (statfs("/dev/shm", &info) != 0 || info.f_type != TMPFS_MAGIC) GTEST_SKIP() << "/dev/shm is no tmpfs here";
  char name[] = "/dev/shm/normd-open-XXXXXX";
  const std::string folder = mkdtemp(name);
  config_.data_dir = folder;
  config_.durability = "power";
  std::string warning;
  StoreObserver observer;
  observer.on_warning = [&warning](std::string_view text) { warning = text; };
  {
    const auto store = OpenSessionStore(config_, std::move(observer), &clock_);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->durability(), Durability::kProcess);
  }
  EXPECT_THAT(warning, AllOf(HasSubstr(folder), HasSubstr("tmpfs"), HasSubstr("no power loss")));
  std::filesystem::remove_all(folder);
}

TEST_F(OpenStoreTest, APostgresqlThatIsAwayIsNamedWithTheCause) {
  config_.session_store = "postgres://nobody:secret@127.0.0.1:9/none";
  const absl::Status status = OpenSessionStore(config_, {}, &clock_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("refused"), Not(HasSubstr("secret"))));
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
