// Every case through MakePlan, and those that nearest_rounding_test.cc does not hold to the exact oracle through the
// CPU backend, judged by the oracle of 113 bits: y, h, mean, inverse standard deviation, moments.
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/methods.h"
#include "tests/kernels/agreement.h"
#include "tests/kernels/case_runs.h"
#include "tests/kernels/cases.h"
#include "tests/support/case.h"
#include "tests/support/compare.h"
#include "tests/support/oracle.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

// The largest case that nearest_rounding_test.cc takes.
constexpr int64_t kMostOfNearestRounding = 20'000;

class AccuracyTest : public testing::TestWithParam<Method> {};

TEST_P(AccuracyTest, EveryCaseAgreesWithTheOracle) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  const std::vector<Case> all = cases::AllOf(GetParam());
  ASSERT_GT(all.size(), 100u);
  size_t fast = 0, groups = 0, promised = 0;
  for (const Case& c : all) {
    const absl::StatusOr<NormPlan> plan = PlanOf(c);
    ASSERT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
    ASSERT_TRUE(backend->Supports(*plan)) << c.Name();
    ASSERT_EQ(plan->precision, c.options.precision) << c.Name();
    const oracle::Spec spec = OracleSpec(c);
    EXPECT_EQ(plan->k, c.spec.method() == Method::kPRmsNorm ? spec.k : 0) << c.Name();
    EXPECT_EQ(plan->eps, spec.eps.value_or(oracle::DefaultEps(spec.method))) << c.Name();
    EXPECT_EQ(static_cast<int>(plan->eps_mode),
              static_cast<int>(spec.eps_mode.value_or(oracle::DefaultEpsMode(spec.method))))
        << c.Name();
    if (IsNearest(c) && plan->elements <= kMostOfNearestRounding) continue;
    const CaseData data = MakeData(c, *plan, TestSeed());
    const absl::StatusOr<Outputs> got = RunCase(*backend, c, data);
    ASSERT_TRUE(got.ok()) << c.Name() << ": " << got.status();
    const oracle::Result want = oracle::Compute(spec, OracleInput(c, data));
    EXPECT_EQ(cases::Disagreement(c, *plan, *got, want), "");
    if (plan->precision != Precision::kFast) continue;
    ++fast;
    for (const oracle::GroupStatistics& group : want.groups) {
      ++groups;
      promised += oracle::Promised(oracle::FastBound(), group);
    }
  }
  EXPECT_EQ(fast > 0, GetParam() != Method::kPowerNorm);
  // FAST promises nothing of groups a little worse conditioned than 1e6, but of nearly all.
  EXPECT_GE(promised, groups - groups / 10) << "of " << groups << " groups in " << fast << " FAST cases";
}

INSTANTIATE_TEST_SUITE_P(Methods, AccuracyTest, testing::ValuesIn(kAllMethods),
                         [](const auto& method) { return std::string(Info(method.param).name); });

// The comparison itself can fail: one element moved by two numbers of T is found, by one is within the bound at most
// once.
TEST(AccuracyComparisonTest, FindsAnElementThatIsTwoUlpAway) {
  oracle::Result want;
  want.y = {1.5, -2.25, 0.125};
  want.weight = {1, 1, 1};
  want.bias = {0, 0, 0};
  const oracle::Bound bound = oracle::ExactBound(oracle::Type::kF32);
  float y[] = {1.5f, -2.25f, 0.125f};
  EXPECT_EQ(oracle::CompareY("same", {}, bound, oracle::Type::kF32, y, want), "");
  y[1] = -2.25f - 2 * 0x1p-22f;
  EXPECT_NE(oracle::CompareY("moved", {}, bound, oracle::Type::kF32, y, want), "");
  y[1] = -2.25f - 0x1p-22f;
  EXPECT_EQ(oracle::CompareY("within", {}, bound, oracle::Type::kF32, y, want), "");
}

// FAST has its own bound and its own silence: beyond 1e6 deviations.
TEST(AccuracyComparisonTest, FindsAnElementThatIsFiveUlpOfTheWeightAwayInFast) {
  oracle::Result want;
  want.y = {0.125};
  want.weight = {1};
  want.bias = {0};
  want.group = {0};
  want.groups = {{.count = 4, .mean = 1e6, .m2 = 4, .deviation = 1, .inverse = 1}};
  const oracle::Bound bound = oracle::FastBound();
  const auto compare = [&](float y) { return oracle::CompareY("y", {}, bound, oracle::Type::kF32, &y, want); };
  EXPECT_EQ(compare(0.125f + 4 * 0x1p-23f), "");
  EXPECT_NE(compare(0.125f + 5 * 0x1p-23f), "");
  float mean = 1e6f + 5 * 0x1p-4f, inverse = 1;
  const auto statistics = [&] {
    return oracle::CompareStatistics("s", bound, oracle::Type::kF32, &mean, &inverse, want);
  };
  EXPECT_NE(statistics(), "");
  mean = 1e6f + 4 * 0x1p-4f;
  EXPECT_EQ(statistics(), "");
  inverse = 1 + 5 * 0x1p-23f;
  EXPECT_NE(statistics(), "");
  EXPECT_EQ(oracle::CompareMoment("m", bound, want.groups[0], 4, 1e6 + 0.25, 4 + 0x1p-16), "");
  EXPECT_NE(oracle::CompareMoment("m", bound, want.groups[0], 4, 1e6 + 0.26, 4), "");
  EXPECT_NE(oracle::CompareMoment("m", bound, want.groups[0], 4, 1e6, 4 + 0x1.1p-16), "");
  want.groups[0].mean = 1.01e6;
  EXPECT_EQ(compare(7), "") << "nothing is promised here";
}

TEST(AccuracyComparisonTest, JudgesCastThenAffineStepwise) {
  // 1.03 is no f16. From either neighbour, times 1.95 with one rounding, a result is reachable; they are 2 ulp apart,
  // and the number between them is not, although it is the closest to the product.
  const oracle::Type f16 = oracle::Type::kF16;
  const oracle::Bound bound = oracle::ExactBound(f16);
  const oracle::Wide w = 1.95;
  const oracle::Wide ulp = oracle::Ulp(f16, 1.03);
  const oracle::Wide nearest = oracle::Round(f16, 1.03);
  const oracle::Wide other = nearest < oracle::Wide(1.03) ? nearest + ulp : nearest - ulp;
  const oracle::Wide from_nearest = oracle::Round(f16, nearest * w), from_other = oracle::Round(f16, other * w);
  EXPECT_TRUE(oracle::ReachableStepwise(bound, f16, from_nearest, 1.03, &w, nullptr));
  EXPECT_TRUE(oracle::ReachableStepwise(bound, f16, from_other, 1.03, &w, nullptr));
  ASSERT_TRUE(oracle::Abs(from_other - from_nearest) == 2 * ulp);
  EXPECT_FALSE(oracle::ReachableStepwise(bound, f16, (from_nearest + from_other) / 2, 1.03, &w, nullptr));
  const oracle::Wide minus = -w, b = 0.5;
  EXPECT_TRUE(oracle::ReachableStepwise(bound, f16, -from_nearest, 1.03, &minus, nullptr));
  EXPECT_TRUE(oracle::ReachableStepwise(bound, f16, oracle::Round(f16, b - from_other), 1.03, &minus, &b));
  EXPECT_FALSE(oracle::ReachableStepwise(bound, f16, 0.5, 1.03, &w, nullptr));
}

}  // namespace
}  // namespace normd
