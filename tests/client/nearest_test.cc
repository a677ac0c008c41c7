#include "client/normctl/nearest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace normd::client {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

NearestCount CountOne(DType dtype, double candidate, double exact) { return CountNearest(dtype, {candidate}, {exact}); }

TEST(NearestTest, OnlyTheValueThatTheAnswerRoundsToIsTheNearest) {
  struct {
    DType dtype;
    double ulp;
  } const types[] = {{v1::DTYPE_F32, 0x1p-23}, {v1::DTYPE_F16, 0x1p-10}, {v1::DTYPE_BF16, 0x1p-7}};
  for (const auto& [dtype, ulp] : types) {
    const double exact = 1 + 0.4 * ulp;
    EXPECT_EQ(CountOne(dtype, 1, exact).nearest, 1);
    EXPECT_EQ(CountOne(dtype, 1 + ulp, exact).nearest, 0) << "0.6 ulp away";
    EXPECT_EQ(CountOne(dtype, 1 - ulp / 2, exact).nearest, 0);
    EXPECT_EQ(CountOne(dtype, exact, exact).nearest, 0) << "no value of the type";
    EXPECT_EQ(CountOne(dtype, 1 + ulp, exact).undecided, 0);
  }
  EXPECT_EQ(CountOne(v1::DTYPE_F64, 1, 1).nearest, 1);
  EXPECT_EQ(CountOne(v1::DTYPE_F64, 1 + 0x1p-52, 1).nearest, 0) << "f64 is compared with the answer itself";
}

TEST(NearestTest, AnAnswerNextToAMiddleDecidesNothing) {
  const double middle = 1 + 0x1p-24;
  for (const double exact : {middle, middle + 0x1p-52, middle - 0x1p-52}) {
    for (const double candidate : {1.0, 1 + 0x1p-23}) {
      const NearestCount count = CountOne(v1::DTYPE_F32, candidate, exact);
      EXPECT_EQ(count.nearest, 0);
      EXPECT_EQ(count.undecided, 1);
    }
    const NearestCount other = CountOne(v1::DTYPE_F32, 1 + 0x1p-22, exact);
    EXPECT_EQ(other.nearest + other.undecided, 0) << "is neither neighbour";
  }
  EXPECT_EQ(CountOne(v1::DTYPE_F32, 1, middle - 0x1p-48).nearest, 1) << "16 ulp of f64 tell them apart";
}

TEST(NearestTest, NanInfinityAndZeros) {
  EXPECT_EQ(CountOne(v1::DTYPE_F32, kNotANumber, kNotANumber).nearest, 1);
  EXPECT_EQ(CountOne(v1::DTYPE_F32, kNotANumber, 1).nearest, 0);
  EXPECT_EQ(CountOne(v1::DTYPE_F32, 1, kNotANumber).nearest, 0);
  EXPECT_EQ(CountOne(v1::DTYPE_F16, kInfinite, 70000).nearest, 1) << "it overflows on rounding";
  EXPECT_EQ(CountOne(v1::DTYPE_F16, kInfinite, -70000).nearest, 0);
  EXPECT_EQ(CountOne(v1::DTYPE_F16, -0.0, 0).nearest, 1);
}

// 1 + 2^-8 is a tie of bf16, which goes to 1, and times 1.5 is 1.5; the neighbour would give 1.515625.
TEST(NearestTest, StepsHaveTheirOwnRoundings) {
  const AffineStep weight = {.weight = {1.5}};
  const auto count = [&](double candidate, double n, const AffineStep& affine) {
    return CountNearestOfSteps(v1::DTYPE_BF16, {n}, affine, {candidate});
  };
  EXPECT_EQ(count(1.5, 1.003, weight).nearest, 1);
  EXPECT_EQ(count(1.515625, 1.003, weight).nearest, 0);
  EXPECT_EQ(count(1.515625, 1 + 0x1p-8, weight).undecided, 1);
  EXPECT_EQ(count(1.5, 1 + 0x1p-8, weight).undecided, 1);
  // 1.0078125 * 1.0078125 = 1.01568603515625 is exact in f64 and rounds to 1.015625; the bias adds a tie, to even.
  EXPECT_EQ(count(1.015625, 1.0078125, {.weight = {1.0078125}}).nearest, 1);
  EXPECT_EQ(count(1.015625, 1.0078125, {.bias = {0x1p-8 + 0x1p-60}}).nearest, 1) << "2^-60 above the tie";
  EXPECT_EQ(count(1.015625, 1.0078125, {.bias = {0x1p-8}}).nearest, 1) << "the tie itself, to even";
  EXPECT_EQ(count(1.0078125, 1.0078125, {.bias = {0x1p-8 - 0x1p-60}}).nearest, 1) << "2^-60 below the tie";
  EXPECT_EQ(count(1.0, 1.0, {.bias = {0x1p-8}}).nearest, 1) << "a tie next to an even number";
}

}  // namespace
}  // namespace normd::client
