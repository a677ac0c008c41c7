#include "client/normctl/session_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cpp/tensor.h"

namespace normd::client {
namespace {

using Json = nlohmann::json;

v1::Session At(const std::string& uid, uint64_t version, const std::vector<double>& mean,
               const std::vector<double>& var) {
  v1::Session session;
  session.set_name("sessions/bn");
  session.set_uid(uid);
  session.set_version(version);
  session.mutable_update_time()->set_seconds(3661);
  session.mutable_update_time()->set_nanos(5000000);
  const auto channels = static_cast<int64_t>(mean.size());
  *session.mutable_state()->mutable_mean() = Tensor::F64({channels}, mean).ToProto();
  *session.mutable_state()->mutable_var() = Tensor::F64({channels}, var).ToProto();
  session.mutable_state()->set_num_batches(version);
  return session;
}

struct Watched {
  absl::Status status;
  std::vector<std::string> lines;
  int slept = 0;
};

// Watches what `replies` say, one a look.
Watched Watch(const std::vector<absl::StatusOr<v1::Session>>& replies, WatchOptions options, int width = 200) {
  std::ostringstream out, err;
  Watched watched;
  size_t next = 0;
  options.name = "sessions/bn";
  watched.status = WatchSession(
      options,
      [&]() -> absl::StatusOr<v1::Session> {
        return next < replies.size() ? replies[next++] : absl::UnavailableError("no more replies");
      },
      [&](absl::Duration) { ++watched.slept; }, {out, err, width, false});
  std::istringstream text(out.str());
  for (std::string line; std::getline(text, line);) watched.lines.push_back(line);
  return watched;
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(SessionWatch, PrintsALineForEachNewVersion) {
  const Watched watched =
      Watch({At("u", 1, {1, 3}, {2, 4}), At("u", 1, {1, 3}, {2, 4}), At("u", 4, {1.5, 3}, {2, 5})}, {.count = 2});
  ASSERT_TRUE(watched.status.ok()) << watched.status;
  ASSERT_EQ(watched.lines.size(), 3u);
  EXPECT_TRUE(Has(watched.lines[0], "time (UTC)")) << watched.lines[0];
  EXPECT_TRUE(Has(watched.lines[0], "max d var/var")) << watched.lines[0];
  EXPECT_EQ(watched.lines[1],
            "01:01:01.005        1        1              2              3              -              -  1..3 ▁█");
  EXPECT_EQ(watched.lines[2],
            "01:01:01.005        4        4           2.25            3.5            0.5           0.25  1.5..3 ▁█");
  EXPECT_EQ(watched.slept, 2);  // not after the last line
}

TEST(SessionWatch, LeavesOutWhatDoesNotFit) {
  EXPECT_FALSE(Has(Watch({At("u", 1, {1, 3}, {2, 4})}, {.count = 1}, 80).lines[1], "1..3"));
  const std::vector<double> many(100, 1);
  const std::string line = Watch({At("u", 1, many, many)}, {.count = 1}, 120).lines[1];
  EXPECT_TRUE(Has(line, "1..1")) << line;
  EXPECT_FALSE(Has(line, "▁")) << line;
}

TEST(SessionWatch, SaysThatTheSessionIsAnother) {
  const Watched watched =
      Watch({At("first", 1, {1}, {2}), At("second", 1, {9}, {9}), At("second", 2, {10}, {9})}, {.count = 3});
  ASSERT_TRUE(watched.status.ok()) << watched.status;
  ASSERT_EQ(watched.lines.size(), 5u);
  EXPECT_EQ(watched.lines[2], "sessions/bn was deleted and created again: uid first -> second");
  EXPECT_TRUE(Has(watched.lines[3], " -  ")) << watched.lines[3];  // nothing moved from one to the other
  EXPECT_TRUE(Has(watched.lines[4], "  1  ")) << watched.lines[4];
}

TEST(SessionWatch, EndsWhenTheSessionIsGone) {
  const Watched watched = Watch({At("u", 7, {1}, {2}), absl::NotFoundError("session")}, {});
  EXPECT_TRUE(absl::IsNotFound(watched.status));
  EXPECT_EQ(watched.status.message(), "sessions/bn is gone: deleted or expired after version 7 (uid u)");
  EXPECT_EQ(Watch({absl::NotFoundError("never there")}, {}).status.message(), "never there");
  EXPECT_TRUE(absl::IsUnavailable(Watch({At("u", 7, {1}, {2})}, {}).status));
}

TEST(SessionWatch, JsonIsOneObjectALineErrorsIncluded) {
  const double inf = std::numeric_limits<double>::infinity();
  const Watched watched = Watch({At("a", 1, {1, 3}, {2, 0}), At("a", 2, {1, NAN}, {2, inf}), At("b", 0, {0, 0}, {1, 1}),
                                 absl::NotFoundError("session")},
                                {.json = true});
  EXPECT_TRUE(absl::IsNotFound(watched.status));
  ASSERT_EQ(watched.lines.size(), 4u);
  std::vector<Json> lines;
  for (const std::string& line : watched.lines) lines.push_back(Json::parse(line, nullptr, false));
  EXPECT_EQ(lines[0]["version"], 1);
  EXPECT_EQ(lines[0]["time"], "1970-01-01T01:01:01.005Z");
  EXPECT_EQ(lines[0]["running_mean"]["mean"], 2.0);
  EXPECT_TRUE(lines[0]["running_mean"]["largest_change"].is_null());
  EXPECT_EQ(lines[0]["running_mean"]["values"], Json({1.0, 3.0}));
  EXPECT_EQ(lines[1]["running_mean"]["largest_change"], "NaN");
  EXPECT_EQ(lines[1]["running_var"]["largest_change"], "Infinity");
  EXPECT_EQ(lines[1]["recreated"], false);
  EXPECT_EQ(lines[2]["recreated"], true);
  EXPECT_EQ(lines[2]["uid"], "b");
  EXPECT_EQ(lines[3]["error"]["code"], "NOT_FOUND");
  const Watched unreachable = Watch({absl::UnavailableError("failed to connect to all addresses; last error: refused")},
                                    {.json = true, .errors = {"127.0.0.1:9", absl::Seconds(1), {}}});
  EXPECT_EQ(Json::parse(unreachable.lines[0])["error"]["message"].get<std::string>().find("cannot reach normd at"), 0u);
  std::ostringstream out, err;
  EXPECT_EQ(Finish(watched.status, "normctl", true, {out, err, 100, false}), kExitError);
  EXPECT_EQ(out.str(), "");  // the object is already there
}

TEST(SessionWatch, ShowsPhiOfPowerNormAndDashesWithoutState) {
  v1::Session power = At("u", 1, {}, {});
  power.mutable_state()->clear_mean();
  power.mutable_state()->clear_var();
  *power.mutable_state()->mutable_phi() = Tensor::F64({2}, {1, 2}).ToProto();
  const Watched watched = Watch({power}, {.count = 1});
  EXPECT_TRUE(Has(watched.lines[0], "max d phi/phi")) << watched.lines[0];
  EXPECT_TRUE(Has(watched.lines[1], "-            1.5 ")) << watched.lines[1];
  power.clear_state();
  EXPECT_TRUE(Has(Watch({power}, {.count = 1}).lines[1], "      -              -")) << "no state";
}

TEST(SessionWatch, MeasuresTheLargestChange) {
  EXPECT_EQ(LargestChange({1, -2}, {1.5, -4}, false), 2);
  EXPECT_EQ(LargestChange({1, -2}, {1.5, -4}, true), 1);
  EXPECT_EQ(LargestChange({0, 2}, {0, 2}, true), 0);
  EXPECT_TRUE(std::isinf(LargestChange({0}, {1}, true)));
  EXPECT_TRUE(std::isnan(LargestChange({1, NAN, 1}, {1, 2, 5}, false)));
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(LargestChange({inf}, {inf}, true), 0);
}

TEST(SessionWatch, DrawsFromTheSmallestToTheLargest) {
  EXPECT_EQ(Sparkline({0, 1, 2, 3, 4, 5, 6, 7}), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(Sparkline({5, 5}), "▁▁");
  EXPECT_EQ(Sparkline({-1e308, NAN, 1e308}), "▁ █");
  EXPECT_EQ(Sparkline({}), "");
}

}  // namespace
}  // namespace normd::client
