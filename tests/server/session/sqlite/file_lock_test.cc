#include "server/session/sqlite/file_lock.h"

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/session/sqlite/sqlite_table.h"

namespace normd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FileLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/normd-lock-XXXXXX";
    folder_ = mkdtemp(name);
    store_ = folder_ + "/normd.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_, store_;
};

TEST_F(FileLockTest, KeepsASecondServerOutAndSaysWhatItNeeds) {
  const auto first = FileLock::Take(store_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(std::string(FileLock::Take(store_).status().message()),
              AllOf(HasSubstr("another server uses this session store"), HasSubstr("--data_dir")));
  EXPECT_THAT(std::string(FileLock::Take("/nonexistent/normd.db").status().message()),
              HasSubstr("No such file or directory"));
}

TEST_F(FileLockTest, ARemovedFileIsLockedAnew) {
  const auto first = FileLock::Take(store_);
  ASSERT_TRUE(first.ok()) << first.status();
  std::filesystem::remove(store_ + ".lock");
  EXPECT_TRUE((*first)->Holds());
  EXPECT_FALSE(FileLock::Take(store_).ok());
  EXPECT_TRUE((*first)->Holds());
}

TEST_F(FileLockTest, DoesNotHoldAfterAnotherTookItsRemovedFile) {
  const auto first = FileLock::Take(store_);
  ASSERT_TRUE(first.ok()) << first.status();
  std::filesystem::remove(store_ + ".lock");
  auto second = FileLock::Take(store_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_FALSE((*first)->Holds());
  second->reset();
  EXPECT_FALSE((*first)->Holds()) << "what the other one has written is not known here";
}

TEST_F(FileLockTest, ATableThatWasTakenOverWritesNoMore) {
  const auto first = SqliteTable::Open({.path = store_});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::vector<RowChange> changes = {
      {.kind = RowChange::Kind::kInsert, .id = "a", .head = "h", .state = "s", .bytes = 1}};
  ASSERT_TRUE((*first)->Write(changes).ok());
  EXPECT_FALSE((*first)->failed());
  std::filesystem::remove(store_ + ".lock");
  const auto second = SqliteTable::Open({.path = store_});
  ASSERT_TRUE(second.ok()) << second.status();
  const absl::Status refused = (*first)->Write(changes).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("taken over"));
  EXPECT_TRUE((*first)->failed());
  EXPECT_THAT(std::string((*first)->failure()), HasSubstr("lock file was removed"));
}

}  // namespace
}  // namespace normd
