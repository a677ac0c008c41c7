#include "server/admin/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

constexpr char kText[] =
    "# HELP calls_total Calls.\n"
    "# TYPE calls_total counter\n"
    "calls_total{method=\"A\",code=\"OK\"} 3\n"
    "calls_total{method=\"A\",code=\"NOT_FOUND\"} 1\n"
    "calls_total{method=\"B\",code=\"OK\"} 5 1700000000000\n"
    "sessions 7\n"
    "drift{session=\"a\\\"b\\\\c\\nd,e}\"} 0.5\n"
    "seconds_bucket{method=\"A\",le=\"0.001\"} 0\n"
    "seconds_bucket{method=\"A\",le=\"0.002\"} 80\n"
    "seconds_bucket{method=\"A\",le=\"+Inf\"} 100\n"
    "seconds_bucket{method=\"B\",le=\"0.001\"} 100\n"
    "seconds_bucket{method=\"B\",le=\"0.002\"} 100\n"
    "seconds_bucket{method=\"B\",le=\"+Inf\"} 100\n"
    "seconds_bucket{method=\"C\",le=\"+Inf\"} 0\n";

TEST(Exposition, SumsTheSamplesThatMeetTheConditions) {
  const Exposition metrics(kText);
  EXPECT_THAT(metrics.Sum("calls_total"), Optional(9));
  EXPECT_THAT(metrics.Sum("calls_total", {{"code", "OK"}}), Optional(8));
  EXPECT_THAT(metrics.Sum("calls_total", {{"code", "OK"}, {"method", "A"}}), Optional(3));
  EXPECT_THAT(metrics.Sum("sessions"), Optional(7));
  EXPECT_EQ(metrics.Sum("calls"), std::nullopt);
  EXPECT_THAT(metrics.LabelValues("calls_total", "method"), ElementsAre("A", "B"));
}

TEST(Exposition, ReadsLabelsWhoseValuesAreEscaped) {
  const Exposition metrics(kText);
  ASSERT_EQ(metrics.Find("drift").size(), 1u);
  EXPECT_EQ(metrics.Find("drift")[0]->Label("session"), "a\"b\\c\nd,e}");
  EXPECT_EQ(metrics.Find("drift")[0]->Label("other"), "");
}

TEST(Exposition, InterpolatesQuantilesWithinABucketAndOverSeveralSeries) {
  const Exposition metrics(kText);
  const auto quantile = [&](double q, const std::vector<LabelIs>& conditions) {
    return metrics.Quantile("seconds", q, conditions).value_or(-1);
  };
  EXPECT_DOUBLE_EQ(quantile(0.4, {{"method", "A"}}), 0.0015);
  EXPECT_DOUBLE_EQ(quantile(0.99, {{"method", "A"}}), 0.002) << "beyond the last bound";
  EXPECT_DOUBLE_EQ(quantile(0.5, {{"method", "B"}}), 0.0005);
  EXPECT_DOUBLE_EQ(quantile(0.7, {}), 0.0015);
  EXPECT_EQ(metrics.Quantile("seconds", 0.5, {{"method", "C"}}), std::nullopt) << "nothing was observed";
  EXPECT_EQ(metrics.Quantile("other", 0.5), std::nullopt);
}

TEST(Exposition, LeavesOutLinesOfAnotherForm) {
  for (const char* text : {"", "\n\n", "name", "name{", "name{label", "name{label=", "name{label=\"",
                           "name{label=\"x\"", "name{label=\"x\"} word", "name word", "{} 1"}) {
    EXPECT_EQ(Exposition(text).Sum("name"), std::nullopt) << text;
  }
  EXPECT_THAT(Exposition("name word\nname{label=\nname 1").Sum("name"), Optional(1));
}

}  // namespace
}  // namespace normd
