// The ways in which EXACT calculates f32 elements (kernels/group_statistics.h, "Elements"), where one way ends and
// another begins: means on an element or beside it, means near the guard of eight deviations, factors and weights near
// the bounds of the pairs of floats, signed zeros; and a search for rows that make the error as large as it gets.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/group_statistics.h"
#include "tests/accuracy/forms.h"
#include "tests/accuracy/judge.h"
#include "tests/support/random.h"

namespace normd::accuracy {
namespace {

// Half an ulp is the last rounding; what comes before it may add a hundredth.
constexpr double kNearlyRoundedOnce = 0.51;

TEST(FormsTest, AnElementEqualToTheMeanGivesPlusZero) {
  Random random(3);
  for (int round = 0; round < 100; ++round) {
    // An odd number of 24 bits, so that it is a value of f32 with no bit to spare, and a mean of three deviations.
    const double m = (random.Below(2) == 0 ? 1 : -1) * (0x1p23 + 2.0 * static_cast<double>(random.Below(1 << 21)) + 1);
    const double a = 0x1p21 + static_cast<double>(random.Below(1 << 20));
    const Values x = {m + a, m, m - a};
    const Values columns = {m + a, m + a, m, m, m - a, m - a};  // two channels; y[2] is the element
    for (const auto& [call, at] :
         {std::pair{F32Call(cases::Over({3}), {1, 3}, x), 1},
          {F32Call(cases::Group(1, kFirst), {1, 1, 3}, x), 1},
          {F32Call(cases::Group(1, kFirst), {1, 1, 3}, x).Weight({0.3}), 1},
          {F32Call(cases::Of(Method::kBatchNorm, kLast), {3, 2}, columns), 2},
          {F32Call(cases::Of(Method::kBatchNorm, kLast), {3, 2}, columns).Weight({0.7, 3}), 2}}) {
      const double y = call.Y()[static_cast<size_t>(at)];
      EXPECT_TRUE(y == 0 && !std::signbit(y)) << call.c.Name() << " mean " << m << " y " << y;
    }
  }
}

// A mean that is no value of f32, beside elements of which some are as near to it as they can be.
TEST(FormsTest, MeansNearTheGuardAreAsExactAsOthers) {
  double worst = 0;
  for (const double deviations : {0.0, 0.5, 1.0, 4.0, 7.9, 7.99, 8.01, 8.1, 9.0, 60.0, 120.0}) {
    for (const Call& call : CallsWithMean(deviations)) {
      EXPECT_EQ(Judge(call), "") << deviations;
      worst = std::max(worst, ErrorOf(call));
    }
  }
  EXPECT_LE(worst, kNearlyRoundedOnce);
}

TEST(FormsTest, FactorsAndWeightsNearTheBoundsOfThePairsAreAsExactAsOthers) {
  double worst = 0;
  for (const int exponent : {-100, -62, -61, -60, -59, -58, 0, 58, 59, 60, 61, 62, 100}) {
    for (const Call& call : CallsWithFactor(exponent)) {
      EXPECT_EQ(Judge(call), "") << exponent;
      worst = std::max(worst, ErrorOf(call));
    }
  }
  EXPECT_LE(worst, kNearlyRoundedOnce);
}

TEST(FormsTest, ZerosKeepTheirSign) {
  const Values x = {-0.0, 1, 0, -3, -0.0, 0.0}, w = {2, 1, -0.1, 1, -3, 1e-15};
  const bool minus[] = {true, false, true, true, false, false};
  for (const bool weighted : {false, true}) {
    Call call = F32Call(cases::Of(Method::kRmsNorm), {1, 6}, x);
    if (weighted) call.Weight(w);
    const Values y = call.Y();
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] != 0) continue;
      EXPECT_EQ(std::signbit(y[i]), weighted ? minus[i] : std::signbit(x[i])) << i << " weighted " << weighted;
    }
  }
}

// 1 / D overflows: the elements are equal, their differences are 0, and y is b whatever w is.
TEST(FormsTest, AFactorBeyondF64GivesTheBias) {
  for (const Layout layout : {kFirst, kLast}) {
    NormSpec spec = cases::Group(1, layout);
    spec.eps = 1e-310;
    spec.eps_mode = EpsMode::kAddToRoot;
    const std::vector<int64_t> shape = layout == kFirst ? std::vector<int64_t>{1, 2, 5} : std::vector<int64_t>{1, 5, 2};
    const Values y = F32Call(spec, shape, Values(10, 12345.678)).Weight({2, 3}).Bias({0.5, 0.5}).Y();
    EXPECT_EQ(y, Values(10, 0.5));
  }
}

TEST(FormsTest, FloatPairsAreRoundedDownAndNearlyExact) {
  Random random(11);
  for (int i = 0; i < 10'000; ++i) {
    const double inverse = std::ldexp(random.Uniform(0.5, 1), static_cast<int>(random.Below(121)) - 60);
    const FloatPair pair = FloatPairOf(inverse);
    EXPECT_LE(pair.hi, inverse);
    EXPECT_GE(pair.lo, 0);
    EXPECT_LE(std::abs(inverse - pair.hi - pair.lo), std::ldexp(inverse, -46));
  }
  EXPECT_EQ(FloatPairOf(0).hi, 0);
  EXPECT_EQ(FloatPairOf(0.25).lo, 0);
}

// The formula stands twice, for vectors and for device code.
TEST(FormsTest, TimesPairIsWhatTheVectorsCalculate) {
  Random random(13);
  const Values x = Normals(67, 3, 0, random), w = Normals(67, 1, 0, random);
  const Call call = F32Call(cases::Spec(Method::kScaleNorm, 0, EpsMode::kAddToRoot), {1, 67}, x).Weight({w[0]});
  const Outputs got = call.Result();
  std::vector<double> partials(32);  // in the order of kernels/summation_order.h
  for (size_t i = 0; i < x.size(); ++i) partials[i % 32] = std::fma(x[i], x[i], partials[i % 32]);
  for (size_t width = 32; width > 1; width /= 2) {
    for (size_t i = 0; i < width / 2; ++i) partials[i] += partials[i + width / 2];
  }
  const FloatPair pair = FloatPairOf(1 / std::sqrt(partials[0]));
  const Values y = cases::Unpack(DType::kF32, got.y);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(static_cast<float>(y[i]), TimesPair(static_cast<float>(x[i]), pair, static_cast<float>(w[0]))) << i;
  }
}

TEST(FormsTest, TheFirstShiftIsZeroUnlessTheSampleIsFarFromIt) {
  EXPECT_EQ(ExactShift(1, 2, -1, 0.5), 0);
  EXPECT_EQ(ExactShift(100, 101, 102, 100.5), 100);
  EXPECT_EQ(ExactShift(-100, -101, -102, -100.5), -100);
  EXPECT_EQ(ExactShift(100, 101, 102, 120), 0);
  EXPECT_EQ(ExactShift(7, 7, 7, 7), 7);
  EXPECT_EQ(ExactShift(0, 0, 0, 0), 0);
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ExactShift(inf, 1, 1, 1), 0);
  EXPECT_EQ(ExactShift(inf, inf, inf, inf), 0);
  EXPECT_EQ(ExactShift(std::nan(""), 1, 1, 1), 0);
  for (const int64_t n : {1, 2, 3, 4, 1000}) {
    for (int i = 0; i < 4; ++i) EXPECT_LT(SampleIndex(n, i), n);
  }
}

TEST(FormsTest, NoRowThatASearchFindsIsFarFromRoundedOnce) {
  double worst = 0;
  for (const SearchStart& start : kSearchStarts) {
    const double error = Search(start, 300);
    EXPECT_LE(error, kNearlyRoundedOnce) << "length " << start.length << ", mean " << start.mean;
    worst = std::max(worst, error);
  }
  // A search that finds nothing searches badly.
  EXPECT_GT(worst, 0.49);
  RecordProperty("worst", std::to_string(worst));
}

}  // namespace
}  // namespace normd::accuracy
