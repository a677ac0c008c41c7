#include "server/rpc/grpc/grpc_log.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <atomic>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "server/base/clock.h"

namespace normd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class GrpcLogTest : public ::testing::Test {
 protected:
  std::vector<nlohmann::json> Lines() const {
    std::vector<nlohmann::json> lines;
    const std::vector<std::string> texts = absl::StrSplit(out_.str(), '\n', absl::SkipEmpty());
    lines.reserve(texts.size());
    for (const std::string& text : texts) lines.push_back(nlohmann::json::parse(text));
    return lines;
  }

  std::ostringstream out_;
  SystemClock clock_;
  Log log_{{.level = LogLevel::kDebug, .format = LogFormat::kJson, .out = &out_, .burst = 5, .per_second = 0}, &clock_};
};

TEST_F(GrpcLogTest, WritesGrpcsLinesToTheServersLog) {
  const GrpcLog grpc_log(&log_);
  gpr_log(GPR_ERROR, "Failed accept4: %s \"now\"\nor never", "Too many open files");
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["level"], "ERROR");
  EXPECT_EQ(lines[0]["message"], "gRPC");
  EXPECT_EQ(lines[0]["text"], "Failed accept4: Too many open files \"now\"\nor never");
  EXPECT_THAT(std::string(lines[0]["at"]), StartsWith("grpc_log_test.cc:"));
}

TEST_F(GrpcLogTest, KeepsLevels) {
  const GrpcLog grpc_log(&log_);
  gpr_log_message("f", 1, GPR_LOG_SEVERITY_DEBUG, "one");
  gpr_log_message("f", 2, GPR_LOG_SEVERITY_INFO, "two");
  gpr_log_message("f", 3, GPR_LOG_SEVERITY_ERROR, "three");
  // gRPC itself leaves out what GRPC_VERBOSITY does not ask for, all but errors by default.
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back()["level"], "ERROR");
  EXPECT_EQ(lines.back()["at"], "f:3");
}

TEST_F(GrpcLogTest, WritesProtobufsLinesToTheServersLog) {
  const GrpcLog grpc_log(&log_);
  GOOGLE_LOG(WARNING) << "String field contains invalid UTF-8";
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["level"], "WARN");
  EXPECT_EQ(lines[0]["message"], "protobuf");
  EXPECT_THAT(std::string(lines[0]["text"]), HasSubstr("invalid UTF-8"));
}

TEST_F(GrpcLogTest, TheRateIsBounded) {
  const GrpcLog grpc_log(&log_);
  for (int i = 0; i < 100; ++i) gpr_log(GPR_ERROR, "again");
  EXPECT_EQ(Lines().size(), 5u);
}

TEST_F(GrpcLogTest, ALongTextIsCut) {
  const GrpcLog grpc_log(&log_);
  gpr_log(GPR_ERROR, "%s", std::string(100000, 'x').c_str());
  EXPECT_EQ(std::string(Lines().at(0)["text"]).size(), 1024u);
}

TEST_F(GrpcLogTest, NothingIsWrittenAfterItsEnd) {
  std::atomic<bool> stop{false};
  std::thread writer([&stop] {
    while (!stop) gpr_log(GPR_ERROR, "late");
  });
  { const GrpcLog grpc_log(&log_); }
  const std::string before = out_.str();
  gpr_log(GPR_ERROR, "later");
  EXPECT_EQ(out_.str(), before);
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace normd
