// Every case through MakePlan and the CPU backend, judged by the oracle: y, h, mean, inverse standard deviation,
// moments.
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/methods.h"
#include "tests/kernels/cases.h"
#include "tests/support/case.h"
#include "tests/support/compare.h"
#include "tests/support/oracle.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

class AccuracyTest : public testing::TestWithParam<Method> {};

void ExpectMoments(const std::string& name, const Outputs& got, const oracle::Result& want) {
  ASSERT_EQ(got.moments.size(), want.sets.size()) << name;
  for (size_t s = 0; s < want.sets.size(); ++s) {
    const Moment& m = got.moments[s];
    const std::string wrong =
        oracle::CompareMoment(name + " moments[" + std::to_string(s) + "]", want.sets[s], m.count, m.mean, m.m2);
    EXPECT_EQ(wrong, "");
    if (!wrong.empty()) return;
  }
}

void ExpectAgreement(const Case& c, const Outputs& got, const oracle::Result& want) {
  const std::string name = c.Name();
  const oracle::Type type = OracleType(c.dtype);
  const bool empty = want.y.empty();  // statistics of nothing are not judged, but their room is there
  EXPECT_EQ(oracle::CompareY(name, OracleSpec(c), type, got.y.data(), want), "");
  EXPECT_EQ(oracle::CompareH(name, type, got.h.data(), want), "");
  const size_t bytes = want.sets.size() * (c.dtype == DType::kF64 ? 8 : 4);
  ASSERT_EQ(got.mean.size(), bytes) << name;
  ASSERT_EQ(got.inverse_std.size(), bytes) << name;
  if (!empty) {
    const oracle::Type statistics = c.dtype == DType::kF64 ? oracle::Type::kF64 : oracle::Type::kF32;
    EXPECT_EQ(oracle::CompareStatistics(name, statistics, got.mean.data(), got.inverse_std.data(), want), "");
  }
  if (!c.options.given_statistics) ExpectMoments(name, got, want);
}

TEST_P(AccuracyTest, EveryCaseAgreesWithTheOracle) {
  const std::unique_ptr<Backend> backend = MakeCpuBackend({});
  const std::vector<Case> all = cases::AllOf(GetParam());
  ASSERT_GT(all.size(), 100u);
  for (const Case& c : all) {
    const absl::StatusOr<NormPlan> plan = PlanOf(c);
    ASSERT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
    ASSERT_TRUE(backend->Supports(*plan)) << c.Name();
    const oracle::Spec spec = OracleSpec(c);
    EXPECT_EQ(plan->k, c.spec.method == Method::kPRmsNorm ? spec.k : 0) << c.Name();
    EXPECT_EQ(plan->eps, spec.eps.value_or(oracle::DefaultEps(spec.method))) << c.Name();
    EXPECT_EQ(static_cast<int>(plan->eps_mode),
              static_cast<int>(spec.eps_mode.value_or(oracle::DefaultEpsMode(spec.method))))
        << c.Name();
    const CaseData data = MakeData(c, *plan, TestSeed());
    const absl::StatusOr<Outputs> got = RunCase(*backend, c, data);
    ASSERT_TRUE(got.ok()) << c.Name() << ": " << got.status();
    ExpectAgreement(c, *got, oracle::Compute(spec, OracleInput(c, data)));
  }
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
  float y[] = {1.5f, -2.25f, 0.125f};
  EXPECT_EQ(oracle::CompareY("same", {}, oracle::Type::kF32, y, want), "");
  y[1] = -2.25f - 2 * 0x1p-22f;
  EXPECT_NE(oracle::CompareY("moved", {}, oracle::Type::kF32, y, want), "");
  y[1] = -2.25f - 0x1p-22f;
  EXPECT_EQ(oracle::CompareY("within", {}, oracle::Type::kF32, y, want), "");
}

TEST(AccuracyComparisonTest, JudgesCastThenAffineStepwise) {
  // 1.03 is no f16. From either neighbour, times 1.95 with one rounding, a result is reachable; they are 2 ulp apart,
  // and the number between them is not, although it is the closest to the product.
  const oracle::Type f16 = oracle::Type::kF16;
  const oracle::Wide w = 1.95;
  const oracle::Wide ulp = oracle::Ulp(f16, 1.03);
  const oracle::Wide nearest = oracle::Round(f16, 1.03);
  const oracle::Wide other = nearest < oracle::Wide(1.03) ? nearest + ulp : nearest - ulp;
  const oracle::Wide from_nearest = oracle::Round(f16, nearest * w), from_other = oracle::Round(f16, other * w);
  EXPECT_TRUE(oracle::ReachableStepwise(f16, from_nearest, 1.03, &w, nullptr));
  EXPECT_TRUE(oracle::ReachableStepwise(f16, from_other, 1.03, &w, nullptr));
  ASSERT_TRUE(oracle::Abs(from_other - from_nearest) == 2 * ulp);
  EXPECT_FALSE(oracle::ReachableStepwise(f16, (from_nearest + from_other) / 2, 1.03, &w, nullptr));
  const oracle::Wide minus = -w, b = 0.5;
  EXPECT_TRUE(oracle::ReachableStepwise(f16, -from_nearest, 1.03, &minus, nullptr));
  EXPECT_TRUE(oracle::ReachableStepwise(f16, oracle::Round(f16, b - from_other), 1.03, &minus, &b));
  EXPECT_FALSE(oracle::ReachableStepwise(f16, 0.5, 1.03, &w, nullptr));
}

}  // namespace
}  // namespace normd
