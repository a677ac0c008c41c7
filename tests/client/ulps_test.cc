#include "client/normctl/ulps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/support/wide.h"

namespace normd::client {
namespace {

using oracle::Wide;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Format {
  DType dtype;
  int precision, least;
};
constexpr Format kFormats[] = {
    {v1::DTYPE_F16, 11, -14}, {v1::DTYPE_BF16, 8, -126}, {v1::DTYPE_F32, 24, -126}, {v1::DTYPE_F64, 53, -1022}};

// The definition, written with the exponent of the value in 113 bits: no power of two, no overflow.
double Reference(const Format& format, double candidate, double exact) {
  int exponent = format.least;
  while (oracle::Abs(exact) >= oracle::PowerOfTwo(exponent + 1)) ++exponent;
  const Wide ulp = oracle::PowerOfTwo(exponent - format.precision + 1);
  return static_cast<double>(oracle::Abs(Wide(candidate) - Wide(exact)) / ulp);
}

TEST(Ulps, AgreeWithTheDefinitionInEveryBinade) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> mantissa(1.0000001, 1.9999999), error(-9, 9);
  for (const Format& format : kFormats) {
    const int last = format.dtype == v1::DTYPE_F16 ? 14 : 120;
    for (int exponent = format.least; exponent <= last; exponent += exponent < format.least + 60 ? 1 : 40) {
      const double exact = std::ldexp(mantissa(random), exponent) * (exponent % 2 == 0 ? 1 : -1);
      const double candidate = exact + error(random) * std::ldexp(1.0, exponent - format.precision + 1);
      EXPECT_EQ(Ulps(format.dtype, candidate, exact), Reference(format, candidate, exact)) << exact;
    }
  }
}

TEST(Ulps, AValueRoundedToNearestIsWithinHalfOfOne) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> log(-30, 15);
  for (const DType dtype : {v1::DTYPE_F16, v1::DTYPE_BF16, v1::DTYPE_F32}) {
    double worst = 0;
    for (int i = 0; i < 20000; ++i) {
      const double exact = std::exp2(log(random));
      const double rounded = Tensor::Rounded(dtype, {1}, {exact}).ToDoubles()[0];
      worst = std::max(worst, Ulps(dtype, rounded, exact));
    }
    EXPECT_LE(worst, 0.5);
    EXPECT_GT(worst, 0.49);
  }
}

TEST(Ulps, AreHalfAsLargeBelowAPowerOfTwo) {
  const float one = 1, below = std::nextafterf(one, 0), above = std::nextafterf(one, 2);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, above, 1), 1);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, below, 1), 1);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, -below, -1), 1);
  // 1 lies just above `exact`, whose own ulp is the smaller one.
  const double exact = 1 - 0x1p-26;
  EXPECT_EQ(Ulps(v1::DTYPE_F32, 1, exact), 0.25);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, above, exact), 2.25);
  // The smallest normal number has the same neighbours on both sides.
  const float smallest = std::numeric_limits<float>::min();
  EXPECT_EQ(Ulps(v1::DTYPE_F32, std::nextafterf(smallest, 0), smallest), 1);
}

TEST(Ulps, AtZeroAndAmongSubnormalsAreTheSmallestSubnormal) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(Ulps(v1::DTYPE_F32, 0.0, -0.0), 0);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, 3 * tiny, 0), 3);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, -tiny, tiny), 2);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, 0, tiny / 2.0), 0.5);
  EXPECT_EQ(Ulps(v1::DTYPE_F16, 0x1p-24, 0), 1);
  EXPECT_EQ(Ulps(v1::DTYPE_BF16, 0x1p-133, 0), 1);
  EXPECT_EQ(Ulps(v1::DTYPE_F64, std::numeric_limits<double>::denorm_min(), 0), 1);
}

TEST(Ulps, NanAndInfinityEqualThemselvesAndMismatchTheRest) {
  EXPECT_EQ(Ulps(v1::DTYPE_F32, kNan, kNan), 0);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, kInf, kInf), 0);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, kNan, 1), kInf);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, 1, kNan), kInf);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, kInf, 1), kInf);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, kInf, -kInf), kInf);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, 1, kInf), kInf);
}

TEST(Ulps, ValuesThatRoundToInfinityAreRightAsInfinity) {
  EXPECT_EQ(Ulps(v1::DTYPE_F16, kInf, 65520), 0);        // half an ulp above the largest, 65504
  EXPECT_EQ(Ulps(v1::DTYPE_F16, kInf, 65519.99), kInf);  // rounds to 65504
  EXPECT_EQ(Ulps(v1::DTYPE_F16, -kInf, 65520), kInf);
  EXPECT_EQ(Ulps(v1::DTYPE_F16, 65504, 1e6), 1);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, kInf, 1e300), 0);
  EXPECT_EQ(Ulps(v1::DTYPE_F64, -1.7976931348623157e308, 1.7976931348623157e308), std::ldexp(2, 53) - 2);
}

TEST(Ulps, AFloorJudgesSmallValuesByLargerUlps) {
  EXPECT_EQ(Ulps(v1::DTYPE_F32, 0x1p-40, 0, 1), std::ldexp(1.0, -17));
  EXPECT_EQ(Ulps(v1::DTYPE_F32, 4 + 0x1p-21, 4, 1), 1);
  EXPECT_EQ(Ulps(v1::DTYPE_F32, 1 - 0x1p-21, 1, 4), 1);
}

TEST(CompareUlps, CountsPlantedErrors) {
  std::vector<double> exact(1000, 1.5), candidate = exact;
  const double ulp = 0x1p-23;
  candidate[10] += ulp / 2;
  candidate[20] += ulp;
  candidate[30] -= 2 * ulp;
  candidate[40] += 3 * ulp;
  candidate[50] = kNan;
  candidate[60] -= 300 * ulp;
  const UlpReport report = CompareUlps(v1::DTYPE_F32, candidate, exact, {.worst = 3});
  EXPECT_EQ(report.elements, 1000);
  EXPECT_EQ(report.mismatches, 1);
  EXPECT_EQ(report.AtMost(0.5), 995);
  EXPECT_EQ(report.AtMost(1), 996);
  EXPECT_EQ(report.AtMost(2), 997);
  EXPECT_EQ(report.AtMost(4), 998);
  EXPECT_EQ(report.AtMost(65536), 999);
  EXPECT_EQ(report.max, 300);
  EXPECT_DOUBLE_EQ(report.mean, (0.5 + 1 + 2 + 3 + 300) / 999);
  EXPECT_EQ(report.p50, 0);
  EXPECT_EQ(report.p99, 0);
  EXPECT_EQ(report.p99_9, 300);
  EXPECT_EQ(report.max_absolute, 300 * ulp);
  EXPECT_EQ(report.max_relative, 300 * ulp / 1.5);
  ASSERT_EQ(report.worst.size(), 3u);
  EXPECT_EQ(report.worst[0].index, 50);
  EXPECT_EQ(report.worst[1].index, 60);
  EXPECT_EQ(report.worst[2].index, 40);
}

TEST(CompareUlps, GivesTheCandidateTheErrorOfTheExactAnswer) {
  // A tie, and an exact answer that missed it by one ulp of f64.
  const double tie = 1.5 + 0x1p-24, missed = std::nextafter(tie, 1);
  EXPECT_GT(Ulps(v1::DTYPE_F32, 1.5 + 0x1p-23, missed), 0.5);
  EXPECT_EQ(CompareUlps(v1::DTYPE_F32, {1.5 + 0x1p-23}, {missed}, {}).AtMost(0.5), 1);
  EXPECT_EQ(CompareUlps(v1::DTYPE_F32, {1.5 + 0x1p-23}, {tie - 0x1p-40}, {}).AtMost(0.5), 0);
  EXPECT_EQ(ExactnessUlps(v1::DTYPE_F32), 0x1p-27);
  EXPECT_EQ(ExactnessUlps(v1::DTYPE_F64), 0);
}

TEST(CompareUlps, AnEmptyTensorHasNoErrors) {
  const UlpReport report = CompareUlps(v1::DTYPE_F32, {}, {}, {});
  EXPECT_EQ(report.elements, 0);
  EXPECT_EQ(report.max, 0);
  EXPECT_TRUE(report.worst.empty());
}

}  // namespace
}  // namespace normd::client
