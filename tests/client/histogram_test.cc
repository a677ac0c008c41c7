#include "client/normload/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace normd::client {
namespace {

constexpr double kResolution = 1.0 / 1024;

TEST(Histogram, QuantilesAreWithinOnePartInAThousandOfTheSortedValues) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> durations(std::log(2e5), 2);
  std::vector<int64_t> values;
  Histogram histogram;
  for (int i = 0; i < 100000; ++i) {
    values.push_back(static_cast<int64_t>(durations(random)));
    histogram.Record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (double quantile : {0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = static_cast<size_t>(std::max(1.0, std::ceil(quantile * static_cast<double>(values.size()))));
    const auto exact = static_cast<double>(values[rank - 1]);
    const auto seen = static_cast<double>(histogram.Quantile(quantile));
    EXPECT_GE(seen, exact) << quantile;
    EXPECT_LE(seen, exact * (1 + kResolution) + 1) << quantile;
  }
  EXPECT_EQ(histogram.max(), values.back());
  EXPECT_EQ(histogram.min(), values.front());
}

TEST(Histogram, OneValueIsEveryQuantile) {
  for (int64_t value : {int64_t{0}, int64_t{1}, int64_t{2047}, int64_t{2048}, int64_t{2049}, int64_t{123456789},
                        int64_t{600000000000}}) {
    Histogram histogram;
    histogram.Record(value);
    EXPECT_EQ(histogram.Quantile(0), value);
    EXPECT_EQ(histogram.Quantile(0.5), value);
    EXPECT_EQ(histogram.Quantile(1), value);
  }
}

TEST(Histogram, EveryValueUpToAMillionKeepsThreeDigits) {
  for (int64_t value = 1; value < 1000000; value += 1 + value / 400) {
    Histogram histogram;
    histogram.Record(value);
    histogram.Record(2 * value + 10);  // so that max() does not answer for the first
    const int64_t seen = histogram.Quantile(0.5);
    ASSERT_GE(seen, value);
    ASSERT_LE(static_cast<double>(seen), static_cast<double>(value) * (1 + kResolution));
  }
}

TEST(Histogram, KeepsThreeDigitsFromAMicrosecondToTenMinutes) {
  for (double value = 1e3; value <= 6e11; value *= 1.37) {
    Histogram histogram;
    for (int i = 0; i < 999; ++i) histogram.Record(static_cast<int64_t>(value));
    histogram.Record(static_cast<int64_t>(value * 1.5));
    EXPECT_NEAR(static_cast<double>(histogram.Quantile(0.999)) / value, 1, 1e-3) << value;
    EXPECT_EQ(histogram.Quantile(0.9991), static_cast<int64_t>(value * 1.5));
  }
}

TEST(Histogram, MergesWhateverTheSizes) {
  Histogram small, large, small_first, large_first;
  small.Record(5);
  large.Record(600'000'000'000);
  small_first.Merge(small);
  small_first.Merge(large);
  large_first.Merge(large);
  large_first.Merge(small);
  large_first.Merge(Histogram());
  for (double quantile : {0.1, 0.5, 0.9}) EXPECT_EQ(small_first.Quantile(quantile), large_first.Quantile(quantile));
  EXPECT_EQ(small_first.Quantile(0.5), 5);
  EXPECT_EQ(small_first.count(), 2);
}

TEST(Histogram, MergedEqualsRecordedTogether) {
  std::mt19937_64 random(8);
  Histogram parts[3], whole;
  for (int i = 0; i < 3000; ++i) {
    const auto value = static_cast<int64_t>(random() % 1000000000);
    parts[i % 3].Record(value);
    whole.Record(value);
  }
  Histogram merged;
  for (const Histogram& part : parts) merged.Merge(part);
  EXPECT_EQ(merged.count(), whole.count());
  EXPECT_EQ(merged.max(), whole.max());
  EXPECT_EQ(merged.min(), whole.min());
  EXPECT_DOUBLE_EQ(merged.mean(), whole.mean());
  for (double quantile : {0.01, 0.5, 0.99}) EXPECT_EQ(merged.Quantile(quantile), whole.Quantile(quantile));
}

TEST(Histogram, TakesAnyValue) {
  Histogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  histogram.Record(-5);
  histogram.Record(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_EQ(histogram.max(), Histogram::kMax);
  EXPECT_EQ(histogram.Quantile(1), Histogram::kMax);
}

}  // namespace
}  // namespace normd::client
