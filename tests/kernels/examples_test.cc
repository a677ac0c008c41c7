// The numbers that the specification prints, through the CPU backend: where eps goes, where the rounding to T happens,
// rows that popular libraries get wrong, signed zeros, subnormals, special values, PowerNorm's golden numbers.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "tests/kernels/call.h"
#include "tests/kernels/cases.h"

namespace normd {
namespace {

using cases::Call;
using cases::Pack;
using cases::Row;
using cases::Spec;
using cases::Unpack;
using cases::Values;

TEST(ExamplesTest, WhereEpsGoesMatters) {
  constexpr Method kLn = Method::kLayerNorm, kRms = Method::kRmsNorm, kScale = Method::kScaleNorm;
  constexpr EpsMode kInside = EpsMode::kInsideSqrt, kAdd = EpsMode::kAddToRoot, kClamp = EpsMode::kClampRoot;
  const struct {
    Method method;
    EpsMode mode;
    double at_1e5, at_1e6;
  } table[] = {{kLn, kInside, 0.44721360, 1.00000000},   {kLn, kAdd, 1.32974717, 1.34044186},
               {kRms, kInside, 0.95618289, 1.37198868},  {kRms, kAdd, 1.45527956, 1.46006035},
               {kScale, kAdd, 0.72896584, 0.73016343},   {kScale, kClamp, 0.73029674, 0.73029674},
               {kScale, kInside, 0.63245553, 0.71842121}};
  const Values x = {1e-3, 2e-3, 3e-3, 4e-3};
  for (const auto& row : table) {
    EXPECT_NEAR(Row(Spec(row.method, 1e-5, row.mode), DType::kF64, x).Y()[3], row.at_1e5, 5.1e-9);
    EXPECT_NEAR(Row(Spec(row.method, 1e-6, row.mode), DType::kF64, x).Y()[3], row.at_1e6, 5.1e-9);
  }
}

TEST(ExamplesTest, TheCastOrderInF16IsExactlyAsPrinted) {
  NormSpec spec = Spec(Method::kRmsNorm, 1e-5);
  const Values x = {-2.02, -0.23, -0.87, 3.32, 0.23, -0.35}, w = {1.3, 0.7, 1.1, 2.9, 0.3, 1.7};
  EXPECT_EQ(Row(spec, DType::kF16, x).Weight(w).Y(),
            (Values{-1.603515625, -0.09832763671875, -0.58447265625, 5.8828125, 0.042144775390625, -0.363525390625}));
  spec.cast_order = CastOrder::kCastThenAffine;
  EXPECT_EQ(Row(spec, DType::kF16, x).Weight(w).Y(),
            (Values{-1.603515625, -0.098388671875, -0.583984375, 5.87890625, 0.042144775390625, -0.363525390625}));
}

// Squares taken in f16 overflow from |x| >= 256, and the row becomes 0. Not offered; this is why.
TEST(ExamplesTest, SquaresOfF16AreNotTakenInF16) {
  const Values x = {300, -256, 1000, 2};
  double mean_square_in_f16 = 0;
  for (const double v : x) {
    const auto square = static_cast<double>(oracle::Round(oracle::Type::kF16, oracle::Wide(v) * v));
    mean_square_in_f16 += square / 4;
  }
  EXPECT_EQ(mean_square_in_f16, kInf);
  EXPECT_EQ(x[0] / std::sqrt(mean_square_in_f16), 0);
  const Values y = Row(Spec(Method::kRmsNorm), DType::kF16, x).Y();
  EXPECT_NEAR(y[0], 300 / std::sqrt(288885.0), 5e-4);
  EXPECT_NEAR(y[2], 1000 / std::sqrt(288885.0), 1e-3);
}

TEST(ExamplesTest, LayerNormOfLargeNeighboursKeepsTheirDifferences) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Values y = Row(Spec(Method::kLayerNorm), dtype, {1e8, 1e8 + 8, 1e8 + 16, 1e8 + 24}).Y();
    const double want[] = {-1.3416407, -0.4472136, 0.4472136, 1.3416407};
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], want[i], 1e-7);
  }
}

TEST(ExamplesTest, AConstantRowIsExactlyItsBias) {
  for (const DType dtype : kAllDTypes) {
    for (const double constant : {12345.678, 0.1, -7.0}) {
      const Values x(7, constant);
      for (const double y : Row(Spec(Method::kLayerNorm), dtype, x).Y()) {
        EXPECT_EQ(y, 0);
        EXPECT_FALSE(std::signbit(y)) << "a centred element gives +0";
      }
      const Values b = {1, -2, 0.5, 3, 0, 8, -0.25};
      EXPECT_EQ(Row(Spec(Method::kLayerNorm), dtype, x).Weight(Values(7, 1.5)).Bias(b).Y(), b);
      const NormSpec batch = cases::Of(Method::kBatchNorm, Layout::kChannelsLast);
      EXPECT_EQ(Call(batch, dtype, {7, 1}, x).Bias({0.75}).Y(), Values(7, 0.75));
    }
  }
}

TEST(ExamplesTest, LargeValuesDoNotOverflow) {
  const Values y = Row(Spec(Method::kLayerNorm), DType::kF32, {1e19, 2e19, 3e19}).Y();
  EXPECT_NEAR(y[0], -1.2247449, 1e-6);
  EXPECT_NEAR(y[1], 0, 1e-7);  // 2e19 is not quite the middle in f32
  EXPECT_NEAR(y[2], 1.2247449, 1e-6);
  const Values huge = Row(Spec(Method::kRmsNorm), DType::kF64, {3e300, 4e300}).Y();
  EXPECT_NEAR(huge[0], 3 / std::sqrt(12.5), 1e-15);
  EXPECT_NEAR(huge[1], 4 / std::sqrt(12.5), 1e-15);
}

TEST(ExamplesTest, OneElementIsExactlyItsBias) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(Row(Spec(Method::kLayerNorm), dtype, {3.25}).Bias({-1.5}).Y(), Values{-1.5});
    const NormSpec instance = cases::Of(Method::kInstanceNorm, Layout::kChannelsFirst);
    EXPECT_EQ(Call(instance, dtype, {1, 2}, {4, 9}).Bias({0.5, 2}).Y(), (Values{0.5, 2}));
  }
}

TEST(ExamplesTest, BatchNormInferenceSubtractsBeforeItScales) {
  const NormSpec spec = cases::Of(Method::kBatchNorm, Layout::kChannelsLast);
  const Values y = Call(spec, DType::kF32, {1, 1}, {1000000.5}, true).Given({1e6}, {1e-4}).Y();
  EXPECT_NEAR(y[0], 0.5 / std::sqrt(1.1e-4), 4e-6);
  EXPECT_NEAR(y[0], 47.67, 0.005);
}

TEST(ExamplesTest, SubnormalsAreNotFlushed) {
  const double least_f16 = 0x1p-24, least_f32 = 0x1p-149;
  EXPECT_EQ(Row(Spec(Method::kRmsNorm, 0), DType::kF16, {least_f16, -least_f16}).Y(), (Values{1, -1}));
  EXPECT_EQ(Row(Spec(Method::kLayerNorm, 0), DType::kF16, {least_f16, -least_f16}).Y(), (Values{1, -1}));
  EXPECT_EQ(Row(Spec(Method::kScaleNorm, 0), DType::kF32, {least_f32, 0}).Y(), (Values{1, 0}));
  EXPECT_EQ(Row(Spec(Method::kRmsNorm, 0), DType::kF64, {5e-324, -5e-324}).Y(), (Values{1, -1}));
  // A subnormal result: 2^-126 / 4 with D = 1.
  EXPECT_EQ(Row(Spec(Method::kRmsNorm, 0), DType::kF32, {1, -1}).Weight({0x1p-128, 1}).Y()[0], 0x1p-128);
}

TEST(ExamplesTest, MinusZeroKeepsItsSignWhereNoMeanIsSubtracted) {
  for (const DType dtype : kAllDTypes) {
    for (const Method method : {Method::kRmsNorm, Method::kScaleNorm}) {
      const Values y = Row(Spec(method), dtype, {-0.0, 0.0, 1}).Y();
      EXPECT_TRUE(y[0] == 0 && std::signbit(y[0]));
      EXPECT_TRUE(y[1] == 0 && !std::signbit(y[1]));
    }
    const Values y = Row(Spec(Method::kLayerNorm), dtype, {-1, -0.0, 1}).Y();
    EXPECT_TRUE(y[1] == 0 && !std::signbit(y[1])) << "a centred element gives +0";
  }
}

TEST(ExamplesTest, InfAndNanStayInTheirRow) {
  for (const DType dtype : kAllDTypes) {
    for (const double y : Row(Spec(Method::kLayerNorm), dtype, {1, kInf, 2}).Y()) EXPECT_TRUE(std::isnan(y));
    for (const double y : Row(Spec(Method::kRmsNorm), dtype, {1, kNan, 2}).Y()) EXPECT_TRUE(std::isnan(y));
    const Values y = Row(Spec(Method::kRmsNorm), dtype, {1, -kInf, -2}).Y();
    EXPECT_EQ(y[0], 0);
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_EQ(y[2], 0);
    // Beyond the first k a NaN poisons its own element only.
    const Values partial = Call(cases::PartialK(2), dtype, {1, 4}, {3, -3, kNan, 6}).Y();
    EXPECT_NEAR(partial[0], 1, 1e-6);
    EXPECT_TRUE(std::isnan(partial[2]));
    EXPECT_NEAR(partial[3], 2, 1e-6);
  }
}

TEST(ExamplesTest, WithoutEpsAZeroVarianceIsNanAndAZeroNormIsZero) {
  for (const DType dtype : kAllDTypes) {
    for (const double y : Row(Spec(Method::kLayerNorm, 0), dtype, {5, 5, 5}).Y()) EXPECT_TRUE(std::isnan(y));
    for (const double y : Row(Spec(Method::kRmsNorm, 0), dtype, {0, 0}).Y()) EXPECT_TRUE(std::isnan(y));
    for (const int64_t order : {1, 2}) {
      EXPECT_EQ(Call(cases::Lp(order), dtype, {2, 2}, {0, 0, 3, -4}).Y(),
                Unpack(dtype, Pack(dtype, order == 1 ? Values{0, 0, 3.0 / 7, -4.0 / 7} : Values{0, 0, 0.6, -0.8})));
    }
  }
}

TEST(ExamplesTest, LpNormsOfAnyPower) {
  for (const DType dtype : kAllDTypes) {
    const auto rounded = [&](const Values& y) { return Unpack(dtype, Pack(dtype, y)); };
    const Values cubic = Row(cases::LpOf(3), dtype, {3, -4, 5}).Y();
    const Values thirds = rounded({3.0 / 6, -4.0 / 6, 5.0 / 6});
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(cubic[i], thirds[i], 1e-15);
    EXPECT_EQ(Row(cases::LpOf(kInf), dtype, {3, -4, 2}).Y(), rounded({0.75, -1, 0.5}));
    EXPECT_EQ(Row(cases::LpOf(1e300), dtype, {3, -4, 2}).Y(), rounded({0.75, -1, 0.5}));
    EXPECT_EQ(Call(cases::LpOver(kInf, {0, 2}), dtype, {2, 2, 2}, {1, 2, -8, 4, -4, 0, 2, 6}).Y(),
              rounded({0.25, 0.5, -1, 0.5, -1, 0, 0.25, 0.75}));
  }
}

TEST(ExamplesTest, ZeroInfAndNanInLpNormsOfAnyPower) {
  for (const DType dtype : kAllDTypes) {
    for (const double p : {1.0, 1.5, 2.0, 3.0, 1e6, 1e300, kInf}) {
      for (const double y : Row(cases::LpOf(p), dtype, {0, -0.0, 0}).Y()) EXPECT_EQ(y, 0) << p;
      const Values zeros = Row(cases::LpOf(p), dtype, {-0.0, 0.0, -1}).Y();
      EXPECT_TRUE(zeros[0] == 0 && std::signbit(zeros[0])) << p;
      EXPECT_TRUE(zeros[1] == 0 && !std::signbit(zeros[1])) << p;
      EXPECT_EQ(zeros[2], -1) << p;
      for (const double y : Row(cases::LpOf(p), dtype, {1, kNan, kInf}).Y()) EXPECT_TRUE(std::isnan(y)) << p;
      const Values infinite = Row(cases::LpOf(p), dtype, {1, -kInf, -2}).Y();
      EXPECT_TRUE(infinite[0] == 0 && std::isnan(infinite[1]) && infinite[2] == 0) << p;
      // One set's Inf leaves the others alone, in rows and in columns.
      EXPECT_EQ(Call(cases::LpOf(p), dtype, {2, 1}, {kNan, -3}).Y()[1], -1) << p;
      EXPECT_EQ(Call(cases::LpOf(p, 0), dtype, {1, 2}, {kInf, -3}).Y()[1], -1) << p;
    }
  }
}

TEST(ExamplesTest, TheMomentOfAnLpNormHasTheNormItself) {
  const std::pair<double, double> norms[] = {{1, 7}, {2, 25}, {kInf, 4}};  // of order 2 it is the sum of squares
  for (const auto& [p, m2] : norms) {
    const Outputs outputs = Row(cases::LpOf(p), DType::kF64, {3, -4}).Result();
    ASSERT_EQ(outputs.moments.size(), 1u);
    EXPECT_EQ(outputs.moments[0].count, 2);
    EXPECT_EQ(outputs.moments[0].mean, 0);
    EXPECT_EQ(outputs.moments[0].m2, m2) << p;
  }
  EXPECT_NEAR(Row(cases::LpOf(3), DType::kF64, {3, 4, 5}).Result().moments[0].m2, 6, 1e-15);
}

TEST(ExamplesTest, OverflowOfTheResultGivesInf) {
  EXPECT_EQ(Row(Spec(Method::kRmsNorm, 0), DType::kF16, {2, 2}).Weight({65504, 65504}).Bias({100, -100}).Y(),
            (Values{kInf, 65408}));
}

// The step's divisor is given, as an engine does: v during warm-up, then the phi before the step.
TEST(ExamplesTest, PowerNormGivesTheGoldenNumbers) {
  const struct {
    Values x, divisor, y;
  } steps[] = {
      {{1, 2, 3, 4}, {}, {0.845146, 1.054088, 1.133884, 0.942807}},
      {{2, 1, 0, 5}, {}, {1.414205, 0.577347, 0, 1.290989}},
      {{-1, 3, 2, 2}, {0.5839987, 1.4159965}, {-0.585201, 1.127465, 1.308548, 0.840363}},
      {{1, 2, 3, 4}, {0.58559869, 1.41439654}, {0.826467, 1.063584, 1.108823, 0.9513}},
  };
  for (const auto& step : steps) {
    Call training(cases::Power(1), DType::kF64, {2, 2}, step.x);
    const Outputs batch = training.Result();
    Values divisor = step.divisor;
    if (divisor.empty()) {
      divisor = {batch.moments[0].BiasedVariance(), batch.moments[1].BiasedVariance()};
      const Values y = Unpack(DType::kF64, batch.y);
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], step.y[i], 6e-7);
    }
    const Values y = Call(cases::Power(1), DType::kF64, {2, 2}, step.x, true).Given({}, divisor).Y();
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], step.y[i], 6e-7);
  }
}

TEST(ExamplesTest, MeanAndInverseStandardDeviationComeInF32OrF64) {
  const Outputs f16 = Row(Spec(Method::kLayerNorm, 0), DType::kF16, {1, 3, 5, 7}).Result();
  EXPECT_EQ(Unpack(DType::kF32, f16.mean), Values{4});
  EXPECT_EQ(Unpack(DType::kF32, f16.inverse_std)[0], static_cast<float>(1 / std::sqrt(5.0)));
  const Outputs f64 = Row(Spec(Method::kLayerNorm, 0), DType::kF64, {1, 3, 5, 7}).Result();
  EXPECT_EQ(Unpack(DType::kF64, f64.mean), Values{4});
  EXPECT_NEAR(Unpack(DType::kF64, f64.inverse_std)[0], 1 / std::sqrt(5.0), 1e-16);
  ASSERT_EQ(f64.moments.size(), 1u);
  EXPECT_EQ(f64.moments[0].count, 4);
  EXPECT_EQ(f64.moments[0].mean, 4);
  EXPECT_EQ(f64.moments[0].m2, 20);
}

}  // namespace
}  // namespace normd
