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
                                    Statistic::kAbsSum, Statistic::kMaxAbs, Statistic::kPowerSum}) {
    for (const EpsMode mode : {EpsMode::kInsideSqrt, EpsMode::kAddToRoot, EpsMode::kClampRoot}) {
      const bool is_root = statistic == Statistic::kAbsSum || SumsPowers(statistic);
      if (is_root && mode == EpsMode::kInsideSqrt) continue;
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
        std::vector<Element> elements;
        for (int i = 0; i < 100; ++i) elements.push_back({number() + 3, i % 2 == 0 ? -0.0 : number()});
        Formula formula = About(statistic, 1e-5, mode);
        formula.scale = 1.0 / 3;
        formula.rule.p = 3;
        GroupOf pairs(formula, elements);
        GroupOf exact(formula, elements, SlowGroup::FirstRung::kExact);
        for (const Element& element : elements) {
          Affine affine = {.weight = {number(), 0x1p-60}, .bias = number()};
          if (statistic == Statistic::kPowerSum) affine.bias = -0.0;  // an LpNorm, which takes none
          const double want = exact.Nearest(FormatOf(dtype), element, affine);
          EXPECT_EQ(pairs.Nearest(FormatOf(dtype), element, affine), want);
        }
        by_pairs += pairs.group().rungs().pairs - pairs.group().rungs().exact;
      }
    }
  }
  EXPECT_GT(by_pairs, 4'800);
}

// 27 + 64 + 125 = 6^3. Each result but 5/6 and its kind has few digits, and 3/6 (1 + 2^-24) is a tie.
TEST(SlowGroupTest, TakesRootsOfWholeOrder) {
  for (const auto first : {SlowGroup::FirstRung::kPairs, SlowGroup::FirstRung::kExact}) {
    Formula formula = About(Statistic::kPowerSum, 0, EpsMode::kAddToRoot);
    formula.rule.p = 3;
    GroupOf norm(formula, {{3}, {-4}, {5}}, first);
    EXPECT_EQ(norm.Nearest(kF32, {3}), 0.5);
    EXPECT_EQ(norm.Nearest(kF32, {-4}), -2.0f / 3);
    EXPECT_EQ(norm.Nearest(FormatOf(DType::kF64), {5}), 5.0 / 6);
    EXPECT_EQ(norm.Nearest(kF32, {3 + 0x3p-24}), 0.5);
    EXPECT_EQ(norm.Nearest(kF32, {3 + 0x9p-24}), 0.5 + 0x1p-23);
    EXPECT_EQ(norm.group().rungs().ties, 2);
    EXPECT_EQ(norm.group().NearestM2(), 6);
    EXPECT_EQ(norm.group().NearestInverse(kF32), 1.0f / 6);
    formula.rule.eps = 2;
    GroupOf added(formula, {{3}, {-4}, {5}}, first);
    EXPECT_EQ(added.Nearest(kF32, {3}), 0.375);
    formula.rule.mode = EpsMode::kClampRoot;
    formula.rule.eps = 12;
    GroupOf clamped(formula, {{3}, {-4}, {5}}, first);
    EXPECT_EQ(clamped.Nearest(kF32, {3}), 0.25);
  }
}

// s = (3, 9) / sqrt(45): s^2 = 0.2 and 1.8, and y of a channel whose v is 0.2 is 1 but for the rounding of 0.2.
TEST(SlowGroupTest, DividesByTheVarianceOfAChannel) {
  for (const auto first : {SlowGroup::FirstRung::kPairs, SlowGroup::FirstRung::kExact}) {
    GroupOf position(About(Statistic::kMeanSquare, 0), {{3}, {9}}, first);
    EXPECT_EQ(position.group().NearestSquare({3}), 0.2);
    EXPECT_EQ(position.group().NearestSquare({9}), 1.8);
    EXPECT_EQ(position.group().NearestSquare({0}), 0);
    EXPECT_EQ(position.Nearest(kF32, {3}, {.variance = 0.2}), 1);
    EXPECT_EQ(position.Nearest(kF32, {9}, {.variance = 0.05}), 6);
    EXPECT_EQ(position.Nearest(kF32, {9}, {.weight = {2, 0}, .bias = 1, .variance = 0.8}), 4);
  }
}

// ---- What the worst input costs ----

// The work in integers that elements took on average, which no stranger can raise above the bounds that the tests name.
struct MeanWork {
  double decisions = 0, word_products = 0;
};
MeanWork WorkOf(const Formula& formula, const std::vector<Element>& elements, const std::vector<Affine>& affines,
                DType dtype) {
  GroupOf group(formula, elements);
  for (size_t i = 0; i < elements.size(); ++i) {
    group.Nearest(FormatOf(dtype), elements[i], affines[i % affines.size()]);
  }
  const auto n = static_cast<double>(elements.size());
  const ExactWork& work = group.group().rungs().work;
  return {static_cast<double>(work.decisions) / n, static_cast<double>(work.word_products) / n};
}

// A tie is one decision between numbers of a few words, whatever the type: 0.4 us.
TEST(SlowGroupCostTest, ATieIsOneShortDecision) {
  const std::vector<Element> elements = {{1}, {-1}, {1}, {-1}};
  for (const double ulp : {0x1p-23, 0x1p-52}) {
    const MeanWork work =
        WorkOf(About(Statistic::kMeanVariance, 0), elements, {{.weight = {1 + ulp, 0}, .bias = ulp / 2}},
               ulp == 0x1p-23 ? DType::kF32 : DType::kF64);
    EXPECT_EQ(work.decisions, 1);
    EXPECT_LE(work.word_products, 16);
  }
}

// Exponents over the whole range, with weights of two parts: pairs are of no use, but 256 bits are.
TEST(SlowGroupCostTest, AWideRangeTakesNoIntegers) {
  Random random(TestSeed());
  const auto any = [&] { return std::ldexp(1 + random.Uniform(), static_cast<int>(random.Below(2000)) - 1000); };
  std::vector<Element> elements;
  std::vector<Affine> affines;
  for (int i = 0; i < 256; ++i) {
    elements.push_back({any(), i % 2 == 0 ? any() : -0.0});
    affines.push_back({.weight = {1, std::ldexp(random.Uniform(), -100)}, .bias = random.Normal()});
  }
  for (const Statistic statistic : {Statistic::kMeanVariance, Statistic::kMeanSquare, Statistic::kAbsSum}) {
    for (const double eps : {0.0, 1e-5}) {
      const EpsMode mode = statistic == Statistic::kAbsSum ? EpsMode::kAddToRoot : EpsMode::kInsideSqrt;
      EXPECT_LE(WorkOf(About(statistic, eps, mode), elements, affines, DType::kF64).decisions, 0.1);
    }
  }
}

// D is 2^500 + 2^-500, w is 1 + 2^-1000, and x w / D and b cancel to the last bit.
TEST(SlowGroupCostTest, CancellationTakesTwoDecisions) {
  GroupOf group(About(Statistic::kSumSquares, 0), {{0x1p+500}, {1}, {1}, {0x1p-500}});
  const Format f64 = FormatOf(DType::kF64);
  EXPECT_EQ(group.Nearest(f64, {0x1p+500}, {.weight = {1, 0x1p-1000}, .bias = -1}), 0);
  EXPECT_EQ(group.Nearest(f64, {0x1p+500}, {.weight = {1, 0x3p-1000}, .bias = -1}), 0x1p-999);
  const ExactWork& work = group.group().rungs().work;
  EXPECT_LE(work.decisions, 4);
  EXPECT_LE(work.word_products, 4'000);
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
