// The edge cases of the specification's sections on numbers (3), PowerNorm (5) and tensors (6), each in EXACT and,
// where it promises the same, in FAST. The line that a test holds stands above it. Held elsewhere: 3.1
// conditioning, 3.3 range (sweep_test.cc); 4 (tests/kernels/invariance_test.cc, identities_test.cc); 5's golden numbers
// and cast orders (tests/kernels/examples_test.cc); 6's refusals (tests/kernels/plan_refusals_test.cc), mixed parameter
// dtypes, masks, residuals, empty tensors and permuted axes (tests/kernels/cases.h), 2^31 elements (large_test.cc).
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/accuracy/judge.h"
#include "tests/support/random.h"
#include "tests/support/spec.h"

namespace normd::accuracy {
namespace {

using cases::Spec;
using oracle::Wide;

bool IsPlusZero(double v) { return v == 0 && !std::signbit(v); }
bool IsMinusZero(double v) { return v == 0 && std::signbit(v); }

class EdgesTest : public ArithmeticTest {
 protected:
  // Sets of `d` in rows, and the same in columns.
  static std::vector<Call> RowsAndColumns(const Values& x) {
    const auto d = static_cast<int64_t>(x.size());
    return {Row(cases::Over({d}), x),
            Row(cases::Of(Method::kRmsNorm), x),
            On(cases::Axes(Method::kLayerNorm, {0}), {d, 1}, x),
            On(cases::Axes(Method::kRmsNorm, {0}), {d, 1}, x),
            On(cases::Of(Method::kBatchNorm, kLast), {d, 1}, x),
            On(cases::Of(Method::kInstanceNorm, kFirst), {1, 1, d}, x),
            On(cases::Group(1, kLast), {1, d, 1}, x)};
  }

  static Values Normals(int64_t n, double scale, double mean = 0) {
    Random random(11);
    Values x;
    for (int64_t i = 0; i < n; ++i) x.push_back(mean + scale * random.Normal());
    return x;
  }
};

// 3.2: a row whose sum of squares is not finite, or is below 2^-100 with x not 0, is computed as EXACT; and its bytes
// are EXACT's. Rows without a number and rows of zeros have no other answer either.
class FastEdgesTest : public EdgesTest {};

TEST_P(FastEdgesTest, ComputesRowsOutOfItsRangeAsExact) {
  std::vector<Values> rows = {Normals(67, 1), Normals(67, 1), Normals(67, 1), Values(67, 0.0), Values(67, -0.0)};
  rows[0][3] = kNan;
  rows[1][40] = kInf;
  rows[2][66] = -kInf;
  if (dtype() != DType::kF16) {
    for (const double scale : {1e19, 1e25, 1e30, 0x1p-60, 0x1p-100, 0x1p-126, 0x1p-140}) {
      rows.push_back(Normals(67, scale));
      rows.push_back(Normals(4097, scale));
    }
  }
  for (const Values& x : rows) {
    for (Call& call : RowsAndColumns(x)) {
      call.c.spec.eps = 0;
      const Outputs got = call.Result();
      EXPECT_EQ(DifferenceOf(got, call.In(Precision::kExact).Result()), "") << call.c.Name() << " x[0] " << x[0];
    }
  }
}

// 1: f64, PowerNorm and CAST_THEN_AFFINE ignore FAST.
TEST(EdgesFastTest, WhereThereIsNoFastItsBytesAreThoseOfExact) {
  NormSpec cast = cases::Over({67});
  cast.cast_order = CastOrder::kCastThenAffine;
  for (Case c : {cases::With(cases::On(cases::Over({67}), {6, 67}), DType::kF64),
                 cases::With(cases::On(cases::Power(2), {7, 6}), DType::kF32),
                 cases::Affine(cases::With(cases::On(cast, {6, 67}), DType::kF16))}) {
    EXPECT_FALSE(cases::HasFast(c));
    const std::unique_ptr<Backend> backend = MakeCpuBackend({});
    const CaseData data = MakeData(c, *PlanOf(c), 0);
    const absl::StatusOr<Outputs> exact = RunCase(*backend, c, data), wish = RunCase(*backend, cases::Fast(c), data);
    ASSERT_TRUE(exact.ok() && wish.ok());
    EXPECT_EQ(PlanOf(cases::Fast(c))->precision, Precision::kExact);
    EXPECT_EQ(DifferenceOf(*wish, *exact), "") << c.Name();
  }
}

// 3.2: many small squares beside large ones are not lost: each is half an ulp of the sum it is added to.
TEST_P(EdgesTest, SmallSquaresCountBesideLargeOnes) {
  for (const bool centred : {false, true}) {
    Values x(1000, 0x1p-12);
    for (size_t i = 0; i < 64; ++i) x[i] = centred && i % 2 == 1 ? -1 : 1;
    for (const Call& call : RowsAndColumns(x)) EXPECT_EQ(Judge(call), "");
  }
}

// 3.3: statistics, factors and weights near the ends of f32 and beyond, where they are given in f64.
TEST_P(EdgesTest, GivenStatisticsMayBeBeyondF32) {
  for (const auto& [mean, variance] : {std::pair{1e39, 1e80}, {1e39, 1.0}, {-1e20, 1e88}, {0.0, 1e88}, {0.0, 1e-88}}) {
    for (const double x : {0.0, 1.0, 30000.0}) {
      for (const Layout layout : {kFirst, kLast}) {
        EXPECT_EQ(Judge(On(cases::Of(Method::kBatchNorm, layout), {1, 1}, {x}, true).Given({mean}, {variance})), "");
      }
    }
  }
}
TEST_P(EdgesTest, WeightsMayBeBelowF32) {
  Call call = Row(cases::PartialK(1), {1, 2, 3});
  call.c.spec.eps = 0;
  call.c.weight = DType::kF64;
  call.data.weight = cases::Pack(DType::kF64, {1, 1.5 * 0x1p-149, 1.5 * 0x1p-149});
  call.data.x = cases::Pack(dtype(), dtype() == DType::kF16 ? Values{0x1p-24, 60000, 1} : Values{0x1p-60, 0x1p+66, 1});
  EXPECT_EQ(Judge(call), "");
}

// 3.1 holds for every number of the type: differences that leave f32, and factors that nearly do.
TEST_P(EdgesTest, TheGreatestNumbersOfTheTypeAreTaken) {
  if (dtype() == DType::kF64) GTEST_SKIP() << "f64 promises 1e160";
  const oracle::Type type = OracleType(dtype());
  const auto greatest = static_cast<double>(oracle::Decode(type, oracle::FormatOf(type).infinity() - 1));
  for (const Call& call : RowsAndColumns(Held({greatest, -greatest / 2, -greatest / 2}))) EXPECT_EQ(Judge(call), "");
  for (const double eps : {1e44, 1e60}) {
    EXPECT_EQ(Judge(Row(Spec(Method::kScaleNorm, eps), Held({greatest, 1, -greatest}))), "") << eps;
  }
}

// 3.3: the mean is subtracted before anything is scaled.
TEST_P(EdgesTest, BatchNormInferenceHasNoFoldedScaleAndShift) {
  const struct {
    double x, mean, variance;
  } tests[] = {{1000000.5, 1e6, 1e-4}, {-999999.75, -1e6, 1}, {96.5, 96, 1e-4}, {1e6, 1e6, 1e-8}, {1e30, 9e29, 1e58}};
  for (const auto& test : tests) {
    const double held = Held({test.x})[0];
    if (std::abs(held) > 60000 && dtype() == DType::kF16) continue;  // Inf
    for (const Layout layout : {kFirst, kLast}) {
      const Call call =
          On(cases::Of(Method::kBatchNorm, layout), {1, 1}, {test.x}, true).Given({test.mean}, {test.variance});
      const Wide want = (Wide(held) - test.mean) / oracle::Sqrt(Wide(test.variance) + 1e-5);
      const oracle::Type type = OracleType(dtype());
      const oracle::Bound bound = BoundOf(*PlanOf(call.c), dtype());
      EXPECT_LE(oracle::ErrorUlp(type, call.Y()[0], want, oracle::BoundScale(bound, want, 0, 1)), bound.ulp)
          << "x " << test.x << ": got " << call.Y()[0] << ", want " << static_cast<double>(want);
    }
  }
}

// 3.3: squares of f16 are not taken in f16; f32 and bf16 values up to 1e30 do not overflow.
TEST_P(EdgesTest, SquaresDoNotOverflow) {
  const double largest = dtype() == DType::kF16 ? 65504 : dtype() == DType::kF64 ? 1e160 : 1e30;
  for (const double unit : {largest, largest / 2, 256.0}) {
    for (const int64_t d : {2, 3, 1000}) {
      Values x;
      for (int64_t i = 0; i < d; ++i) x.push_back(i % 3 == 0 ? unit : i % 3 == 1 ? -unit / 2 : unit / 8);
      for (const Call& call : RowsAndColumns(Held(x))) {
        EXPECT_EQ(Judge(call), "");
        for (const double y : call.Y()) EXPECT_TRUE(std::isfinite(y) && y != 0) << call.c.Name();
      }
    }
  }
}

// 3.4: LN of [1e8, 1e8+8, 1e8+16, 1e8+24]. (Beyond a condition of 1e6 FAST promises nothing.)
TEST(EdgesExactTest, LargeNeighboursKeepTheirDifferences) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Values y = cases::Row(cases::Over({4}), dtype, {1e8, 1e8 + 8, 1e8 + 16, 1e8 + 24}).Y();
    const double want[] = {-1.3416407, -0.4472136, 0.4472136, 1.3416407};
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], want[i], 1e-7);
  }
}

// 3.4: BN or LN of a constant = exactly b; 3.7: an exactly centred element gives +0.
TEST_P(EdgesTest, AConstantGivesExactlyItsBias) {
  for (const double constant : {12345.678, 0.1, -7.0, 1e-3, 60000.0, -3e-39}) {
    for (const int64_t d : {1, 2, 7, 67, 4097}) {
      const Values x(static_cast<size_t>(d), constant);
      if (!std::isfinite(Held(x)[0])) continue;
      for (Call& call : RowsAndColumns(x)) {
        if (call.c.spec.method() == Method::kRmsNorm) continue;
        if (auto* const batch = std::get_if<BatchNormSpec>(&call.c.spec.attributes); batch != nullptr && d == 1) {
          batch->running.single_value = SingleValue::kZeroVariance;
        }
        for (const double y : call.Y()) ASSERT_TRUE(IsPlusZero(y)) << call.c.Name() << " of " << constant << ": " << y;
        const bool per_element = call.c.spec.method() == Method::kLayerNorm;
        const Values b(per_element ? x.size() : 1, -0.75), w(b.size(), 1.5);
        ASSERT_EQ(call.Weight(w).Bias(b).Y(), Values(x.size(), -0.75)) << call.c.Name() << " of " << constant;
      }
    }
  }
}

// 3.4 where squares leave f64, and sets are scaled: the eps is not, so a constant still gives its bias, and 1 / D is
// what eps alone makes of it. In every mode, for an eps that the scale would lose, and one that 1 / D cannot hold.
TEST(EdgesExactTest, AHugeConstantGivesItsBiasWhateverTheEps) {
  for (const double constant : {1e121, 1e150, -1.7e308}) {
    for (const EpsMode mode : {EpsMode::kInsideSqrt, EpsMode::kAddToRoot, EpsMode::kClampRoot}) {
      for (const double eps : {1e-5, 1e-127, 1e-129, 1e-200, 1e-310, 1.0, 1e200, 1e308}) {
        for (const int64_t d : {1, 2, 11, 4097}) {
          const Values x(static_cast<size_t>(d), constant), w(x.size(), 1.5), b(x.size(), -0.75);
          Call row = cases::Row(Spec(Method::kLayerNorm, eps, mode), DType::kF64, x);
          EXPECT_EQ(Judge(row), "") << constant << ", eps " << eps << ", mode " << static_cast<int>(mode);
          EXPECT_EQ(row.Weight(w).Bias(b).Y(), b) << constant << ", eps " << eps;
          const Call column(Spec(Method::kInstanceNorm, eps, mode), DType::kF64, {1, d, 1}, x);
          Call last = column;
          SetLayout(&last.c.spec, kLast);
          EXPECT_EQ(Judge(last), "") << constant << ", eps " << eps << ", mode " << static_cast<int>(mode);
        }
      }
    }
  }
}

// 6, corners: scaling a group of tiny f64 numbers does not take what it leaves out beyond the range.
TEST(EdgesExactTest, ElementsFarBeyondAScaledSetStayInRange) {
  NormSpec partial = cases::PartialK(2);
  partial.eps = 0;
  const Call row = cases::Row(partial, DType::kF64, {1e-160, 1e-160, 1e140, -1e-10, 1e150, 3e-160});
  EXPECT_EQ(Judge(row), "");
  EXPECT_EQ(row.Y()[2], 1e300);
  EXPECT_EQ(row.Y()[4], kInf);
  Call masked(Spec(Method::kBatchNorm, 0), DType::kF64, {2, 1, 3}, {1e-160, -1e140, 2e-160, 3e-160, 0, 1e-10});
  SetLayout(&masked.c.spec, kFirst);
  masked.c.mask = Mask::kSome;
  masked.data.mask = {1, 0, 1, 1, 0, 0};
  EXPECT_EQ(Judge(masked), "");
}

// 3.4: LN of [1e19, 2e19, 3e19] is finite (f16: 2e4, 4e4, 6e4).
TEST_P(EdgesTest, LayerNormOfHugeNumbersIsFinite) {
  const double unit = dtype() == DType::kF16 ? 2e4 : 1e19;
  const Call call = Row(cases::Over({3}), {unit, 2 * unit, 3 * unit});
  EXPECT_EQ(Judge(call), "");
  const Values y = call.Y();
  EXPECT_NEAR(y[0], -1.2247449, 0.02);
  EXPECT_NEAR(y[2], 1.2247449, 0.02);
}

// 3.5: subnormal inputs and outputs are not flushed, on threads of the backend neither.
TEST_P(EdgesTest, SubnormalsAreNotFlushed) {
  const oracle::Type type = OracleType(dtype());
  const double least = static_cast<double>(oracle::Decode(type, 1));
  for (const int64_t d : {2, 66, 4098}) {
    Values x, signs;
    for (int64_t i = 0; i < d; ++i) {
      signs.push_back(i % 2 == 0 ? 1 : -1);
      x.push_back(signs.back() * least);
    }
    for (Call& call : RowsAndColumns(x)) {
      call.c.spec.eps = 0;
      EXPECT_EQ(Judge(call), "");
      const std::unique_ptr<Backend> threads =
          MakeCpuBackend({.threads = 2, .inline_elements = 0, .grain_elements = 64});
      const absl::StatusOr<Outputs> got = RunCase(*threads, call.c, call.data);
      ASSERT_TRUE(got.ok());
      const Values y = cases::Unpack(dtype(), got->y);
      if (!fast()) {
        EXPECT_EQ(y, signs) << call.c.Name();
      }
      for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], signs[i], 4 * 0x1p-7);
    }
  }
  // A subnormal result of w: D is 1. Both bounds are absolute here: an ulp is the least number.
  const double weight = 5 * least;
  const double y = Row(Spec(Method::kRmsNorm, 0), {1, -1}).Weight({weight, 1}).Y()[0];
  EXPECT_NEAR(y, weight, (fast() ? 4 : 0) * least);
}

// 3.6: to nearest even. y is (1 + n half ulps) exactly: D is 1 and w has the wider dtype. FAST may be off by an ulp
// before it rounds.
TEST(EdgesExactTest, RoundingIsToNearestEven) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const int bits = oracle::FormatOf(OracleType(dtype)).mantissa_bits;
    for (int n = 0; n < 32; ++n) {
      const double exact = 1 + std::ldexp(n, -bits - 1);
      Call call = cases::Row(Spec(Method::kRmsNorm, 0), dtype, {1, -1});
      call.c.weight = DType::kF64;
      call.data.weight = cases::Pack(DType::kF64, {exact, exact});
      const auto want = static_cast<double>(oracle::Round(OracleType(dtype), exact));
      EXPECT_EQ(call.Y(), (Values{want, -want})) << exact;
      EXPECT_EQ(std::fmod(std::ldexp(want - 1, bits), 2) != 0, n % 4 == 2) << "an odd result is no tie: " << n;
    }
  }
}

// 3.6: overflow gives Inf, never clamped; NaN in w or b stays NaN.
TEST_P(EdgesTest, OverflowGivesInfAndNanStaysNan) {
  const oracle::Type type = OracleType(dtype());
  const auto greatest = static_cast<double>(oracle::Decode(type, oracle::FormatOf(type).infinity() - 1));
  const Values y = Row(Spec(Method::kRmsNorm, 0), {3, 1, -3, 1})
                       .Weight({greatest, greatest, greatest, kNan})
                       .Bias({0, kNan, 0, 1})
                       .Y();
  EXPECT_EQ(y[0], kInf);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], -kInf);
  EXPECT_TRUE(std::isnan(y[3]));
}

// 3.6, of x + scale * residual: Inf stays Inf, overflow gives Inf, a zero keeps its sign.
TEST_P(EdgesTest, TheResidualSumKeepsInfAndZeros) {
  const oracle::Type type = OracleType(dtype());
  const auto greatest = static_cast<double>(oracle::Decode(type, oracle::FormatOf(type).infinity() - 1));
  for (const ResidualRounding rounding : {ResidualRounding::kRoundFirst, ResidualRounding::kKeepWide}) {
    for (const double scale : {1.0, -0.5}) {
      Call call = Row(cases::Of(Method::kRmsNorm), {kInf, -kInf, greatest, kNan, -0.0, 1});
      call.c.residual = ResidualCase{dtype(), scale, rounding};
      call.data.residual = cases::Pack(dtype(), {1, 1, scale * greatest, 1, -0.0, -1});
      EXPECT_EQ(Judge(call), "");
    }
  }
}

// 3.7: -0 in RMS and Scale gives -0.
TEST_P(EdgesTest, MinusZeroKeepsItsSignWhereNoMeanIsSubtracted) {
  for (const int64_t d : {3, 67, 4097}) {
    Values x = Normals(d, 1);
    x[0] = -0.0;
    x[1] = 0.0;
    x.back() = -0.0;
    for (const NormSpec& spec : {cases::Of(Method::kRmsNorm), cases::Of(Method::kScaleNorm), cases::PartialP(0.5)}) {
      const Values y = Row(spec, x).Y();
      EXPECT_TRUE(IsMinusZero(y[0]) && IsPlusZero(y[1]) && IsMinusZero(y.back()));
    }
    const Values columns = On(cases::Axes(Method::kRmsNorm, {0}), {d, 1}, x).Y();
    EXPECT_TRUE(IsMinusZero(columns[0]) && IsPlusZero(columns[1]) && IsMinusZero(columns.back()));
  }
}

// 3.7: an exactly centred element gives +0, a -0 in a row of mean 0 too.
TEST_P(EdgesTest, ACentredElementGivesPlusZero) {
  for (const Values& x : {Values{-1, -0.0, 1}, Values{-1, 0.0, 1}, Values{5, 6, 7}, Values{-0.0, -0.0, -0.0}}) {
    for (const Call& call : RowsAndColumns(x)) {
      if (call.c.spec.method() == Method::kRmsNorm) continue;
      EXPECT_TRUE(IsPlusZero(call.Y()[1])) << call.c.Name() << " of " << x[1];
    }
  }
}

// 3.8: NaN poisons its row; Inf makes an LN row NaN, and in RMS the finite elements 0 and itself NaN.
TEST_P(EdgesTest, InfAndNanStayInTheirRow) {
  for (const int64_t d : {3, 67, 4097}) {
    for (const double bad : {kNan, kInf, -kInf}) {
      Values x = Normals(3 * d, 1, 2);
      const auto at = static_cast<size_t>(d + d / 2);
      x[at] = bad;
      const Values clean = Normals(3 * d, 1, 2);
      for (const NormSpec& spec : {cases::Over({d}), cases::Of(Method::kRmsNorm)}) {
        const Values y = On(spec, {3, d}, x).Y(), want = On(spec, {3, d}, clean).Y();
        for (size_t i = 0; i < y.size(); ++i) {
          if (i / static_cast<size_t>(d) != 1) {
            EXPECT_EQ(y[i], want[i]) << "another row";
          } else if (spec.method() == Method::kRmsNorm && std::isinf(bad) && i != at) {
            EXPECT_EQ(y[i], 0);
          } else {
            EXPECT_TRUE(std::isnan(y[i])) << i;
          }
        }
      }
    }
  }
}

// 3.9: eps 0 and zero variance give NaN by the formula; LpNorm gives 0.
TEST_P(EdgesTest, WithoutEpsAZeroVarianceIsNanAndAZeroNormIsZero) {
  for (const int64_t d : {2, 67, 4097}) {
    const auto n = static_cast<size_t>(d);
    for (Call& call : RowsAndColumns(Values(n, 5.0))) {
      if (call.c.spec.method() == Method::kRmsNorm) continue;
      call.c.spec.eps = 0;
      for (const double y : call.Y()) ASSERT_TRUE(std::isnan(y)) << call.c.Name();
    }
    for (const double y : Row(Spec(Method::kRmsNorm, 0), Values(n, 0.0)).Y()) ASSERT_TRUE(std::isnan(y));
    for (const double y : Row(Spec(Method::kScaleNorm, 0), Values(n, -0.0)).Y()) ASSERT_TRUE(std::isnan(y));
    for (const int64_t order : {1, 2}) {
      for (const double zero : {0.0, -0.0}) {
        for (const double y : Row(cases::Lp(order), Values(n, zero)).Y()) ASSERT_EQ(y, 0);
        for (const double y : On(cases::Lp(order, 0), {d, 1}, Values(n, zero)).Y()) ASSERT_EQ(y, 0);
      }
    }
  }
}

// 1 and 6: eps = -0 is 0, everywhere.
TEST_P(EdgesTest, MinusZeroAsEpsIsZero) {
  for (Call& call : RowsAndColumns(Normals(67, 1, 3))) {
    call.c.spec.eps = 0.0;
    const Outputs want = call.Result();
    call.c.spec.eps = -0.0;
    EXPECT_EQ(DifferenceOf(call.Result(), want), "") << call.c.Name();
    EXPECT_FALSE(std::signbit(PlanOf(call.c)->eps));
  }
}

// 6: rank 1 to 8, of both layouts.
TEST_P(EdgesTest, RanksFromOneToEight) {
  std::vector<int64_t> shape;
  for (int64_t rank = 1; rank <= 8; ++rank) {
    shape.push_back(rank % 3 + 2);
    const int64_t n = ElementCount(shape);
    const Values x = Normals(n, 2, 1);
    EXPECT_EQ(Judge(On(cases::Over({shape.back()}), shape, x)), "");
    EXPECT_EQ(Judge(On(cases::Axes(Method::kLayerNorm, {0}), shape, x)), "");
    EXPECT_EQ(Judge(On(cases::Axes(Method::kRmsNorm, {0, -1}), shape, x)).empty(), rank > 1) << "axis 0 twice";
    EXPECT_EQ(Judge(On(cases::Lp(2, 0), shape, x)), "");
    if (rank < 2) continue;
    for (const Layout layout : {kFirst, kLast}) {
      for (const Method method : {Method::kBatchNorm, Method::kInstanceNorm}) {
        EXPECT_EQ(Judge(On(cases::Of(method, layout), shape, x)), "");
      }
      const int64_t channels = layout == kFirst ? shape[1] : shape.back();
      EXPECT_EQ(Judge(On(cases::Group(channels, layout), shape, x)), "");
      EXPECT_EQ(Judge(On(cases::Group(1, layout), shape, x)), "");
    }
    if (rank > 3) continue;
    EXPECT_EQ(Judge(On(cases::Power(1), shape, x)), "");
  }
}

// 6, corners: w and b of LayerNorm over listed axes have those axes' sizes, in the order listed.
TEST_P(EdgesTest, ParametersFollowTheOrderInWhichAxesAreListed) {
  const Values x = Normals(2 * 3 * 4, 1), w = Normals(8, 1, 2), b = Normals(8, 1, -2);
  EXPECT_EQ(Judge(On(cases::Axes(Method::kLayerNorm, {2, 0}), {2, 3, 4}, x).Weight(w).Bias(b)), "");
  Values w_sorted(8), b_sorted(8);
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 4; ++j) {
      w_sorted[i * 4 + j] = w[j * 2 + i];
      b_sorted[i * 4 + j] = b[j * 2 + i];
    }
  }
  EXPECT_EQ(On(cases::Axes(Method::kLayerNorm, {2, 0}), {2, 3, 4}, x).Weight(w).Bias(b).Y(),
            On(cases::Axes(Method::kLayerNorm, {0, 2}), {2, 3, 4}, x).Weight(w_sorted).Bias(b_sorted).Y());
}

// 6, corners: one value in a group has variance 0 and gives b.
TEST_P(EdgesTest, OneValueInASetGivesTheBias) {
  const Values x = {3.25, -100, 0, 60000, 0x1p-24, 1};
  const Values b = {1, -2, 0.5, 3, 0, 8};
  EXPECT_EQ(On(cases::Of(Method::kInstanceNorm, kFirst), {1, 6}, x).Bias(b).Y(), b);
  EXPECT_EQ(On(cases::Of(Method::kInstanceNorm, kLast), {1, 1, 6}, x).Bias(b).Y(), b);
  EXPECT_EQ(On(cases::Group(6, kFirst), {1, 6}, x).Bias(b).Y(), b);
  EXPECT_EQ(On(cases::Over({1}), {6, 1}, x).Bias({0.5}).Y(), Values(6, 0.5));
}

// 6, corners: LpNorm takes eps, with the modes. (INSIDE_SQRT of L1 is refused.)
TEST_P(EdgesTest, LpNormTakesEpsInEveryMode) {
  const Values x = Normals(67, 1);
  for (const int64_t order : {1, 2}) {
    for (const EpsMode mode : {EpsMode::kInsideSqrt, EpsMode::kAddToRoot, EpsMode::kClampRoot}) {
      for (const double eps : {1e-12, 0.5, 100.0}) {
        NormSpec spec = cases::Lp(order);
        spec.eps = eps;
        spec.eps_mode = mode;
        const bool refused = order == 1 && mode == EpsMode::kInsideSqrt;
        EXPECT_EQ(PlanOf(Row(spec, x).c).ok(), !refused);
        if (refused) continue;
        EXPECT_EQ(Judge(Row(spec, x)), "");
      }
    }
  }
}

// 1 and 6: p is the shortest decimal of its double, so 100 * 0.07 is 7; p = 1 is RMSNorm, bit for bit.
TEST_P(EdgesTest, PartialLengthsAreThoseOfTheDecimal) {
  const Values x = Normals(100, 1);
  for (const auto& [p, k] : {std::pair{0.07, 7}, {0.29, 29}, {0.5, 50}, {0.001, 1}, {1.0, 100}}) {
    const Call call = Row(cases::PartialP(p), x);
    EXPECT_EQ(PlanOf(call.c)->k, k);
    EXPECT_EQ(Judge(call), "");
    EXPECT_EQ(DifferenceOf(call.Result(), Row(cases::PartialK(k), x).Result()), "");
  }
  EXPECT_EQ(DifferenceOf(Row(cases::PartialP(1), x).Result(), Row(cases::Of(Method::kRmsNorm), x).Result()), "");
}

// 6, corners: in pRMSNorm a NaN or Inf beyond the first k concerns its own element only.
TEST_P(EdgesTest, BeyondTheFirstKANanPoisonsItsOwnElement) {
  for (const int64_t d : {4, 67, 4097}) {
    const auto k = d / 2;
    Values x = Normals(d, 1);
    const Values want = Row(cases::PartialK(k), x).Y();
    const auto nan = static_cast<size_t>(k), inf = static_cast<size_t>(d - 1);
    x[nan] = kNan;
    x[inf] = -kInf;
    const Values y = Row(cases::PartialK(k), x).Y();
    for (size_t i = 0; i < y.size(); ++i) {
      if (i == nan) {
        EXPECT_TRUE(std::isnan(y[i]));
      } else {
        EXPECT_EQ(y[i], i == inf ? -kInf : want[i]) << i;
      }
    }
  }
}

// 6: empty tensors give empty outputs; groups of nothing have nothing to give.
TEST_P(EdgesTest, EmptyTensorsGiveEmptyOutputs) {
  EXPECT_EQ(On(cases::Over({5}), {0, 5}, {}).Y(), Values());
  EXPECT_EQ(On(cases::Over({0}), {5, 0}, {}).Y(), Values());
  EXPECT_EQ(On(cases::Of(Method::kBatchNorm, kLast), {0, 3}, {}).Y(), Values());
  EXPECT_EQ(On(cases::Of(Method::kRmsNorm), {0}, {}).Y(), Values());
}

// 1: absent w is 1 whatever weight_offset says.
TEST_P(EdgesTest, AWeightOffsetIsAddedToAWeightThatIsGivenOnly) {
  const Values x = Normals(67, 1);
  for (Call& call : RowsAndColumns(x)) {
    const Values without = call.Y();
    call.c.spec.weight_offset = 1;
    EXPECT_EQ(call.Y(), without) << call.c.Name();
    EXPECT_EQ(Judge(call), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, FastEdgesTest, testing::Values(kArithmetics[1], kArithmetics[3], kArithmetics[5]),
                         ArithmeticName);
INSTANTIATE_TEST_SUITE_P(Arithmetics, EdgesTest, testing::ValuesIn(kArithmetics), ArithmeticName);

}  // namespace
}  // namespace normd::accuracy
