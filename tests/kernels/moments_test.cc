#include "kernels/moments.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace normd {
namespace {

// From the definition, in a wider type.
Moment MomentOf(const std::vector<double>& values) {
  __extension__ using Wide = __float128;
  Wide sum = 0;
  for (const double value : values) sum += value;
  const Wide mean = sum / static_cast<Wide>(values.size());
  Wide m2 = 0;
  for (const double value : values) m2 += (value - mean) * (value - mean);
  return {static_cast<double>(values.size()), static_cast<double>(mean), static_cast<double>(m2)};
}

TEST(Moment, MergesTheWorkedExample) {
  const Moment merged = Merge(MomentOf({1, 3}), MomentOf({5, 9}));
  EXPECT_EQ(merged.count, 4);
  EXPECT_EQ(merged.mean, 4.5);
  EXPECT_EQ(merged.BiasedVariance(), 8.75);
  EXPECT_NEAR(merged.UnbiasedVariance(), 11.6667, 5e-5);
  EXPECT_EQ(merged.UnbiasedVariance(), 35.0 / 3);
}

TEST(Moment, MergingAnEmptySetChangesNoBit) {
  const Moment some = {3, 0.1, 1.0 / 3};
  for (const Moment& merged : {Merge(some, Moment{}), Merge(Moment{}, some)}) {
    EXPECT_EQ(merged.count, some.count);
    EXPECT_EQ(merged.mean, some.mean);
    EXPECT_EQ(merged.m2, some.m2);
  }
  const Moment nothing = Merge(Moment{}, Moment{});
  EXPECT_EQ(nothing.count, 0);
  EXPECT_EQ(nothing.mean, 0);
  EXPECT_EQ(nothing.m2, 0);
  // A set without elements may carry 0/0 for its mean.
  const Moment undefined = {0, std::numeric_limits<double>::quiet_NaN(), 0};
  EXPECT_EQ(Merge(some, undefined).mean, some.mean);
  EXPECT_EQ(Merge(undefined, some).mean, some.mean);
}

TEST(Moment, MergesEverySplitOfAListToTheWholeList) {
  const std::vector<double> values = {2.5, -1, 7, 7, 0.125, 30, -4, 1e3, 3};
  const Moment whole = MomentOf(values);
  for (size_t split = 1; split < values.size(); ++split) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(split);
    const Moment merged = Merge(MomentOf({values.begin(), middle}), MomentOf({middle, values.end()}));
    EXPECT_EQ(merged.count, whole.count);
    EXPECT_NEAR(merged.mean, whole.mean, 1e-13 * std::abs(whole.mean));
    EXPECT_NEAR(merged.m2, whole.m2, 1e-14 * whole.m2);
  }
}

TEST(Moment, KeepsTheVarianceOfValuesFarFromZero) {
  const Moment merged = Merge(MomentOf({1e8, 1e8 + 8}), MomentOf({1e8 + 16, 1e8 + 24}));
  EXPECT_EQ(merged.mean, 1e8 + 12);
  EXPECT_EQ(merged.BiasedVariance(), 80);
}

TEST(Moment, SumsOfSquaresAboutZeroAdd) {
  const Moment merged = Merge({2, 0, 5}, {3, 0, 7});
  EXPECT_EQ(merged.count, 5);
  EXPECT_EQ(merged.mean, 0);
  EXPECT_EQ(merged.m2, 12);
}

TEST(Moment, LargeButFiniteMomentsDoNotOverflowOnTheWay) {
  // delta^2 * n1 * n2 alone would be 1e312.
  const Moment merged = Merge({1e4, 0, 0}, {1e4, 1e152, 0});
  EXPECT_EQ(merged.mean, 5e151);
  EXPECT_NEAR(merged.m2 / 5e307, 1, 1e-15);
}

TEST(Moment, NotANumberAndInfinitySpread) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(Merge({2, nan, nan}, {2, 1, 1}).mean));
  EXPECT_TRUE(std::isnan(Merge({2, 1, 1}, {2, 1, nan}).m2));
  EXPECT_FALSE(std::isfinite(Merge({2, 1, 1}, {2, inf, nan}).mean));
}

TEST(Moment, OneValueHasNoVariance) {
  const Moment one = {1, 42, 0};
  EXPECT_EQ(one.BiasedVariance(), 0);
  const Moment two = Merge(one, {1, 44, 0});
  EXPECT_EQ(two.BiasedVariance(), 1);
  EXPECT_EQ(two.UnbiasedVariance(), 2);
}

}  // namespace
}  // namespace normd
