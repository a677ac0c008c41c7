// Both passes over adjacent short rows to the nearest value: a quick look at each piece of a row that shows whether any
// element lies near a middle, and a careful look, by ApplyNearest, at the pieces in which one may.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/nearest_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/certificate.h"
#include "kernels/cpu/block_sums-inl.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/few-inl.h"
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
    const FinishedLanes finished = FinishLanes<kStatistic, double>(block.statistic, block.rule, n, of);
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
  const RowBlock* block;
  const NearestRows* nearest;
  const RowBounds* rows;
  int64_t row, begin;
  bool is_trial;  // whether any is undecided is all that is asked
  bool is_undecided;
};

// Writes an f32 element that a careful look has left, if the bound with its own w decides it: one that is not doubled
// for the comparison with a single middle. Of long rows these are two of three, and what is left takes sums of the row.
HWY_INLINE bool DecideAlone(const RowBlock& block, const NearestRows& nearest, const RowBounds& rows, int64_t row,
                            int64_t column, double x) {
  const int64_t at = block.per_element ? column : 0;
  const double weight = block.parameters.weight == nullptr ? 1 : block.parameters.weight[at];
  const double bias = block.parameters.bias == nullptr ? -0.0 : block.parameters.bias[at];
  const double product = (x - rows.shift[row]) * rows.inverse[row] * weight;
  const double y = product + bias;
  if (y == 0) return false;  // its sign may be that of an n which the bound does not tell from 0
  const double of_weight = rows.careful_fixed[row] * (std::abs(weight) / nearest.largest_weight);
  const double of_rounding = kRoundingOfY * nearest.bound_factor * std::abs(y);
  const double bound = (of_weight + rows.careful_relative[row] * std::abs(product) + of_rounding) / 2;
  // RoundsToOneF32 rounds sums with y.
  if (!RoundsToOneF32(y, bound + 2 * kUnit * std::abs(y))) return false;
  const auto rounded = static_cast<float>(y);
  std::memcpy(static_cast<float*>(block.y) + row * block.n + column, &rounded, sizeof(rounded));  // at any address
  return true;
}

// Looks carefully at elements [begin, end) of a row and writes them. Sums in runs decide most of them, and where they
// do not, the row is summed again.
template <Statistic kStatistic, typename T>
HWY_NOINLINE void LookCarefully(T tag, const RowBlock& block, const NearestRows& nearest, RowBounds& rows, int64_t row,
                                int64_t begin, int64_t end) {
  CarefulContext context = {&block, &nearest, &rows, row, begin, (rows.in_runs >> row & 1) != 0, false};
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
      const int64_t column = known.begin + elements[i].column;
      if constexpr (std::is_same_v<T, F32>) {
        if (DecideAlone(*known.block, *known.nearest, *known.rows, known.row, column, elements[i].x)) continue;
      }
      known.nearest->report(known.nearest->context, {known.row, column, elements[i].x});
    }
  };
  HWY_NAMESPACE::ApplyNearest(span);
  if (!context.is_trial || !context.is_undecided) return;
  SumAgain(tag, block, row, &rows);
  LookCarefully<kStatistic>(tag, block, nearest, rows, row, begin, end);
}

// A second look, in f64, at a few 16-bit elements of a row: those of a lane of the quick look, which have the numbers
// indices[0] to indices[n - 1]. It settles nearly all of them in a tenth of the time of a careful one.
template <Statistic kStatistic, typename T>
HWY_NOINLINE void LookAtFew(T tag, const RowBlock& block, const NearestRows& nearest, RowBounds& rows, int64_t row,
                            const int64_t* indices, int64_t n) {
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  const auto* const x = static_cast<const typename T::Storage*>(block.x.data) + row * block.n;
  auto* const y = static_cast<typename T::Storage*>(block.y) + row * block.n;
  const double* const weight = block.parameters.weight;
  const double* const bias = block.parameters.bias;
  for (int64_t begin = 0; begin < n; begin += kLanes) {
    const int64_t count = HWY_MIN(kLanes, n - begin);
    const auto index = [&](int64_t i) { return indices[begin + i]; };
    HWY_ALIGN double w[kLanes], b[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      const int64_t at = block.per_element ? index(i < count ? i : 0) : 0;
      w[i] = weight == nullptr ? 1 : weight[at];
      b[i] = bias == nullptr ? -0.0 : bias[at];
    }
    const double of_runs = (rows.in_runs >> row & 1) != 0 ? 2 * kRelativeOfRuns * nearest.bound_factor : 0;
    const double of_y = rows.careful_relative[row] + of_runs;
    const V fixed = Set(rows.careful_fixed[row] + of_y * nearest.largest_bias);
    Few<T> few;
    const V value = few.Gather(tag, x, count, index);
    const V inverse = Set(rows.inverse[row]);
    const V normalised =
        kCentred ? Fma(value, inverse, Set(-(rows.mean[row] * rows.inverse[row]))) : hn::Mul(value, inverse);
    const V result = Fma(normalised, hn::Load(d, w), hn::Load(d, b));
    M are_sure = AreSure(tag, result, Fma(hn::Abs(result), Set(of_y + 0x1p-50), fixed));
    if (!kCentred && bias == nullptr) are_sure = hn::Or(are_sure, hn::Eq(value, Zero()));
    unsigned left = few.Scatter(tag, result, are_sure, y, count, index);
    if (left != 0 && SumAgain(tag, block, row, &rows)) {
      begin -= kLanes;
      continue;
    }
    for (; left != 0; left &= left - 1) {
      const int64_t i = index(static_cast<int64_t>(hwy::Num0BitsBelowLS1Bit_Nonzero32(left)));
      LookCarefully<kStatistic>(tag, block, nearest, rows, row, i, i + 1);
    }
  }
}

// The weights or the biases of a row, for steps of two vectors.
template <typename Real>
using QuickParameter = RowParameter<Real, 2>;

// The lanes of each of two rows in which an element may lie near a middle, a bit for each.
struct NearLanes {
  uint32_t of_row[2] = {0, 0};

  HWY_INLINE bool Any() const { return (of_row[0] | of_row[1]) != 0; }
};

HWY_INLINE uint32_t BitsOfMask(FloatMask mask) {
#if HWY_TARGET == HWY_AVX3
  return mask.raw;
#else
  uint8_t bits[8] = {};
  hn::StoreMaskBits(Tag<float>(), mask, bits);
  return static_cast<uint32_t>(bits[0] | bits[1] << 8);
#endif
}

// Applies kRows adjacent rows from element `begin` on, `count` of them in whole steps, and returns where an element may
// lie near a middle, or calls carefully(lanes, begin, end) for each step with one (kTestsSteps). Copies what the loop
// reads, so that the compiler knows that a store to y does not change it. kAhead says whether anything is fetched
// ahead.
template <typename Way, int kRows, bool kAhead, typename Careful, typename Store>
HWY_INLINE NearLanes LookQuickly(const RowTask<typename Way::T>& task, const typename Way::Row* of_rows, int64_t begin,
                                 int64_t count, const QuickParameter<typename Way::Real>& w,
                                 const QuickParameter<typename Way::Real>& b, Careful carefully, Store store) {
  using Real = typename Way::Real;
  const Tag<float> floats;
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
  uint32_t near_lanes[kRows][Way::kTestsSteps ? Way::kLook / kStep : 1];  // of each step
  uint32_t any = 0;
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
    if constexpr (Way::kTestsSteps) {  // a call from here would have the loop's registers go to memory
      any |= near_lanes[0][i / kStep] = BitsOfMask(of_first.near);
      if (kRows == 2) any |= near_lanes[kRows - 1][i / kStep] = BitsOfMask(of_second.near);
    }
  }
  if constexpr (Way::kTestsSteps) {
    for (int64_t i = 0; any != 0 && i < count; i += kStep) {
      const NearLanes near = {{near_lanes[0][i / kStep], kRows == 2 ? near_lanes[kRows - 1][i / kStep] : 0}};
      if (near.Any()) carefully(near, begin + i, begin + i + kStep);
    }
  }
  auto are_far = Way::AreFar(first, of_first);
  if (kRows == 2) are_far = hn::And(are_far, Way::AreFar(second, of_second));
  if (HWY_LIKELY(hn::AllTrue(floats, are_far))) return {};
  const auto near = [&](const typename Way::Row& row, const typename Way::Seen& seen, int64_t at) HWY_ATTR {
    const auto far = Way::AreFar(row, seen);
    if (hn::AllTrue(floats, far)) return uint32_t{0};
    if constexpr (Way::kAsksForZeros) {
      if (Way::AreFarOrZero(row, seen, {x + at, count, first_weights, w.step})) return uint32_t{0};
    }
    return BitsOfMask(hn::Not(far));
  };
  return {{near(first, of_first, 0), kRows == 2 ? near(second, of_second, row_elements) : 0}};
}

// Applies kRows adjacent rows from element `begin` on in one way, and calls carefully(lanes, begin, end) for what is
// left: the looks (of f32 the steps) in which an element may lie near a middle, and the elements after the last whole
// step, as if in all lanes.
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
    const NearLanes near = task.caching.prefetch == 0
                               ? LookQuickly<Way, kRows, false>(task, of_rows, i, count, w, b, carefully, store)
                               : LookQuickly<Way, kRows, true>(task, of_rows, i, count, w, b, carefully, store);
    if (HWY_LIKELY(!near.Any())) continue;
    if constexpr (!std::is_same_v<typename Way::T, F32>) {
      carefully(near, i, i + count);
      continue;
    }
    for (int64_t step = i; step < i + count; step += Way::kStep) {
      const NearLanes left = LookQuickly<Way, kRows, false>(task, of_rows, step, Way::kStep, w, b, carefully, store);
      if (left.Any()) carefully(left, step, step + Way::kStep);
    }
  }
  constexpr NearLanes kAll = {{~uint32_t{0}, kRows == 2 ? ~uint32_t{0} : 0}};
  if (whole < task.n) carefully(kAll, whole, task.n);
}

// The elements of a row that wait for a second look, so that whole vectors get one.
struct WaitingElements {
  static constexpr int64_t kMost = 256;
  int64_t n = 0;
  int64_t indices[kMost];

  // Adds the elements of a look, or of what is left after the last one, in the lanes of the quick look; false without
  // room for them.
  template <typename T>
  HWY_NOINLINE bool Add(T /*tag*/, uint32_t lanes, int64_t begin, int64_t end) {
    constexpr int64_t kFloats = kLanesOf<float>;
    if (lanes == ~uint32_t{0}) {
      if (n + end - begin > kMost) return false;
      for (int64_t at = begin; at < end; ++at) indices[n++] = at;
      return true;
    }
    if (n + static_cast<int64_t>(hwy::PopCount(lanes)) * (end - begin) / kFloats > kMost) return false;
    for (; lanes != 0; lanes &= lanes - 1) {
      const auto lane = static_cast<int64_t>(hwy::Num0BitsBelowLS1Bit_Nonzero32(lanes));
      for (int64_t at = begin; at < end; at += 2 * kFloats) {  // LoadTwo's order
        indices[n++] = at + (std::is_same_v<T, BF16> ? 2 * lane : lane);
        indices[n++] = at + (std::is_same_v<T, BF16> ? 2 * lane + 1 : lane + kFloats);
      }
    }
    return true;
  }
};

// Applies kRows adjacent rows from `row` on.
template <int kRows, Statistic kStatistic, typename T>
HWY_INLINE void ApplyNearestRows(T tag, const RowBlock& block, const NearestRows& nearest, RowBounds& rows,
                                 int64_t row) {
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  const cpu::Parameters& parameters = block.parameters;
  const RowTask<T> task = {.x = static_cast<const typename T::Storage*>(block.x.data) + row * block.n,
                           .y = static_cast<typename T::Storage*>(block.y) + row * block.n,
                           .n = block.n,
                           .per_element = block.per_element,
                           .caching = {block.stream, block.prefetch}};
  WaitingElements waiting[kRows];  // of 16-bit types
  const auto look_again = [&](int r) HWY_ATTR {
    if (waiting[r].n == 0) return;
    LookAtFew<kStatistic>(tag, block, nearest, rows, row + r, waiting[r].indices, waiting[r].n);
    waiting[r].n = 0;
  };
  const auto carefully = [&](const NearLanes& near, int64_t begin, int64_t end) HWY_ATTR {
    for (int r = 0; r < kRows; ++r) {
      const uint32_t lanes = near.of_row[r];
      if (lanes == 0) continue;
      if constexpr (std::is_same_v<T, F32>) {
        LookCarefully<kStatistic>(tag, block, nearest, rows, row + r, begin, end);
      } else if (!waiting[r].Add(tag, lanes, begin, end)) {
        look_again(r);
        waiting[r].Add(tag, lanes, begin, end);
      }
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
    if constexpr (std::is_same_v<T, F32>) {
      sweep(TypeTag<InF64<kCentred>>(), begin, store);
    } else if (std::is_same_v<T, F16> || parameters.bias != nullptr) {
      sweep(TypeTag<InF32<kCentred, true, T>>(), begin, store);
    } else {
      sweep(TypeTag<InF32<kCentred, std::is_same_v<T, F16>, T>>(), begin, store);
    }
  };
  // Streaming stores need alignment.
  constexpr uintptr_t kBytes = 64;
  const auto misaligned = reinterpret_cast<uintptr_t>(task.y) % kBytes;
  if (kRows == 1 && block.stream && misaligned % sizeof(typename T::Storage) == 0) {
    const auto begin = static_cast<int64_t>((kBytes - misaligned) % kBytes / sizeof(typename T::Storage));
    if (begin > 0) carefully({{~uint32_t{0}, 0}}, 0, HWY_MIN(begin, block.n));
    if (begin < block.n) {
      in_best_way(begin, [](auto v, auto tag_of, auto* to) HWY_ATTR { hn::Stream(v, tag_of, to); });
    }
  } else {
    in_best_way(0, [](auto v, auto tag_of, auto* to) HWY_ATTR { hn::StoreU(v, tag_of, to); });
  }
  if constexpr (!std::is_same_v<T, F32>) {
    for (int r = 0; r < kRows; ++r) look_again(r);
  }
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
