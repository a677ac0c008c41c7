// LpNorm of whole orders to the nearest value, up to the largest order that the slow road has integers for, at the ends
// of what tensors hold: there each order has its longest numbers.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/slow_road/formula.h"
#include "tests/support/case.h"
#include "tests/support/constants.h"
#include "tests/support/nearest.h"
#include "tests/support/oracle.h"
#include "tests/support/random.h"
#include "tests/support/run_case.h"

namespace normd {
namespace {

constexpr int64_t kRows = 6, kRowLength = 12;

// The greatest and the least numbers of a type among others of every exponent; rows 0 and 1 have only large or tiny
// ones.
std::string ExtremeTensor(DType dtype, Random& random) {
  const oracle::Type type = OracleType(dtype);
  const oracle::Wide least = oracle::Decode(type, 1);
  const oracle::Wide greatest = oracle::Decode(type, oracle::FormatOf(type).infinity() - 1);
  const int reach = oracle::FormatOf(type).bias() - 1;
  std::string bytes(static_cast<size_t>(kRows * kRowLength * SizeOf(dtype)), '\0');
  for (int64_t i = 0; i < kRows * kRowLength; ++i) {
    oracle::Wide v =
        oracle::Wide(random.Normal()) * oracle::PowerOfTwo(static_cast<int>(random.Below(2 * reach)) - reach);
    if (i % 5 == 1) v = least * (random.Below(9) - 4);
    if (i % 5 == 2) v = greatest * oracle::Wide(random.Uniform(-1, 1));
    if (i / kRowLength == 0) v = greatest * oracle::Wide(random.Uniform(-1, 1));
    if (i / kRowLength == 1) v = least * (random.Below(100) - 50);
    oracle::StoreBits(type, oracle::Encode(type, v), bytes.data(), i);
  }
  return bytes;
}

void ExpectNearestNorms(const Case& c, const CaseData& data) {
  const oracle::NearestResult want = oracle::Nearest(OracleSpec(c), OracleInput(c, data));
  const auto bytes = static_cast<size_t>(SizeOf(c.dtype));
  for (const NearestOptions& options : {NearestOptions{}, NearestOptions{.bound_factor = kInf},
                                        NearestOptions{.bound_factor = kInf, .exact_first = true}}) {
    const std::unique_ptr<Backend> backend = MakeCpuBackend({.nearest = options});
    const absl::StatusOr<Outputs> got = RunCase(*backend, c, data);
    ASSERT_TRUE(got.ok()) << c.Name() << ": " << got.status();
    for (size_t i = 0; i < want.y.size(); ++i) {
      uint64_t bits = 0;
      std::memcpy(&bits, got->y.data() + i * bytes, bytes);
      ASSERT_TRUE(oracle::IsNearest(OracleType(c.dtype), bits, want.y[i]))
          << c.Name() << " eps " << *c.spec.eps << " mode " << static_cast<int>(*c.spec.eps_mode) << " y[" << i << "] "
          << std::hex << bits << " instead of " << want.y[i];
    }
  }
}

void TryNorms(DType dtype, std::optional<ResidualCase> residual, int most) {
  Random random(TestSeed());
  for (int order = 3; order <= most; ++order) {
    for (const double eps : {0.0, std::numeric_limits<double>::denorm_min(), 0x1.3456789abcdefp-40, 1e30}) {
      for (const EpsMode mode : {EpsMode::kAddToRoot, EpsMode::kClampRoot}) {
        Case c;
        c.spec.attributes = LpNormSpec{.order = order};
        c.spec.eps = eps;
        c.spec.eps_mode = mode;
        c.shape = {kRows, kRowLength};
        c.dtype = dtype;
        c.residual = residual;
        CaseData data = {.x = ExtremeTensor(dtype, random)};
        if (residual.has_value()) data.residual = ExtremeTensor(residual->dtype, random);
        ExpectNearestNorms(c, data);
      }
    }
  }
}

TEST(NearestLpNormTest, ReachesTheLargestOrderOfEveryType) {
  for (const DType dtype : kAllDTypes) {
    TryNorms(dtype, std::nullopt, slow_road::LargestWholeOrder(dtype == DType::kF64, false));
  }
}

TEST(NearestLpNormTest, ReachesTheLargestOrderOfKeptResiduals) {
  for (const double scale : {1.0, 0x1.3p+1000, 0x1.3p-1000}) {
    const auto kept = [&](DType dtype) { return ResidualCase{dtype, scale, ResidualRounding::kKeepWide}; };
    TryNorms(DType::kF64, kept(DType::kF64), slow_road::LargestWholeOrder(true, true));
    TryNorms(DType::kF32, kept(DType::kF64), slow_road::LargestWholeOrder(true, true));
    TryNorms(DType::kF32, kept(DType::kF32), slow_road::LargestWholeOrder(false, true));
    TryNorms(DType::kBF16, kept(DType::kF32), slow_road::LargestWholeOrder(false, true));
  }
}

}  // namespace
}  // namespace normd
