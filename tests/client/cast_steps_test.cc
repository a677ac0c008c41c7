#include "client/normctl/cast_steps.h"

#include <gtest/gtest.h>

#include <cmath>

namespace normd::client {
namespace {

// f16: the ulp of [1, 2) is 2^-10.
constexpr double kUlp = 0x1p-10;

TEST(CastSteps, RoundsBetweenTheSteps) {
  const std::vector<double> normalised = {1 + 0.25 * kUlp}, candidate = {3};
  const StepReference weighted =
      ReferenceOfSteps(v1::DTYPE_F16, normalised, {.weight = {3}}, v1::DTYPE_F16, candidate, 0);
  EXPECT_EQ(weighted.exact, (std::vector<double>{3}));  // 1 * 3, and not (1 + ulp / 4) * 3
  EXPECT_EQ(weighted.first_ulps, (std::vector<double>{0.25}));
  // The product 1.5 ulp above 1 is rounded to 2 ulp (a tie, to even) before the bias is added.
  const StepReference both = ReferenceOfSteps(v1::DTYPE_F16, std::vector<double>{1 + kUlp},
                                              {.weight = {(1 + 1.5 * kUlp) / (1 + kUlp)}, .bias = {1}}, v1::DTYPE_F16,
                                              std::vector<double>{2}, 0);
  EXPECT_NEAR(both.exact[0], 2 + 2 * kUlp, 1e-12);
}

TEST(CastSteps, StartsFromTheNeighbourThatFits) {
  const std::vector<double> normalised = {1 + 0.4 * kUlp};
  const AffineStep affine = {.weight = {1.75}};
  const StepReference up =
      ReferenceOfSteps(v1::DTYPE_F16, normalised, affine, v1::DTYPE_F16, std::vector<double>{1.75 * (1 + kUlp)}, 0);
  EXPECT_EQ(up.exact[0], 1.75 * (1 + kUlp));
  EXPECT_NEAR(up.first_ulps[0], 0.6, 1e-9);
  const StepReference down =
      ReferenceOfSteps(v1::DTYPE_F16, normalised, affine, v1::DTYPE_F16, std::vector<double>{1.75}, 0);
  EXPECT_EQ(down.exact[0], 1.75);
  EXPECT_NEAR(down.first_ulps[0], 0.4, 1e-9);
  const StepReference far =
      ReferenceOfSteps(v1::DTYPE_F16, normalised, affine, v1::DTYPE_F16, std::vector<double>{1.75 + 40 * kUlp}, 0);
  EXPECT_EQ(far.exact[0], 1.75 * (1 + kUlp));
}

TEST(CastSteps, EveryDTypeHasItsNeighbours) {
  for (const auto& [t, ulp] : {std::pair(v1::DTYPE_F16, 0x1p-10), {v1::DTYPE_BF16, 0x1p-7}, {v1::DTYPE_F32, 0x1p-23}}) {
    for (const double sign : {1.0, -1.0}) {
      const StepReference away = ReferenceOfSteps(t, std::vector<double>{sign * (1 + 0.4 * ulp)}, {.weight = {1}}, t,
                                                  std::vector<double>{sign * (1 + ulp)}, 0);
      EXPECT_EQ(away.exact[0], sign * (1 + ulp));
      const StepReference near = ReferenceOfSteps(t, std::vector<double>{sign * (1 + 0.6 * ulp)}, {.weight = {1}}, t,
                                                  std::vector<double>{sign}, 0);
      EXPECT_EQ(near.exact[0], sign);
    }
  }
  const StepReference wide = ReferenceOfSteps(v1::DTYPE_F64, std::vector<double>{0.1}, {.weight = {3}}, v1::DTYPE_F64,
                                              std::vector<double>{0}, 0);
  EXPECT_EQ(wide.exact[0], 0.1 * 3);
  const StepReference tiny = ReferenceOfSteps(v1::DTYPE_F16, std::vector<double>{-0x1p-26}, {.bias = {0}},
                                              v1::DTYPE_F16, std::vector<double>{-0x1p-24}, 0);
  EXPECT_EQ(tiny.exact[0], -0x1p-24);
  EXPECT_TRUE(std::isnan(ReferenceOfSteps(v1::DTYPE_F16, std::vector<double>{NAN}, {.bias = {1}}, v1::DTYPE_F16,
                                          std::vector<double>{NAN}, 0)
                             .exact[0]));
}

TEST(CastSteps, WithoutAnAffineStepThereIsOneRounding) {
  const StepReference none =
      ReferenceOfSteps(v1::DTYPE_F16, std::vector<double>{1.0001}, {}, v1::DTYPE_F16, std::vector<double>{1}, 0);
  EXPECT_EQ(none.exact[0], 1.0001);
  EXPECT_TRUE(none.first_ulps.empty());
}

}  // namespace
}  // namespace normd::client
