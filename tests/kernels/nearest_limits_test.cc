// Elements where f64 comes to an end, to the nearest value: results that cancel, statistics so small that their digits
// are no f64, deviations that f64 does not show, divisors and normalised values below the least f64. Each is compared
// with the exact oracle, signs of zeros included, whichever rung of the ladder begins. kernels_test runs them on the
// CPU backend, device_test on the emulated device.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"
#include "tests/kernels/call.h"
#include "tests/support/constants.h"
#include "tests/support/judge_nearest.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

using cases::Call;
using cases::Values;
using oracle::Wide;

std::unique_ptr<Backend> BackendOf(const NearestOptions& nearest) {
#ifdef NORMD_EMULATED_DEVICE
  return *MakeCudaBackend({.streams = 1, .nearest = nearest});
#else
  return MakeCpuBackend({.nearest = nearest});
#endif
}

// The backend as it is, and with every element sent to the pairs and to the exact integers.
std::vector<std::unique_ptr<Backend>> BackendsOfEveryRung() {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(BackendOf({}));
  backends.push_back(BackendOf({.bound_factor = kInf}));
  backends.push_back(BackendOf({.bound_factor = kInf, .exact_first = true}));
  return backends;
}

void ExpectNearest(const Case& c, const CaseData& data) {
  static const auto* const backends = new std::vector<std::unique_ptr<Backend>>(BackendsOfEveryRung());
  const oracle::NearestResult want = oracle::Nearest(OracleSpec(c), OracleInput(c, data));
  const oracle::Type type = c.dtype == DType::kF64 ? oracle::Type::kF64 : oracle::Type::kF32;
  std::vector<uint64_t> inverses;
  for (const oracle::NearestStatistics& group : want.groups) inverses.push_back(group.inverse);
  for (size_t rung = 0; rung < backends->size(); ++rung) {
    const absl::StatusOr<Outputs> got = RunCase(*(*backends)[rung], c, data);
    ASSERT_TRUE(got.ok()) << c.Name() << ": " << got.status();
    ASSERT_EQ(NotNearest(OracleType(c.dtype), got->y, want.y), "") << c.Name() << ", rung " << rung;
    if (got->inverse_std.empty()) continue;
    ASSERT_EQ(NotNearest(type, got->inverse_std, inverses), "") << c.Name() << ", 1 / D, rung " << rung;
  }
}
void ExpectNearest(const Call& call) { ExpectNearest(call.c, call.data); }

// BatchNorm has its channels last.
NormSpec SpecFor(Method method, double eps, EpsMode mode) {
  NormSpec spec = cases::Spec(method, eps, mode);
  SetLayout(&spec, Layout::kChannelsLast);
  return spec;
}

// A number in [2^exponent, 2^(exponent + 1)).
double InBinade(int exponent, Random* random) { return std::ldexp(random->Uniform(1, 2), exponent); }

// ---- Divisors ----

// eps is the f64 nearest to R, so that which is the larger is known from digits that no f64 has.
TEST(NearestLimitsTest, ClampsARootThatIsEpsButForItsLastDigits) {
  Random random(TestSeed());
  for (const Method method : {Method::kBatchNorm, Method::kRmsNorm, Method::kScaleNorm, Method::kLayerNorm}) {
    for (int i = 0; i < 200; ++i) {
      Values x;
      for (int k = 0; k < 5; ++k) x.push_back(random.Normal());
      Call call = cases::Row(SpecFor(method, 0, EpsMode::kAddToRoot), DType::kF64, x);
      if (method == Method::kBatchNorm) {
        call = Call(SpecFor(method, 0, EpsMode::kAddToRoot), DType::kF64, {5, 1}, x, true);
        call.Given({0}, {random.Uniform(1, 2)});
      }
      call.c.spec.eps = static_cast<double>(1 / call.Want().groups[0].inverse);
      call.c.spec.eps_mode = EpsMode::kClampRoot;
      ExpectNearest(call);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Weights of 0 leave the sign of n, also where x - mean is below what f64 shows: the mean of the row is above 1.
TEST(NearestLimitsTest, ZerosHaveTheSignOfTheNormalisedValue) {
  const Values x = {1, 1, 2, 0x1p-60};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const double weight : {0.0, -0.0}) {
      for (const bool has_bias : {false, true}) {
        Call row = cases::Row(SpecFor(Method::kLayerNorm, 1e-5, EpsMode::kInsideSqrt), dtype, x);
        Call channel = Call(SpecFor(Method::kBatchNorm, 1e-5, EpsMode::kInsideSqrt), dtype, {4, 1}, x);
        row.Weight(Values(4, weight));
        channel.Weight({weight});
        if (has_bias) {
          row.Bias({-0.0, 0.0, -0.0, 1});
          channel.Bias({-0.0});
        }
        ExpectNearest(row);
        ExpectNearest(channel);
      }
    }
  }
}

// y of BatchNorm with given statistics at the middles, for a variance in the binade of 2^exponent: b is the middle less
// n w, which has digits of its own.
void ExpectNearestAtMiddles(DType dtype, int exponent, double eps, EpsMode mode, Random* random) {
  const oracle::Type type = OracleType(dtype);
  for (int i = 0; i < 100; ++i) {
    Case c = cases::With(cases::On(SpecFor(Method::kBatchNorm, eps, mode), {1, 1}, true), dtype);
    c.weight = c.bias = DType::kF64;
    CaseData data;
    data.given_mean = {0};
    data.given_variance = {InBinade(exponent, random)};
    const double d = std::sqrt(data.given_variance[0]) + eps;
    data.x = cases::Pack(dtype, {InBinade(dtype == DType::kF64 ? exponent / 2 : 0, random)});
    // y lies in [1, 4).
    data.weight = cases::Pack(DType::kF64, {std::ldexp(random->Uniform(1, 2), 1 + std::ilogb(d)) /
                                            (dtype == DType::kF64 ? std::ldexp(1.0, exponent / 2) : 1)});
    data.bias = cases::Pack(DType::kF64, {0});
    const Wide y = oracle::Compute(OracleSpec(c), OracleInput(c, data)).y[0];
    const Wide ulp = oracle::Ulp(type, y);
    const Wide middle = oracle::Round(type, y - ulp / 2) + ulp / 2;
    const Wide beside = ulp * oracle::PowerOfTwo(-20 - static_cast<int>(random->Below(40)));
    data.bias = cases::Pack(DType::kF64, {static_cast<double>(middle - y + (i % 2 == 0 ? beside : -beside))});
    ExpectNearest(c, data);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(NearestLimitsTest, KnowsTheRootsOfTheSmallestVariances) {
  Random random(TestSeed());
  for (const int exponent : {-970, -985, -1000}) {
    ExpectNearestAtMiddles(DType::kF64, exponent, 0, EpsMode::kInsideSqrt, &random);
  }
  for (const int exponent : {-1000, -1022, -1040, -1074}) {
    ExpectNearestAtMiddles(DType::kF32, exponent, 0x1.23456789abcdp-479, EpsMode::kAddToRoot, &random);
    ExpectNearestAtMiddles(DType::kF64, exponent, 0x1.23456789abcdp-479, EpsMode::kAddToRoot, &random);
  }
}

// pRMSNorm whose first k are 0: D is the root of eps. Each b is a middle less n.
TEST(NearestLimitsTest, KnowsTheRootOfATinyEps) {
  Random random(TestSeed());
  for (int i = 0; i < 100; ++i) {
    NormSpec spec = cases::PartialK(3);
    spec.eps = InBinade(-1000 + static_cast<int>(random.Below(20)), &random);
    Values x = {0, 0, 0}, b;
    for (int k = 0; k < 13; ++k) x.push_back(InBinade(-500, &random));
    Call call = cases::Row(spec, DType::kF64, x);
    for (const Wide n : call.Want().y) {
      const Wide ulp = oracle::Ulp(oracle::Type::kF64, n);
      b.push_back(static_cast<double>(oracle::Round(oracle::Type::kF64, n - ulp / 2) + ulp / 2 - n));
    }
    ExpectNearest(call.Bias(b));
    if (testing::Test::HasFatalFailure()) return;
  }
}

// D is so small that 1 / D is no f64, and w makes up for it.
TEST(NearestLimitsTest, DividesByLessThanTheLeastNormalNumber) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const double variance : {0.0, 0x1p-1074}) {
      Call call(SpecFor(Method::kBatchNorm, 0x1.8p-1060, EpsMode::kAddToRoot), dtype, {3, 1}, {1e-5, 0, -3}, true);
      call.Given({0}, {variance});
      call.c.weight = DType::kF64;
      call.data.weight = cases::Pack(DType::kF64, {0x1.1p-1050});
      ExpectNearest(call);
    }
  }
}

// The variance and eps add up to more than the largest f64; and a variance that is Inf, of which n is 0.
TEST(NearestLimitsTest, DividesByMoreThanTheLargestNumber) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const Layout layout : cases::kLayouts) {
      NormSpec spec = SpecFor(Method::kBatchNorm, 0x1.8p+1023, EpsMode::kInsideSqrt);
      SetLayout(&spec, layout);
      Call call(spec, dtype, {3, 3}, {1e30, 2, -1e30, 3, 1e-9, 0, -7, -0.0, 9}, true);
      call.Given({0, 0, 0}, {0x1.8p+1023, kInf, 1});
      call.c.weight = DType::kF64;
      call.data.weight = cases::Pack(DType::kF64, {0x1p+500, 0x1p+500, 0x1p+500});
      ExpectNearest(call);
    }
  }
}

// ---- Cancellation ----

// n w is -b exactly: +0, or, where the two come apart by less than a value of the type, a zero with a sign.
TEST(NearestLimitsTest, GivesZerosTheirSignsWhereNumbersCancel) {
  for (const DType dtype : kAllDTypes) {
    for (const Method method : {Method::kLayerNorm, Method::kRmsNorm}) {
      for (int c = 1; c < 400; ++c) {
        const Values v = cases::Unpack(dtype, cases::Pack(dtype, {c * 0.001}));
        Call call = cases::Row(cases::Spec(method, 0.0), dtype, {-v[0], v[0], -v[0], v[0]});
        ExpectNearest(call.Weight({1.7, 1.7, 1.7, 1.7}).Bias({1.7, -1.7, 1.7, -1.7}));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Where w is 0, y has the sign of n, and f64 does not show it: the mean is 2^-36, and its sum loses the element that
// makes it so.
TEST(NearestLimitsTest, GivesZeroWeightsTheSignOfAnElementBesideTheMean) {
  for (const double sign : {1.0, -1.0}) {
    for (const double zero : {0.0, -0.0}) {
      Values x(64, 0.0), w(64, 1.0);
      x[0] = sign * 0x1p+30;
      x[1] = -x[0];
      x[32] = sign * 0x1p-30;
      w[10] = zero;
      Call call = cases::Row(cases::Spec(Method::kLayerNorm, 1e-5), DType::kF32, x);
      ExpectNearest(call.Weight(w));
    }
  }
}

TEST(NearestLimitsTest, GivesZerosTheirSignsDownColumns) {
  for (const DType dtype : kAllDTypes) {
    for (const Layout layout : cases::kLayouts) {
      // 64 channels of 64 elements, or the same on their sides.
      Values x(64 * 64), w(64, 1.7), b;
      for (int64_t i = 0; i < 64 * 64; ++i) {
        const int64_t channel = layout == Layout::kChannelsLast ? i % 64 : i / 64;
        const int64_t other = layout == Layout::kChannelsLast ? i / 64 : i % 64;
        x[static_cast<size_t>(i)] = static_cast<double>(2 * channel + 1) * (other % 2 == 0 ? 0x1.1p-9 : -0x1.1p-9);
      }
      for (int c = 0; c < 64; ++c) b.push_back(c % 2 == 0 ? 1.7 : -1.7);
      NormSpec spec = cases::Of(Method::kBatchNorm, layout);
      spec.eps = 0;
      const bool last = layout == Layout::kChannelsLast;
      Call call(spec, dtype, last ? std::vector<int64_t>{64, 64} : std::vector<int64_t>{1, 64, 64}, x);
      ExpectNearest(call.Weight(w).Bias(b));
    }
  }
}

// ---- Deviations that f64 does not show ----

// x + scale * r of a stream that is kept wide: equal in f64, or in pairs of f64, and not exactly.
void ExpectNearestOfStream(NormSpec spec, DType dtype, const Values& x, const Values& r, double scale = 1) {
  Call call = cases::Row(std::move(spec), dtype, x);
  call.c.residual = {dtype, scale, ResidualRounding::kKeepWide};
  call.data.residual = cases::Pack(dtype, r);
  ExpectNearest(call);
}

TEST(NearestLimitsTest, NormalisesAWideStreamWhoseDeviationIsTiny) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    const double tiny = dtype == DType::kF64 ? 1e-200 : 1e-20;
    for (const double eps : {0.0, 1e-300, 1e-5}) {
      const NormSpec spec = cases::Spec(Method::kLayerNorm, eps);
      ExpectNearestOfStream(spec, dtype, {tiny, 2 * tiny, 4 * tiny}, {1, 1, 1});
      ExpectNearestOfStream(spec, dtype, {tiny, tiny, tiny}, {1, 1, 1});
      ExpectNearestOfStream(spec, dtype, {1, 1, 1, 1}, {tiny, -tiny, 2 * tiny, -tiny}, 1.0 / 3);
      // The sums of few of the bits that are lost.
      ExpectNearestOfStream(spec, dtype, {3, 3, 3, 3, 3}, {1, 1, -1, 1, 1}, tiny);
    }
  }
}

// Sums that f64 takes for 0, of a norm and of a mean square.
TEST(NearestLimitsTest, NormalisesAWideStreamThatUnderflows) {
  const Values zeros = {0, 0, 0, -0.0};
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const double least = dtype == DType::kF64 ? 0x1p-600 : 0x1p-100;
    const Values r = {3 * least, -least, 0, 5 * least};
    for (const NormSpec& spec : {cases::Spec(Method::kRmsNorm, 0.0), cases::Spec(Method::kScaleNorm, 0.0),
                                 cases::LpOf(1), cases::LpOf(2), cases::LpOf(kInf), cases::LpOf(3)}) {
      ExpectNearestOfStream(spec, dtype, zeros, r, dtype == DType::kF64 ? 0x1p-550 : 0x1p-1020);
    }
  }
}

// Elements that are not summed: they may differ from a group whose own do not.
TEST(NearestLimitsTest, DividesTheRestOfAStreamByZero) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    NormSpec spec = cases::PartialK(2);
    spec.eps = 0;
    ExpectNearestOfStream(spec, dtype, {1, 2, 3, -4, 0}, {-1, -2, 1, 1, 0});
    spec = cases::Of(Method::kBatchNorm, Layout::kChannelsLast);
    spec.eps = 0;
    Call call(spec, dtype, {6, 1}, {1, 1, 1, 2, -2, 1});
    call.c.residual = {dtype, 1, ResidualRounding::kKeepWide};
    call.c.mask = Mask::kSome;
    call.data.residual = cases::Pack(dtype, {1, 1, 1, 1, 1, 1});
    call.data.mask = {1, 1, 1, 0, 0, 0};
    ExpectNearest(call);
  }
}

// ---- PowerNorm ----

TEST(NearestLimitsTest, ScalesPositionsOfSubnormalNumbers) {
  for (const double least : {3e-310, 7e-320, 0x1p-1074, 1e-300}) {
    for (const bool given : {false, true}) {
      NormSpec spec = cases::Power(3);
      spec.eps = 0;
      Call call(spec, DType::kF64, {2, 3}, {least, 1, 1, 2, -least, 0x1p-1070}, given);
      if (given) call.data.given_variance = {3, 3, 3};
      ExpectNearest(call);
      spec = cases::Power(1);
      spec.eps = 0;
      call = Call(spec, DType::kF64, {2, 3}, {least, -3 * least, 0, 2, -least, 0x1p-1070}, given);
      if (given) call.data.given_variance = {3, 3, 3};
      ExpectNearest(call);
    }
  }
}

// x + scale * r is 0 in f64 and not exactly, and v is 0.
TEST(NearestLimitsTest, DividesWhatAlmostCancelsByZero) {
  NormSpec spec = cases::Power(1);
  spec.eps = 0;
  Call call(spec, DType::kF32, {1, 3}, {-0x1p-20, 0x1p-20, 1}, true);
  call.c.residual = {DType::kF64, 1.0 / 3, ResidualRounding::kKeepWide};
  call.data.residual = cases::Pack(DType::kF64, {0x3p-20, -0x3p-20, 1});
  call.data.given_variance = {0, 0, 1};
  ExpectNearest(call);
}

// Beside an Inf n is 0, and so it is where v is Inf: b is rounded once.
TEST(NearestLimitsTest, RoundsABiasBesideAnInfOnce) {
  constexpr double kBias = 0x1.3100000000003p+49;  // just above a middle of bf16, which f32 makes it
  constexpr double kBiasOfF16 = 0x1.0020000000001p+3;
  for (const DType dtype : kAllDTypes) {
    for (const CastOrder order : {CastOrder::kAffineThenCast, CastOrder::kCastThenAffine}) {
      NormSpec spec = cases::Power(1);
      spec.cast_order = order;
      for (const double second : {1.0, -1.0, -0.0}) {
        Call call(spec, dtype, {2, 3}, {kInf, second, 1, 1, 2, 3}, true);
        call.data.given_variance = {1, 1, 1};
        call.c.bias = DType::kF64;
        call.data.bias = cases::Pack(DType::kF64, {0, kBias, kBiasOfF16});
        ExpectNearest(call);
        call.data.bias = cases::Pack(DType::kF64, {0, -0.0, 0});
        ExpectNearest(call);
      }
    }
  }
}

// ---- Parameters that are not finite ----

// n is not 0, however small it is, and an infinite w makes Inf of it; b of the other sign does not undo that.
TEST(NearestLimitsTest, MultipliesTheSmallestNumbersByAnInfiniteWeight) {
  const Values x = {1e-30, -1e-30, 0, 1, -0.0, -1, 1e-35, 2};
  const Values w = {kInf, -kInf, kInf, kInf, kInf, -kInf, kInf, 1};
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const NormSpec spec = cases::Spec(Method::kRmsNorm, 1e308, EpsMode::kClampRoot);
    Call row = cases::Row(spec, dtype, x);
    ExpectNearest(row.Weight(w));
    ExpectNearest(row.Bias({1, 1, 1, 1, kInf, kInf, kInf, kInf}));
    Call centred = cases::Row(cases::Spec(Method::kLayerNorm, 1e308, EpsMode::kClampRoot), dtype, x);
    ExpectNearest(centred.Weight(w));
    for (const Layout layout : cases::kLayouts) {
      NormSpec batch = cases::Of(Method::kBatchNorm, layout);
      batch.eps = 1e308;
      batch.eps_mode = EpsMode::kClampRoot;
      Call call(batch, dtype, {3, 8}, cases::Values(24), true);
      Values many;
      for (int i = 0; i < 3; ++i) many.insert(many.end(), x.begin(), x.end());
      call.data.x = cases::Pack(dtype, many);
      call.Given(Values(8, 0), Values(8, 1));
      ExpectNearest(call.Weight(w));
    }
  }
}

// n is finite, however large it is: a w of 0 makes 0 of it, and an infinite b is y.
TEST(NearestLimitsTest, MultipliesTheLargestNumbers) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    Call call(SpecFor(Method::kBatchNorm, 0x1p-1000, EpsMode::kAddToRoot), dtype, {4, 2},
              {1e30, -1e30, 0, 1e37, -1e37, 1, 2, 3}, true);
    call.Given({0, 0}, {0, 0});
    call.c.weight = call.c.bias = DType::kF64;
    for (const auto& [w, b] :
         {std::pair(0.0, 1.0), std::pair(-0.0, -0.0), std::pair(1e300, -kInf), std::pair(1e300, 7.0)}) {
      call.data.weight = cases::Pack(DType::kF64, {w, -w});
      call.data.bias = cases::Pack(DType::kF64, {b, b});
      ExpectNearest(call);
    }
  }
}

// Of no elements the mean square is 0 / 0, whether or not they are sums with a residual that are kept wide.
TEST(NearestLimitsTest, StatisticsOfNoElementsAreNan) {
  for (const NormSpec& spec : {cases::Of(Method::kRmsNorm), NormSpec{.attributes = PRmsNormSpec{.p = 0.5}}}) {
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
      const std::unique_ptr<Backend> backend = BackendOf({});
      Call call(spec, dtype, {2, 0}, {});
      for (const bool is_stream : {false, true}) {
        if (is_stream) call.c.residual = ResidualCase{dtype, 0.5, ResidualRounding::kKeepWide};
        const absl::StatusOr<Outputs> got = RunCase(*backend, call.c, call.data);
        ASSERT_TRUE(got.ok()) << call.c.Name() << ": " << got.status();
        const Values inverses = cases::Unpack(dtype == DType::kF64 ? dtype : DType::kF32, got->inverse_std);
        ASSERT_EQ(inverses.size(), 2u);
        for (const double inverse : inverses) EXPECT_TRUE(std::isnan(inverse)) << call.c.Name() << ": " << inverse;
      }
    }
  }
}

}  // namespace
}  // namespace normd
