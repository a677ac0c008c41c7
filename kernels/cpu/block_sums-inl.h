// The sums of a block of adjacent rows, each step for all rows before the next step.
// In the path: before the statistics of the rows; included by row_blocks.cc and nearest_rows.cc. Highway recompiles
// this file for each instruction set, hence the per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_BLOCK_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_BLOCK_SUMS_INL_H_
#undef NORMD_KERNELS_CPU_BLOCK_SUMS_INL_H_
#else
#define NORMD_KERNELS_CPU_BLOCK_SUMS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/certificate.h"
#include "kernels/cpu/finish-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/summation_order.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::RowBlock;
using cpu::RowChunks;

template <Statistic kStatistic, typename T>
HWY_INLINE double ShiftOfRow(T tag, Precision precision, const RowBlock& block, int64_t row) {
  if (kStatistic != Statistic::kMeanVariance) return 0;
  const auto* x = static_cast<const typename T::Storage*>(block.x.data) + row * block.n;
  return ShiftOf(tag, precision, x, block.counted, false);
}

// The sums of a row about `shift`, which is 0 in f64. kInTurns: by SumInTurns.
template <Statistic kStatistic, bool kInTurns, typename Real, typename T>
HWY_INLINE PairSums SumsOfRow(T tag, TypeTag<Real> type, const RowBlock& block, int64_t row, double shift) {
  const auto* const x = static_cast<const typename T::Storage*>(block.x.data) + row * block.n;
  const auto chunk_of = [&](int64_t at) HWY_ATTR {
    const int64_t n = HWY_MIN(order::kRowChunk, block.counted - at);
    if constexpr (kInTurns) {
      return SumInTurns(tag, type, x + at, n, shift);
    } else {
      const RowChunks chunk = {.x = {block.x.dtype, x + at}, .n = n};
      return SumChunk<kStatistic, false>(tag, TypeTag<NarrowSums<Real>>(), chunk, shift, 1);
    }
  };
  // The same as FoldChunks: a call of it, with one more lambda, makes EXACT rows of f32 2 % slower. The number of sums
  // that wait is at most the number of binary digits of the count.
  static_assert(RowBlock::kMaxChunks < 1 << 7);
  double first[7], second[7];  // not initialised: that would take as long as the sums of a short row
  PairSums sum;
  const int64_t chunks = order::RowChunks(block.counted);
  int64_t waiting = 0;
  const auto fold = [&](int64_t with) { sum = {{first[with] + sum.first.hi, 0}, {second[with] + sum.second.hi, 0}}; };
  for (int64_t chunk = 0;; ++chunk) {
    sum = chunk_of(chunk * order::kRowChunk);
    if (chunk + 1 == chunks) break;
    for (int folds = order::FoldsAfter(chunk); folds > 0; --folds) fold(--waiting);
    first[waiting] = sum.first.hi;
    second[waiting++] = sum.second.hi;
  }
  while (waiting > 0) fold(--waiting);
  return sum;
}

// The sums of the rows of a block, and the shifts that they are about; where no mean is subtracted, `second` alone is
// used. Not initialised: that would take as long as a short row.
struct BlockSums {
  HWY_ALIGN double shift[RowBlock::kMaxRows], first[RowBlock::kMaxRows], second[RowBlock::kMaxRows];
};

// True if a row with this shift is left to the caller, because SumsOfRow subtracts no shift in f64.
template <Statistic kStatistic, typename Real>
HWY_INLINE bool IsLeft(double shift) {
  return kStatistic == Statistic::kMeanVariance && std::is_same_v<Real, double> && shift != 0;
}

// Runs each step for all rows before the next step, because a step of a row waits dozens of cycles for the step before
// it, and other rows can use these cycles. Returns false if some rows are left to the caller.
template <Statistic kStatistic, typename Real, typename T>
HWY_INLINE bool SumRows(T tag, TypeTag<Real> type, const RowBlock& block, BlockSums* sums) {
  bool all = true;
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  for (int64_t row = 0; kCentred && row < block.rows; ++row) {
    constexpr Precision kPrecision = std::is_same_v<Real, float> ? Precision::kFast : Precision::kExact;
    sums->shift[row] = ShiftOfRow<kStatistic>(tag, kPrecision, block, row);
  }
  const auto sum_rows = [&](auto in_turns) HWY_ATTR {
    for (int64_t row = 0; row < block.rows; ++row) {
      const double shift = kCentred ? sums->shift[row] : 0;
      if (IsLeft<kStatistic, Real>(shift)) {
        all = false;
        continue;
      }
      const PairSums sum = SumsOfRow<kStatistic, decltype(in_turns)::value>(tag, type, block, row, shift);
      if (kCentred) sums->first[row] = sum.first.hi;
      sums->second[row] = sum.second.hi;
    }
  };
  // Turns cost short rows more than they save, except under FAST. EXACT sums of 16-bit elements spend most of their
  // time on loads, and never gain from turns.
  constexpr int64_t kLong = 512;
  constexpr bool kIsFast = std::is_same_v<Real, float>;
  if constexpr (kCentred && (kIsFast || std::is_same_v<T, F32>)) {
    kIsFast || block.counted >= kLong ? sum_rows(std::true_type()) : sum_rows(std::false_type());
  } else {
    sum_rows(std::false_type());
  }
  return all;
}

#if HWY_TARGET != HWY_SCALAR  // vectors of one lane have no halves
// The sum of the squares of n 16-bit elements: of four in f32, and of these sums in f64. See kOfRunsOfFour.
template <typename T>
HWY_INLINE double SumSquaresInRuns(T tag, const uint16_t* x, int64_t n) {
  constexpr int64_t kStep = 4 * kLanesOf<float>;
  const hn::Half<Tag<float>> half;
  V low = Zero();
  V high = Zero();
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    const TwoVectors a = LoadTwo(tag, x + i);
    const TwoVectors b = LoadTwo(tag, x + i + kStep / 2);
    auto sum = Fma(a.second, a.second, hn::Mul(a.first, a.first));
    sum = Fma(b.first, b.first, sum);
    sum = Fma(b.second, b.second, sum);
    low = hn::Add(low, hn::PromoteTo(d, hn::LowerHalf(half, sum)));
    high = hn::Add(high, hn::PromoteTo(d, hn::UpperHalf(half, sum)));
  }
  for (; i < n; i += kLanes) {
    const V value = LoadUpTo(tag, x + i, HWY_MIN(kLanes, n - i));
    low = Fma(value, value, low);
  }
  return FoldLanes(d, hn::Add(low, high));
}

// Sums the rows in runs where their squares are large enough, and marks them.
template <typename T>
HWY_INLINE void SumRowsInRuns(T tag, const RowBlock& block, BlockSums* sums, uint32_t* in_runs) {
  for (int64_t row = 0; row < block.rows; ++row) {
    sums->second[row] =
        SumSquaresInRuns(tag, static_cast<const uint16_t*>(block.x.data) + row * block.n, block.counted);
    if (sums->second[row] >= kLeastSumOfRuns) {
      *in_runs |= uint32_t{1} << row;
    } else {
      const PairSums sum = SumsOfRow<Statistic::kMeanSquare, false>(tag, TypeTag<double>(), block, row, 0);
      sums->second[row] = sum.second.hi;
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

// Stores the results of the first `rows` lanes, or of all lanes if there are fewer.
HWY_INLINE void StoreResults(const FinishedLanes& finished, int64_t rows, FinishedStatistics* results) {
  HWY_ALIGN double lanes[3][kLanes];
  hn::Store(finished.mean, d, lanes[0]);
  hn::Store(finished.m2, d, lanes[1]);
  hn::Store(finished.statistics.inverse, d, lanes[2]);
  for (int64_t lane = 0; lane < HWY_MIN(kLanes, rows); ++lane) {
    results[lane].mean = lanes[0][lane];
    results[lane].m2 = lanes[1][lane];
    results[lane].inverse_std = lanes[2][lane];
  }
}

// Repeats the last row of a block in the lanes after it, so that whole vectors of rows can be finished.
template <bool kCentred>
HWY_INLINE void RepeatLastRow(int64_t rows, BlockSums* sums) {
  for (int64_t row = rows; row % kLanes != 0; ++row) {
    if (kCentred) sums->shift[row] = sums->shift[row - 1];
    if (kCentred) sums->first[row] = sums->first[row - 1];
    sums->second[row] = sums->second[row - 1];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_BLOCK_SUMS_INL_H_
