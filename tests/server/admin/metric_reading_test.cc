#include "server/admin/metric_reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "tests/server/admin/metric_series.h"

namespace normd {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

// With buckets that end at 0.001, 0.002 and infinity.
MetricSeries SecondsSeries(const char* method, uint64_t first, uint64_t second, uint64_t third) {
  return HistogramSeries({{"method", method}}, {{first, 0.001}, {second, 0.002}, {third, INFINITY}});
}

MetricReading SmallReading() {
  return MetricReading(
      {{.name = "calls_total",
        .metric = {CounterSeries({{"code", "OK"}, {"method", "A"}}, 3),
                   CounterSeries({{"code", "NOT_FOUND"}, {"method", "A"}}, 1),
                   CounterSeries({{"code", "OK"}, {"method", "B"}}, 5)}},
       {.name = "sessions", .metric = {GaugeSeries({}, 7)}},
       {.name = "seconds",
        .metric = {SecondsSeries("A", 0, 80, 100), SecondsSeries("B", 100, 100, 100), SecondsSeries("C", 0, 0, 0)}}});
}

TEST(MetricReading, SumsTheSeriesThatMeetTheConditions) {
  const MetricReading metrics = SmallReading();
  EXPECT_THAT(metrics.Sum("calls_total"), Optional(9));
  EXPECT_THAT(metrics.Sum("calls_total", {{"code", "OK"}}), Optional(8));
  EXPECT_THAT(metrics.Sum("calls_total", {{"code", "OK"}, {"method", "A"}}), Optional(3));
  EXPECT_THAT(metrics.Sum("sessions"), Optional(7));
  EXPECT_EQ(metrics.Sum("calls"), std::nullopt);
  EXPECT_THAT(metrics.LabelValues("calls_total", "method"), ElementsAre("A", "B"));
  EXPECT_EQ(LabelOf(*metrics.Find("sessions").front(), "method"), "");
}

TEST(MetricReading, InterpolatesQuantilesWithinABucketAndOverSeveralSeries) {
  const MetricReading metrics = SmallReading();
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

TEST(MetricReading, TheDifferenceOfTwoHasTheCountsBetweenThem) {
  const MetricReading before({{.name = "calls_total", .metric = {CounterSeries({{"code", "OK"}, {"method", "A"}}, 2)}},
                              {.name = "sessions", .metric = {GaugeSeries({}, 4)}},
                              {.name = "seconds", .metric = {SecondsSeries("A", 0, 80, 80)}}});
  const MetricReading between = SmallReading().Since(before);
  EXPECT_THAT(between.Sum("calls_total", {{"code", "OK"}, {"method", "A"}}), Optional(1));
  EXPECT_THAT(between.Sum("calls_total", {{"method", "B"}}), Optional(5)) << "a series that was not there before";
  EXPECT_THAT(between.Sum("sessions"), Optional(7)) << "a gauge is as it is";
  EXPECT_THAT(between.Quantile("seconds", 0.1, {{"method", "A"}}), Optional(0.002)) << "the 20 above 2 ms are new";
}

TEST(RecentReadings, CountSinceTheStartAndThenOverTheLastSeconds) {
  const auto calls = [](double count) {
    return MetricReading({{.name = "calls_total", .metric = {CounterSeries({}, count)}}});
  };
  const absl::Time start = absl::UnixEpoch();
  RecentReadings readings(start);
  const auto expect = [&](int second, double count, int seconds, double counted) {
    const RecentCounts recent = readings.Add(calls(count), start + absl::Seconds(second));
    EXPECT_EQ(recent.duration, absl::Seconds(seconds)) << second;
    EXPECT_THAT(recent.counts.Sum("calls_total"), Optional(counted)) << second;
  };
  expect(6, 60, 6, 60);
  expect(12, 200, 12, 200);
  expect(18, 300, 12, 240);
  expect(1000, 1000, 982, 700);
  expect(1001, 1010, 983, 710);
  expect(1010, 1100, 10, 100);
}

TEST(RecentReadings, DoNotForgetTheLastSecondsBecauseOfManyLooks) {
  const absl::Time start = absl::UnixEpoch();
  RecentReadings readings(start);
  for (int i = 0; i <= 20'000; ++i) {
    const absl::Time now = start + i * absl::Milliseconds(1);
    const RecentCounts recent = readings.Add(MetricReading(), now);
    const absl::Duration window = std::min(now - start, RecentReadings::kWindow);
    ASSERT_GE(recent.duration, window);
    ASSERT_LE(recent.duration, window + absl::Seconds(1));
  }
}

}  // namespace
}  // namespace normd
