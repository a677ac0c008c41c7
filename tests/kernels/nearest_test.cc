// The exact oracle judged: by numbers worked by hand, by ties that are made, by the 113-bit oracle on every case, and
// by the formulas in floating point of 2,600 bits on random and nasty tensors. 2,600 bits hold every sum of f64
// exactly.
#include "tests/support/nearest.h"

#include <gmpxx.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/case_runs.h"
#include "tests/kernels/cases.h"
#include "tests/support/compare.h"
#include "tests/support/constants.h"
#include "tests/support/oracle_geometry.h"
#include "tests/support/oracle_real.h"
#include "tests/support/random.h"

namespace normd::oracle {
namespace {

using Bits = std::vector<uint64_t>;

// BatchNorm with the statistics 0 and 1 and eps 0 is x * w + b.
uint64_t LinearOf(Type type, Wide x, Wide w, Wide b) {
  const Spec spec = {.method = Method::kBatch, .eps = 0.0};
  Input input = {.type = type, .shape = {1, 1}, .x = {x}, .weight = {w}, .bias = {b}};
  input.given_mean = {0};
  input.given_variance = {1};
  return Nearest(spec, input).y[0];
}

// ---- By hand ----

TEST(NearestTest, WorkedByHand) {
  const Spec rms = {.method = Method::kRms, .eps = 0.0};
  EXPECT_EQ(Nearest(rms, {.shape = {2}, .x = {1, 7}}).y, (Bits{0x3e4ccccd, 0x3fb33333})) << "0.2 and 1.4";
  EXPECT_EQ(Nearest(rms, {.type = Type::kF64, .shape = {2}, .x = {1, 7}}).y,
            (Bits{0x3fc999999999999a, 0x3ff6666666666666}));
  Input row = {.shape = {4}, .x = {1e8, 1e8 + 8, 1e8 + 16, 1e8 + 24}};
  const NearestResult layer = Nearest({.method = Method::kLayer, .eps = 0.0, .axes = {0}}, row);
  // -3 / sqrt(5) = -1.34164078..., -1 / sqrt(5) = -0.44721359...
  EXPECT_EQ(layer.y, (Bits{0xbfabbae3, 0xbee4f92e, 0x3ee4f92e, 0x3fabbae3}));
  EXPECT_EQ(layer.groups[0].moment_mean, 1e8 + 12);
  EXPECT_EQ(layer.groups[0].moment_m2, 320);
  EXPECT_EQ(layer.groups[0].inverse, Encode(Type::kF32, Wide(1) / Sqrt(80)));
}

TEST(NearestTest, LpNormsOfWholeOrder) {
  const Input input = {.shape = {3}, .x = {3, -4, 5}};
  const auto y = [&](double p) { return Nearest({.method = Method::kLp, .p = p}, input).y; };
  EXPECT_EQ(y(1), (Bits{Encode(Type::kF32, 0.25), Encode(Type::kF32, Wide(-1) / 3), Encode(Type::kF32, Wide(5) / 12)}));
  // 27 + 64 + 125 = 6^3
  EXPECT_EQ(y(3), (Bits{Encode(Type::kF32, 0.5), Encode(Type::kF32, Wide(-2) / 3), Encode(Type::kF32, Wide(5) / 6)}));
  EXPECT_EQ(y(kInf), (Bits{Encode(Type::kF32, Wide(3) / 5), Encode(Type::kF32, Wide(-4) / 5), Encode(Type::kF32, 1)}));
  EXPECT_EQ(Nearest({.method = Method::kLp, .p = 3}, input).groups[0].moment_m2, 6);
  EXPECT_EQ(Nearest({.method = Method::kLp, .p = 2}, {.shape = {2}, .x = {0, -Wide(0)}}).y,
            (Bits{0, uint64_t{1} << 31}))
      << "a norm of 0";
  EXPECT_FALSE(HasNearest({.method = Method::kLp, .p = 2.5}));
  EXPECT_FALSE(HasNearest({.method = Method::kLp, .p = 65}));
}

// 4 and 12 in one position, mean square 80: s^2 = 0.2 and 1.8, each rounded to f64 before they are v.
TEST(NearestTest, PowerNormRoundsTheTermsOfItsDivisorOnce) {
  const Spec spec = {.method = Method::kPower, .eps = 0.0};
  const NearestResult result = Nearest(spec, {.type = Type::kF64, .shape = {1, 2}, .x = {4, 12}});
  EXPECT_EQ(result.groups[0].moment_m2, 0.2);
  EXPECT_EQ(result.groups[1].moment_m2, 1.8);
  // 0.2 of f64 is 2^-54 * 0.2 too large, so y is 1 less a tenth of an ulp of 1, which is 1.
  EXPECT_EQ(result.y[0], Encode(Type::kF64, 1));
}

// Of v all terms are 0: one beside an Inf, and one too small for f64. So 7, which is 0 beside the Inf, is 0 / 0.
TEST(NearestTest, PowerNormDividesByTheRoundedTerms) {
  const Spec spec = {.method = Method::kPower, .eps = 0.0};
  const Bits y = Nearest(spec, {.type = Type::kF64, .shape = {2, 2}, .x = {kInf, 7, 1e200, 1e-200}}).y;
  EXPECT_TRUE(IsNan(Decode(Type::kF64, y[1])));
  EXPECT_EQ(y[3], Encode(Type::kF64, kInf));
}

// ---- Ties ----

TEST(NearestTest, TiesGoToTheEvenNeighbour) {
  for (const Type type : {Type::kF32, Type::kF16, Type::kBF16, Type::kF64}) {
    const uint64_t one = Encode(type, 1);
    const Wide ulp = Ulp(type, 1), least = Decode(type, 1);
    EXPECT_EQ(LinearOf(type, 1, 1, ulp / 2), one);
    EXPECT_EQ(LinearOf(type, 1 + ulp, 1, ulp / 2), one + 2);
    EXPECT_EQ(LinearOf(type, -1 - ulp, 1, -ulp / 2), FormatOf(type).sign() | (one + 2));
    EXPECT_EQ(LinearOf(type, 1, 1, -ulp / 4), one) << "the ulp below 1 is the smaller one";
    EXPECT_EQ(LinearOf(type, 1 - ulp / 2, 1, ulp / 4), one);
    EXPECT_EQ(LinearOf(type, least, 0.5, 0), 0u) << "half of the least subnormal number";
    EXPECT_EQ(LinearOf(type, 3 * least, 0.5, 0), 2u);
    EXPECT_EQ(LinearOf(type, -least, 0.5, 0), FormatOf(type).sign()) << "-0";
    // Half an ulp beyond the greatest number is a tie with 2^(greatest exponent + 1), which is Inf.
    const uint64_t infinity = FormatOf(type).infinity();
    const Wide greatest = Decode(type, infinity - 1), beyond = Ulp(type, greatest) / 2;
    EXPECT_EQ(LinearOf(type, greatest, 1, beyond), infinity);
    EXPECT_EQ(LinearOf(type, greatest, 1, beyond * (1 - PowerOfTwo(-30))), infinity - 1);
  }
}

// The smallest step away from a tie decides, however small beside the number it is.
TEST(NearestTest, NothingIsTooSmallToDecide) {
  const Wide tiny = PowerOfTwo(-1074), ulp = Ulp(Type::kF32, 1);
  const uint64_t one = Encode(Type::kF32, 1);
  EXPECT_EQ(LinearOf(Type::kF32, 1, 1 + ulp, -ulp / 2), one) << "a tie";
  const Spec spec = {.method = Method::kBatch, .eps = 0.0};
  Input input = {.shape = {1, 1}, .x = {1}, .weight = {1 + ulp}, .bias = {-ulp / 2}};
  input.given_mean = {-tiny};
  input.given_variance = {1};
  EXPECT_EQ(Nearest(spec, input).y[0], one + 1) << "2^-1074 above it";
  input.given_mean = {tiny};
  EXPECT_EQ(Nearest(spec, input).y[0], one) << "2^-1074 below it";
}

// Steps towards the number double, and would leave the range of the numbers' order.
TEST(NearestTest, FindsNumbersFarFromTheirEstimates) {
  for (const Type type : {Type::kF32, Type::kF64}) {
    for (const double v : {1.0, -1.0, 1e30, -1e30, 0x1p-149}) {
      for (const double estimate : {kInf, -kInf, 1e38, -1e38, 0.0, kNan}) {
        const Divisor one = {.r = Dyadic(1), .q = {}};
        const Real real = {.a = {}, .divisor = &one, .b = Dyadic(v)};
        EXPECT_EQ(RoundToNearest(type, real, estimate).bits, Encode(type, v)) << v << " from " << estimate;
      }
    }
  }
}

TEST(NearestTest, SignsOfZeros) {
  const Wide minus_zero = -Wide(0);
  const auto zero = [](bool negative) { return negative ? uint64_t{1} << 31 : 0; };
  const Spec rms = {.method = Method::kRms};
  EXPECT_EQ(Nearest(rms, {.shape = {2}, .x = {minus_zero, 1}}).y[0], zero(true));
  EXPECT_EQ(Nearest(rms, {.shape = {2}, .x = {minus_zero, 1}, .weight = {-1, 1}}).y[0], zero(false));
  EXPECT_EQ(Nearest(rms, {.shape = {2}, .x = {minus_zero, 1}, .bias = {0, 0}}).y[0], zero(false));
  EXPECT_EQ(Nearest(rms, {.shape = {2}, .x = {minus_zero, 1}, .bias = {minus_zero, 0}}).y[0], zero(true));
  const Spec layer = {.method = Method::kLayer, .axes = {0}};
  EXPECT_EQ(Nearest(layer, {.shape = {3}, .x = {-1, minus_zero, 1}}).y[1], zero(false)) << "an element at the mean";
  EXPECT_EQ(LinearOf(Type::kF32, 2, 1, -2), zero(false)) << "cancellation";
  EXPECT_EQ(Nearest(rms, {.shape = {2}, .x = {1, 1}, .weight = {minus_zero, 1}}).y[0], zero(true)) << "a weight of -0";
  EXPECT_EQ(Nearest({.method = Method::kRms, .weight_offset = 1}, {.shape = {2}, .x = {1, 1}, .weight = {-1, 1}}).y[0],
            zero(false))
      << "-1 + 1";
  EXPECT_EQ(Nearest(rms, {.shape = {2}, .x = {1, kInf}, .weight = {minus_zero, 1}}).y[0], zero(true))
      << "beside an Inf";
}

TEST(NearestTest, NanAndInfinityFollowTheFormula) {
  const uint64_t nan = Encode(Type::kF32, kNan), inf = Encode(Type::kF32, kInf);
  const Spec rms = {.method = Method::kRms};
  const Bits beside = Nearest(rms, {.shape = {3}, .x = {1, kInf, -1}}).y;
  EXPECT_EQ(beside[0], 0u);
  EXPECT_TRUE(IsNearest(Type::kF32, beside[1], nan));
  EXPECT_EQ(beside[2], uint64_t{1} << 31) << "-0";
  EXPECT_EQ(Nearest({.method = Method::kPRms, .k = 1}, {.shape = {3}, .x = {1, kNan, -kInf}}).y[0],
            Encode(Type::kF32, Wide(1) / Sqrt(1 + Wide(1e-6))));
  EXPECT_EQ(Nearest({.method = Method::kPRms, .k = 1}, {.shape = {3}, .x = {1, kNan, kInf}}).y[2], inf);
  const Spec layer = {.method = Method::kLayer, .eps = 0.0, .axes = {1}};
  const Bits y = Nearest(layer, {.shape = {2, 2}, .x = {5, 5, kNan, 1}}).y;
  for (const uint64_t bits : y) EXPECT_TRUE(IsNan(Decode(Type::kF32, bits))) << "0 / 0, or a NaN in the row";
}

TEST(NearestTest, CastThenAffineRoundsEveryStep) {
  // The f16 example of kernels/README.md.
  const std::vector<double> x = {-2.02, -0.23, -0.87, 3.32, 0.23, -0.35}, w = {1.3, 0.7, 1.1, 2.9, 0.3, 1.7};
  const std::vector<double> cast_first = {-1.603515625, -0.098388671875,   -0.583984375,
                                          5.87890625,   0.042144775390625, -0.363525390625};
  const std::vector<double> at_once = {-1.603515625, -0.09832763671875, -0.58447265625,
                                       5.8828125,    0.042144775390625, -0.363525390625};
  Input input = {.type = Type::kF16, .shape = {6}};
  for (const double v : x) input.x.push_back(Round(Type::kF16, v));
  for (const double v : w) input.weight.push_back(Round(Type::kF16, v));
  for (const bool cast : {false, true}) {
    const Bits y = Nearest({.method = Method::kRms, .eps = 1e-5, .cast_then_affine = cast}, input).y;
    for (size_t i = 0; i < 6; ++i) EXPECT_EQ(y[i], Encode(Type::kF16, (cast ? cast_first : at_once)[i])) << cast << i;
  }
}

// x + r is a tie of f32, which decides nothing of the sum that is kept wide.
TEST(NearestTest, ResidualsAreRoundedFirstOrKeptExact) {
  const Wide ulp = Ulp(Type::kF32, 1);
  Input input = {.shape = {2}, .x = {1, -1}, .residual = {ulp / 2, 0}};
  const Spec spec = {.method = Method::kLayer, .eps = 0.0, .axes = {0}};
  for (const bool keep_wide : {false, true}) {
    input.keep_wide = keep_wide;
    const NearestResult result = Nearest(spec, input);
    EXPECT_EQ(result.h, (Bits{Encode(Type::kF32, 1), Encode(Type::kF32, -1)}));
    EXPECT_EQ(result.groups[0].moment_mean, keep_wide ? static_cast<double>(ulp / 4) : 0);
  }
}

// ---- Beside the 113-bit oracle ----

// NaN, Inf and every finite number agree with the oracle's, which is within half an ulp of the nearest.
TEST(NearestTest, EveryCaseIsWithinHalfAnUlpOfTheOracle) {
  size_t judged = 0, elements = 0;
  const std::vector<Case> all = cases::All();
  for (size_t c = 0; c < all.size(); c += 3) {
    if (all[c].options.precision == Precision::kFast) continue;  // the same spec again
    const Spec spec = OracleSpec(all[c]);
    const Input input = OracleInput(all[c], DataOf(all[c]));
    // The steps after a normalised value have a test of their own.
    if (!HasNearest(spec) || spec.cast_then_affine) continue;
    const Result want = Compute(spec, input);
    const NearestResult got = Nearest(spec, input);
    ++judged;
    elements += got.y.size();
    // PowerNorm's terms and their mean are rounded to f64.
    const double limit = spec.method == Method::kPower && input.type == Type::kF64 ? 2 : 0.5 + 1e-6;
    ASSERT_EQ(got.y.size(), want.y.size());
    for (size_t i = 0; i < got.y.size(); ++i) {
      const Wide scale = spec.method == Method::kPower ? Max(Abs(want.y[i]), Abs(want.bias[i])) : want.y[i];
      const double error = ErrorUlp(input.type, Decode(input.type, got.y[i]), want.y[i], scale);
      ASSERT_LE(error, limit) << all[c].Name() << " y[" << i << "]";
    }
    for (size_t g = 0; g < got.groups.size() && !got.y.empty(); ++g) {
      const Type type = input.type == Type::kF64 ? Type::kF64 : Type::kF32;
      ASSERT_LE(ErrorUlp(type, Decode(type, got.groups[g].inverse), want.groups[g].inverse, want.groups[g].inverse),
                limit)
          << all[c].Name() << " 1 / D of group " << g;
      ASSERT_LE(ErrorUlp(type, Decode(type, got.groups[g].mean), want.groups[g].mean, want.groups[g].mean), limit)
          << all[c].Name() << " mean of group " << g;
    }
  }
  EXPECT_GT(judged, 1000u);
  EXPECT_GT(elements, 1000000u);
}

// Without parameters the spec gives the normalised value; the steps after it are those of a type T in 113 bits.
TEST(NearestTest, CastThenAffineIsTheNearestNormalisedValueAndThenStepsInT) {
  size_t elements = 0;
  for (const Case& c : cases::All()) {
    const Spec spec = OracleSpec(c);
    if (!spec.cast_then_affine || c.options.precision == Precision::kFast) continue;
    const Input input = OracleInput(c, DataOf(c));
    const Geometry geometry(spec, input);
    Input alone = input;
    alone.weight.clear();
    alone.bias.clear();
    const Bits normalised = Nearest(spec, alone).y, got = Nearest(spec, input).y;
    for (size_t i = 0; i < got.size(); ++i) {
      const auto at = static_cast<size_t>(geometry.ParameterOf(geometry.IndexOf(static_cast<int64_t>(i))));
      Wide y = Decode(input.type, normalised[i]);
      if (!input.weight.empty()) y = Round(input.type, y * (input.weight[at] + Wide(spec.weight_offset)));
      if (!input.bias.empty()) y = Round(input.type, AddToOdd(y, input.bias[at]));
      ASSERT_TRUE(IsNearest(input.type, got[i], Encode(input.type, y))) << c.Name() << " y[" << i << "]";
    }
    elements += got.size();
  }
  EXPECT_GT(elements, 10000u);
}

// ---- Beside 2,600 bits ----

constexpr int kBits = 2600;

mpf_class Float(Wide v) {
  const Dyadic exact(v);
  mpf_class out(exact.significand(), kBits);
  const int64_t e = exact.exponent();
  e >= 0 ? mpf_mul_2exp(out.get_mpf_t(), out.get_mpf_t(), static_cast<mp_bitcnt_t>(e))
         : mpf_div_2exp(out.get_mpf_t(), out.get_mpf_t(), static_cast<mp_bitcnt_t>(-e));
  return out;
}

mpf_class PowerOf(const mpf_class& v, int p) {
  mpf_class out(1, kBits);
  for (int i = 0; i < p; ++i) out *= v;
  return out;
}

// By Newton's method from the 113-bit root.
mpf_class RootOf(const mpf_class& v, int p) {
  if (v == 0 || p == 1) return v;
  if (p == 2) return sqrt(v);
  mpf_class root(std::pow(v.get_d(), 1.0 / p), kBits);
  for (int i = 0; i < 8; ++i) root -= (root - v / PowerOf(root, p - 1)) / p;
  return root;
}

// The methods of one statistics group, as kernels/README.md writes them.
struct FloatGroup {
  mpf_class mean{0, kBits}, divisor{0, kBits};
};

FloatGroup GroupOf(const Spec& spec, const std::vector<mpf_class>& values) {
  FloatGroup group;
  const auto n = static_cast<double>(values.size());
  if (HasMean(spec.method)) {
    for (const mpf_class& v : values) group.mean += v;
    group.mean /= n;
  }
  const bool is_norm = spec.method == Method::kLp || spec.method == Method::kScale;
  const int p = spec.method == Method::kLp && !std::isinf(spec.p) ? static_cast<int>(spec.p) : 2;
  mpf_class sum(0, kBits), largest(0, kBits);
  for (const mpf_class& v : values) {
    sum += PowerOf(abs(v - group.mean), p);
    if (abs(v) > largest) largest = abs(v);
  }
  if (!is_norm) sum /= n;
  const mpf_class eps = Float(*spec.eps);
  const mpf_class root = std::isinf(spec.p) ? largest : RootOf(sum, p);
  if (*spec.eps_mode == EpsMode::kInsideSqrt) group.divisor = sqrt(sum + eps);
  if (*spec.eps_mode == EpsMode::kAddToRoot) group.divisor = root + eps;
  if (*spec.eps_mode == EpsMode::kClampRoot) group.divisor = root > eps ? root : eps;
  return group;
}

// Whether `bits` is the number of T nearest to y: 1 or 0, and -1 where 2,600 bits do not tell it from a tie.
int IsNearestTo(Type type, const mpf_class& y, uint64_t bits) {
  const bool negative = (bits & FormatOf(type).sign()) != 0;
  const uint64_t magnitude = bits & ~FormatOf(type).sign(), infinity = FormatOf(type).infinity();
  const auto number = [&](uint64_t at) {
    return Float(at == infinity ? PowerOfTwo(FormatOf(type).bias() + 1) : Decode(type, at));
  };
  const mpf_class v = negative ? mpf_class(-y) : y;
  const auto beyond = [&](uint64_t low, int way) {  // of the middle between `low` and the next
    const mpf_class middle = (number(low) + number(low + 1)) / 2;
    mpf_class slack(middle);
    mpf_div_2exp(slack.get_mpf_t(), slack.get_mpf_t(), 700);
    if (abs(v - middle) <= slack) return -1;
    return (v > middle) == (way > 0) ? 1 : 0;
  };
  const int up = magnitude == infinity ? 0 : beyond(magnitude, 1);
  const int down = magnitude == 0 ? v < 0 : beyond(magnitude - 1, -1);
  if (up == 1 || down == 1) return 0;
  return up == -1 || down == -1 ? -1 : 1;
}

struct Draw {
  Spec spec;
  Input input;
};

Wide Value(Type type, int kind, double scale, Random& random) {
  const Wide least = Decode(type, 1);
  switch (kind) {
    case 0:
      return Round(type, scale * random.Normal());
    case 1:
      return Round(type, scale * (300 + random.Normal()));
    case 2:
      return random.Below(17) - 8;
    case 3:
      return (random.Below(2) * 2 - 1) * (random.Below(2) == 0 ? 1.0 : 0.5);
    case 4:
      return least * (random.Below(9) - 4);
    default: {
      const int reach = FormatOf(type).bias() - 3;
      return Round(type, Wide(random.Normal()) * PowerOfTwo(static_cast<int>(random.Below(2 * reach)) - reach));
    }
  }
}

std::vector<Wide> Values(Type type, int64_t count, int kinds, Random& random) {
  const int kind = static_cast<int>(random.Below(kinds));
  const double scale = std::ldexp(1 + random.Uniform(), static_cast<int>(random.Below(9)) - 5);
  std::vector<Wide> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(Value(type, kind, scale, random));
  return values;
}

Draw DrawOne(Random& random) {
  constexpr Type kTypes[] = {Type::kF32, Type::kF16, Type::kBF16, Type::kF64};
  constexpr double kEps[] = {0, 1e-5, 1e-6, 0.25, 0x1p-20};
  constexpr double kOrders[] = {1, 2, 3, 5, kInf};
  constexpr Method kMethods[] = {Method::kBatch, Method::kLayer, Method::kInstance, Method::kGroup,
                                 Method::kRms,   Method::kPRms,  Method::kScale,    Method::kLp};
  Draw draw;
  draw.spec.method = kMethods[random.Below(8)];
  draw.spec.eps = kEps[random.Below(5)];
  draw.spec.eps_mode = static_cast<EpsMode>(1 + random.Below(3));
  const bool is_lp = draw.spec.method == Method::kLp;
  if (is_lp) draw.spec.p = kOrders[random.Below(5)];
  if (draw.spec.p != 2 && draw.spec.eps_mode == EpsMode::kInsideSqrt) draw.spec.eps_mode = EpsMode::kAddToRoot;
  draw.spec.channels_last = random.Below(2) == 1;
  if (draw.spec.method == Method::kGroup) draw.spec.num_groups = 2;
  draw.spec.axes = {-1};
  const int64_t last = draw.spec.method == Method::kGroup ? 4 : 1 + random.Below(40);
  draw.input.type = kTypes[random.Below(4)];
  draw.input.shape = {1 + random.Below(3), 4, last};
  draw.spec.k = 1 + random.Below(last);
  const int64_t elements = draw.input.shape[0] * 4 * last;
  // Powers above 2 in mpf's Newton start from a double, so only numbers whose powers are doubles.
  draw.input.x = Values(draw.input.type, elements, draw.spec.p > 2 ? 4 : 6, random);
  const bool channels = HasMean(draw.spec.method) && draw.spec.method != Method::kLayer;
  const int64_t parameters = channels ? (draw.spec.channels_last ? last : 4) : last;
  const Type of_parameters = random.Below(2) == 0 ? draw.input.type : kTypes[random.Below(4)];
  if (!is_lp && random.Below(3) > 0) draw.input.weight = Values(of_parameters, parameters, 4, random);
  if (!is_lp && random.Below(2) > 0) draw.input.bias = Values(of_parameters, parameters, 4, random);
  draw.spec.weight_offset = draw.input.weight.empty() || random.Below(3) > 0 ? 0 : 1;
  if (random.Below(4) == 0) {
    draw.input.residual = Values(draw.input.type, elements, 4, random);
    draw.input.keep_wide = true;
    draw.input.residual_scale = random.Below(2) == 0 ? 1 : 0.7071;
  }
  return draw;
}

struct Verdicts {
  int64_t elements = 0, ties = 0, undefined = 0;
};

void JudgeDraw(const Draw& draw, Verdicts& verdicts) {
  const Input& input = draw.input;
  const Geometry geometry(draw.spec, input);
  std::vector<mpf_class> h;
  std::vector<std::vector<mpf_class>> members(static_cast<size_t>(geometry.StatisticsGroups()));
  for (size_t i = 0; i < input.x.size(); ++i) {
    h.push_back(Float(input.x[i]));
    if (!input.residual.empty()) h[i] += Float(input.residual_scale) * Float(input.residual[i]);
    const Geometry::Index index = geometry.IndexOf(static_cast<int64_t>(i));
    if (geometry.Enters(index)) members[static_cast<size_t>(geometry.GroupOf(index))].push_back(h[i]);
  }
  std::vector<FloatGroup> groups;
  for (const auto& values : members) groups.push_back(GroupOf(draw.spec, values));
  const NearestResult got = Nearest(draw.spec, input);
  for (size_t i = 0; i < h.size(); ++i) {
    const Geometry::Index index = geometry.IndexOf(static_cast<int64_t>(i));
    const FloatGroup& group = groups[static_cast<size_t>(geometry.GroupOf(index))];
    // A group of equal values has a variance of 0, of which 2,600 bits leave the error of the mean.
    mpf_class tiny(1, kBits);
    mpf_div_2exp(tiny.get_mpf_t(), tiny.get_mpf_t(), 1700);
    verdicts.undefined += group.divisor <= tiny;
    if (group.divisor <= tiny) continue;
    const auto parameter = static_cast<size_t>(geometry.ParameterOf(index));
    mpf_class y = (h[i] - group.mean) / group.divisor;
    if (!input.weight.empty()) y *= Float(input.weight[parameter]) + Float(draw.spec.weight_offset);
    if (!input.bias.empty()) y += Float(input.bias[parameter]);
    const int verdict = IsNearestTo(input.type, y, got.y[i]);
    ++verdicts.elements;
    verdicts.ties += verdict == -1;
    ASSERT_NE(verdict, 0) << "method " << static_cast<int>(draw.spec.method) << " y[" << i << "] "
                          << Print(input.type, Decode(input.type, got.y[i])) << " but " << y.get_d();
    if (verdict == -1) {
      ASSERT_EQ(got.y[i] % 2, 0u) << "a tie goes to the even number";
    }
  }
}

TEST(NearestTest, AgreesWithTheFormulasIn2600Bits) {
  Random random(20261127 + TestSeed());
  Verdicts verdicts;
  while (verdicts.elements < 150000 && !HasFatalFailure()) JudgeDraw(DrawOne(random), verdicts);
  EXPECT_GT(verdicts.ties, 10) << "some draws are made of few bits";
  EXPECT_LT(verdicts.ties, verdicts.elements / 10);
  std::printf("%lld elements, %lld ties, %lld with a divisor of 0\n", static_cast<long long>(verdicts.elements),
              static_cast<long long>(verdicts.ties), static_cast<long long>(verdicts.undefined));
}

// ---- Distances from a middle ----

TEST(NearestTest, FindsElementsNextToAMiddle) {
  const Spec spec = {.method = Method::kBatch, .eps = 0.0};
  const Wide ulp = Ulp(Type::kF32, 1);
  Input input = {.shape = {1, 1}, .x = {1}, .weight = {1}};
  input.given_mean = {0};
  input.given_variance = {1};
  const auto near = [&](Wide b, int log2_ulp) -> bool {
    input.bias = {b};
    return NearMiddle(spec, input, log2_ulp)[0];
  };
  EXPECT_TRUE(near(ulp / 2, -24));
  EXPECT_TRUE(near(ulp / 2 + ulp * PowerOfTwo(-24), -24));
  EXPECT_FALSE(near(ulp / 2 + ulp * PowerOfTwo(-23), -24));
  EXPECT_TRUE(near(ulp / 2 - ulp * PowerOfTwo(-24), -24));
  EXPECT_FALSE(near(0, -24));
  EXPECT_TRUE(near(-ulp / 4, -24)) << "the middle below a power of two";
  EXPECT_FALSE(near(-ulp / 4 + ulp * PowerOfTwo(-24), -24)) << "where an ulp is half as large";
}

}  // namespace
}  // namespace normd::oracle
