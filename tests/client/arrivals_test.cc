#include "client/normload/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "client/cli/args.h"

namespace normd::client {
namespace {

constexpr uint64_t kSeed = 11;

std::vector<double> Gaps(ArrivalKind kind, double rate, int count, uint64_t seed = kSeed) {
  Arrivals arrivals(kind, rate, seed);
  std::vector<double> gaps;
  for (absl::Duration last; static_cast<int>(gaps.size()) < count;) {
    const absl::Duration next = arrivals.Next();
    EXPECT_GE(next, last);
    gaps.push_back(absl::ToDoubleSeconds(next - last));
    last = next;
  }
  return gaps;
}

TEST(Arrivals, PoissonGapsAreExponential) {
  constexpr double kRate = 500;
  constexpr int kCount = 200000;
  double sum = 0, squares = 0;
  int longer_than_mean = 0;
  for (double gap : Gaps(ArrivalKind::kPoisson, kRate, kCount)) {
    sum += gap;
    squares += gap * gap;
    if (gap > 1 / kRate) ++longer_than_mean;
  }
  const double mean = sum / kCount;
  const double deviation = std::sqrt(squares / kCount - mean * mean);
  EXPECT_NEAR(mean * kRate, 1, 0.01);
  EXPECT_NEAR(deviation * kRate, 1, 0.02);
  EXPECT_NEAR(static_cast<double>(longer_than_mean) / kCount, std::exp(-1.0), 0.005);
}

TEST(Arrivals, PoissonCountsInASecondVaryAsTheirMean) {
  Arrivals arrivals(ArrivalKind::kPoisson, 40, kSeed);
  constexpr int kSeconds = 5000;
  std::vector<int> counts(kSeconds);
  for (absl::Duration at = arrivals.Next(); at < absl::Seconds(kSeconds); at = arrivals.Next()) {
    ++counts[static_cast<size_t>(absl::ToInt64Seconds(at))];
  }
  double sum = 0, squares = 0;
  for (int count : counts) {
    sum += count;
    squares += static_cast<double>(count) * count;
  }
  const double mean = sum / kSeconds;
  EXPECT_NEAR(mean, 40, 0.5);
  EXPECT_NEAR((squares / kSeconds - mean * mean) / mean, 1, 0.1);
}

TEST(Arrivals, ABeatIsEvenAndDoesNotDrift) {
  Arrivals arrivals(ArrivalKind::kConstant, 3, kSeed);
  EXPECT_EQ(arrivals.Next(), absl::ZeroDuration());
  for (int i = 1; i < 300000; ++i) arrivals.Next();
  EXPECT_EQ(arrivals.Next(), absl::Seconds(100000));
}

TEST(Arrivals, TheSeedDecides) {
  EXPECT_EQ(Gaps(ArrivalKind::kPoisson, 7, 100, 1), Gaps(ArrivalKind::kPoisson, 7, 100, 1));
  EXPECT_NE(Gaps(ArrivalKind::kPoisson, 7, 100, 1), Gaps(ArrivalKind::kPoisson, 7, 100, 2));
  // The same on every machine: the first draw of this engine from its seed is in the C++ standard's hands.
  std::mt19937_64 random(5489);
  EXPECT_DOUBLE_EQ(Uniform(random), static_cast<double>(14514284786278117030ull >> 11) / 9007199254740992.0);
}

TEST(Arrivals, HaveNames) {
  for (ArrivalKind kind : {ArrivalKind::kPoisson, ArrivalKind::kConstant}) {
    EXPECT_EQ(*ParseArrivalKind(ArrivalName(kind)), kind);
  }
  EXPECT_TRUE(IsUsageError(ParseArrivalKind("bursts").status()));
}

}  // namespace
}  // namespace normd::client
