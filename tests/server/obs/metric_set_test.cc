#include "server/obs/metric_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace normd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::array<std::string_view, 2> kColours = {"red", "blue"};
constexpr std::array<std::string_view, 3> kSizes = {"small", "middle", "large"};

TEST(MetricSet, ListsItsMetricsInTheOrderInWhichTheyWereMade) {
  MetricSet set;
  const Counters second(&set, "b_total", {{"colour", kColours}, {"size", kSizes}}, "Of two labels.");
  const MirrorTable first(&set, "a", MetricType::kGauge, {}, "Mirrored.");
  const Histograms third(&set, "c_seconds", {}, "Of none.", {1, 2});
  EXPECT_EQ(MarkdownTable(set.metrics()),
            "| metric | type | labels | meaning |\n|---|---|---|---|\n"
            "| `b_total` | counter | colour, size | Of two labels. |\n"
            "| `a` | gauge |  | Mirrored. |\n"
            "| `c_seconds` | histogram |  | Of none. |\n");
}

TEST(MetricSet, WritesNameHelpTypeAndValue) {
  MetricSet set;
  Counters counters(&set, "a_total", {}, "What it is.");
  Histograms histograms(&set, "b_seconds", {}, "How long.", {1, 2});
  counters.At().Increment(3);
  histograms.At().Observe(1.5);
  EXPECT_EQ(set.Text(),
            "# HELP a_total What it is.\n# TYPE a_total counter\na_total 3\n"
            "# HELP b_seconds How long.\n# TYPE b_seconds histogram\n"
            "b_seconds_count 1\nb_seconds_sum 1.5\n"
            "b_seconds_bucket{le=\"1\"} 0\nb_seconds_bucket{le=\"2\"} 1\nb_seconds_bucket{le=\"+Inf\"} 1\n");
}

TEST(MetricSet, OneLabelHasAllSeriesFromTheStartAndSeveralHaveThoseThatWereUsed) {
  MetricSet set;
  const Counters one(&set, "one_total", {{"colour", kColours}}, "One label.");
  Counters two(&set, "two_total", {{"colour", kColours}, {"size", kSizes}}, "Two.");
  EXPECT_EQ(one.size(), 2u);
  EXPECT_EQ(two.size(), 6u);
  EXPECT_EQ(two.Find(1, 2), nullptr);
  EXPECT_THAT(set.Text(), HasSubstr("one_total{colour=\"red\"} 0\n"));
  EXPECT_THAT(set.Text(), HasSubstr("one_total{colour=\"blue\"} 0\n"));
  EXPECT_THAT(set.Text(), Not(HasSubstr("two_total{")));
  two.At(1, 2).Increment();
  ASSERT_NE(two.Find(1, 2), nullptr);
  EXPECT_EQ(two.Find(1, 2)->Value(), 1);
  EXPECT_THAT(set.Text(), HasSubstr("two_total{colour=\"blue\",size=\"large\"} 1\n"));
  EXPECT_THAT(set.Text(), Not(HasSubstr("red\",size")));
}

TEST(MetricSet, EveryCombinationOfValuesIsASeriesOfItsOwn) {
  MetricSet set;
  Gauges gauges(&set, "a", {{"colour", kColours}, {"size", kSizes}}, "Two labels.");
  for (size_t colour = 0; colour < kColours.size(); ++colour) {
    for (size_t size = 0; size < kSizes.size(); ++size) gauges.At(colour, size).Set(10.0 * colour + size);
  }
  for (size_t colour = 0; colour < kColours.size(); ++colour) {
    for (size_t size = 0; size < kSizes.size(); ++size) {
      const std::string series =
          "a{colour=\"" + std::string(kColours[colour]) + "\",size=\"" + std::string(kSizes[size]) + "\"} ";
      EXPECT_THAT(set.Text(), HasSubstr(series + std::to_string(10 * colour + size) + "\n"));
    }
  }
}

TEST(MetricSet, AMirroredGaugeFollowsAndAMirroredCounterNeverFalls) {
  MetricSet set;
  MirrorTable gauge(&set, "a", MetricType::kGauge, {}, "Follows.");
  MirrorTable counter(&set, "b_total", MetricType::kCounter, {}, "Grows.");
  struct Step {
    double value;
    const char* gauge;
    const char* counter;
  };
  for (const Step& step : {Step{5, "\na 5\n", "\nb_total 5\n"}, Step{3, "\na 3\n", "\nb_total 5\n"},
                           Step{5, "\na 5\n", "\nb_total 5\n"}, Step{8.5, "\na 8.5\n", "\nb_total 8.5\n"}}) {
    gauge.Set(0, step.value);
    counter.Set(0, step.value);
    EXPECT_THAT(set.Text(), HasSubstr(step.gauge));
    EXPECT_THAT(set.Text(), HasSubstr(step.counter));
  }
}

TEST(MetricSet, AMirrorWithALabelHasOneSeriesForEachValue) {
  MetricSet set;
  std::vector<MirrorTable> mirrors;  // which moves them
  mirrors.emplace_back(&set, "a_total", MetricType::kCounter, std::vector<Label>{{"colour", kColours}}, "Counted.");
  mirrors.emplace_back(&set, "b", MetricType::kGauge, std::vector<Label>{{"size", kSizes}}, "Set.");
  ASSERT_EQ(mirrors[0].size(), 2u);
  ASSERT_EQ(mirrors[1].size(), 3u);
  mirrors[0].Set(1, 4);
  mirrors[1].Set(2, 7);
  EXPECT_THAT(set.Text(), HasSubstr("a_total{colour=\"red\"} 0\n"));
  EXPECT_THAT(set.Text(), HasSubstr("a_total{colour=\"blue\"} 4\n"));
  EXPECT_THAT(set.Text(), HasSubstr("b{size=\"small\"} 0\n"));
  EXPECT_THAT(set.Text(), HasSubstr("b{size=\"large\"} 7\n"));
}

}  // namespace
}  // namespace normd
