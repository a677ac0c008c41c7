// Rows that are normalised together under FAST (NormaliseRows) have the bits of those that are normalised one by one,
// whose statistics are scalars: y, mean, m2 and 1 / D, ordinary rows and those at which a formula turns, on each
// instruction set. The same rows are left to the caller.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/strings.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/targets.h"
#include "tests/kernels/call.h"
#include "tests/support/constants.h"
#include "tests/support/random.h"

namespace normd {
namespace {

// `rows` rows of n elements, of which the first `counted` are summed; `rare`: many of them are far from 0, huge, tiny,
// equal, whole numbers or not finite, and some of the others are much larger.
cases::Values MakeRows(int64_t rows, int64_t n, int64_t counted, bool rare, Random* random) {
  constexpr double kScales[] = {0, 0x1p-140, 0x1p-63, 0x1p-60, 0x1p-50, 0x1p+15, 0x1p+59, 0x1p+62, 0x1p+101, 0x1p+126};
  constexpr double kBeyond[] = {0x1p+15, 0x1p+124, 0x1p+126};
  cases::Values values;
  for (int64_t row = 0; row < rows; ++row) {
    const auto is_rare = [&] { return rare && random->Below(4) == 0; };
    const double scale = is_rare() ? kScales[random->Below(std::size(kScales))] : 1;
    // About where the mean is too far for FAST (1 deviation), or for EXACT (8).
    const double offset = is_rare() ? random->Uniform(-2, 2) * (random->Below(2) == 0 ? 1 : 8) : 0.1;
    const bool whole = is_rare();
    for (int64_t i = 0; i < n; ++i) {
      const double value = random->Uniform(-1.7, 1.7) + offset;
      const double factor = i >= counted && is_rare() ? kBeyond[random->Below(std::size(kBeyond))] : scale;
      values.push_back((whole ? std::round(value) : value) * factor);
    }
    if (rare && random->Below(16) == 0) {
      values[values.size() - 1 - static_cast<size_t>(random->Below(static_cast<int>(n)))] =
          random->Below(2) == 0 ? kInf : std::nan("");
    }
  }
  return values;
}

struct Normalised {
  std::string y;
  std::vector<FinishedStatistics> results;
  std::vector<bool> done;
};

// `at_once` rows in a call.
Normalised Normalise(cpu::RowBlock block, int64_t rows, int64_t at_once) {
  const int64_t row_bytes = block.n * SizeOf(block.x.dtype);
  Normalised normalised;
  normalised.y.resize(static_cast<size_t>(rows * row_bytes));
  normalised.results.resize(static_cast<size_t>(rows));
  const cpu::Elements x = block.x;
  for (int64_t row = 0; row < rows; row += block.rows) {
    block.x = x.At(row * block.n);
    block.y = normalised.y.data() + row * row_bytes;
    block.rows = std::min(at_once, rows - row);
    const uint32_t done = cpu::NormaliseRows(block, normalised.results.data() + row);
    for (int64_t i = 0; i < block.rows; ++i) normalised.done.push_back((done >> i & 1) != 0);
  }
  return normalised;
}

// The statistic, the elements, and how eps enters.
class RowsTest : public ::testing::TestWithParam<std::tuple<Statistic, DType, EpsMode>> {
 protected:
  void Check(const cpu::RowBlock& block, int64_t rows) {
    for (const CpuTarget& target : SupportedCpuTargets()) {
      ForceCpuTargetForTest(target.id);
      const Normalised want = Normalise(block, rows, 1);
      for (const int64_t at_once : {2, 3, 7, 16}) {
        const Normalised got = Normalise(block, rows, at_once);
        const std::string where = Concat(target.name, ", ", at_once, " at once, n ", block.n, ", eps ", block.rule.eps);
        EXPECT_TRUE(got.y == want.y && got.done == want.done) << where;
        done_ += std::count(want.done.begin(), want.done.end(), true);
        left_ += std::count(want.done.begin(), want.done.end(), false);
        for (size_t row = 0; row < want.results.size(); ++row) {
          const auto same = [&](double FinishedStatistics::*member) {
            return std::bit_cast<uint64_t>(got.results[row].*member) ==
                   std::bit_cast<uint64_t>(want.results[row].*member);
          };
          if (!want.done[row]) continue;
          EXPECT_TRUE(same(&FinishedStatistics::mean)) << where << ", row " << row;
          EXPECT_TRUE(same(&FinishedStatistics::m2)) << where << ", row " << row;
          EXPECT_TRUE(same(&FinishedStatistics::inverse_std)) << where << ", row " << row;
        }
      }
      ForceCpuTargetForTest(0);
    }
  }

  int64_t done_ = 0, left_ = 0;  // rows
};

TEST_P(RowsTest, TogetherTheyHaveTheBitsOfOneByOne) {
  const auto [statistic, dtype, mode] = GetParam();
  Random random(1);
  constexpr int64_t kRows = 32;
  constexpr double kSmall[] = {0, 0x1p-50};
  for (const auto& [n, counted] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 5}, {64, 64}, {100, 100}, {129, 129}, {5, 1}, {129, 64}}) {
    for (int trial = 0; trial < 8; ++trial) {
      const std::string x = cases::Pack(dtype, MakeRows(kRows, n, counted, trial > 0, &random));
      std::vector<double> parameters;
      std::vector<float> parameters32;
      for (int64_t i = 0; i < n; ++i) {
        // Where w is 0 or small, what overflowed on the way has a finite y.
        const double factor = trial > 0 && random.Below(4) == 0 ? kSmall[random.Below(std::size(kSmall))] : 1;
        parameters32.push_back(static_cast<float>(random.Uniform(-2, 2) * factor));
        parameters.push_back(parameters32.back());
      }
      constexpr double kEps[] = {1e-5, 0, 1e-300, 0x1p-124, 0x1p+10};
      cpu::RowBlock block = {.x = {dtype, x.data()},
                             .n = n,
                             .counted = counted,
                             .statistic = statistic,
                             .rule = {kEps[trial % 5], mode, trial % 2 == 0}};
      if (trial % 3 != 0) {
        block.parameters.weight = parameters.data();
        block.parameters.weight32 = parameters32.data();
      }
      if (trial % 3 == 2) {
        block.parameters.bias = parameters.data();
        block.parameters.bias32 = parameters32.data();
      }
      block.per_element = statistic == Statistic::kMeanVariance || trial < 4;
      Check(block, kRows);
    }
  }
  EXPECT_GT(done_, left_);
  EXPECT_GT(left_, done_ / 16);
}

INSTANTIATE_TEST_SUITE_P(Ways, RowsTest,
                         ::testing::Combine(::testing::Values(Statistic::kMeanVariance, Statistic::kMeanSquare,
                                                              Statistic::kSumSquares, Statistic::kAbsSum),
                                            ::testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                            ::testing::Values(EpsMode::kInsideSqrt, EpsMode::kAddToRoot,
                                                              EpsMode::kClampRoot)));

}  // namespace
}  // namespace normd
