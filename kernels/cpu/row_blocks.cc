// Both passes over adjacent short rows under FAST, from their sums to y, while the rows are in the cache: a block of up
// to 16 rows takes each step together.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_blocks.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cstdint>
#include <new>

#include "hwy/highway.h"
#include "kernels/cpu/block_sums-inl.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/finish-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::RowBlock;

// The form of a uniform block, whose rows are all settled (see ChannelStatistics) and near their mean (CentreNarrow).
template <Statistic kStatistic>
inline constexpr Form kUniformForm = kStatistic == Statistic::kMeanVariance ? Form::kOnce : Form::kPlain;

// Finishes the rows of a block and prepares their statistics. Returns false if the block is not uniform.
template <Statistic kStatistic>
HWY_INLINE bool FinishUniformRows(const RowBlock& block, BlockSums* sums, RowStatistics* statistics,
                                  FinishedStatistics* results) {
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  const V n = Set(static_cast<double>(block.counted));
  RepeatLastRow<kCentred>(block.rows, sums);
  M uniform = hn::Eq(n, n);  // all lanes
  for (int64_t row = 0; row < block.rows; row += kLanes) {
    const auto load = [&](const double* from) HWY_ATTR { return kCentred ? hn::Load(d, from + row) : Zero(); };
    const SumLanes of = {load(sums->shift), load(sums->first), hn::Load(d, sums->second + row)};
    const FinishedLanes finished = FinishLanes<kStatistic, float>(block.statistic, block.rule, n, of);
    if (block.wants_results) StoreResults(finished, block.rows - row, results + row);
    uniform = hn::And(uniform, finished.settled);
    if constexpr (kCentred) uniform = hn::And(uniform, finished.near);
    hn::Store(finished.statistics.shift, d, statistics->shift + row);
    hn::Store(finished.statistics.delta, d, statistics->delta + row);
    hn::Store(finished.statistics.inverse, d, statistics->inverse + row);
  }
  return hn::AllTrue(d, uniform);
}

// Row 0 of a block for the apply pass.
template <typename T>
HWY_INLINE RowTask<T> TaskOf(T /*tag*/, const RowBlock& block) {
  return {.x = static_cast<const typename T::Storage*>(block.x.data),
          .y = static_cast<typename T::Storage*>(block.y),
          .n = block.n,
          .parameters = &block.parameters,
          .per_element = block.per_element,
          .caching = {block.stream, block.prefetch}};
}

// Applies two adjacent rows of one form that have no NaN.
template <Statistic kStatistic, typename T>
HWY_INLINE void ApplyTwoRows(T tag, const RowTask<T>& task, Form form, const FinishedStatistics* results) {
  RowStatistics both;
  both.Set(0, results[0].statistics);
  both.Set(1, results[1].statistics);
  if constexpr (kStatistic != Statistic::kMeanVariance) {
    ApplyRowPairs<Form::kPlain, false>(tag, task, 2, both);
  } else if (form == Form::kOnce) {
    ApplyRowPairs<Form::kOnce, false>(tag, task, 2, both);
  } else {
    ApplyRowPairs<Form::kTwice, false>(tag, task, 2, both);
  }
}

// Normalises the rows that f32 serves with a first shift, each in its form, from their sums. Returns which these are.
template <Statistic kStatistic, typename T>
HWY_NOINLINE uint32_t NormaliseAnyRows(T tag, const RowBlock& block, const BlockSums& sums,
                                       FinishedStatistics* results) {
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  const auto n = static_cast<double>(block.counted);
  uint32_t done = 0;
  for (int64_t row = 0; row < block.rows; ++row) {
    // Constructed in place: a copy would load vectors of members that were just stored one by one, and wait for the
    // stores.
    const auto* const result = new (results + row) FinishedStatistics(
        FinishNarrow(block.statistic, block.rule, {{kCentred ? sums.first[row] : 0, 0}, {sums.second[row], 0}}, n,
                     kCentred ? sums.shift[row] : 0, Precision::kFast));
    const bool is_served = !result->shift_too_far && !result->out_of_fast_range && result->elements_in_f32;
    done |= (is_served ? uint32_t{1} : uint32_t{0}) << row;
  }
  const bool may_be_nan = block.counted != block.n;
  const RowTask<T> first = TaskOf(tag, block);
  const auto is_done = [&](int64_t row) { return row < block.rows && (done >> row & 1) != 0; };
  const auto form_of = [&](int64_t row) { return FormOf(first, CentringOf(block.statistic, results[row].statistics)); };
  for (int64_t row = 0; row < block.rows; ++row) {
    if (!is_done(row)) continue;
    const RowTask<T> task = first.At(row * block.n);
    const Form form = form_of(row);
    if (!block.stream && !may_be_nan && is_done(row + 1) && form_of(row + 1) == form) {
      ApplyTwoRows<kStatistic>(tag, task, form, results + row);
      ++row;
    } else {
      ApplyElements(tag, task, results[row].statistics, {form, may_be_nan});
    }
  }
  return done;
}

// Normalises the rows of a uniform block. Returns false, without having written y, if the block is not uniform.
template <Statistic kStatistic, bool kMayBeNan, typename T>
HWY_INLINE bool NormaliseUniformRows(T tag, const RowBlock& block, BlockSums* sums, FinishedStatistics* results) {
  constexpr Form kForm = kUniformForm<kStatistic>;
  RowStatistics statistics;
  if (block.stream || block.rows < 2) return false;
  if (!FinishUniformRows<kStatistic>(block, sums, &statistics, results)) return false;
  const RowTask<T> task = TaskOf(tag, block);
  const int64_t paired = block.rows / 2 * 2;
  ApplyRowPairs<kForm, kMayBeNan>(tag, task, paired, statistics);
  if (paired < block.rows) {
    ApplyElements(tag, task.At(paired * block.n), statistics.At(paired), {kForm, kMayBeNan});
  }
  return true;
}

template <Statistic kStatistic, typename T>
uint32_t NormaliseRowsOf(T tag, const RowBlock& block, FinishedStatistics* results) {
  BlockSums sums;
  SumRows<kStatistic>(tag, TypeTag<float>(), block, &sums);
  bool done = false;
  if (block.counted == block.n) {
    done = NormaliseUniformRows<kStatistic, false>(tag, block, &sums, results);
  } else if constexpr (kStatistic == Statistic::kMeanSquare) {
    done = NormaliseUniformRows<kStatistic, true>(tag, block, &sums, results);
  }
  if (done) return (uint32_t{1} << block.rows) - 1;
  return NormaliseAnyRows<kStatistic>(tag, block, sums, results);
}

uint32_t NormaliseRows(const RowBlock& block, FinishedStatistics* results) {
  return WithNarrowType(block.x.dtype, [&](auto tag) HWY_ATTR {
    switch (block.statistic) {
      case Statistic::kMeanVariance:
        return NormaliseRowsOf<Statistic::kMeanVariance>(tag, block, results);
      case Statistic::kAbsSum:
        return NormaliseRowsOf<Statistic::kAbsSum>(tag, block, results);
      case Statistic::kMeanSquare:
      case Statistic::kSumSquares:
      case Statistic::kPowerSum:  // never narrow
      case Statistic::kMaxAbs:
        break;
    }
    return NormaliseRowsOf<Statistic::kMeanSquare>(tag, block, results);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(NormaliseRows);

uint32_t NormaliseRows(const RowBlock& block, FinishedStatistics* results) {
  return HWY_DYNAMIC_DISPATCH(NormaliseRows)(block, results);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
