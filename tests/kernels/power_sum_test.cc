// The logarithm, the powers and the roots of kernels/power_sum.h beside the oracle's, which share no code with them.
#include "kernels/power_sum.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/group_statistics.h"
#include "tests/support/constants.h"
#include "tests/support/oracle.h"
#include "tests/support/random.h"
#include "tests/support/wide.h"

namespace normd {
namespace {

using oracle::Abs;
using oracle::Wide;

constexpr double kPowers[] = {1, 1.0000000000000002, 1.5, 2.5, 3, 10, 1e3, 1e6, 0x1p40, 1e15, 0x1p60, 1e30, 1e300};

Wide Sum(DoublePair x) { return Wide(x.hi) + x.lo; }

// x with a low part of so few digits that the oracle's 113 bits hold the sum.
DoublePair WithLowPart(double x, Random& random) {
  const int last = std::ilogb(x) - 105;
  return Renormalise(x, std::ldexp(static_cast<double>(random.Below(int64_t{1} << 51) - (int64_t{1} << 50)), last));
}

// 1, and numbers at 2^-1 to 2^-52 from it, on either side.
std::vector<double> NumbersNearOne() {
  std::vector<double> numbers = {1};
  for (int exponent = -52; exponent < 0; ++exponent) {
    numbers.push_back(1 + std::ldexp(1, exponent));
    numbers.push_back(1 - std::ldexp(1, exponent - 1));
  }
  return numbers;
}

void ExpectWithin(Wide got, Wide want, Wide tolerance, double x, double p = 1) {
  EXPECT_TRUE(Abs(got - want) <= tolerance) << "of " << x << ", p " << p << ": " << static_cast<double>(got)
                                            << " is off by " << static_cast<double>((got - want) / want);
}

constexpr int kPrecision = -54;  // binary digits that are right

void ExpectLog2(DoublePair x) {
  const Wide want = oracle::Log2(Sum(x));
  ExpectWithin(Sum(Log2(x)), want, oracle::PowerOfTwo(kPrecision) * Abs(want), x.hi);
}

TEST(PowerSumTest, LogarithmsAreRightNearOneToo) {
  Random random(1);
  for (const double x : NumbersNearOne()) {
    ExpectLog2({x, 0});
    for (int i = 0; i < 20; ++i) ExpectLog2(WithLowPart(x, random));
  }
  for (const double lo : {0x1p-54, -0x1p-54, 0x1p-80, -0x1p-80, 0x1p-112, -0x1p-112}) ExpectLog2({1, lo});
  for (int i = 0; i < 20000; ++i) {
    const double x = std::ldexp(1 + random.Uniform(), static_cast<int>(random.Below(2000)) - 1000);
    ExpectLog2(i % 2 == 0 ? DoublePair{x, 0} : WithLowPart(x, random));
  }
  ExpectLog2({0x1p-1022, 0});
}

TEST(PowerSumTest, LogarithmsOfPowersOfTwoAreExact) {
  for (int exponent = -1022; exponent <= 1022; ++exponent) {
    const DoublePair log = Log2({std::ldexp(1, exponent), 0});
    EXPECT_EQ(log.hi, exponent);
    EXPECT_EQ(log.lo, 0);
  }
}

TEST(PowerSumTest, PowersOfTwoAreRight) {
  Random random(2);
  const auto expect_right = [](DoublePair x) {
    const Wide want = oracle::Exp2(Sum(x));
    ExpectWithin(Sum(Exp2(x)), want, oracle::PowerOfTwo(kPrecision) * want, x.hi);
  };
  for (int i = 0; i < 20000; ++i) {
    const double x = random.Uniform(-1, 1) * std::ldexp(1, static_cast<int>(random.Below(14)) - 4);
    if (x == 0 || std::abs(x) > 1000) continue;
    expect_right({x, 0});
    expect_right(WithLowPart(x, random));
  }
  for (const double x : {0.5, -0.5, 0x1.fffffffffffffp-2, 1.5, -1.5, 1e-300, -1e-300, 0x1p-53, -0x1p-54}) {
    expect_right({x, 0});
  }
  for (const int x : {0, 1, -1, 60, -160, 1000, -1000}) {
    EXPECT_EQ(Exp2({static_cast<double>(x), 0}).hi, std::ldexp(1, x));
    EXPECT_EQ(Exp2({static_cast<double>(x), 0}).lo, 0);
  }
}

// What PowerTerm promises: the error of Log2 and of the quotient grow with the power, and the root takes that back.
void ExpectTerm(DoublePair x, double largest, double p) {
  const Wide log = p * oracle::Log2(Abs(Sum(x)) / largest);
  const Wide want = oracle::Exp2(log);
  const Wide relative = oracle::PowerOfTwo(kPrecision) * (1 + Abs(log)) + p * oracle::PowerOfTwo(-103);
  const Wide got = Sum(PowerTerm(x, largest, p));
  if (want < oracle::PowerOfTwo(-159)) {
    EXPECT_TRUE(got >= 0 && got < oracle::PowerOfTwo(-158)) << x.hi << " of " << largest << ", p " << p;
  } else {
    ExpectWithin(got, want, relative * want, x.hi / largest, p);
  }
}

TEST(PowerSumTest, TermsAreRight) {
  Random random(3);
  for (const double p : kPowers) {
    for (const double near_one : NumbersNearOne()) {
      if (near_one <= 1) ExpectTerm({near_one, 0}, 1, p);
    }
    for (int i = 0; i < 3000; ++i) {
      const double largest = std::ldexp(1 + random.Uniform(), static_cast<int>(random.Below(1500)) - 750);
      double ratio = random.Uniform();
      if (i % 3 == 1) ratio = std::exp2(-ratio * 165 / p);
      if (i % 3 == 2) ratio = 1 - std::ldexp(ratio, -static_cast<int>(random.Below(53)));
      if (ratio == 0) continue;
      const DoublePair x = i % 2 == 0 ? DoublePair{largest * ratio, 0} : WithLowPart(largest * ratio, random);
      if (x.hi < largest) ExpectTerm(i % 5 == 0 ? Negate(x) : x, largest, p);
    }
  }
}

TEST(PowerSumTest, TheLargestElementIsATermOfOneAndNothingIsATermOfZero) {
  for (const double p : kPowers) {
    for (const double largest : {1.0, 0.1, 1e300, 1e-300, 0x1.fffffffffffffp+1023, 0x1p-1074}) {
      for (const double sign : {1, -1}) {
        EXPECT_EQ(PowerTerm({sign * largest, 0}, largest, p).hi, 1);
        EXPECT_EQ(PowerTerm({sign * largest, sign * -largest * 0x1p-54}, largest, p).hi, 1) << "whatever its low half";
        EXPECT_EQ(PowerTerm({sign * largest, 0}, largest, p).lo, 0);
        EXPECT_EQ(PowerTerm({sign * 0.0, 0}, largest, p).hi, 0);
        EXPECT_EQ(PowerTerm({sign * 0.0, 0}, largest, p).lo, 0);
      }
    }
    EXPECT_EQ(PowerTerm({0x1p-161, 0}, 1, p).hi, 0) << "too small to count";
    EXPECT_EQ(PowerTerm({1, 0x1p-54}, 1, p).hi, 1) << "a residual's low part takes it past the largest";
  }
  EXPECT_EQ(PowerTerm({0.999, 0}, 1, 1e300).hi, 0);
}

TEST(PowerSumTest, RootsAreRight) {
  Random random(4);
  for (const double p : kPowers) {
    EXPECT_EQ(PowerRoot({0, 0}, p).hi, 0);
    EXPECT_EQ(PowerRoot({1, 0}, p).hi, 1);
    EXPECT_EQ(PowerRoot({1, 0}, p).lo, 0);
    for (int i = 0; i < 3000; ++i) {
      double sum = 1 + std::ldexp(random.Uniform(), static_cast<int>(random.Below(60)));
      if (i % 3 == 0) sum = static_cast<double>(1 + random.Below(100));
      const DoublePair pair = i % 2 == 0 || sum == 1 ? DoublePair{sum, 0} : WithLowPart(sum, random);
      const Wide want = oracle::Exp2(oracle::Log2(Sum(pair)) / p);
      ExpectWithin(Sum(PowerRoot(pair, p)), want, oracle::PowerOfTwo(kPrecision) * want, sum, p);
    }
  }
  EXPECT_EQ(PowerRoot({8, 0}, 3).hi, 2);
  EXPECT_EQ(PowerRoot({1024, 0}, 2.5).hi, 16);
}

TEST(PowerSumTest, TermsAndRootMakeTheNorm) {
  Random random(5);
  for (const double p : kPowers) {
    for (int i = 0; i < 200; ++i) {
      std::vector<Wide> x;
      std::vector<double> values;
      double largest = 0;
      for (int64_t n = 1 + random.Below(40); n > 0; --n) {
        double v = random.Normal();
        if (i % 3 == 1) v = std::ldexp(v, static_cast<int>(random.Below(40)) - 20);
        if (i % 3 == 2) v = 1 - std::ldexp(random.Uniform(), -static_cast<int>(random.Below(53)));
        x.push_back(v);
        values.push_back(v);
        largest = std::max(largest, std::abs(v));
      }
      DoublePair sum;
      for (const double v : values) sum = Add(sum, PowerTerm({v, 0}, largest, p));
      const DivisorRule rule = {.p = p};
      const Wide want = oracle::LpNormOf(x, p);
      for (const double scale : {1.0, 0x1p+600, 0x1p-600}) {
        const Wide got = Sum(PowerNormOf(Statistic::kPowerSum, rule, sum, largest * scale)) / scale;
        ExpectWithin(got, want, oracle::PowerOfTwo(kPrecision) * want, largest, p);
      }
    }
  }
}

TEST(PowerSumTest, TheNormOfSpecialSetsIsTheirLargestElement) {
  for (const double p : {1.5, 1e300}) {
    const DivisorRule rule = {.p = p};
    for (const double scale : {1.0, 0x1p-600}) {
      EXPECT_EQ(PowerNormOf(Statistic::kPowerSum, rule, {0, 0}, kInf).hi, kInf);
      EXPECT_TRUE(std::isnan(PowerNormOf(Statistic::kPowerSum, rule, {0, 0}, kNan).hi));
      EXPECT_EQ(PowerNormOf(Statistic::kPowerSum, rule, {0, 0}, 0).hi, 0);
      EXPECT_EQ(PowerNormOf(Statistic::kMaxAbs, rule, {0, 0}, 7 * scale).hi, 7 * scale);
    }
  }
}

}  // namespace
}  // namespace normd
