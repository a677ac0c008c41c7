// What methods have in common, bit for bit: methods that lower to the same plan, exact shifts and scales, fused
// residuals.
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/cases.h"
#include "tests/support/case.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

class IdentitiesTest : public testing::TestWithParam<std::pair<DType, Precision>> {
 protected:
  static DType dtype() { return GetParam().first; }

  static CaseData DataOf(const Case& c) {
    const absl::StatusOr<NormPlan> plan = PlanOf(c);
    EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
    return plan.ok() ? MakeData(c, *plan, 0) : CaseData();
  }

  // In the precision of the test.
  Outputs Execute(Case c, const CaseData& data) const {
    c.options.precision = GetParam().second;
    absl::StatusOr<Outputs> outputs = RunCase(*backend_, c, data);
    EXPECT_TRUE(outputs.ok()) << c.Name() << ": " << outputs.status();
    return outputs.ok() ? *std::move(outputs) : Outputs();
  }

  void ExpectEqual(const Case& a, const Case& b, const CaseData& data) const {
    EXPECT_EQ(DifferenceOf(Execute(a, data), Execute(b, data)), "") << a.Name() << "\n" << b.Name();
  }

  // Small integers times `unit`, so that exact shifts and scales exist in every dtype.
  static std::string Integers(DType dtype, int64_t count, double shift, double unit) {
    Random random(5);
    std::string bytes(static_cast<size_t>(count * SizeOf(dtype)), '\0');
    const oracle::Type type = OracleType(dtype);
    for (int64_t i = 0; i < count; ++i) {
      const double value = (static_cast<double>(random.Below(61) - 30) + shift) * unit;
      const uint64_t bits = oracle::Encode(type, value);
      EXPECT_EQ(static_cast<double>(oracle::Decode(type, bits)), value) << "not exact in this dtype";
      oracle::StoreBits(type, bits, bytes.data(), i);
    }
    return bytes;
  }

  const std::unique_ptr<Backend> backend_ = MakeCpuBackend({});
};

constexpr Layout kFirst = Layout::kChannelsFirst;

TEST_P(IdentitiesTest, GroupNormOfOneChannelAGroupIsInstanceNorm) {
  for (const cases::Dims& spatial :
       {cases::Dims{}, cases::Dims{7}, cases::Dims{9, 11}, cases::Dims{3, 4, 5}, cases::Dims{4099}}) {
    for (const Data data : {Data::kNormal, Data::kFarMean, Data::kMixed}) {
      const cases::Dims shape = cases::Nchw(kFirst, 2, 6, spatial);
      const Case group = cases::With(cases::On(cases::Group(6, kFirst), shape), dtype(), data);
      ExpectEqual(group, cases::With(cases::On(cases::Of(Method::kInstanceNorm, kFirst), shape), dtype(), data),
                  DataOf(group));
    }
  }
}

TEST_P(IdentitiesTest, GroupNormOfOneGroupIsLayerNormOverChannelsAndSpace) {
  for (const cases::Dims& spatial :
       {cases::Dims{}, cases::Dims{7}, cases::Dims{9, 11}, cases::Dims{3, 4, 5}, cases::Dims{4099}}) {
    for (const Data data : {Data::kNormal, Data::kFarMean, Data::kMixed}) {
      const cases::Dims shape = cases::Nchw(kFirst, 3, 6, spatial);
      const Case group = cases::With(cases::On(cases::Group(1, kFirst), shape), dtype(), data);
      const cases::Dims over(shape.begin() + 1, shape.end());
      const Case layer = cases::With(cases::On(cases::Over(over), shape), dtype(), data);
      const CaseData values = DataOf(group);
      const Outputs a = Execute(group, values), b = Execute(layer, values);
      EXPECT_EQ(DifferenceOf(a, b), "") << group.Name();
    }
  }
}

TEST_P(IdentitiesTest, PartialRmsNormOfEverythingIsRmsNorm) {
  for (const int64_t d : {1, 7, 769, 4097}) {
    for (const Data data : {Data::kNormal, Data::kHuge, Data::kMixed}) {
      Case rms = cases::With(cases::On(cases::Of(Method::kRmsNorm), {3, d}), dtype(), data);
      rms.weight = dtype();
      Case partial = rms;
      partial.spec = cases::PartialP(1);
      ExpectEqual(rms, partial, DataOf(rms));
      partial.spec = cases::PartialK(d);
      ExpectEqual(rms, partial, DataOf(rms));
    }
  }
}

TEST_P(IdentitiesTest, ListedTrailingAxesAreTheNormalizedShape) {
  const Case shape = cases::Affine(cases::With(cases::On(cases::Over({5, 7}), {4, 3, 5, 7}), dtype()));
  Case axes = shape;
  axes.spec = cases::Axes(Method::kLayerNorm, {2, 3});
  const CaseData data = DataOf(shape);
  ExpectEqual(shape, axes, data);
  axes.spec = cases::Axes(Method::kLayerNorm, {-2, -1});
  ExpectEqual(shape, axes, data);
}

TEST_P(IdentitiesTest, TheOrderOfListedAxesMattersToParametersOnly) {
  const Case sorted = cases::With(cases::On(cases::Axes(Method::kLayerNorm, {1, 3}), {2, 5, 3, 7}), dtype());
  Case listed = sorted;
  listed.spec = cases::Axes(Method::kLayerNorm, {3, 1});
  ExpectEqual(sorted, listed, DataOf(sorted));
}

TEST_P(IdentitiesTest, RmsNormWithoutEpsIgnoresAFactorThatIsAPowerOfTwo) {
  Case c = cases::With(cases::On(cases::Of(Method::kRmsNorm), {4, 769}), dtype());
  c.spec.eps = 0;
  c.weight = dtype();
  CaseData data = DataOf(c);
  data.x = Integers(dtype(), 4 * 769, 0, 1);
  const Outputs want = Execute(c, data);
  for (const double factor : {2.0, 1024.0, 0.125, 0x1p-14}) {
    data.x = Integers(dtype(), 4 * 769, 0, factor);
    EXPECT_EQ(Execute(c, data).y == want.y, true) << factor;
  }
}

TEST_P(IdentitiesTest, LpNormIgnoresAFactorThatIsAPowerOfTwo) {
  std::vector<double> factors = {2, 1024, 0.125, 0x1p-14};
  // Out there f64 groups are scaled before they are summed.
  if (dtype() == DType::kF64) factors.insert(factors.end(), {0x1p+300, 0x1p+600, 0x1p+1010, 0x1p-300, 0x1p-600});
  for (const double p : {1.0, 1.5, 2.0, 3.0, 1e6, 1e300, cases::kMaxNorm}) {
    for (const Case& base : {cases::On(cases::LpOf(p), {4, 769}), cases::On(cases::LpOf(p, 0), {769, 4}),
                             cases::On(cases::LpOver(p, {0, 2}), {4, 2, 4099})}) {
      const Case c = cases::With(base, dtype());
      CaseData data = DataOf(c);
      const int64_t elements = static_cast<int64_t>(data.x.size()) / SizeOf(dtype());
      data.x = Integers(dtype(), elements, 0, 1);
      const Outputs want = Execute(c, data);
      for (const double factor : factors) {
        data.x = Integers(dtype(), elements, 0, factor);
        EXPECT_EQ(Execute(c, data).y == want.y, true) << c.Name() << " times " << factor;
      }
    }
  }
}

TEST_P(IdentitiesTest, TheLargestPowersGiveTheMaximumNorm) {
  for (const Case& base : {cases::On(cases::LpOf(1e300), {4, 769}), cases::On(cases::LpOf(1e300, 1), {3, 9, 11}),
                           cases::On(cases::LpOf(1e300), {2, 4099})}) {
    const Case large = cases::With(base, dtype());
    Case maximum = large;
    std::get<LpNormSpec>(maximum.spec.attributes).p = cases::kMaxNorm;
    const CaseData data = DataOf(large);
    EXPECT_EQ(Execute(large, data).y == Execute(maximum, data).y, true) << large.Name();
  }
}

TEST_P(IdentitiesTest, LpNormOverNeighbouringAxesIsTheNormOverOneAxisOfAll) {
  for (const double p : {1.0, 1.5, 2.0, 10.0, cases::kMaxNorm}) {
    for (const auto& [shape, merged] : {std::pair(cases::Dims{2, 3, 4}, cases::Dims{2, 12}),
                                        std::pair(cases::Dims{2, 50, 90}, cases::Dims{2, 4500})}) {
      const Case over = cases::With(cases::On(cases::LpOver(p, {1, 2}), shape), dtype());
      const Case last = cases::With(cases::On(cases::LpOf(p), merged), dtype());
      ExpectEqual(over, last, DataOf(over));
    }
  }
}

TEST_P(IdentitiesTest, LpNormOfAPowerIsThatOfTheOrder) {
  for (const int64_t order : {1, 2, 3}) {
    for (const cases::Dims& shape : {cases::Dims{6, 67}, cases::Dims{2, 4099}}) {
      for (const Data data : {Data::kNormal, Data::kMixed}) {
        const Case by_order = cases::With(cases::On(cases::Lp(order), shape), dtype(), data);
        Case by_power = by_order;
        by_power.spec = cases::LpOf(static_cast<double>(order));
        ExpectEqual(by_order, by_power, DataOf(by_order));
      }
    }
  }
}

// x / R is correctly rounded where R is an element: 1, and nothing beyond it.
TEST_P(IdentitiesTest, TheMaximumNormGivesPlusOrMinusOneAndNothingLarger) {
  for (const Data data : {Data::kNormal, Data::kMixed, Data::kHuge, Data::kTiny}) {
    const Case c = cases::With(cases::On(cases::LpOf(cases::kMaxNorm), {1, 769}), dtype(), data);
    int ones = 0;
    for (const oracle::Wide y : OracleValues(dtype(), Execute(c, DataOf(c)).y)) {
      EXPECT_TRUE(oracle::Abs(y) <= 1) << c.Name();
      ones += oracle::Abs(y) == 1;
    }
    EXPECT_GE(ones, 1) << c.Name();
  }
}

TEST_P(IdentitiesTest, LayerNormIgnoresAnExactShift) {
  if (GetParam().second == Precision::kFast) GTEST_SKIP() << "FAST rounds the mean, and a shifted one otherwise";
  for (const int64_t d : {7, 769, 4097}) {
    const Case c = cases::Affine(cases::With(cases::On(cases::Over({d}), {4, d}), dtype()));
    CaseData data = DataOf(c);
    data.x = Integers(dtype(), 4 * d, 0, 1);
    const Outputs want = Execute(c, data);
    for (const double shift : {64.0, -96.0}) {
      data.x = Integers(dtype(), 4 * d, shift, 1);
      const Outputs got = Execute(c, data);
      EXPECT_EQ(got.y == want.y, true) << d << " shifted by " << shift;
      EXPECT_EQ(got.inverse_std == want.inverse_std, true) << d << " shifted by " << shift;
    }
  }
}

TEST_P(IdentitiesTest, FusedResidualEqualsSeparateSteps) {
  for (const Case& base : cases::MainBases()) {
    for (const double scale : {1.0, 0.5, 1.0 / 3.0}) {
      for (const DType residual : kAllDTypes) {
        Case fused = cases::Affine(cases::With(base, dtype()));
        fused.residual = ResidualCase{residual, scale, ResidualRounding::kRoundFirst};
        CaseData data = DataOf(fused);
        const Outputs want = Execute(fused, data);
        Case separate = fused;
        separate.residual.reset();
        data.x = want.h;
        Outputs got = Execute(separate, data);
        got.h = want.h;
        EXPECT_EQ(DifferenceOf(got, want), "") << fused.Name();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Arithmetics, IdentitiesTest,
    testing::Values(std::pair(DType::kF32, Precision::kExact), std::pair(DType::kF16, Precision::kExact),
                    std::pair(DType::kBF16, Precision::kExact), std::pair(DType::kF64, Precision::kExact),
                    std::pair(DType::kF32, Precision::kFast), std::pair(DType::kF16, Precision::kFast),
                    std::pair(DType::kBF16, Precision::kFast)),
    [](const auto& arithmetic) {
      return std::string(Name(arithmetic.param.first)) + (arithmetic.param.second == Precision::kFast ? "_fast" : "");
    });

}  // namespace
}  // namespace normd
