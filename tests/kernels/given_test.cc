// Given statistics that are prepared many at a time (PrepareGiven) have the bits of those that are prepared one by one,
// on each instruction set.
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/targets.h"
#include "kernels/group_statistics.h"
#include "tests/support/random.h"

namespace normd {
namespace {

struct Given {
  std::vector<double> mean, variance;
};

// Ordinary statistics and, one in `rare`, those at which a formula turns. `rare` 0: ordinary ones alone.
Given MakeGiven(int64_t n, int rare, Random* random) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kMeans[] = {0.0, -0.0, 1, 0x1p+101, -0x1p+100, 1e-320, 0x1.0000008p+3};
  constexpr double kVariances[] = {0.0, -0.0, 1e-320, 0x1p-120, 0x1p-121, 0x1p+121, 1e300, kInfinity};
  Given given;
  for (int64_t i = 0; i < n; ++i) {
    const auto is_rare = [&] { return rare != 0 && random->Below(rare) == 0; };
    given.mean.push_back(is_rare() ? kMeans[random->Below(std::size(kMeans))] : random->Uniform(-9, 9));
    given.variance.push_back(is_rare() ? kVariances[random->Below(std::size(kVariances))] : random->Uniform(0.01, 4));
  }
  return given;
}

void ExpectSameBits(double a, double b) { EXPECT_EQ(std::bit_cast<uint64_t>(a), std::bit_cast<uint64_t>(b)); }

// Calls body() on each instruction set.
template <typename Body>
void OnEachTarget(Body body) {
  for (const CpuTarget& target : SupportedCpuTargets()) {
    SCOPED_TRACE(target.name);
    ForceCpuTargetForTest(target.id);
    body();
  }
  ForceCpuTargetForTest(0);
}

// How the test calls it: precision, whether there is a mean, how eps enters.
class GivenTest : public ::testing::TestWithParam<std::tuple<Precision, bool, EpsMode>> {
 protected:
  // Returns whether the groups were taken.
  bool Check(const DivisorRule& rule, const Given& given) {
    const auto& [precision, has_mean, mode] = GetParam();
    const auto n = static_cast<int64_t>(given.variance.size());
    const double* const mean = has_mean ? given.mean.data() : nullptr;
    const std::optional<cpu::GivenGroups> groups = cpu::PrepareGiven(rule, {mean, given.variance.data(), n}, precision);
    int64_t in_f32 = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double* const one = mean == nullptr ? nullptr : mean + i;
      const FinishedStatistics expected =
          GivenStatistics(rule, one, given.variance[static_cast<size_t>(i)], false, precision);
      in_f32 += expected.elements_in_f32 ? 1 : 0;
      if (!groups.has_value()) continue;
      SCOPED_TRACE(i);
      const FinishedStatistics actual = groups->At(i);
      ExpectSameBits(actual.statistics.shift, expected.statistics.shift);
      EXPECT_EQ(actual.statistics.delta.hi, expected.statistics.delta.hi);
      EXPECT_EQ(actual.statistics.delta.lo, expected.statistics.delta.lo);
      ExpectSameBits(actual.statistics.inverse.hi, expected.statistics.inverse.hi);
      EXPECT_EQ(actual.elements_in_f32, expected.elements_in_f32);
      EXPECT_EQ(actual.finite, expected.finite);
      EXPECT_TRUE(groups->has_delta || actual.statistics.delta.hi == 0);
    }
    const bool alike = in_f32 == 0 || in_f32 == n;
    EXPECT_TRUE(groups.has_value() || !alike || n < 8);
    return groups.has_value();
  }
  static DivisorRule Rule(double eps) { return {.eps = eps, .mode = std::get<2>(GetParam())}; }
};

TEST_P(GivenTest, HasTheBitsOfOneByOne) {
  OnEachTarget([&] {
    Random random(20261125);
    for (const int64_t n : {8, 9, 15, 16, 64, 2048 + 3}) {
      for (const double eps : {0.0, 1e-5, 1e-320}) EXPECT_TRUE(Check(Rule(eps), MakeGiven(n, 0, &random)));
    }
  });
}

TEST_P(GivenTest, HasTheBitsOfOneByOneAtTheEdges) {
  OnEachTarget([&] {
    Random random(20261126);
    for (int round = 0; round < 400; ++round) {
      for (const double eps : {0.0, 1e-5}) Check(Rule(eps), MakeGiven(8 + round % 9, 1 + round % 40, &random));
    }
  });
}

TEST_P(GivenTest, LeavesFewGroupsAlone) {
  OnEachTarget([&] {
    Random random(20261127);
    for (int64_t n = 1; n < 8; ++n) Check(Rule(1e-5), MakeGiven(n, 0, &random));
  });
}

INSTANTIATE_TEST_SUITE_P(All, GivenTest,
                         ::testing::Combine(::testing::Values(Precision::kExact, Precision::kFast), ::testing::Bool(),
                                            ::testing::Values(EpsMode::kInsideSqrt, EpsMode::kAddToRoot,
                                                              EpsMode::kClampRoot)));

}  // namespace
}  // namespace normd
