// Both passes over adjacent short rows to the nearest value: a quick look at each piece of a row that shows whether any
// element lies near a middle, and a careful look, by ApplyNearest, at the pieces in which one may.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/nearest_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/certificate.h"
#include "kernels/cpu/block_sums-inl.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/finish-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/nearest_looks-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::Along;
using cpu::NearestRows;
using cpu::NearestSpan;
using cpu::Undecided;

void ApplyNearest(const NearestSpan& span);  // nearest.cc

#if HWY_TARGET != HWY_SCALAR

// Sets the bounds of a vector of rows, the first of which is `row`. `settled`: the rows whose statistics are what they
// seem, and near 0 where they have a mean.
template <Statistic kStatistic>
HWY_INLINE void BoundRows(const NearestRows& nearest, V n, const FinishedLanes& finished, M settled, int64_t row,
                          RowBounds* rows) {
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  constexpr double kDoubled = 2 * kSecondOrder;
  const RowBoundTerms& terms = nearest.terms;
  const QuickBounds& quick = nearest.quick;
  const V inverse = finished.statistics.inverse;
  const auto times = [](double factor, V value) HWY_ATTR { return hn::Mul(Set(factor), value); };
  const auto plus = [](double term, V value) HWY_ATTR { return hn::Add(Set(term), value); };
  M decides = hn::And(settled, hn::And(hn::Gt(finished.m2, Zero()), hn::Gt(inverse, Zero())));
  V beta = Zero();
  V kappa = Set(terms.kappa_base);
  V centre = Zero();
  if constexpr (kCentred) {
    const V q = hn::Div(hn::Mul(hn::Mul(finished.mean, finished.mean), n), finished.m2);
    decides = hn::And(decides, hn::Le(q, Set(RowBoundTerms::kMostQ)));
    centre = hn::Abs(hn::Mul(finished.mean, inverse));
    kappa = hn::Add(kappa, times(terms.kappa_of_q, q));
    beta = plus(terms.beta_base, hn::Add(times(terms.beta_of_q, q), times(terms.beta_of_centre, centre)));
  }
  decides = hn::And(decides, hn::Lt(kappa, Set(0x1p-30)));
  const double factor = kDoubled * nearest.bound_factor;
  const V of_beta = hn::Add(times(quick.of_beta, beta), times(quick.of_kappa, kappa));
  hn::Store(times(factor * nearest.largest_weight, beta), d, rows->careful_fixed + row);
  hn::Store(times(factor, plus(3 * kUnit, kappa)), d, rows->careful_relative + row);
  hn::Store(plus(quick.base, hn::Add(of_beta, times(quick.of_centre, centre))), d, rows->fixed + row);
  hn::Store(plus(quick.relative_base, times(quick.relative_of_kappa, kappa)), d, rows->relative + row);
  hn::Store(hn::IfThenElseZero(decides, Set(1)), d, rows->decides + row);
}

// Sets the statistics and the bounds of the rows.
template <Statistic kStatistic>
HWY_INLINE void FinishRows(const RowBlock& block, const NearestRows& nearest, BlockSums* sums, RowBounds* rows,
                           FinishedStatistics* results) {
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  const V n = Set(static_cast<double>(block.counted));
  RepeatLastRow<kCentred>(block.rows, sums);
  for (int64_t row = 0; row < block.rows; row += kLanes) {
    const auto load = [&](const double* from) HWY_ATTR { return kCentred ? hn::Load(d, from + row) : Zero(); };
    const SumLanes of = {load(sums->shift), load(sums->first), hn::Load(d, sums->second + row)};
    const FinishedLanes finished = FinishLanes<kStatistic, double>(F32(), block.statistic, block.rule, n, of);
    if (block.wants_results) StoreResults(finished, block.rows - row, results + row);
    M settled = finished.settled;
    if constexpr (kCentred) settled = hn::And(settled, finished.near);
    hn::Store(finished.mean, d, rows->mean + row);
    hn::Store(kCentred ? finished.statistics.shift : Zero(), d, rows->shift + row);
    hn::Store(finished.statistics.inverse, d, rows->inverse + row);
    BoundRows<kStatistic>(nearest, n, finished, settled, row, rows);
  }
}

// Sums a row again, in f64; false if it was not summed in runs.
template <typename T>
HWY_NOINLINE bool SumAgain(T tag, const RowBlock& block, int64_t row, RowBounds* rows) {
  if ((rows->in_runs >> row & 1) == 0) return false;
  rows->in_runs &= ~(uint32_t{1} << row);
  const PairSums sum = SumsOfRow<Statistic::kMeanSquare, false>(tag, TypeTag<double>(), block, row, 0);
  const auto n = static_cast<double>(block.counted);
  rows->inverse[row] = FinishNarrow(block.statistic, block.rule, sum, n, 0, Precision::kExact).statistics.inverse.hi;
  return true;
}

// What LookCarefully does with elements that are undecided.
struct CarefulContext {
  const NearestRows* nearest;
  int64_t row, begin;
  bool is_trial;  // whether any is undecided is all that is asked
  bool is_undecided;
};

// Looks carefully at elements [begin, end) of a row and writes them. Sums in runs decide most of them, and where they
// do not, the row is summed again.
template <Statistic kStatistic, typename T>
HWY_NOINLINE void LookCarefully(T tag, const RowBlock& block, const NearestRows& nearest, RowBounds& rows, int64_t row,
                                int64_t begin, int64_t end) {
  CarefulContext context = {&nearest, row, begin, (rows.in_runs >> row & 1) != 0, false};
  const double doubled = block.parameters.bias == nullptr ? 1 : 2;
  ElementBound bound = {rows.careful_fixed[row], rows.careful_relative[row]};
  if (context.is_trial) bound = {0, doubled * kRelativeOfRuns * nearest.bound_factor};
  const int64_t at = row * block.n + begin;
  NearestSpan span;
  span.x = block.x.At(at);
  span.y = static_cast<typename T::Storage*>(block.y) + at;
  span.columns = end - begin;
  span.centring = kStatistic == Statistic::kMeanVariance ? Centring::kOnce : Centring::kNone;
  span.shift = rows.shift + row;
  span.inverse = rows.inverse + row;
  span.fixed = &bound.fixed;
  span.relative = &bound.relative;
  span.rounding *= nearest.bound_factor;
  span.parameters_along = block.per_element ? Along::kColumns : Along::kNothing;
  const cpu::Parameters parameters = block.parameters.At(block.per_element ? begin : 0);
  span.weight = parameters.weight;
  span.bias = parameters.bias;
  span.context = &context;
  span.report = [](void* of, const Undecided* elements, int64_t n) {
    auto& known = *static_cast<CarefulContext*>(of);
    known.is_undecided = true;
    for (int64_t i = 0; i < n && !known.is_trial; ++i) {
      known.nearest->report(known.nearest->context, {known.row, known.begin + elements[i].column, elements[i].x});
    }
  };
  HWY_NAMESPACE::ApplyNearest(span);
  if (!context.is_trial || !context.is_undecided) return;
  SumAgain(tag, block, row, &rows);
  LookCarefully<kStatistic>(tag, block, nearest, rows, row, begin, end);
}

// y in 24 bits, of which the last is set if anything was cut off: rounding that to a type of fewer bits rounds y once.
// REQUIRES: |y| is a normal f32, or 0.
HWY_INLINE hn::Vec<DF> CutToF32(V y) {
  const auto low = hn::Set(du, uint64_t{0x1FFFFFFF});
  const auto bits = hn::BitCast(du, y);
  const auto is_cut = hn::And(hn::Add(hn::And(bits, low), low), hn::Set(du, uint64_t{0x20000000}));
  return ToF32(hn::BitCast(d, hn::Or(hn::AndNot(low, bits), is_cut)));
}

// A second look, in f64, at a step of 16-bit elements, which settles nearly all that the quick look leaves in a tenth
// of the time of a careful one. False, with y not written to its end, if an element lies near a middle even so.
template <Statistic kStatistic, typename T>
HWY_NOINLINE bool LookInF64(T tag, const RowBlock& block, const NearestRows& nearest, const RowBounds& rows,
                            int64_t row, int64_t begin, int64_t end) {
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  constexpr uint64_t kCut = (uint64_t{1} << (std::is_same_v<T, BF16> ? 45 : 42)) - 1;
  constexpr double kLeastNormal = std::is_same_v<T, BF16> ? 0x1p-126 : 0x1p-14;
  const auto* const x = static_cast<const typename T::Storage*>(block.x.data) + row * block.n;
  auto* const y = static_cast<typename T::Storage*>(block.y) + row * block.n;
  const RowParameter<double> w(block.parameters.weight, block.per_element, 1);
  const RowParameter<double> b(block.parameters.bias, block.per_element, -0.0);
  const V inverse = Set(rows.inverse[row]);
  const V centre = Set(-(rows.mean[row] * rows.inverse[row]));
  const double of_runs = (rows.in_runs >> row & 1) != 0 ? 2 * kRelativeOfRuns * nearest.bound_factor : 0;
  const double of_y = rows.careful_relative[row] + of_runs;
  const V fixed = Set(rows.careful_fixed[row] + of_y * nearest.largest_bias);
  const V relative = Set(of_y + 0x1p-50);
  for (int64_t i = begin; i < end; i += kLanes) {
    const V value = LoadAs<double>(tag, x + i);
    const V n = kCentred ? Fma(value, inverse, centre) : hn::Mul(value, inverse);
    const V result = Fma(n, ParametersAt(w.values, w.step, i), ParametersAt(b.values, b.step, i));
    const auto below = hn::AndNot(hn::Set(du, kCut), hn::BitCast(du, result));
    const V middle = hn::BitCast(d, hn::Or(below, hn::Set(du, (kCut + 1) / 2)));
    const V magnitude = hn::Abs(result);
    const M is_far = hn::Gt(hn::Abs(hn::Sub(result, middle)), Fma(magnitude, relative, fixed));
    if (!hn::AllTrue(d, hn::And(is_far, hn::Ge(magnitude, Set(kLeastNormal))))) return false;
    hn::StoreU(Narrow(tag, df, CutToF32(result)), Raw<T, DF>(), y + i);
  }
  return true;
}

// The weights or the biases of a row, for steps of two vectors.
template <typename Real>
using QuickParameter = RowParameter<Real, 2>;

// Applies kRows adjacent rows from element `begin` on, `count` of them in whole steps, and returns a bit for each row
// in which an element may lie near a middle. Copies what the loop reads, so that the compiler knows that a store to y
// does not change it. kAhead says whether anything is fetched ahead.
template <typename Way, int kRows, bool kAhead, typename Store>
HWY_INLINE unsigned LookQuickly(const RowTask<typename Way::T>& task, const typename Way::Row* of_rows, int64_t begin,
                                int64_t count, const QuickParameter<typename Way::Real>& w,
                                const QuickParameter<typename Way::Real>& b, Store store) {
  using Real = typename Way::Real;
  constexpr int64_t kStep = Way::kStep;
  constexpr int64_t kLine = kLineElements<typename Way::T::Storage>;
  const int64_t row_elements = task.n;
  const Caching caching = task.caching;
  const auto* const x = task.x + begin;
  auto* const y = task.y + begin;
  const int64_t weight_step = w.step * kStep;
  const int64_t bias_step = b.step * kStep;
  const Real* const first_weights = w.values + w.step * begin;
  const Real* weights = first_weights;
  const Real* biases = b.values + b.step * begin;
  const typename Way::Row first = of_rows[0];
  const typename Way::Row second = of_rows[kRows - 1];
  typename Way::Seen of_first, of_second;
  for (int64_t i = 0; i < count; i += kStep) {
    const typename Way::Affine affine(weights, biases);
    weights += weight_step;
    biases += bias_step;
    if (kAhead && i % kLine < kStep) {
      FetchAhead(x + i, y + i, caching.prefetch, caching.stream);
      if (kRows == 2) FetchAhead(x + row_elements + i, y + row_elements + i, caching.prefetch, caching.stream);
    }
    // Both rows are loaded before either is stored: a load waits for a store to an address that is the same but for a
    // multiple of 4 KiB.
    const auto of_row = Way::Step(first, x + i, affine, &of_first);
    if constexpr (kRows == 2) {
      const auto of_next = Way::Step(second, x + row_elements + i, affine, &of_second);
      Way::Write(of_next, y + row_elements + i, store);
    }
    Way::Write(of_row, y + i, store);
  }
  const Tag<float> floats;
  auto are_far = Way::AreFar(first, of_first);
  if (kRows == 2) are_far = hn::And(are_far, Way::AreFar(second, of_second));
  if (HWY_LIKELY(hn::AllTrue(floats, are_far))) return 0;
  const auto is_near = [&](const typename Way::Row& row, const typename Way::Seen& seen, int64_t at) HWY_ATTR {
    if (hn::AllTrue(floats, Way::AreFar(row, seen))) return false;
    if constexpr (Way::kAsksForZeros) {
      return !Way::AreFarOrZero(row, seen, {x + at, count, first_weights, w.step});
    }
    return true;
  };
  return (is_near(first, of_first, 0) ? 1u : 0u) | (kRows == 2 && is_near(second, of_second, row_elements) ? 2u : 0u);
}

// Applies kRows adjacent rows from element `begin` on in one way, and calls carefully(rows, begin, end) for what is
// left: the steps in which an element may lie near a middle, and the elements after the last whole step.
template <typename Way, int kRows, typename Careful, typename Store>
HWY_INLINE void Sweep(const RowTask<typename Way::T>& task, const cpu::Parameters& parameters, const RowBounds& rows,
                      int64_t row, int64_t begin, Careful carefully, Store store) {
  using Real = typename Way::Real;
  const QuickParameter<Real> w(WeightOf<Real>(parameters), task.per_element, 1);
  const QuickParameter<Real> b(BiasOf<Real>(parameters), task.per_element, static_cast<Real>(-0.0));
  typename Way::Row of_rows[kRows];
  for (int r = 0; r < kRows; ++r) of_rows[r] = typename Way::Row(rows, row + r);
  const int64_t whole = begin + (task.n - begin) / Way::kStep * Way::kStep;
  for (int64_t i = begin; i < whole; i += Way::kLook) {
    const int64_t count = HWY_MIN(Way::kLook, whole - i);
    const unsigned near = task.caching.prefetch == 0
                              ? LookQuickly<Way, kRows, false>(task, of_rows, i, count, w, b, store)
                              : LookQuickly<Way, kRows, true>(task, of_rows, i, count, w, b, store);
    if (HWY_LIKELY(near == 0)) continue;
    if constexpr (Way::kLook == Way::kStep) {
      carefully(near, i, i + count);
      continue;
    }
    for (int64_t step = i; step < i + count; step += Way::kStep) {
      const unsigned left = LookQuickly<Way, kRows, false>(task, of_rows, step, Way::kStep, w, b, store);
      if (left != 0) carefully(left, step, step + Way::kStep);
    }
  }
  if (whole < task.n) carefully((1u << kRows) - 1, whole, task.n);
}

// Applies kRows adjacent rows from `row` on.
template <int kRows, Statistic kStatistic, typename T>
HWY_INLINE void ApplyNearestRows(T tag, const RowBlock& block, const NearestRows& nearest, RowBounds& rows,
                                 int64_t row) {
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  using Way = std::conditional_t<std::is_same_v<T, F32>, InF64<kCentred>, InF32<kCentred, T>>;
  const cpu::Parameters& parameters = block.parameters;
  const RowTask<T> task = {.x = static_cast<const typename T::Storage*>(block.x.data) + row * block.n,
                           .y = static_cast<typename T::Storage*>(block.y) + row * block.n,
                           .n = block.n,
                           .per_element = block.per_element,
                           .caching = {block.stream, block.prefetch}};
  const auto carefully = [&](unsigned which, int64_t begin, int64_t end) HWY_ATTR {
    for (int r = 0; r < kRows; ++r) {
      if ((which >> r & 1) == 0) continue;
      if constexpr (!std::is_same_v<T, F32>) {
        const auto again = [&] { return LookInF64<kStatistic>(tag, block, nearest, rows, row + r, begin, end); };
        if ((end - begin) % kLanes == 0) {
          if (again()) continue;
          if (SumAgain(tag, block, row + r, &rows) && again()) continue;
        }
      }
      LookCarefully<kStatistic>(tag, block, nearest, rows, row + r, begin, end);
    }
  };
  const auto sweep = [&](auto way, int64_t begin, auto store) HWY_ATTR {
    Sweep<typename decltype(way)::Type, kRows>(task, parameters, rows, row, begin, carefully, store);
  };
  const auto in_best_way = [&](int64_t begin, auto store) HWY_ATTR {
    if constexpr (!kCentred) {
      const bool few = parameters.bias == nullptr && nearest.largest_weight <= kMostWeightInPairs;
      if constexpr (std::is_same_v<T, F32>) {
        if (few && parameters.equal_f32 && PairsDecide(nearest.terms)) {
          return sweep(TypeTag<InPairs>(), begin, store);
        }
      } else {
        const uint32_t ulps = HWY_MAX(RelativeBound::Ulps(rows, row), RelativeBound::Ulps(rows, row + kRows - 1));
        if (few && ulps <= RelativeBound::kMostUlps) return sweep(TypeTag<Relative<T>>(), begin, store);
      }
    }
    sweep(TypeTag<Way>(), begin, store);
  };
  // Streaming stores need alignment.
  constexpr uintptr_t kBytes = 64;
  const auto misaligned = reinterpret_cast<uintptr_t>(task.y) % kBytes;
  if (kRows == 1 && block.stream && misaligned % sizeof(typename T::Storage) == 0) {
    const auto begin = static_cast<int64_t>((kBytes - misaligned) % kBytes / sizeof(typename T::Storage));
    if (begin > 0) carefully(1, 0, HWY_MIN(begin, block.n));
    if (begin < block.n) {
      in_best_way(begin, [](auto v, auto tag_of, auto* to) HWY_ATTR { hn::Stream(v, tag_of, to); });
    }
    return;
  }
  in_best_way(0, [](auto v, auto tag_of, auto* to) HWY_ATTR { hn::StoreU(v, tag_of, to); });
}

template <Statistic kStatistic, typename T>
uint32_t NormaliseNearest(T tag, const RowBlock& block, const NearestRows& nearest, FinishedStatistics* results) {
  BlockSums sums;
  for (double& second : sums.second) second = std::numeric_limits<double>::quiet_NaN();  // of rows that are left out
  for (double& first : sums.first) first = 0;
  RowBounds rows;
  rows.largest_weight = nearest.largest_weight;
  rows.pair_widening = kPairWidening * nearest.bound_factor;
  if constexpr (!std::is_same_v<T, F32>) {
    if (nearest.in_runs) SumRowsInRuns(tag, block, &sums, &rows.in_runs);
  }
  if (!nearest.in_runs) SumRows<kStatistic>(tag, TypeTag<double>(), block, &sums);
  FinishRows<kStatistic>(block, nearest, &sums, &rows, results);
  uint32_t done = 0;
  for (int64_t row = 0; row < block.rows; ++row) {
    if (rows.decides[row] != 0) done |= uint32_t{1} << row;
  }
  for (int64_t row = 0; row < block.rows; ++row) {
    const uint32_t two = done >> row & 3;
    if (!block.stream && two == 3) {
      ApplyNearestRows<2, kStatistic>(tag, block, nearest, rows, row++);
    } else if ((two & 1) != 0) {
      ApplyNearestRows<1, kStatistic>(tag, block, nearest, rows, row);
    }
  }
  return done;
}

uint32_t NormaliseRowsToNearest(const RowBlock& block, const NearestRows& nearest, FinishedStatistics* results) {
  uint32_t done = 0;
  WithNarrowType(block.x.dtype, [&](auto tag) HWY_ATTR {
    switch (block.statistic) {
      case Statistic::kMeanVariance:
        done = NormaliseNearest<Statistic::kMeanVariance>(tag, block, nearest, results);
        return;
      case Statistic::kAbsSum:
        done = NormaliseNearest<Statistic::kAbsSum>(tag, block, nearest, results);
        return;
      case Statistic::kMeanSquare:
      case Statistic::kSumSquares:
      case Statistic::kPowerSum:  // never narrow
      case Statistic::kMaxAbs:
        break;
    }
    done = NormaliseNearest<Statistic::kMeanSquare>(tag, block, nearest, results);
  });
  return done;
}

#else

// Vectors of one lane have no halves: each row goes by itself.
uint32_t NormaliseRowsToNearest(const RowBlock& /*block*/, const NearestRows& /*nearest*/,
                                FinishedStatistics* /*results*/) {
  return 0;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(NormaliseRowsToNearest);

uint32_t NormaliseRowsToNearest(const RowBlock& block, const NearestRows& nearest, FinishedStatistics* results) {
  return HWY_DYNAMIC_DISPATCH(NormaliseRowsToNearest)(block, nearest, results);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
