// Both passes over adjacent short rows, from their sums to y, while the rows are in the cache: a block of up to 16 rows
// takes each step together.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_blocks.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
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
using cpu::Elements;
using cpu::RowBlock;
using cpu::RowChunks;

// The statistics of a row in as many rounds as it needs, and about any shift. Most rows need only the first round,
// which is SumRows.
template <Statistic kStatistic, typename T>
HWY_NOINLINE FinishedStatistics CarefulRow(T tag, const RowBlock& block, int64_t row) {
  const auto shift_of = [&](Precision precision)
                            HWY_ATTR { return ShiftOfRow<kStatistic>(tag, precision, block, row); };
  const auto sums_of = [&](Precision precision, double shift) HWY_ATTR {
    PairSums sums[RowBlock::kMaxChunks];
    const int64_t chunks = order::RowChunks(block.counted);
    const RowChunks whole = {.x = block.x.At(row * block.n), .n = block.counted};
    HWY_NAMESPACE::ReduceRowChunks({block.statistic, precision, shift}, whole, 0, chunks, sums);
    order::PairwiseFold(sums, chunks, 1, AddPlain);
    return sums[0];
  };
  return FinishNarrowGroup(block.statistic, block.rule, block.precision, static_cast<double>(block.counted), shift_of,
                           sums_of);
}

// The form of a uniform block, whose rows are all settled (see ChannelStatistics), near their mean (CentreNarrow) and
// calculated in the same way. Elements that no sum has seen may be NaN (kMayBeNan), which pairs of floats do not allow.
template <Statistic kStatistic, bool kMayBeNan, typename Real, typename T>
HWY_INLINE constexpr Form UniformForm() {
  constexpr bool kInF64 = std::is_same_v<T, F32> && std::is_same_v<Real, double>;
  if (kStatistic != Statistic::kMeanVariance) return kInF64 && !kMayBeNan ? Form::kPairs : Form::kPlain;
  if (std::is_same_v<Real, float>) return Form::kOnce;
  return kInF64 ? Form::kFolded : Form::kTwice;
}

template <Form kForm>
HWY_INLINE bool MayBeUniform(const RowBlock& block) {
  const cpu::Parameters& parameters = block.parameters;
  if (block.stream || block.rows < 2 || !parameters.fit_f32) return false;
  return kForm != Form::kPairs || (parameters.equal_f32 && parameters.bias == nullptr);
}

// Finishes the rows of a block and prepares their statistics for kForm. Returns false if the block is not uniform.
template <Form kForm, Statistic kStatistic, typename Real, typename T>
HWY_INLINE bool FinishUniformRows(const RowBlock& block, BlockSums* sums, RowStatistics* statistics,
                                  FinishedStatistics* results) {
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  const V n = Set(static_cast<double>(block.counted));
  RepeatLastRow<kCentred>(block.rows, sums);
  M uniform = hn::Eq(n, n);  // all lanes
  for (int64_t row = 0; row < block.rows; row += kLanes) {
    const auto load = [&](const double* from) HWY_ATTR { return kCentred ? hn::Load(d, from + row) : Zero(); };
    const SumLanes of = {load(sums->shift), load(sums->first), hn::Load(d, sums->second + row)};
    const FinishedLanes finished = FinishLanes<kStatistic, Real>(T(), block.statistic, block.rule, n, of);
    if (block.wants_results) StoreResults(finished, block.rows - row, results + row);
    uniform = hn::And(uniform, finished.settled);
    if constexpr (kCentred) uniform = hn::And(uniform, finished.near);
    StatisticsLanes lanes = finished.statistics;
    if constexpr (kForm == Form::kFolded) uniform = hn::And(uniform, lanes.Folds());
    V inverse_lo = Zero();
    if constexpr (kForm == Form::kPairs) {
      const FloatPairs pairs(lanes.inverse);
      lanes.inverse = pairs.hi;
      inverse_lo = pairs.lo;
    }
    hn::Store(lanes.shift, d, statistics->shift + row);
    hn::Store(lanes.delta, d, statistics->delta + row);
    hn::Store(lanes.inverse, d, statistics->inverse + row);
    hn::Store(inverse_lo, d, statistics->inverse_lo + row);
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

// Applies two adjacent rows that are calculated in the same way, if that is one of the ways that are worth a loop.
template <Statistic kStatistic, typename T>
HWY_INLINE bool ApplyTwoRows(T tag, const RowTask<T>& task, Way way, const FinishedStatistics* results) {
  RowStatistics both;
  both.Set(0, results[0].statistics);
  both.Set(1, results[1].statistics);
  const auto apply = [&](auto of_form, auto real) HWY_ATTR {
    ApplyRowPairs<decltype(real), decltype(of_form)::value, false>(tag, task, 2, both);
    return true;
  };
  const Form form = way.form;
  if constexpr (kStatistic == Statistic::kMeanVariance) {
    if (way.in_f32 && form == Form::kOnce) return apply(FormTag<Form::kOnce>(), float());
    if (way.in_f32 && form == Form::kTwice) return apply(FormTag<Form::kTwice>(), float());
    if constexpr (std::is_same_v<T, F32>) {
      if (form == Form::kFolded) return apply(FormTag<Form::kFolded>(), double());
    }
  } else {
    if (way.in_f32 && form == Form::kPlain) return apply(FormTag<Form::kPlain>(), float());
    if constexpr (std::is_same_v<T, F32>) {
      if (form == Form::kPairs) return apply(FormTag<Form::kPairs>(), float());
    }
  }
  return false;
}

// Applies rows that are finished and prepared, two at once where their ways allow that.
template <Statistic kStatistic, typename T>
HWY_INLINE void ApplyAnyRows(T tag, const RowBlock& block, const Way* ways, const FinishedStatistics* results) {
  const RowTask<T> first = TaskOf(tag, block);
  for (int64_t row = 0; row < block.rows; ++row) {
    const RowTask<T> task = first.At(row * block.n);
    if (!block.stream && row + 1 < block.rows && !ways[row].may_be_nan && ways[row + 1] == ways[row] &&
        ApplyTwoRows<kStatistic>(tag, task, ways[row], results + row)) {
      ++row;
      continue;
    }
    ApplyElements(tag, task, results[row].statistics, ways[row]);
  }
}

// Normalises rows in whatever forms they have, from their sums.
template <Statistic kStatistic, typename T>
HWY_NOINLINE void NormaliseAnyRows(T tag, const RowBlock& block, const BlockSums& sums, FinishedStatistics* results) {
  const Statistic statistic = kStatistic == Statistic::kMeanSquare ? block.statistic : kStatistic;
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  const auto n = static_cast<double>(block.counted);
  const RowTask<T> task = TaskOf(tag, block);
  const auto way_of = [&](const FinishedStatistics& finished) {
    const bool may_be_nan = !finished.finite || !block.parameters.fit_f32 || block.counted != block.n;
    const bool in_f32 = finished.elements_in_f32 && block.parameters.fit_f32;
    const Centring centring = CentringOf(block.statistic, finished.statistics);
    return Way{FormOf(task, centring, finished.statistics, in_f32, may_be_nan), in_f32, may_be_nan};
  };
  for (int64_t row = 0; row < block.rows; ++row) {
    const double shift = kCentred ? sums.shift[row] : 0;
    if (IsLeft<kStatistic>(block.precision, shift)) {
      results[row] = CarefulRow<kStatistic>(tag, block, row);
      continue;
    }
    // Constructed in place: a copy would load vectors of members that were just stored one by one, and wait for the
    // stores.
    new (results + row) FinishedStatistics(FinishNarrow(statistic, block.rule,
                                                        {{kCentred ? sums.first[row] : 0, 0}, {sums.second[row], 0}}, n,
                                                        shift, block.precision));
  }
  Way ways[RowBlock::kMaxRows];
  for (int64_t row = 0; row < block.rows; ++row) {
    if (results[row].shift_too_far || results[row].out_of_fast_range) {
      results[row] = CarefulRow<kStatistic>(tag, block, row);
    }
    if (!std::is_same_v<T, F32>) Calculate16BitInF32(&results[row]);
    ways[row] = way_of(results[row]);
    Prepare(ways[row].form, &results[row].statistics);
  }
  ApplyAnyRows<kStatistic>(tag, block, ways, results);
}

// Normalises the rows of a uniform block. Returns false, without having written y, if the block is not uniform.
template <Statistic kStatistic, bool kMayBeNan, typename Real, typename T>
HWY_INLINE bool NormaliseUniformRows(T tag, TypeTag<Real> /*type*/, const RowBlock& block, BlockSums* sums,
                                     FinishedStatistics* results) {
  constexpr Form kForm = UniformForm<kStatistic, kMayBeNan, Real, T>();
  constexpr bool kInF64 = std::is_same_v<T, F32> && std::is_same_v<Real, double> && kForm != Form::kPairs;
  RowStatistics statistics;
  if (!MayBeUniform<kForm>(block)) return false;
  if (!FinishUniformRows<kForm, kStatistic, Real, T>(block, sums, &statistics, results)) return false;
  const RowTask<T> task = TaskOf(tag, block);
  const int64_t paired = block.rows / 2 * 2;
  ApplyRowPairs<std::conditional_t<kInF64, double, float>, kForm, kMayBeNan>(tag, task, paired, statistics);
  if (paired < block.rows) {
    constexpr Way kWay = {kForm, !kInF64 && kForm != Form::kPairs, kMayBeNan};
    ApplyElements(tag, task.At(paired * block.n), statistics.At(paired), kWay);
  }
  return true;
}

template <Statistic kStatistic, typename Real, typename T>
HWY_INLINE void NormaliseRowsIn(T tag, TypeTag<Real> type, const RowBlock& block, FinishedStatistics* results) {
  BlockSums sums;
  bool done = SumRows<kStatistic>(tag, type, block, &sums);
  if (done && block.counted == block.n) {
    done = NormaliseUniformRows<kStatistic, false>(tag, type, block, &sums, results);
  } else if constexpr (kStatistic == Statistic::kMeanSquare) {
    done = done && NormaliseUniformRows<kStatistic, true>(tag, type, block, &sums, results);
  } else {
    done = false;
  }
  if (!done) NormaliseAnyRows<kStatistic>(tag, block, sums, results);
}

template <Statistic kStatistic, typename T>
void NormaliseRowsOf(T tag, const RowBlock& block, FinishedStatistics* results) {
  if (block.precision == Precision::kFast) {
    NormaliseRowsIn<kStatistic>(tag, TypeTag<float>(), block, results);
  } else {
    NormaliseRowsIn<kStatistic>(tag, TypeTag<double>(), block, results);
  }
}

void NormaliseRows(const RowBlock& block, FinishedStatistics* results) {
  WithNarrowType(block.x.dtype, [&](auto tag) HWY_ATTR {
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
    NormaliseRowsOf<Statistic::kMeanSquare>(tag, block, results);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(NormaliseRows);

void NormaliseRows(const RowBlock& block, FinishedStatistics* results) {
  HWY_DYNAMIC_DISPATCH(NormaliseRows)(block, results);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
