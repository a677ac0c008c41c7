// Rows of f32 about which a kernel changes its way of calculating: means on an element or beside it, means near the
// guard of eight deviations, factors and weights near the bounds of pairs of floats, signed zeros.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/group_statistics.h"
#include "tests/accuracy/forms.h"
#include "tests/accuracy/judge.h"
#include "tests/accuracy/nearest_share.h"
#include "tests/support/random.h"

namespace normd::accuracy {
namespace {

// The first call that has a result that is not the nearest value; "" if there is none.
std::string FirstWrong(const std::vector<Call>& calls) {
  for (const Call& call : calls) {
    for (const Share& share : WronglyRounded(call.c, call.data, call.Result()).returned) {
      if (share.wrong > 0) return share.example;
    }
  }
  return "";
}

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

TEST(FormsTest, MeansNearTheGuardGiveTheNearest) {
  for (const double deviations : {0.0, 4.0, 7.99, 8.01, 120.0}) EXPECT_EQ(FirstWrong(CallsWithMean(deviations)), "");
}

TEST(FormsTest, FactorsAndWeightsNearTheBoundsOfPairsGiveTheNearest) {
  for (const int exponent : {-100, -61, -60, -59, 0, 59, 60, 61, 100}) {
    EXPECT_EQ(FirstWrong(CallsWithFactor(exponent)), "") << exponent;
  }
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

}  // namespace
}  // namespace normd::accuracy
