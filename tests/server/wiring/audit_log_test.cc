#include "server/wiring/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/support/temporary_file.h"

namespace normd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class AuditLogTest : public testing::Test {
 protected:
  std::unique_ptr<AuditLog> Open(LogFormat format = LogFormat::kText) {
    absl::StatusOr<std::unique_ptr<AuditLog>> log = AuditLog::Open(path_, format, &clock_);
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }
  static AuditRecord Fork() {
    return {.method = "/normd.v1.Sessions/ForkSession",
            .identity = std::make_shared<Identity>(Identity{"token:ci", "vision"}),
            .peer = "fd:9",
            .session = "sessions/b",
            .source = "sessions/a",
            .request_id = "job-7"};
  }
  static std::vector<std::string> Lines(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return absl::StrSplit(text.str(), '\n', absl::SkipEmpty());
  }

  TemporaryFile place_;
  const std::string path_ = place_.folder() + "/audit";
  SystemClock clock_;
};

TEST_F(AuditLogTest, NamesCallerMethodSessionAndOutcome) {
  const auto log = Open();
  log->Write(Fork());
  AuditRecord stranger = {.method = "/x/y\n", .peer = "ipv4:1.2.3.4:5", .denied = "no_credentials", .request_id = "0a"};
  stranger.code = absl::StatusCode::kUnauthenticated;
  log->Write(stranger);
  const std::vector<std::string> lines = Lines(path_);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], HasSubstr(" INFO audit method=/normd.v1.Sessions/ForkSession identity=token:ci tenant=vision "
                                  "peer=fd:9 request_id=job-7 code=OK session=sessions/b source=sessions/a"));
  EXPECT_THAT(lines[1], HasSubstr(" WARN audit method=\"/x/y\\n\" identity=unknown tenant=default peer=ipv4:1.2.3.4:5 "
                                  "request_id=0a code=UNAUTHENTICATED denied=no_credentials"));
}

TEST_F(AuditLogTest, EscapesCharactersThatChangeTheDirectionOfText) {
  AuditRecord record = Fork();
  record.identity = std::make_shared<Identity>(Identity{"cn:\xe2\x80\xaeniamod\xc2\x9b", ""});
  Open()->Write(record);
  Open(LogFormat::kJson)->Write(record);
  const std::vector<std::string> lines = Lines(path_);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], HasSubstr("identity=\"cn:\\u202eniamod\\u009b\""));
  EXPECT_THAT(lines[1], HasSubstr("\"identity\":\"cn:\\u202eniamod\\u009b\""));
}

TEST_F(AuditLogTest, WritesJsonWhereTheLogDoes) {
  const auto log = Open(LogFormat::kJson);
  log->Write(Fork());
  EXPECT_THAT(Lines(path_)[0], AllOf(HasSubstr("\"message\":\"audit\""), HasSubstr("\"identity\":\"token:ci\"")));
}

TEST_F(AuditLogTest, KeepsAllLinesOfAdmittedCallsAndLimitsThoseOfDeniedCalls) {
  const auto log = Open();
  for (int i = 0; i < 500; ++i) {
    log->Write(Fork());
    log->Write({.method = "/x/y", .peer = "p", .denied = "unknown_token"});
  }
  int let_in = 0, denied = 0;
  for (const std::string& line : Lines(path_)) ++(line.find("denied=") == std::string::npos ? let_in : denied);
  EXPECT_EQ(let_in, 500);
  EXPECT_GE(denied, 20);
  EXPECT_LT(denied, 500);
}

TEST_F(AuditLogTest, IsForItsOwnerAloneAndIsAddedTo) {
  Open()->Write(Fork());
  Open()->Write(Fork());
  EXPECT_EQ(Lines(path_).size(), 2U);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(AuditLogTest, GoesOnInANewFileAfterTheOldOneWasRenamed) {
  const auto log = Open();
  log->Write(Fork());
  std::filesystem::rename(path_, path_ + ".1");
  log->Write(Fork());
  ASSERT_TRUE(log->Reopen().ok());
  log->Write(Fork());
  EXPECT_EQ(Lines(path_ + ".1").size(), 2U);
  EXPECT_EQ(Lines(path_).size(), 1U);
}

TEST_F(AuditLogTest, KeepsItsFileWhenItCannotBeOpenedAnew) {
  const auto log = Open();
  std::filesystem::rename(path_, path_ + ".1");
  std::filesystem::create_directory(path_);
  EXPECT_THAT(std::string(log->Reopen().message()), HasSubstr("--audit_log " + path_));
  log->Write(Fork());
  EXPECT_EQ(Lines(path_ + ".1").size(), 1U);
}

TEST_F(AuditLogTest, ALineThatTheFileDoesNotTakeGoesToStderr) {
  const auto log = AuditLog::Open("/dev/full", LogFormat::kText, &clock_);
  ASSERT_TRUE(log.ok()) << log.status();
  testing::internal::CaptureStderr();
  (*log)->Write(Fork());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("identity=token:ci"));
}

TEST_F(AuditLogTest, WithoutAFileGoesToStderr) {
  const auto log = AuditLog::Open("", LogFormat::kText, &clock_);
  ASSERT_TRUE(log.ok()) << log.status();
  testing::internal::CaptureStderr();
  (*log)->Write(Fork());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("identity=token:ci"));
}

}  // namespace
}  // namespace normd
