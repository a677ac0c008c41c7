// Rows built so that mean, variance and y are known without computing: patterns around a mean, Pythagorean rows. They
// judge the kernels without the oracle, and the oracle with them.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/accuracy/judge.h"

namespace normd::accuracy {
namespace {

using oracle::Wide;

// The numbers of one statistics group, repeated over the group, and what they give.
struct Known {
  Values x;
  double eps;
  EpsMode mode;
  Wide divisor;
};

// x = m + s * pattern with mean m.
constexpr double kPattern[] = {-1, 3, -1, -1};  // variance 3

std::vector<Known> KnownDeviations() {
  const auto pattern = [](double s) {
    return Values{s * kPattern[0], s * kPattern[1], s * kPattern[2], s * kPattern[3]};
  };
  return {
      {{-1, 1, 1, -1}, 0, EpsMode::kInsideSqrt, 1}, {{-3, 3, 3, -3}, 16, EpsMode::kInsideSqrt, 5},
      {{-1, 1, 1, -1}, 3, EpsMode::kInsideSqrt, 2}, {pattern(1), 1, EpsMode::kInsideSqrt, 2},
      {pattern(2), 4, EpsMode::kInsideSqrt, 4},     {{-3, 3, 3, -3}, 5, EpsMode::kAddToRoot, 8},
      {{-1, 1, 1, -1}, 1, EpsMode::kAddToRoot, 2},  {{-1, 1, 1, -1}, 4, EpsMode::kClampRoot, 4},
      {{-5, 5, 5, -5}, 4, EpsMode::kClampRoot, 5},  {{-8, 8, 8, -8}, 0, EpsMode::kAddToRoot, 8},
  };
}

// Fills in what is known of `groups` groups of `count` values each.
struct Expected {
  oracle::Result want;

  void Set(int64_t count, Wide mean, Wide m2, Wide divisor) {
    want.groups.push_back(
        {.count = count, .mean = mean, .m2 = m2, .deviation = oracle::Sqrt(m2 / count), .inverse = 1 / divisor});
  }
  void Y(Wide y, size_t group, Wide w = 1, Wide b = 0) {
    want.y.push_back(y * w + b);
    want.weight.push_back(w);
    want.bias.push_back(b);
    want.group.push_back(group);
  }
};

class ExactTest : public ArithmeticTest {
 protected:
  // Means at which x + mean is exact: up to the promise where the dtype has the bits.
  static Values Means() {
    switch (dtype()) {
      case DType::kF32:
        return {0, 7, -1048576, 999999};
      case DType::kF16:
        return {0, 7, -1024, 500};
      case DType::kBF16:
        return {0, 7, -100, 64};
      case DType::kF64:
        return {0, 7, -0x1p40, 1e12};
    }
    return {};
  }

  static Wide SumOfSquares(const Values& x) {
    Wide sum = 0;
    for (const double v : x) sum += Wide(v) * v;
    return sum;
  }
};

// LayerNorm, InstanceNorm, GroupNorm and BatchNorm of [rows, d], sets along or across the rows.
TEST_P(ExactTest, PatternsAroundAMeanGiveTheirClosedForm) {
  for (const Known& known : KnownDeviations()) {
    for (const double mean : Means()) {
      for (const int64_t repeats : {1, 17, 192, 1024, 1025}) {
        const int64_t n = 4 * repeats;
        const Wide m2 = repeats * SumOfSquares(known.x);
        Values x;
        for (int64_t i = 0; i < n; ++i) x.push_back(mean + known.x[static_cast<size_t>(i % 4)]);
        ASSERT_EQ(Held(x), x);
        Expected expected;
        expected.Set(n, mean, m2, known.divisor);
        for (int64_t i = 0; i < n; ++i) expected.Y(known.x[static_cast<size_t>(i % 4)] / known.divisor, 0);
        const std::pair<NormSpec, std::vector<int64_t>> calls[] = {
            {cases::Over({n}), {1, n}},
            {cases::Axes(Method::kLayerNorm, {0}), {n, 1}},
            {cases::Of(Method::kInstanceNorm, kFirst), {1, 1, n}},
            {cases::Of(Method::kInstanceNorm, kLast), {1, n, 1}},
            {cases::Group(1, kFirst), {1, 2, n / 2}},
            {cases::Group(1, kLast), {1, n / 2, 2}},
            {cases::Of(Method::kBatchNorm, kFirst), {4, 1, n / 4}},
            {cases::Of(Method::kBatchNorm, kLast), {n, 1}},
        };
        for (const auto& [base, shape] : calls) {
          NormSpec spec = base;
          spec.eps = known.eps;
          spec.eps_mode = known.mode;
          const Call call = On(spec, shape, x);
          EXPECT_EQ(Judge(call, expected.want), "") << "mean " << mean << " eps " << known.eps;
        }
      }
    }
  }
}

TEST_P(ExactTest, WeightAndBiasComeAfterTheClosedForm) {
  const Known known = KnownDeviations()[4];
  for (const double mean : Means()) {
    Expected expected;
    expected.Set(4, mean, SumOfSquares(known.x), known.divisor);
    Values x;
    const Values w = {1.5, -2, 0.25, 0}, b = {-0.5, 3, 0, 7};
    for (size_t i = 0; i < 4; ++i) {
      x.push_back(mean + known.x[i]);
      expected.Y(known.x[i] / known.divisor, 0, w[i], b[i]);
    }
    expected.want.has_weight = expected.want.has_bias = true;
    NormSpec spec = cases::Over({4});
    spec.eps = known.eps;
    EXPECT_EQ(Judge(On(spec, {1, 4}, x).Weight(w).Bias(b), expected.want), "") << mean;
  }
}

// Pythagorean rows: RMS {1, 7, 5, 5} is 5, the norm of {2, 3, 6} is 7, of {1, 3, 1, 2, 1} 4, |{1, -3, 4}| is 8.
TEST_P(ExactTest, PythagoreanRowsGiveTheirClosedForm) {
  const auto mode = [](NormSpec spec, double eps, EpsMode eps_mode) {
    spec.eps = eps;
    spec.eps_mode = eps_mode;
    return spec;
  };
  const NormSpec rms = cases::Of(Method::kRmsNorm), scale = cases::Of(Method::kScaleNorm);
  const EpsMode inside = EpsMode::kInsideSqrt, add = EpsMode::kAddToRoot, clamp = EpsMode::kClampRoot;
  const struct {
    NormSpec spec;
    Values x;
    double divisor;
    int64_t count;  // values that enter
    double m2;      // sum of squares, for L1 of magnitudes
  } rows[] = {
      {mode(rms, 0, inside), {1, 7, 5, -5}, 5, 4, 100},
      {mode(rms, 16, inside), {3, -3, 3}, 5, 3, 27},
      {mode(rms, 3, add), {1, 7, -5, 5}, 8, 4, 100},
      {mode(rms, 8, clamp), {1, 7, 5, 5}, 8, 4, 100},
      {mode(rms, 4, clamp), {1, 7, 5, 5}, 5, 4, 100},
      {mode(cases::PartialK(2), 16, inside), {3, -3, 12, 0.5}, 5, 2, 18},
      {mode(cases::PartialP(0.5), 0, inside), {1, 7, 5, -5, 64, 3, -0.25, 10}, 5, 4, 100},
      {mode(scale, 1, add), {2, -3, 6}, 8, 3, 49},
      {mode(scale, 15, inside), {2, 3, 6}, 8, 3, 49},
      {mode(scale, 14, clamp), {2, 3, 6}, 14, 3, 49},
      {mode(scale, 0, add), {2, 3, 6}, 7, 3, 49},
      {mode(cases::Lp(2), 0, add), {1, 3, -1, 2, 1}, 4, 5, 16},
      {mode(cases::Lp(2), 0, add), {1, 4, 8}, 9, 3, 81},
      {mode(cases::Lp(1), 0, add), {1, -3, 4}, 8, 3, 8},
      {mode(cases::Lp(1), 8, add), {1, -3, 4}, 16, 3, 8},
      {mode(cases::Lp(1), 16, clamp), {1, -3, 4}, 16, 3, 8},
  };
  for (const auto& row : rows) {
    Expected expected;
    expected.Set(row.count, 0, row.m2, row.divisor);
    for (const double v : row.x) expected.Y(Wide(v) / row.divisor, 0);
    EXPECT_EQ(Judge(Row(row.spec, row.x), expected.want), "");
  }
}

TEST_P(ExactTest, BatchNormInferenceGivesItsClosedForm) {
  for (const double mean : Means()) {
    for (const Layout layout : {kFirst, kLast}) {
      const Values offsets = {-3, 0, 1, 2.5, 6, -0.5};
      Values x;
      for (const double d : offsets) x.push_back(std::abs(mean) > 100 ? mean + 2 * d : mean + d);
      x = Held(x);
      Expected expected;
      expected.Set(1, mean, 9, 5);
      for (const double v : x) expected.Y((Wide(v) - mean) / 5, 0);
      NormSpec spec = cases::Of(Method::kBatchNorm, layout);
      spec.eps = 16;
      EXPECT_EQ(Judge(On(spec, {6, 1}, x, true).Given({mean}, {9}), expected.want), "") << mean;
    }
  }
}

// x = m + k * grid with integers k whose sum is 1: the mean is m + grid / n, and the elements with k = 0 lie next to
// it, where nothing is left of a mean that was rounded. n is no power of two.
TEST_P(ExactTest, AnElementNextToTheMeanKeepsItsDistance) {
  if (dtype() == DType::kF16 || dtype() == DType::kBF16) GTEST_SKIP() << "too few bits for a grid around a mean";
  const bool f64 = dtype() == DType::kF64;
  const double m = f64 ? 0x1p40 : 0x1p20, grid = f64 ? 0x1p-12 : 0x1p-3;
  for (const int64_t n : {67, 300, 4097, 12289, 70001}) {
    for (const int64_t spread : {64, 4096, 1 << 19}) {
      if (!f64 && spread > 4096) continue;
      std::vector<int64_t> k(static_cast<size_t>(n));
      Wide squares = 1;
      for (int64_t i = 0; i + 2 < n; i += 2) {
        const auto at = static_cast<size_t>(i);
        k[at + 1] = i % 3 == 0 ? 0 : spread - i % 61;
        k[at] = -k[at + 1];
        squares += 2 * Wide(k[at]) * k[at];
      }
      k.back() = 1;
      Values x;
      for (const int64_t v : k) x.push_back(m + static_cast<double>(v) * grid);
      ASSERT_EQ(Held(x), x);
      const Wide variance = Wide(grid) * grid * (squares - Wide(1) / n) / n;
      const Wide divisor = oracle::Sqrt(variance + 1e-5);
      Expected expected;
      expected.Set(n, m + Wide(grid) / n, variance * n, divisor);
      for (const int64_t v : k) expected.Y(Wide(grid) * (v - Wide(1) / n) / divisor, 0);
      for (const Call& call : {On(cases::Over({n}), {1, n}, x), On(cases::Of(Method::kBatchNorm, kLast), {n, 1}, x)}) {
        EXPECT_EQ(Judge(call, expected.want), "") << n << " spread " << spread;
        EXPECT_EQ(Judge(call), "") << "by the oracle: " << n << " spread " << spread;
      }
    }
  }
}

// s = x / |x| is +-1 in each group of equal magnitudes, v = 1, y = s. (FAST is not offered: EXACT runs.)
TEST_P(ExactTest, PowerNormOfEqualMagnitudesIsTheirSign) {
  NormSpec spec = cases::Power(2);
  spec.eps = 0;
  const Values x = {3, -3, 5, 5, -0.5, -0.5, 1, -1}, sign = {1, -1, 1, 1, -1, -1, 1, -1};
  EXPECT_EQ(On(spec, {2, 4}, x).Y(), sign);
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, ExactTest, testing::ValuesIn(kArithmetics), ArithmeticName);

}  // namespace
}  // namespace normd::accuracy
