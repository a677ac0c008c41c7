#include "server/obs/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace normd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SetClock : public Clock {
 public:
  absl::Time Now() override { return now; }
  absl::Time now = absl::FromUnixSeconds(1'700'000'000);
};

std::vector<std::string> Lines(const std::ostringstream& out) {
  return absl::StrSplit(out.str(), '\n', absl::SkipEmpty());
}

const absl::Time kTime = absl::FromUnixMillis(1'700'000'000'123);

TEST(LogLine, IsKeyValueTextThatStaysOneLine) {
  const LogFields fields = {{"n", int64_t{7}}, {"plain", "a/b"}, {"rough", "x \"y\"\nz=1"}, {"empty", ""}};
  EXPECT_EQ(FormatLogLine(LogFormat::kText, kTime, LogLevel::kInfo, "hello", fields),
            R"(2023-11-14T22:13:20.123Z INFO hello n=7 plain=a/b rough="x \"y\"\nz=1" empty="")");
}

TEST(LogLine, IsAJsonObjectWithNumbersAsNumbers) {
  const LogFields fields = {{"n", int64_t{7}}, {"rough", "x \"y\"\n\xff"}};
  const std::string line = FormatLogLine(LogFormat::kJson, kTime, LogLevel::kError, "hel\"lo", fields);
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  const nlohmann::json parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed["time"], "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(parsed["level"], "ERROR");
  EXPECT_EQ(parsed["message"], "hel\"lo");
  EXPECT_EQ(parsed["n"], 7);
  EXPECT_EQ(parsed["rough"], "x \"y\"\n\xEF\xBF\xBD");
}

TEST(Log, ChangesItsStyleWhileItIsUsed) {
  std::ostringstream out;
  SetClock clock;
  Log log({.level = LogLevel::kWarn, .out = &out}, &clock);
  log.Info("one");
  log.SetStyle(LogLevel::kDebug, LogFormat::kJson);
  EXPECT_TRUE(log.Enabled(LogLevel::kDebug));
  log.Debug("two");
  log.SetStyle(LogLevel::kError, LogFormat::kText);
  log.Warn("three");
  ASSERT_EQ(Lines(out).size(), 1u);
  EXPECT_EQ(nlohmann::json::parse(out.str())["message"], "two");
}

TEST(Log, WritesItsLevelAndAbove) {
  std::ostringstream out;
  SetClock clock;
  Log log({.level = LogLevel::kWarn, .out = &out}, &clock);
  log.Debug("one");
  log.Info("two");
  log.Warn("three");
  log.Error("four");
  EXPECT_FALSE(log.Enabled(LogLevel::kInfo));
  ASSERT_EQ(Lines(out).size(), 2u);
  EXPECT_THAT(Lines(out)[0], HasSubstr("WARN three"));
  EXPECT_THAT(Lines(out)[1], HasSubstr("ERROR four"));
}

TEST(Log, LimitsTheRateOfWarningsAndCountsTheDroppedOnes) {
  std::ostringstream out;
  SetClock clock;
  Log log({.out = &out, .burst = 3, .per_second = 2}, &clock);
  for (int i = 0; i < 10; ++i) log.Error("trouble");
  EXPECT_EQ(Lines(out).size(), 3u);
  log.Info("life goes on");
  EXPECT_EQ(Lines(out).size(), 4u);
  clock.now += absl::Milliseconds(500);
  log.Error("trouble");
  log.Error("trouble");
  ASSERT_EQ(Lines(out).size(), 5u);
  EXPECT_THAT(Lines(out)[4], HasSubstr("lines_left_out=7"));
  clock.now += absl::Hours(1);
  for (int i = 0; i < 10; ++i) log.Warn("trouble");
  EXPECT_EQ(Lines(out).size(), 8u) << "a long quiet time gives back no more than the burst";
}

TEST(Log, LinesOfSeveralThreadsStayWhole) {
  std::ostringstream out;
  SetClock clock;
  Log log({.out = &out}, &clock);
  const std::string text(200, 'x');
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&log, &text] {
      for (int line = 0; line < 100; ++line) log.Info("message", {{"text", text}});
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::vector<std::string> lines = Lines(out);
  EXPECT_EQ(lines.size(), 400u);
  for (const std::string& line : lines) EXPECT_EQ(line, "2023-11-14T22:13:20.000Z INFO message text=" + text);
}

TEST(Log, AWriteToStderrThatFailsCostsItsOwnLineAlone) {
  SetClock clock;
  Log log({}, &clock);
  testing::internal::CaptureStderr();
  log.Info("one");
  const int captured = dup(STDERR_FILENO);
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  dup2(full, STDERR_FILENO);
  log.Info("lost");
  dup2(captured, STDERR_FILENO);
  log.Warn("two", {{"n", int64_t{2}}});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "2023-11-14T22:13:20.000Z INFO one\n2023-11-14T22:13:20.000Z WARN two n=2\n");
  close(full);
  close(captured);
}

}  // namespace
}  // namespace normd
