#include "client/normload/sweep.h"

#include <gtest/gtest.h>

namespace normd::client {
namespace {

RunSummary MakeRun(int64_t offered, int64_t good, int64_t p99) {
  RunSummary run;
  run.offered = offered;
  run.total.good = good;
  run.total.calls = good;
  run.total.calls_per_second = static_cast<double>(good);
  run.total.latency.p99 = p99;
  return run;
}

std::vector<SweepPoint> Points(const std::vector<bool>& under_slo) {
  std::vector<SweepPoint> out;
  for (bool under : under_slo) {
    out.emplace_back();
    out.back().under_slo = under;
  }
  return out;
}

TEST(Knee, IsTheLastLoadUnderTheSlo) {
  EXPECT_EQ(FindKnee(Points({true, true, true, false, false})), 2u);
  EXPECT_EQ(FindKnee(Points({true, true})), 1u);
  EXPECT_EQ(FindKnee(Points({true})), 0u);
}

TEST(Knee, IsNotWhereTheLowestLoadBreaksTheSlo) {
  EXPECT_FALSE(FindKnee({}).has_value());
  EXPECT_FALSE(FindKnee(Points({false, true})).has_value());
}

TEST(Knee, ALuckyLoadAboveABrokenOneDoesNotCount) { EXPECT_EQ(FindKnee(Points({true, false, true, false})), 0u); }

TEST(SweepPoint, TakesMediansOfItsRepeats) {
  const SweepPoint point = MakePoint(50, 100, {MakeRun(100, 100, 7), MakeRun(100, 99, 900), MakeRun(100, 98, 8)});
  EXPECT_EQ(point.p99_ns, 8);
  EXPECT_DOUBLE_EQ(point.good_share, 0.99);
  EXPECT_TRUE(point.under_slo);
  EXPECT_EQ(point.runs.size(), 3u);
}

TEST(SweepPoint, CallsThatFailedOrWereNeverSentBreakTheSlo) {
  RunSummary run = MakeRun(100, 98, 5);
  run.unsent = 1;
  run.total.failed = 1;
  run.total.rejected = 1;
  const SweepPoint point = MakePoint(150, 300, {run, run});
  EXPECT_FALSE(point.under_slo);
  EXPECT_EQ(point.unsent, 2);
  EXPECT_EQ(point.rejected, 2);
}

TEST(SweepPoint, IsNoisyWhereOneRunWas) {
  RunSummary quiet = MakeRun(10, 10, 1), noisy = quiet;
  quiet.background = 0.01;
  noisy.background = 0.5;
  const SweepPoint point = MakePoint(10, 10, {quiet, noisy, quiet});
  EXPECT_TRUE(point.noisy);
  EXPECT_EQ(point.background, 0.5);
  EXPECT_FALSE(MakePoint(10, 10, {quiet}).noisy);
  EXPECT_FALSE(MakePoint(10, 10, {MakeRun(1, 1, 1)}).background.has_value());
}

TEST(Summary, MedianOfEvenAndOdd) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(MedianRun({MakeRun(1, 3, 0), MakeRun(1, 1, 0), MakeRun(1, 2, 0)}).total.good, 2);
}

TEST(Summary, CountsEveryCallThatWasDue) {
  LoadOptions options;
  options.entries.resize(2);
  LoadResult result;
  result.elapsed = absl::Seconds(2);
  result.entries.resize(2);
  for (int i = 1; i <= 1000; ++i) result.entries[0].latency.Record(i * 1000);
  result.entries[0].good = 900;
  result.entries[1].errors = {{"RESOURCE_EXHAUSTED", 4}, {"UNAVAILABLE", 3}};
  result.unsent = 13;
  const RunSummary run = Summarize(options, result, 0.2);
  EXPECT_EQ(run.offered, 1020);
  EXPECT_EQ(run.total.failed, 7);
  EXPECT_EQ(run.total.rejected, 4);
  EXPECT_DOUBLE_EQ(run.total.calls_per_second, 500);
  EXPECT_DOUBLE_EQ(run.good_share(), 900.0 / 1020);
  EXPECT_EQ(run.entries[1].calls, 0);
  EXPECT_NEAR(static_cast<double>(run.total.latency.p999), 999000, 1000);
  EXPECT_TRUE(run.noisy());
}

}  // namespace
}  // namespace normd::client
