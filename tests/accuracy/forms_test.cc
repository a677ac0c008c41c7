// The ways in which EXACT calculates f32 elements (kernels/group_statistics.h, "Elements"), where one way ends and
// another begins: means on an element or beside it, means near the guard of eight deviations, factors and weights near
// the bounds of the pairs of floats, signed zeros; and a search for rows that make the error as large as it gets.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/group_statistics.h"
#include "tests/accuracy/judge.h"
#include "tests/accuracy/measure.h"
#include "tests/support/random.h"

namespace normd::accuracy {
namespace {

// Half an ulp is the last rounding; what comes before it may add a hundredth.
constexpr double kNearlyRoundedOnce = 0.51;

double ErrorOf(const Call& call) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({.threads = 1});
  return Measure(*backend, call.c, call.data).ulp;
}

Call F32(const NormSpec& spec, std::vector<int64_t> shape, const Values& x) {
  return Call(spec, DType::kF32, std::move(shape), x);
}

Values Normals(int64_t n, double scale, double mean, Random& random) {
  Values x(static_cast<size_t>(n));
  for (double& v : x) v = static_cast<float>(mean + scale * random.Normal());
  return x;
}

TEST(FormsTest, AnElementEqualToTheMeanGivesPlusZero) {
  Random random(3);
  for (int round = 0; round < 100; ++round) {
    // An odd number of 24 bits, so that it is a value of f32 with no bit to spare, and a mean of three deviations.
    const double m = (random.Below(2) == 0 ? 1 : -1) * (0x1p23 + 2.0 * static_cast<double>(random.Below(1 << 21)) + 1);
    const double a = 0x1p21 + static_cast<double>(random.Below(1 << 20));
    const Values x = {m + a, m, m - a};
    const Values columns = {m + a, m + a, m, m, m - a, m - a};  // two channels; y[2] is the element
    for (const auto& [call, at] : {std::pair{F32(cases::Over({3}), {1, 3}, x), 1},
                                   {F32(cases::Group(1, kFirst), {1, 1, 3}, x), 1},
                                   {F32(cases::Group(1, kFirst), {1, 1, 3}, x).Weight({0.3}), 1},
                                   {F32(cases::Of(Method::kBatchNorm, kLast), {3, 2}, columns), 2},
                                   {F32(cases::Of(Method::kBatchNorm, kLast), {3, 2}, columns).Weight({0.7, 3}), 2}}) {
      const double y = call.Y()[static_cast<size_t>(at)];
      EXPECT_TRUE(y == 0 && !std::signbit(y)) << call.c.Name() << " mean " << m << " y " << y;
    }
  }
}

// A mean that is no value of f32, beside elements of which some are as near to it as they can be.
TEST(FormsTest, MeansNearTheGuardAreAsExactAsOthers) {
  Random random(5);
  double worst = 0;
  for (const double deviations : {0.0, 0.5, 1.0, 4.0, 7.9, 7.99, 8.01, 8.1, 9.0, 60.0, 120.0}) {
    for (const int64_t n : {3, 64, 769, 1024, 1025, 4097}) {
      const Values x = Normals(n, 1.7, 1.7 * deviations, random), w = Normals(n, 1, 0, random);
      const Values b = Normals(n, 1e-3, 0, random);
      const NormSpec over = cases::Over({n});
      Values columns;
      for (const double v : x) columns.insert(columns.end(), {v, -v});
      for (const Call& call :
           {F32(over, {1, n}, x), F32(over, {1, n}, x).Weight(w), F32(over, {1, n}, x).Weight(w).Bias(b),
            F32(cases::Group(1, kFirst), {1, 1, n}, x).Weight({w[0]}).Bias({b[0]}),
            F32(cases::Of(Method::kBatchNorm, kLast), {n, 2}, columns).Weight({w[0], w[1]}).Bias({b[0], b[1]})}) {
        EXPECT_EQ(Judge(call), "") << deviations;
        worst = std::max(worst, ErrorOf(call));
      }
    }
  }
  EXPECT_LE(worst, kNearlyRoundedOnce);
}

TEST(FormsTest, FactorsAndWeightsNearTheBoundsOfThePairsAreAsExactAsOthers) {
  Random random(7);
  double worst = 0;
  for (const int exponent : {-100, -62, -61, -60, -59, -58, 0, 58, 59, 60, 61, 62, 100}) {
    for (const int of_weight : {-63, -60, -59, 0, 59, 60, 63}) {
      Values x = Normals(67, 1, 0, random), w = Normals(67, 1, 0, random);
      for (double& v : x) v = static_cast<float>(std::ldexp(v, exponent));
      for (double& v : w) v = static_cast<float>(std::ldexp(v, of_weight));
      for (const Method method : {Method::kRmsNorm, Method::kScaleNorm}) {
        Call call = F32(cases::Spec(method, 0), {1, 67}, x);
        call.Weight(method == Method::kScaleNorm ? Values{w[0]} : w);
        EXPECT_EQ(Judge(call), "") << exponent << " " << of_weight;
        worst = std::max(worst, ErrorOf(call));
      }
    }
  }
  EXPECT_LE(worst, kNearlyRoundedOnce);
}

TEST(FormsTest, ZerosKeepTheirSign) {
  const Values x = {-0.0, 1, 0, -3, -0.0, 0.0}, w = {2, 1, -0.1, 1, -3, 1e-15};
  const bool minus[] = {true, false, true, true, false, false};
  for (const bool weighted : {false, true}) {
    Call call = F32(cases::Of(Method::kRmsNorm), {1, 6}, x);
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
    const Values y = F32(spec, shape, Values(10, 12345.678)).Weight({2, 3}).Bias({0.5, 0.5}).Y();
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
  const Call call = F32(cases::Spec(Method::kScaleNorm, 0, EpsMode::kAddToRoot), {1, 67}, x).Weight({w[0]});
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

// Climbs from random rows to rows of greater error, one changed element at a time.
double Search(Method method, int64_t length, double mean, int rows) {
  Random random(static_cast<uint64_t>(length) + static_cast<uint64_t>(mean * 16) + 1);
  const std::unique_ptr<Backend> backend = MakeCpuBackend({.threads = 1});
  const auto error_of = [&](const Values& x, const Values& w) {
    const Call call = cases::Row(cases::Spec(method, 1e-12), DType::kF32, x).Weight(w);
    return Measure(*backend, call.c, call.data).ulp;
  };
  double worst = 0;
  Values x, w;
  double best = 0;
  for (int row = 0, idle = 60; row < rows; ++row) {
    if (idle >= 60) {
      x = Normals(length, 3, 3 * mean, random);
      w = Normals(method == Method::kScaleNorm ? 1 : length, 1, 0, random);
      best = error_of(x, w);
      idle = 0;
    }
    Values x2 = x, w2 = w;
    double& one = x2[static_cast<size_t>(random.Below(length))];
    double& weight = w2[static_cast<size_t>(random.Below(static_cast<int64_t>(w.size())))];
    switch (random.Below(3)) {
      case 0:
        one = static_cast<float>(3 * (mean + random.Normal()));
        break;
      case 1:
        one = static_cast<float>(one * (1 + random.Uniform(-0x1p-12, 0x1p-12)));
        break;
      default:
        weight = static_cast<float>(weight * (1 + random.Uniform(-0x1p-20, 0x1p-20)));
    }
    const double error = error_of(x2, w2);
    idle = error > best ? 0 : idle + 1;
    if (error > best) {
      best = error;
      x = std::move(x2);
      w = std::move(w2);
    }
    worst = std::max(worst, best);
  }
  return worst;
}

TEST(FormsTest, NoRowThatASearchFindsIsFarFromRoundedOnce) {
  const struct {
    Method method;
    int64_t length;
    double mean;
  } starts[] = {{Method::kLayerNorm, 3, 1},   {Method::kLayerNorm, 5, 7.5},  {Method::kLayerNorm, 67, 7.9},
                {Method::kLayerNorm, 24, 60}, {Method::kLayerNorm, 24, 120}, {Method::kLayerNorm, 16, 0},
                {Method::kRmsNorm, 4, 0},     {Method::kRmsNorm, 67, 0},     {Method::kRmsNorm, 16, 5},
                {Method::kScaleNorm, 16, 0}};
  double worst = 0;
  for (const auto& start : starts) {
    const double error = Search(start.method, start.length, start.mean, 300);
    EXPECT_LE(error, kNearlyRoundedOnce) << "length " << start.length << ", mean " << start.mean;
    worst = std::max(worst, error);
  }
  // A search that finds nothing searches badly.
  EXPECT_GT(worst, 0.49);
  RecordProperty("worst", std::to_string(worst));
}

}  // namespace
}  // namespace normd::accuracy
