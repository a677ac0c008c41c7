// PowerNorm to the nearest value (kernels/cpu/nearest_power.h): every element, divisor and moment has the bytes that
// the slow road gives it, on each instruction set, split, in place and at any address, for usual and for hostile data.
// Terms and elements that lie at the middles show that the bounds are needed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/nearest_power.h"
#include "kernels/cpu/targets.h"
#include "tests/kernels/call.h"
#include "tests/support/boundary_rows.h"
#include "tests/support/constants.h"
#include "tests/support/judge_nearest.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

using cases::Call;
using cases::Values;
using oracle::Wide;

std::unique_ptr<Backend> BackendOfPower(double bound_factor) {
  return MakeCpuBackend({.threads = 1,
                         .inline_elements = int64_t{1} << 40,
                         .grain_elements = int64_t{1} << 40,
                         .nearest = {.bound_factor = bound_factor}});
}

Backend& SlowRoad() {
  static const auto* const backend = new std::unique_ptr<Backend>(BackendOfPower(kInf));
  return **backend;
}

Outputs OutputsAt(Backend& backend, const Case& c, const CaseData& data, int misalignment = 0) {
  const absl::StatusOr<NormPlan> plan = PlanOf(c);
  EXPECT_TRUE(plan.ok()) << c.Name() << ": " << plan.status();
  CaseRun run(backend, c, *plan, data, misalignment);
  EXPECT_TRUE(RunJobs(backend, {run.MakeJob()}).ok()) << c.Name();
  return run.TakeOutputs();
}

CaseData DataFor(const Case& c) {
  CaseData data = MakeData(c, *PlanOf(c), TestSeed());
  if (c.options.given_statistics && !data.given_variance.empty()) data.given_variance[0] = 1;
  return data;
}

// The kernels have the bytes of the slow road, on every instruction set, split and at an odd address.
void ExpectTheSlowRoad(const Case& c, const CaseData& data) {
  static const auto* const usual = new std::unique_ptr<Backend>(BackendOfPower(1));
  static const auto* const split =
      new std::unique_ptr<Backend>(MakeCpuBackend({.threads = 2, .inline_elements = 0, .grain_elements = 100}));
  const Outputs want = OutputsAt(SlowRoad(), c, data);
  for (const CpuTarget& target : SupportedCpuTargets()) {
    ForceCpuTargetForTest(target.id);
    EXPECT_EQ(DifferenceOf(OutputsAt(**usual, c, data), want), "") << c.Name() << " on " << target.name;
    EXPECT_EQ(DifferenceOf(OutputsAt(**usual, c, data, 1), want), "") << c.Name() << " at 1, on " << target.name;
    EXPECT_EQ(DifferenceOf(OutputsAt(**split, c, data), want), "") << c.Name() << " split, on " << target.name;
  }
  ForceCpuTargetForTest(0);
}

struct PowerShape {
  int64_t groups;
  std::vector<int64_t> shape;
};
// Whole vectors and parts of them, groups of one channel, and more positions than the bins take.
const PowerShape kPowerShapes[] = {{1, {37, 64}}, {1, {9, 5, 71}}, {3, {21, 51}}, {8, {19, 8}}, {1, {1100, 9}}};

Case CaseOf(const PowerShape& shape, DType dtype, bool given) {
  Case c = cases::On(cases::Power(shape.groups), shape.shape, given);
  c.dtype = dtype;
  return c;
}

TEST(NearestPowerTest, HasTheBytesOfTheSlowRoad) {
  for (const DType dtype : kAllDTypes) {
    for (const PowerShape& shape : kPowerShapes) {
      for (const bool given : {false, true}) {
        Case c = CaseOf(shape, dtype, given);
        ExpectTheSlowRoad(c, DataFor(c));
        c.weight = c.bias = DType::kF32;
        ExpectTheSlowRoad(c, DataFor(c));
        c.spec.cast_order = CastOrder::kCastThenAffine;
        ExpectTheSlowRoad(c, DataFor(c));
      }
    }
  }
}

TEST(NearestPowerTest, HasTheBytesOfTheSlowRoadOfAnyData) {
  for (const DType dtype : kAllDTypes) {
    for (const Data kind : {Data::kConstant, Data::kOutliers, Data::kHuge, Data::kTiny, Data::kSubnormal, Data::kMixed,
                            Data::kSteps, Data::kZeros, Data::kSomeZeros, Data::kNan, Data::kInf, Data::kMinusInf}) {
      for (const double eps : {1e-5, 0.0}) {
        for (const bool given : {false, true}) {
          Case c = CaseOf({2, {23, 22}}, dtype, given);
          c.spec.eps = eps;
          c.data = kind;
          ExpectTheSlowRoad(c, DataFor(c));
        }
      }
    }
  }
}

// Their sums are those of tiles of channels, which end within a group.
TEST(NearestPowerTest, TakesAnyNumberOfChannels) {
  for (const int64_t groups : {1, 10}) {
    const Case c = CaseOf({groups, {2, 70'000}}, DType::kF32, false);
    ExpectTheSlowRoad(c, DataFor(c));
  }
}

TEST(NearestPowerTest, LeavesOutMaskedPositions) {
  for (const DType dtype : kAllDTypes) {
    for (const Mask mask : {Mask::kSome, Mask::kAll, Mask::kNanUnder}) {
      Case c = CaseOf({2, {41, 18}}, dtype, false);
      c.mask = mask;
      ExpectTheSlowRoad(c, DataFor(c));
    }
  }
}

TEST(NearestPowerTest, TakesParametersOfEveryKind) {
  for (const DType dtype : kAllDTypes) {
    for (const std::optional<DType> weight : {std::optional<DType>(), std::optional<DType>(DType::kF64)}) {
      for (const std::optional<DType> bias : {std::optional<DType>(), std::optional<DType>(DType::kBF16)}) {
        for (const CastOrder order : {CastOrder::kAffineThenCast, CastOrder::kCastThenAffine}) {
          for (const double offset : {0.0, 1.0}) {
            Case c = CaseOf({1, {11, 43}}, dtype, true);
            c.weight = weight;
            c.bias = bias;
            c.spec.cast_order = order;
            c.spec.weight_offset = offset;
            ExpectTheSlowRoad(c, DataFor(c));
          }
        }
      }
    }
  }
}

TEST(NearestPowerTest, TakesResiduals) {
  for (const DType dtype : kAllDTypes) {
    for (const ResidualRounding rounding : {ResidualRounding::kRoundFirst, ResidualRounding::kKeepWide}) {
      for (const bool given : {false, true}) {
        Case c = CaseOf({2, {17, 26}}, dtype, given);
        c.residual = {DType::kF32, 1.0 / 3, rounding};
        ExpectTheSlowRoad(c, DataFor(c));
      }
    }
  }
}

// Divisors that are 0, tiny, huge, Inf or NaN, and parameters likewise.
TEST(NearestPowerTest, TakesNumbersOfEveryKind) {
  const Values numbers = {0, 1, 1e-300, 1e-310, 1e300, kInf, kNan, 0x1p-500, 0x1p+500, 3};
  const Values weights = {1, 0, -0.0, -2, kInf, kNan, 1e-38, 1e38, 3e-45, 1};
  for (const DType dtype : kAllDTypes) {
    for (const double eps : {0.0, 1e-5}) {
      for (const CastOrder order : {CastOrder::kAffineThenCast, CastOrder::kCastThenAffine}) {
        for (int shift = 0; shift < 10; ++shift) {
          NormSpec spec = cases::Power(1);
          spec.eps = eps;
          spec.cast_order = order;
          Values x, rotated;
          for (int i = 0; i < 50; ++i) x.push_back(i % 7 == 3 ? (i % 2 != 0 ? -0.0 : 0.0) : 0.3 * (i - 20));
          for (int i = 0; i < 10; ++i) rotated.push_back(weights[static_cast<size_t>((i + shift) % 10)]);
          Call call(spec, dtype, {5, 10}, x, true);
          call.data.given_variance = numbers;
          call.c.weight = call.c.bias = DType::kF32;
          call.data.weight = cases::Pack(DType::kF32, rotated);
          call.data.bias = cases::Pack(DType::kF32, {0, -0.0, 1, 1, 1, 1, -kInf, 1, kNan, 1e-40});
          ExpectTheSlowRoad(call.c, call.data);
        }
      }
    }
  }
}

// Elements of all magnitudes within a position: most terms are too small for the bins.
TEST(NearestPowerTest, AddsTermsOfAllMagnitudes) {
  Random random(TestSeed());
  for (const DType dtype : kAllDTypes) {
    const int reach = dtype == DType::kF64 ? 500 : dtype == DType::kF16 ? 10 : 60;
    Values x;
    for (int i = 0; i < 90 * 21; ++i) {
      x.push_back(random.Normal() * std::ldexp(1.0, static_cast<int>(random.Below(2 * reach)) - reach));
    }
    Call call(cases::Power(1), dtype, {90, 21}, x);
    ExpectTheSlowRoad(call.c, call.data);
    call.c.spec.eps = 0;
    ExpectTheSlowRoad(call.c, call.data);
  }
}

TEST(NearestPowerTest, WritesInPlace) {
  for (const DType dtype : kAllDTypes) {
    const Case c = CaseOf({3, {21, 51}}, dtype, true);
    const CaseData data = DataFor(c);
    const std::unique_ptr<Backend> backend = BackendOfPower(1);
    CaseRun run(*backend, c, *PlanOf(c), data, 0);
    Job job = run.MakeJob();
    std::string x = data.x;
    job.x = job.y = x.data();
    ASSERT_TRUE(RunJobs(*backend, {job}).ok());
    EXPECT_TRUE(x == OutputsAt(SlowRoad(), c, data).y) << c.Name();
  }
}

// ---- Terms at the middles ----

// Two channels of one position, and an eps that puts the first term beside a middle between two f64.
Call TermAtAMiddle(DType dtype, Random* random) {
  const double a = static_cast<float>(random->Uniform(1, 2)), b = static_cast<float>(random->Uniform(1, 2));
  const Wide mean_square = (Wide(a) * a + Wide(b) * b) / 2;
  const auto term = static_cast<double>(Wide(a) * a / mean_square);
  const Wide middle = term - oracle::Ulp(oracle::Type::kF64, term) / 2;
  NormSpec spec = cases::Power(1);
  spec.eps = static_cast<double>(Wide(a) * a / middle - mean_square);
  return Call(spec, dtype, {1, 2}, {a, b});
}

int WrongTerms(double bound_factor, DType dtype) {
  const std::unique_ptr<Backend> backend = BackendOfPower(bound_factor);
  Random random(TestSeed());
  int wrong = 0;
  for (int i = 0; i < 2000; ++i) {
    const Call call = TermAtAMiddle(dtype, &random);
    const Outputs got = OutputsAt(*backend, call.c, call.data);
    const Outputs want = OutputsAt(SlowRoad(), call.c, call.data);
    wrong += got.moments[0].m2 == want.moments[0].m2 ? 0 : 1;
  }
  return wrong;
}

TEST(NearestPowerTest, DecidesTermsAtTheMiddles) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    EXPECT_EQ(WrongTerms(1, dtype), 0);
    EXPECT_GT(WrongTerms(0x1p-20, dtype), 0) << "a slack that is too small";
  }
}

// The slow road has the exact oracle's terms there.
TEST(NearestPowerTest, TermsAtTheMiddlesAreTheOracles) {
  Random random(TestSeed());
  for (int i = 0; i < 50; ++i) {
    const Call call = TermAtAMiddle(DType::kF64, &random);
    const oracle::NearestResult want = oracle::Nearest(OracleSpec(call.c), OracleInput(call.c, call.data));
    EXPECT_EQ(NotNearest(call.c, OutputsAt(SlowRoad(), call.c, call.data), want.groups), "");
  }
}

// ---- Elements at the middles ----

std::vector<std::string> WrongPowerRows(double bound_factor) {
  static const auto* const rows = [] {
    auto* const chosen = new std::vector<BoundaryRow>(BoundaryRows(TestSeed()));
    std::erase_if(*chosen, [](const BoundaryRow& row) { return row.c.spec.method() != Method::kPowerNorm; });
    return chosen;
  }();
  EXPECT_FALSE(rows->empty());
  return WrongRows(*BackendOfPower(bound_factor), *rows);
}

// 16-bit types have the kernels and the bounds of f32, and their middles are too far apart for these rows.
TEST(NearestPowerTest, DecidesElementsAtTheMiddles) {
  const auto has = [](const char* dtype) { return testing::Contains(testing::HasSubstr(dtype)); };
  EXPECT_THAT(WrongPowerRows(1), testing::IsEmpty());
  EXPECT_THAT(WrongPowerRows(0x1p-6), has("/f32/"));
  EXPECT_THAT(WrongPowerRows(0x1p-14), has("/f64/"));
}

// ---- Bins ----

// Terms at the borders of the bins, in as many rows as they take: v is the exact sum.
TEST(NearestPowerTest, BinsTakeWhatTheySay) {
  for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{512}, int64_t{1} << 20}) {
    const cpu::TermBins bins(n);
    const double unit = bins.least * 0x1p-52;
    const auto most = static_cast<double>(cpu::TermRows::kMostTerms) * static_cast<double>(n);
    EXPECT_LE(bins.anchor + most, 2 * bins.anchor / 1.5) << "within the binade of the anchor";
    const double grid = bins.anchor / 1.5 * 0x1p-52;
    EXPECT_LE(cpu::TermRows::kMostTerms * grid / 2, 0x1p+53 * unit);
    EXPECT_LT(bins.least, 0x1p-20 * static_cast<double>(n)) << "usual terms are taken";
  }
}

}  // namespace
}  // namespace normd
