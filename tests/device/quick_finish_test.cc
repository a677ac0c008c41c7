// The finish of FAST groups in their usual state beside the one that all devices share, bit for bit.
#include "kernels/cuda/quick_finish.cuh"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "kernels/group_statistics.h"
#include "tests/support/environment.h"

namespace normd::cuda {
namespace {

// Random groups: n elements about a shift, of any magnitude that f32 has, near and far from their shift.
class Groups {
 public:
  explicit Groups(uint64_t seed) : random_(seed) {}

  int64_t Elements() { return int64_t{1} << Below(20) | static_cast<int64_t>(Below(1 << 19)); }
  // In [2^low, 2^high), with a significand that is random, has few ones or few zeros.
  double Positive(int low, int high) {
    const uint64_t bits = random_();
    const uint64_t ones = (uint64_t{1} << 52) - 1;
    const uint64_t significand = Below(4) == 0 ? bits % 4 : Below(4) == 0 ? ones - bits % 4 : bits & ones;
    return std::ldexp(1 + static_cast<double>(significand) * 0x1p-52, low + static_cast<int>(Below(high - low)));
  }
  uint64_t Below(uint64_t end) { return random_() % end; }

 private:
  std::mt19937_64 random_;
};

template <bool kCentred>
void Compare(Groups& groups, Statistic statistic, int64_t* usual) {
  const int64_t n = groups.Elements();
  DivisorRule rule;
  rule.mode = static_cast<EpsMode>(groups.Below(3));
  rule.eps = groups.Below(3) == 0 ? 0 : groups.Positive(-40, 4);
  PairSums sums;
  sums.second.hi = groups.Positive(-110, 130);
  double shift = 0;
  if constexpr (kCentred) {
    const double sign = groups.Below(2) == 0 ? 1 : -1;
    sums.first.hi = sign * std::sqrt(sums.second.hi * static_cast<double>(n)) * groups.Positive(-30, 1) * 0.75;
    shift = groups.Below(8) == 0 ? 0 : static_cast<float>(groups.Positive(-20, 20));
  }
  const QuickFinish quick = FinishQuickly<kCentred>(statistic, rule, sums, Count::Of(n), shift);
  if (!quick.is_usual) return;
  ++*usual;
  const FinishedStatistics want = FinishNarrow(statistic, rule, sums, static_cast<double>(n), shift, Precision::kFast);
  const Statistics32 want32 = ToF32(want.statistics);
  ASSERT_FALSE(want.shift_too_far || want.out_of_fast_range);
  ASSERT_TRUE(want.finite && want.elements_in_f32);
  ASSERT_EQ(std::bit_cast<uint64_t>(quick.mean), std::bit_cast<uint64_t>(want.mean));
  ASSERT_EQ(std::bit_cast<uint64_t>(quick.m2), std::bit_cast<uint64_t>(want.m2));
  ASSERT_EQ(std::bit_cast<uint64_t>(quick.inverse_std), std::bit_cast<uint64_t>(want.inverse_std));
  ASSERT_EQ(std::bit_cast<uint64_t>(want.statistics.inverse.hi), std::bit_cast<uint64_t>(want.inverse_std));
  ASSERT_EQ(std::bit_cast<uint32_t>(quick.statistics.inverse), std::bit_cast<uint32_t>(want32.inverse));
  if constexpr (kCentred) {
    ASSERT_EQ(std::bit_cast<uint32_t>(quick.statistics.shift), std::bit_cast<uint32_t>(want32.shift));
    ASSERT_EQ(std::bit_cast<uint32_t>(quick.statistics.delta), std::bit_cast<uint32_t>(want32.delta));
  }
}

TEST(QuickFinishTest, HasTheBitsOfFinishNarrow) {
  const int64_t rounds = !Environment("NORMD_TEST_FULL").empty() ? 100'000'000 : 300'000;
  Groups groups(1);
  int64_t usual = 0;
  for (int64_t i = 0; i < rounds && !::testing::Test::HasFatalFailure(); ++i) {
    Compare<true>(groups, Statistic::kMeanVariance, &usual);
    Compare<false>(groups, Statistic::kMeanSquare, &usual);
    Compare<false>(groups, Statistic::kSumSquares, &usual);
  }
  EXPECT_GT(usual, rounds);
}

TEST(QuickFinishTest, LeavesWhatIsNotUsual) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  DivisorRule rule;
  const auto is_usual = [&](double first, double second, double shift) {
    return FinishQuickly<true>(Statistic::kMeanVariance, rule, {{first, 0}, {second, 0}}, Count::Of(64), shift)
        .is_usual;
  };
  rule.eps = 1e-5;
  EXPECT_TRUE(is_usual(1, 64, 3));
  EXPECT_FALSE(is_usual(0, 0, 3));    // squares may have been lost
  EXPECT_FALSE(is_usual(64, 65, 3));  // the shift is over a deviation away
  EXPECT_FALSE(is_usual(inf, inf, 3));
  EXPECT_FALSE(is_usual(nan, nan, 3));
  EXPECT_FALSE(is_usual(1, 64, 0x1p+120));
  rule.eps = 0x1p+200;
  EXPECT_FALSE(is_usual(1, 64, 3));  // 1 / D is out of f32's range
}

}  // namespace
}  // namespace normd::cuda
