// 16-bit columns and channels by FoldedPairs, at middles that all but cancel x * factor and offset.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/folded_pairs.h"
#include "kernels/cpu/targets.h"
#include "tests/kernels/call.h"
#include "tests/support/case.h"
#include "tests/support/judge_nearest.h"
#include "tests/support/nearest.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

constexpr int64_t kPairChannels = 512;

// BatchNorm with given statistics.
Case CaseOfPairs(DType dtype, Layout layout) {
  Case c;
  c.spec.attributes = BatchNormSpec{.layout = layout};
  c.spec.eps = 0;
  c.shape = {9, kPairChannels};
  if (layout == Layout::kChannelsFirst) c.shape = {1, kPairChannels, 5, 7};
  c.dtype = dtype;
  c.weight = DType::kF32;
  c.options.given_statistics = true;
  return c;
}

// One element of each channel lies within 2^-12 ulp of f32 of the last middle below 2^exponent, 2^-15 of x * factor.
CaseData DataOfPairs(const Case& c) {
  Random random(TestSeed());
  const int bits = c.dtype == DType::kF16 ? 11 : 8;
  const double power = c.dtype == DType::kF16 ? 0x1p-10 : 0x1p-11;
  const double middle = power * (1 - std::ldexp(1.0, -bits - 1));
  const bool last = std::get<BatchNormSpec>(c.spec.attributes).layout == Layout::kChannelsLast;
  const int64_t each = last ? c.shape[0] : c.shape[2] * c.shape[3];
  cases::Values x(static_cast<size_t>(each * kPairChannels)), weight;
  CaseData data;
  for (int64_t channel = 0; channel < kPairChannels; ++channel) {
    const auto w = static_cast<double>(static_cast<float>(random.Uniform(1, 2)));
    const double variance = random.Uniform(0.5, 2);
    const double special = std::floor(random.Uniform(128, 255)) / 8;  // a value of any type
    weight.push_back(w);
    data.given_variance.push_back(variance);
    data.given_mean.push_back(special - middle * std::sqrt(variance) / w);
    for (int64_t i = 0; i < each; ++i) {
      const double value = i == channel % each ? special : special + random.Normal();
      x[static_cast<size_t>(last ? i * kPairChannels + channel : channel * each + i)] = value;
    }
  }
  data.x = cases::Pack(c.dtype, x);
  data.weight = cases::Pack(DType::kF32, weight);
  return data;
}

class FoldedPairsTest : public testing::TestWithParam<DType> {
 protected:
  // "" or a description of the first elements that a backend with this factor gets wrong.
  static std::string Wrong(const Case& c, double bound_factor) {
    const CaseData data = DataOfPairs(c);
    const auto backend = MakeCpuBackend({.threads = 1, .nearest = {.bound_factor = bound_factor}});
    const absl::StatusOr<Outputs> got = RunCase(*backend, c, data);
    if (!got.ok()) return got.status().ToString();
    const oracle::NearestResult want = oracle::Nearest(OracleSpec(c), OracleInput(c, data));
    return NotNearest(OracleType(c.dtype), got->y, want.y);
  }
};

TEST_P(FoldedPairsTest, AreDecidedAtTheMiddles) {
  for (const Layout layout : {Layout::kChannelsLast, Layout::kChannelsFirst}) {
    const Case c = CaseOfPairs(GetParam(), layout);
    for (const CpuTarget& target : SupportedCpuTargets()) {
      ForceCpuTargetForTest(target.id);
      EXPECT_EQ(Wrong(c, 1), "") << c.Name() << " on " << target.name;
    }
    ForceCpuTargetForTest(0);
  }
}

// All of these come out as the middle itself, which any bound but 0 finds.
TEST_P(FoldedPairsTest, NeedABound) {
  for (const Layout layout : {Layout::kChannelsLast, Layout::kChannelsFirst}) {
    EXPECT_NE(Wrong(CaseOfPairs(GetParam(), layout), 0), "");
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, FoldedPairsTest, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

// The limits of columns with w = 1, b = 0.5 and these offsets.
cpu::PairLimits LimitsOf(DType dtype, double bound_factor, const std::vector<double>& offsets, bool* is_last_in) {
  cpu::PairScales scales;
  scales.Add(1, 0.5);
  cpu::PairBound bound(scales, dtype, bound_factor);
  for (const double offset : offsets) *is_last_in = bound.Add({.fixed = 0x1p-50, .relative = 0x1p-48}, offset);
  return bound.limits();
}

TEST(FoldedPairsLimitsTest, GrowWithTheBound) {
  bool is_in = false;
  EXPECT_EQ(LimitsOf(DType::kF16, 1, {1}, &is_in).near_bits, 2);
  EXPECT_EQ(LimitsOf(DType::kBF16, 1, {1}, &is_in).near_bits, 2);
  EXPECT_EQ(LimitsOf(DType::kF16, 1, {1}, &is_in).least, 0x1p-13);
  EXPECT_EQ(LimitsOf(DType::kBF16, 1, {1}, &is_in).least, 0x1p-16);
  EXPECT_EQ(LimitsOf(DType::kF16, 4, {1}, &is_in).near_bits, 4);
  EXPECT_EQ(LimitsOf(DType::kF16, 0x1p-6, {1}, &is_in).near_bits, 0);
  EXPECT_EQ(LimitsOf(DType::kF16, 0, {1}, &is_in).near_bits, -1);
  EXPECT_TRUE(is_in);
  EXPECT_EQ(LimitsOf(DType::kF16, 1, {100, 1}, &is_in).near_bits, 3);
}

TEST(FoldedPairsLimitsTest, LeaveOutColumnsOfWhichFewElementsWouldBeDecided) {
  bool is_in = true;
  EXPECT_EQ(LimitsOf(DType::kF16, 1, {1, 1e4}, &is_in).near_bits, 2);
  EXPECT_FALSE(is_in);
  LimitsOf(DType::kBF16, 1e6, {1}, &is_in);
  EXPECT_FALSE(is_in);
}

// A channel that is nearly switched off takes nothing from the others.
TEST(FoldedPairsLimitsTest, KeepTheLeastValueBesideATinyWeight) {
  cpu::PairScales scales;
  scales.Add(1, 0);
  scales.Add(0, 0);
  scales.Add(1e-9, 0);
  EXPECT_EQ(cpu::PairBound(scales, DType::kBF16, 1).limits().least, 0x1p-20);
}

}  // namespace
}  // namespace normd
