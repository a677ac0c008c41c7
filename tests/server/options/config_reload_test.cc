#include "server/options/config_reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/base/errors.h"
#include "tests/server/security/fake_settling.h"
#include "tests/support/temporary_file.h"

namespace normd {
namespace {

class ReadConfigAgainTest : public testing::Test {
 protected:
  absl::StatusOr<Config> Read() {
    return ReadConfigAgain(
        file_.path(), [this] { return ParseConfig({"--config=" + file_.path()}, {}); }, settling_.settling());
  }

  TemporaryFile file_{"max_sessions = 1000\n"};
  FakeSettling settling_;
};

TEST_F(ReadConfigAgainTest, TakesAFileThatRests) {
  EXPECT_EQ(Read()->max_sessions, 1000);
  EXPECT_EQ(settling_.slept, kSettleTime);
}

TEST_F(ReadConfigAgainTest, WaitsForAWriterToEnd) {
  file_.Write("max_sessions = 1");
  int pieces = 2;
  settling_.meanwhile = [&] {
    if (pieces-- > 0) std::ofstream(file_.path(), std::ios::app) << "0";
  };
  EXPECT_EQ(Read()->max_sessions, 100);
}

TEST_F(ReadConfigAgainTest, TakesNothingOfAFileThatKeepsChanging) {
  int number = 0;
  settling_.meanwhile = [&] { file_.Write("max_sessions = " + std::to_string(++number)); };
  const absl::Status status = Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetErrorDetail(status).value_or(ErrorDetail()).reason, "FILE_CHANGING");
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("--config is " + file_.path() + ", which keeps"));
}

TEST_F(ReadConfigAgainTest, ReturnsTheMistakeInAFileThatRests) {
  file_.Write("max_sessions = \"many\"\n");
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(file_.path());
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReadConfigAgain, WithoutAFileWaitsForNothing) {
  FakeSettling settling;
  EXPECT_TRUE(ReadConfigAgain(
                  "", [] { return ParseConfig({}, {}); }, settling.settling())
                  .ok());
  EXPECT_EQ(settling.slept, absl::ZeroDuration());
}

}  // namespace
}  // namespace normd
