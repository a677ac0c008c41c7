#include "server/obs/metric_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <string_view>
#include <thread>
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
  const Histograms third(&set, "c_seconds", {}, "Of none.", {.bounds = {1, 2}});
  EXPECT_EQ(MarkdownTable(set.metrics()),
            "| metric | type | labels | meaning |\n|---|---|---|---|\n"
            "| `b_total` | counter | colour, size | Of two labels. |\n"
            "| `a` | gauge |  | Mirrored. |\n"
            "| `c_seconds` | histogram |  | Of none. |\n");
}

TEST(MetricSet, WritesNameHelpTypeAndValue) {
  MetricSet set;
  Counters counters(&set, "a_total", {}, "What it is.");
  Histograms histograms(&set, "b_seconds", {}, "How long.", {.bounds = {1000, 2000}, .units = 1000});
  counters.Add(3);
  histograms.Observe(1500);
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
  EXPECT_THAT(set.Text(), HasSubstr("one_total{colour=\"red\"} 0\n"));
  EXPECT_THAT(set.Text(), HasSubstr("one_total{colour=\"blue\"} 0\n"));
  EXPECT_THAT(set.Text(), Not(HasSubstr("two_total{")));
  two.Add(1, 1, 2);
  EXPECT_EQ(two.Total(1, 2), 1);
  EXPECT_THAT(set.Text(), HasSubstr("two_total{colour=\"blue\",size=\"large\"} 1\n"));
  EXPECT_THAT(set.Text(), Not(HasSubstr("red\",size")));
}

TEST(MetricSet, EveryCombinationOfValuesIsASeriesOfItsOwn) {
  MetricSet set;
  Counters counters(&set, "a", {{"colour", kColours}, {"size", kSizes}}, "Two labels.");
  for (size_t colour = 0; colour < kColours.size(); ++colour) {
    for (size_t size = 0; size < kSizes.size(); ++size)
      counters.Add(static_cast<int64_t>(10 * colour + size + 1), colour, size);
  }
  for (size_t colour = 0; colour < kColours.size(); ++colour) {
    for (size_t size = 0; size < kSizes.size(); ++size) {
      const std::string series =
          "a{colour=\"" + std::string(kColours[colour]) + "\",size=\"" + std::string(kSizes[size]) + "\"} ";
      EXPECT_THAT(set.Text(), HasSubstr(series + std::to_string(10 * colour + size + 1) + "\n"));
    }
  }
}

TEST(MetricSet, ASeriesThatIsShownFromTheStartIsThereBeforeItIsCounted) {
  MetricSet set;
  Counters counters(&set, "a_total", {{"colour", kColours}, {"size", kSizes}}, "Two labels.");
  Histograms histograms(&set, "b", {{"colour", kColours}, {"size", kSizes}}, "Two labels.", {.bounds = {1}});
  counters.Show(0, 1);
  histograms.Show(1, 0);
  EXPECT_THAT(set.Text(), HasSubstr("a_total{colour=\"red\",size=\"middle\"} 0\n"));
  EXPECT_THAT(set.Text(), HasSubstr("b_count{colour=\"blue\",size=\"small\"} 0\n"));
}

TEST(MetricSet, AValueIsInTheFirstBucketWhoseBoundItDoesNotExceed) {
  const std::vector<int64_t> bounds = {1, 2, 4, 5, 7, 8, 9, 1000, int64_t{1} << 40};
  for (const int64_t value : {int64_t{-3}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, int64_t{5},
                              int64_t{6}, int64_t{7}, int64_t{8}, int64_t{9}, int64_t{10}, int64_t{999}, int64_t{1000},
                              int64_t{1001}, int64_t{1} << 40, (int64_t{1} << 40) + 1, int64_t{1} << 62}) {
    MetricSet set;
    Histograms histogram(&set, "a", {}, "Buckets.", {.bounds = bounds});
    histogram.Observe(value);
    const std::vector<prometheus::MetricFamily> families = set.Collect();
    const prometheus::ClientMetric::Histogram& shown = families[0].metric[0].histogram;
    ASSERT_EQ(shown.bucket.size(), bounds.size() + 1);
    for (size_t i = 0; i < bounds.size(); ++i) {
      EXPECT_EQ(shown.bucket[i].cumulative_count, value <= bounds[i] ? 1u : 0u) << value << " of bound " << bounds[i];
    }
    EXPECT_EQ(shown.bucket.back().cumulative_count, 1u);
    EXPECT_EQ(shown.sample_sum, static_cast<double>(value));
  }
}

TEST(MetricSet, AddsUpTheCountsOfManyThreads) {
  MetricSet set;
  Counters counters(&set, "a_total", {{"colour", kColours}}, "Counted.");
  Histograms histograms(&set, "b", {{"colour", kColours}}, "Observed.", {.bounds = {10, 100}});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        counters.Add(2, i % 2);
        histograms.Observe(i, i % 2);
        if (i % 500 == 0) set.Text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters.Total(0) + counters.Total(1), 16'000);
  EXPECT_EQ(histograms.Count(0), 4000);
  EXPECT_THAT(set.Text(), HasSubstr("b_sum{colour=\"red\"} 1996000\n"));
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
  std::deque<MirrorTable> mirrors;
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
