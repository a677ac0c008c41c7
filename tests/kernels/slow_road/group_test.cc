// The slow road by itself: ties, zeros, the ends of the range, and pairs beside exact integers.
#include "kernels/slow_road/group.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/constants.h"
#include "tests/support/random.h"

namespace normd::slow_road {
namespace {

constexpr Format kF32 = FormatOf(DType::kF32);

// A group of elements that all enter the statistic.
class GroupOf {
 public:
  GroupOf(Formula formula, std::vector<Element> elements, SlowGroup::FirstRung first = SlowGroup::FirstRung::kPairs)
      : elements_(std::move(elements)), group_(Counted(formula), read_, first) {}

  double Nearest(const Format& format, const Element& element, const Affine& affine = {}) {
    return group_.Nearest(format, element, affine);
  }
  SlowGroup& group() { return group_; }

 private:
  struct Read {
    const GroupOf* of;
    void operator()(absl::FunctionRef<void(const Element*, int64_t)> take) const {
      take(of->elements_.data(), static_cast<int64_t>(of->elements_.size()));
    }
  };
  Formula Counted(Formula formula) const {
    formula.counted = static_cast<int64_t>(elements_.size());
    return formula;
  }

  const std::vector<Element> elements_;
  const Read read_ = {this};
  SlowGroup group_;
};

Formula About(Statistic statistic, double eps, EpsMode mode = EpsMode::kInsideSqrt) {
  return {.statistic = statistic, .rule = {.eps = eps, .mode = mode}};
}

TEST(SlowGroupTest, GivesTheExampleOfRmsNorm) {
  GroupOf rms(About(Statistic::kMeanSquare, 0), {{1}, {7}});
  EXPECT_EQ(rms.Nearest(kF32, {1}), 0.2f);
  EXPECT_EQ(rms.Nearest(kF32, {7}), 1.4f);
}

// sqrt(9 + 16) = 5, so that an element of 5 gives y = w.
TEST(SlowGroupTest, SendsATieToTheEvenValue) {
  GroupOf scale(About(Statistic::kSumSquares, 0), {{3}, {4}});
  EXPECT_EQ(scale.Nearest(kF32, {5}, {.weight = {1 + 0x1p-24, 0}}), 1);
  EXPECT_EQ(scale.Nearest(kF32, {5}, {.weight = {1 + 0x3p-24, 0}}), 1 + 0x1p-22);
  EXPECT_EQ(scale.Nearest(kF32, {-5}, {.weight = {1 + 0x3p-24, 0}}), -1 - 0x1p-22);
  EXPECT_EQ(scale.group().rungs().ties, 3);
  // One bit beside the tie, beyond an f64: a weight in two parts.
  EXPECT_EQ(scale.Nearest(kF32, {5}, {.weight = {1 + 0x1p-24, 0x1p-100}}), 1 + 0x1p-23);
  EXPECT_EQ(scale.Nearest(kF32, {5}, {.weight = {1 + 0x3p-24, -0x1p-100}}), 1 + 0x1p-23);
  EXPECT_EQ(scale.group().rungs().ties, 3);
}

TEST(SlowGroupTest, ReachesBothEndsOfTheRange) {
  GroupOf scale(About(Statistic::kSumSquares, 0), {{3}, {4}});
  const double largest = 0x1.fffffep+127;
  const double half_ulp = 0x1p+103;
  EXPECT_EQ(scale.Nearest(kF32, {5}, {.weight = {largest + half_ulp / 2, 0}}), largest);
  EXPECT_EQ(scale.Nearest(kF32, {5}, {.weight = {largest + half_ulp, 0}}), kInf);  // a tie: Inf is even
  EXPECT_EQ(scale.Nearest(kF32, {-5}, {.weight = {1e300, 0}}), -kInf);
  EXPECT_EQ(scale.Nearest(kF32, {5}, {.weight = {0x3p-150, 0}}), 0x1p-148);  // the tie above 0x1p-149
  EXPECT_EQ(scale.Nearest(kF32, {5}, {.weight = {0x1p-150, 0}}), 0);
  const double below_zero = scale.Nearest(kF32, {-5}, {.weight = {0x1p-151, 0}});
  EXPECT_TRUE(below_zero == 0 && std::signbit(below_zero));
}

TEST(SlowGroupTest, GivesZerosTheirSigns) {
  const auto is_negative_zero = [](double y) { return y == 0 && std::signbit(y); };
  const auto is_positive_zero = [](double y) { return y == 0 && !std::signbit(y); };
  GroupOf layer(About(Statistic::kMeanVariance, 1e-5), {{-1}, {1}});
  EXPECT_TRUE(is_positive_zero(layer.Nearest(kF32, {-0.0})));  // equals the mean
  EXPECT_TRUE(is_negative_zero(layer.Nearest(kF32, {0.0}, {.weight = {-2, 0}})));
  EXPECT_TRUE(is_negative_zero(layer.Nearest(kF32, {-1}, {.weight = {0, 0}})));
  EXPECT_TRUE(is_positive_zero(layer.Nearest(kF32, {-1}, {.weight = {0, 0}, .bias = 0})));
  GroupOf rms(About(Statistic::kMeanSquare, 1e-5), {{-0.0}, {1}});
  EXPECT_TRUE(is_negative_zero(rms.Nearest(kF32, {-0.0})));
  EXPECT_TRUE(is_positive_zero(rms.Nearest(kF32, {-0.0}, {.bias = 0})));
  EXPECT_TRUE(is_positive_zero(rms.Nearest(kF32, {1, -1})));  // 1 + 1 * -1
}

TEST(SlowGroupTest, IsNanWhereTheDivisorIsZero) {
  GroupOf constant(About(Statistic::kMeanVariance, 0), {{0.1f}, {0.1f}, {0.1f}});
  EXPECT_TRUE(std::isnan(constant.Nearest(kF32, {0.1f})));
  Formula lp = About(Statistic::kSumSquares, 0, EpsMode::kAddToRoot);
  lp.rule.zero_norm_gives_zero = true;
  GroupOf zeros(lp, {{0}, {0}});
  EXPECT_EQ(zeros.Nearest(kF32, {0}), 0);
}

// x + scale * r cancels to 2^-52, which no f64 sum of the rounded product shows.
TEST(SlowGroupTest, KnowsResidualSumsExactly) {
  Formula formula = About(Statistic::kSumSquares, 1, EpsMode::kClampRoot);
  formula.scale = 1 + 0x1p-52;
  GroupOf group(formula, {{0.5, 0}});
  EXPECT_EQ(group.Nearest(kF32, {-1, 1}), 0x1p-52);
  EXPECT_EQ(group.Nearest(kF32, {-(1 + 0x1p-52), 1 + 0x1p-52}), 0x1p-52);  // 2^-52 (1 + 2^-52)
}

TEST(SlowGroupTest, RoundsTheStatisticsThemselves) {
  GroupOf layer(About(Statistic::kMeanVariance, 0), {{1}, {2}, {4}});
  EXPECT_EQ(layer.group().NearestMean(FormatOf(DType::kF64)), 7.0 / 3);
  EXPECT_EQ(layer.group().NearestMean(kF32), 7.0f / 3);
  EXPECT_EQ(layer.group().NearestM2(), 14.0 / 3);                    // 21 - 49/3
  EXPECT_EQ(layer.group().NearestInverse(kF32), 0.80178372573727f);  // sqrt(9/14) = 0.80178...
}

// Whatever pairs decide, integers decide alike.
TEST(SlowGroupTest, DecidesAlikeInPairsAndInIntegers) {
  Random random(TestSeed());
  const auto number = [&] { return static_cast<double>(static_cast<float>(random.Normal())); };
  int64_t by_pairs = 0;
  for (const Statistic statistic : {Statistic::kMeanVariance, Statistic::kMeanSquare, Statistic::kSumSquares,
                                    Statistic::kAbsSum, Statistic::kMaxAbs}) {
    for (const EpsMode mode : {EpsMode::kInsideSqrt, EpsMode::kAddToRoot, EpsMode::kClampRoot}) {
      const bool is_root = statistic == Statistic::kAbsSum || statistic == Statistic::kMaxAbs;
      if (is_root && mode == EpsMode::kInsideSqrt) continue;
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
        std::vector<Element> elements;
        for (int i = 0; i < 100; ++i) elements.push_back({number() + 3, i % 2 == 0 ? -0.0 : number()});
        Formula formula = About(statistic, 1e-5, mode);
        formula.scale = 1.0 / 3;
        GroupOf pairs(formula, elements);
        GroupOf exact(formula, elements, SlowGroup::FirstRung::kExact);
        for (const Element& element : elements) {
          const Affine affine = {.weight = {number(), 0x1p-60}, .bias = number()};
          const double want = exact.Nearest(FormatOf(dtype), element, affine);
          EXPECT_EQ(pairs.Nearest(FormatOf(dtype), element, affine), want);
        }
        by_pairs += pairs.group().rungs().pairs - pairs.group().rungs().exact;
      }
    }
  }
  EXPECT_GT(by_pairs, 4'000);
}

TEST(FormatTest, CountsTheValuesOfAType) {
  for (const DType dtype : kAllDTypes) {
    const Format format = FormatOf(dtype);
    for (const int64_t index : {int64_t{0}, int64_t{1}, int64_t{1} << (format.bits - 1), format.Infinity() - 1}) {
      EXPECT_EQ(format.IndexBelow(format.Value(index)), index);
      EXPECT_EQ(Compare(format.Middle(index) + format.Middle(index), format.Exactly(index) + format.Exactly(index + 1)),
                0);
    }
    EXPECT_EQ(format.Value(format.Infinity()), kInf);
  }
  EXPECT_EQ(kF32.Value(std::bit_cast<int32_t>(1.5f)), 1.5);
}

}  // namespace
}  // namespace normd::slow_road
