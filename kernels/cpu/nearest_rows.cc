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

// The type that elements of T are calculated in for the quick look.
template <typename T>
using QuickReal = std::conditional_t<std::is_same_v<T, F32>, double, float>;

// The statistics of the rows of a block and their bounds.
struct RowBounds {
  static constexpr int64_t kMaxRows = RowBlock::kMaxRows;
  HWY_ALIGN double mean[kMaxRows], m2[kMaxRows], shift[kMaxRows], inverse[kMaxRows], near[kMaxRows];
  ElementBound careful[kMaxRows];  // of ApplyNearest
  ElementBound quick[kMaxRows];    // of the quick look: of all elements (f32), or as BoundInF32 says
  uint32_t in_runs = 0;            // a bit for each row whose `inverse` comes from SumSquaresInRuns
};

// Sets the statistics of the rows; `near` is not 0 in rows that are settled and have a mean that Folds() is near.
template <Statistic kStatistic>
HWY_INLINE void FinishRows(const RowBlock& block, BlockSums* sums, RowBounds* rows, FinishedStatistics* results) {
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  const V n = Set(static_cast<double>(block.counted));
  RepeatLastRow<kCentred>(block.rows, sums);
  for (int64_t row = 0; row < block.rows; row += kLanes) {
    const auto load = [&](const double* from) HWY_ATTR { return kCentred ? hn::Load(d, from + row) : Zero(); };
    const SumLanes of = {load(sums->shift), load(sums->first), hn::Load(d, sums->second + row)};
    const FinishedLanes finished = FinishLanes<kStatistic, double>(F32(), block.statistic, block.rule, n, of);
    if (block.wants_results) StoreResults(finished, block.rows - row, results + row);
    M usual = finished.settled;
    if constexpr (kCentred) usual = hn::And(usual, finished.near);
    hn::Store(finished.mean, d, rows->mean + row);
    hn::Store(finished.m2, d, rows->m2 + row);
    hn::Store(kCentred ? finished.statistics.shift : Zero(), d, rows->shift + row);
    hn::Store(finished.statistics.inverse, d, rows->inverse + row);
    hn::Store(hn::IfThenElseZero(usual, Set(1)), d, rows->near + row);
  }
}

// Sets the bounds of a row; false if they decide nothing.
template <Statistic kStatistic, typename T>
HWY_INLINE bool BoundRow(T /*tag*/, const RowBlock& block, const NearestRows& nearest, int64_t row, RowBounds* rows) {
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  if (rows->near[row] == 0) return false;
  FinishedStatistics finished;
  finished.mean = rows->mean[row];
  finished.m2 = rows->m2[row];
  finished.statistics.inverse.hi = rows->inverse[row];
  const auto n = static_cast<double>(block.counted);
  const NormalisedBound bound = kCentred ? BoundOfRowAboutMean(n, nearest.additions, finished)
                                         : BoundAboutZero(block.statistic, {nearest.additions, 0}, finished);
  if (!bound.decides()) return false;
  const double weight = nearest.largest_weight;
  const double bias = nearest.largest_bias;
  const ElementBound careful = BoundOfElements(bound, weight, 0);
  ElementBound quick;
  if constexpr (std::is_same_v<T, F32>) {
    quick.fixed = BoundOfElements(bound, weight, bias).fixed + careful.relative * weight * nearest.largest_normalised;
  } else {
    const double of_sums = (rows->in_runs >> row & 1) != 0 ? kOfRunsOfFour : 0;
    quick = BoundInF32(bound, of_sums, finished.mean * rows->inverse[row], weight, bias);
  }
  const double factor = nearest.bound_factor;
  rows->careful[row] = {careful.fixed * factor, careful.relative * factor};
  rows->quick[row] = {quick.fixed * factor + nearest.least_distance, quick.relative * factor};
  return true;
}

// The middle between the two values of T that y lies between, in y's type.
template <typename T>
HWY_INLINE V MiddleOf(T /*tag*/, V y) {
  static_assert(std::is_same_v<T, F32>);
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_castsi512_pd(_mm512_ternarylogic_epi64(_mm512_castpd_si512(y.raw), _mm512_set1_epi64(0x1FFFFFFF),
                                                         _mm512_set1_epi64(0x10000000), 0xBA))};
#else
  const auto above = hn::AndNot(hn::Set(du, uint64_t{0x1FFFFFFF}), hn::BitCast(du, y));
  return hn::BitCast(d, hn::Or(above, hn::Set(du, uint64_t{0x10000000})));
#endif
}
template <typename T>
HWY_INLINE Vector<float> MiddleOf(T /*tag*/, Vector<float> y) {
  constexpr uint32_t kHalf = std::is_same_v<T, BF16> ? 0x8000 : 0x1000;
  const Tag<float> floats;
  const hn::RebindToUnsigned<Tag<float>> words;
#if HWY_TARGET == HWY_AVX3
  (void)words;
  const auto low = _mm512_set1_epi32(2 * kHalf - 1);
  const auto half = _mm512_set1_epi32(kHalf);
  (void)floats;
  return Vector<float>{_mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(y.raw), low, half, 0xBA))};
#else
  const auto above = hn::AndNot(hn::Set(words, 2 * kHalf - 1), hn::BitCast(words, y));
  return hn::BitCast(floats, hn::Or(above, hn::Set(words, kHalf)));
#endif
}

// The smaller of `least`, which is not negative, and |value|.
HWY_INLINE V LeastMagnitude(V least, V value) {
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_range_pd(least.raw, value.raw, (2 << 2) | 2)};
#else
  return hn::Min(least, hn::Abs(value));
#endif
}

// The numbers of a row for the quick look, in every lane.
template <typename Real>
struct QuickLanes {
  Vector<Real> inverse, centre, relative;
  double fixed;
  uint32_t ulps;  // the relative part of the bound in ulps of f32: v |y| is at most one

  QuickLanes() = default;
  QuickLanes(const RowBounds& rows, int64_t row) {
    const auto set = [](double value) HWY_ATTR { return hn::Set(Tag<Real>(), static_cast<Real>(value)); };
    inverse = set(rows.inverse[row]);
    centre = set(-(rows.mean[row] * rows.inverse[row]));
    relative = set(rows.quick[row].relative);
    fixed = rows.quick[row].fixed;
    ulps = static_cast<uint32_t>(std::ceil(HWY_MIN(rows.quick[row].relative * 0x1p+24, 0x1p+20)));
  }
};

template <bool kCentred, typename Real>
HWY_INLINE Vector<Real> QuickElement(const QuickLanes<Real>& lanes, Vector<Real> x, Vector<Real> w, Vector<Real> b) {
  return Fma(kCentred ? Fma(x, lanes.inverse, lanes.centre) : hn::Mul(x, lanes.inverse), w, b);
}

// Two vectors of f32 elements: stores them, and returns the smaller of `least` and their distances from the middles.
template <bool kCentred, typename Store>
HWY_INLINE V QuickStep(F32 tag, const QuickLanes<double>& lanes, const float* x, float* y, const V* w, const V* b,
                       V least, Store store) {
  const V low = QuickElement<kCentred>(lanes, LoadAs<double>(tag, x), w[0], b[0]);
  const V high = QuickElement<kCentred>(lanes, LoadAs<double>(tag, x + kLanes), w[1], b[1]);
  least = LeastMagnitude(least, hn::Sub(low, MiddleOf(tag, low)));
  least = LeastMagnitude(least, hn::Sub(high, MiddleOf(tag, high)));
  store(hn::Combine(Tag<float>(), ToF32(high), ToF32(low)), Tag<float>(), y);
  return least;
}

// The vectors rounded to T; those that are a middle may go either way.
template <typename Store>
HWY_INLINE void StoreQuick(F16 tag, TwoVectors v, uint16_t* y, Store store) {
  const Tag<float> floats;
  const Raw<F16, Tag<float>> raw;
  store(Narrow(tag, floats, v.first), raw, y);
  store(Narrow(tag, floats, v.second), raw, y + kLanesOf<float>);
}
template <typename Store>
HWY_INLINE void StoreQuick(BF16, TwoVectors v, uint16_t* y, Store store) {
  const hn::RebindToUnsigned<Tag<float>> words;
  const auto half = hn::Set(words, 0x8000u);
  const auto even = hn::ShiftRight<16>(hn::Add(hn::BitCast(words, v.first), half));
  const auto odd = hn::And(hn::Add(hn::BitCast(words, v.second), half), hn::Set(words, 0xFFFF0000u));
  const hn::Repartition<uint16_t, Tag<float>> raw;
  store(hn::BitCast(raw, hn::Or(even, odd)), raw, y);
}

// The same for two vectors of 16-bit elements. The distances are those that exceed the relative part of the bound.
template <bool kCentred, typename T, typename Store>
HWY_INLINE Vector<float> QuickStep(T tag, const QuickLanes<float>& lanes, const uint16_t* x, uint16_t* y,
                                   const Vector<float>* w, const Vector<float>* b, Vector<float> least, Store store) {
  const TwoVectors of = LoadTwo(tag, x);
  const TwoVectors results = {QuickElement<kCentred>(lanes, of.first, w[0], b[0]),
                              QuickElement<kCentred>(lanes, of.second, w[1], b[1])};
  const auto margin = [&](Vector<float> value) HWY_ATTR {
    const auto distance = hn::Abs(hn::Sub(value, MiddleOf(tag, value)));
    return NegatedFma(hn::Abs(value), lanes.relative, distance);
  };
  least = hn::Min(least, hn::Min(margin(results.first), margin(results.second)));
  StoreQuick(tag, results, y, store);
  return least;
}

// The same for bf16 with a bound that is a part of |y| alone. Half an ulp of bf16 and the bound are added to y, and the
// upper halves of the sums are the elements unless a lower half is less than twice the bound. `least` is the least
// lower half, or less in place of an element under 2^-104, but not 0: its own product may have been subnormal.
HWY_INLINE Vector<float> RelativeStep(BF16 tag, const QuickLanes<float>& lanes, const uint16_t* x, uint16_t* y,
                                      const Vector<float>* w, Vector<float> least) {
  const hn::RebindToUnsigned<Tag<float>> words;
  const hn::Repartition<uint16_t, Tag<float>> halves;
  const auto addend = hn::Set(words, 0x8000u + lanes.ulps);
  const auto upper = hn::Set(words, 0xFFFF0000u);
  const TwoVectors of = LoadTwo(tag, x);
  const auto even = hn::Add(hn::BitCast(words, hn::Mul(hn::Mul(of.first, lanes.inverse), w[0])), addend);
  const auto odd = hn::Add(hn::BitCast(words, hn::Mul(hn::Mul(of.second, lanes.inverse), w[1])), addend);
  const auto rounded = hn::BitCast(halves, hn::Or(hn::ShiftRight<16>(even), hn::And(odd, upper)));
  hn::StoreU(rounded, halves, y);
  const auto lower = hn::BitCast(halves, hn::Or(hn::AndNot(upper, even), hn::ShiftLeft<16>(odd)));
  const auto magnitude = hn::ShiftRight<9>(hn::Sub(hn::Add(rounded, rounded), hn::Set(halves, uint16_t{1})));
  return hn::BitCast(Tag<float>(), hn::Min(hn::BitCast(halves, least), hn::Min(lower, magnitude)));
}
// The most that RelativeStep takes: 2^-104 has the magnitude 11.
inline constexpr uint32_t kMostUlps = 5;

// True if `least` of RelativeStep shows that an element may lie near a middle.
HWY_INLINE bool IsNearRelative(const QuickLanes<float>& lanes, Vector<float> least) {
  const hn::Repartition<uint16_t, Tag<float>> halves;
  const auto limit = hn::Set(halves, static_cast<uint16_t>(2 * lanes.ulps + 1));
  const auto values = hn::BitCast(halves, least);
  return !hn::AllTrue(halves, hn::Eq(hn::Max(values, limit), values));
}

// The weights or the biases of a row, for steps of two vectors.
template <typename Real>
using QuickParameter = RowParameter<Real, 2>;

// Two vectors of w or b, in the order of LoadTwo.
HWY_INLINE void LoadTwoParameters(F32, const double* values, V* two) {
  two[0] = hn::LoadU(d, values);
  two[1] = hn::LoadU(d, values + kLanes);
}
template <typename T>
HWY_INLINE void LoadTwoParameters(T tag, const float* values, Vector<float>* two) {
  const TwoVectors loaded = LoadTwoFor(tag, values);
  two[0] = loaded.first;
  two[1] = loaded.second;
}

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

// Sums a row again, in f64, if it was summed in runs.
template <typename T>
HWY_NOINLINE void SumAgain(T tag, const RowBlock& block, int64_t row, RowBounds* rows) {
  if ((rows->in_runs >> row & 1) == 0) return;
  rows->in_runs &= ~(uint32_t{1} << row);
  const PairSums sum = SumsOfRow<Statistic::kMeanSquare, false>(tag, TypeTag<double>(), block, row, 0);
  const auto n = static_cast<double>(block.counted);
  rows->inverse[row] = FinishNarrow(block.statistic, block.rule, sum, n, 0, Precision::kExact).statistics.inverse.hi;
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
  const ElementBound of_runs = {0, doubled * kRelativeOfRuns * nearest.bound_factor};
  const ElementBound& bound = context.is_trial ? of_runs : rows.careful[row];
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

// The elements of a row that one quick look covers: four steps of f32, and one of 16-bit types, of which more elements
// lie near a middle; two if the bound is a part of |y| alone.
template <typename T>
inline constexpr int64_t kLookElements = (std::is_same_v<T, F32> ? 8 : 2) * kLanesOf<QuickReal<T>>;

// Applies kRows adjacent rows from element `begin` on, `count` of them in whole steps, and returns a bit for each row
// in which an element may lie near a middle. Copies what the loop reads, so that the compiler knows that a store to y
// does not change it. kAhead says whether anything is fetched ahead; kRelative: by RelativeStep, which streams nothing.
template <int kRows, bool kCentred, bool kAhead, bool kRelative, typename T, typename Store>
HWY_INLINE unsigned LookQuickly(T tag, const RowTask<T>& task, const QuickLanes<QuickReal<T>>* of_rows, int64_t begin,
                                int64_t count, const QuickParameter<QuickReal<T>>& w,
                                const QuickParameter<QuickReal<T>>& b, Store store) {
  using Real = QuickReal<T>;
  constexpr int64_t kStep = 2 * kLanesOf<Real>;
  constexpr int64_t kLine = kLineElements<typename T::Storage>;
  const Tag<Real> real;
  const int64_t row_elements = task.n;
  const Caching caching = task.caching;
  const auto* x = task.x + begin;
  auto* y = task.y + begin;
  const int64_t weight_step = w.step * kStep;
  const int64_t bias_step = b.step * kStep;
  const Real* weights = w.values + w.step * begin;
  const Real* biases = b.values + b.step * begin;
  const QuickLanes<Real> first = of_rows[0];
  const QuickLanes<Real> second = of_rows[kRows - 1];
  Vector<Real> least = hn::Set(real, std::numeric_limits<Real>::infinity());
  if constexpr (kRelative) {
    const hn::RebindToUnsigned<Tag<Real>> words;
    least = hn::BitCast(real, hn::Set(words, 0xFFFFFFFFu));
  }
  Vector<Real> second_least = least;
  for (int64_t i = 0; i < count; i += kStep) {
    Vector<Real> weight[2], bias[2];
    LoadTwoParameters(tag, weights, weight);
    LoadTwoParameters(tag, biases, bias);
    weights += weight_step;
    biases += bias_step;
    if (kAhead && i % kLine < kStep) {
      FetchAhead(x + i, y + i, caching.prefetch, caching.stream);
      if (kRows == 2) FetchAhead(x + row_elements + i, y + row_elements + i, caching.prefetch, caching.stream);
    }
    if constexpr (kRelative) {
      least = RelativeStep(tag, first, x + i, y + i, weight, least);
      if (kRows == 2) {
        second_least = RelativeStep(tag, second, x + row_elements + i, y + row_elements + i, weight, second_least);
      }
      continue;
    } else {
      least = QuickStep<kCentred>(tag, first, x + i, y + i, weight, bias, least, store);
    }
    if constexpr (kRows == 2) {
      second_least = QuickStep<kCentred>(tag, second, x + row_elements + i, y + row_elements + i, weight, bias,
                                         second_least, store);
    }
  }
  const auto is_near = [&](Vector<Real> distances, const QuickLanes<Real>& row) HWY_ATTR {
    if constexpr (kRelative) return IsNearRelative(row, distances);
    return !hn::AllTrue(real, hn::Gt(distances, hn::Set(real, static_cast<Real>(row.fixed))));
  };
  return (is_near(least, first) ? 1u : 0u) | (kRows == 2 && is_near(second_least, second) ? 2u : 0u);
}

// Applies kRows adjacent rows from `row` on.
template <int kRows, Statistic kStatistic, typename T>
HWY_INLINE void ApplyNearestRows(T tag, const RowBlock& block, const NearestRows& nearest, RowBounds& rows,
                                 int64_t row) {
  using Real = QuickReal<T>;
  constexpr bool kCentred = kStatistic == Statistic::kMeanVariance;
  constexpr int64_t kStep = 2 * kLanesOf<Real>;
  const RowTask<T> task = {.x = static_cast<const typename T::Storage*>(block.x.data) + row * block.n,
                           .y = static_cast<typename T::Storage*>(block.y) + row * block.n,
                           .n = block.n,
                           .caching = {block.stream, block.prefetch}};
  const QuickParameter<Real> w(WeightOf<Real>(block.parameters), block.per_element, 1);
  const QuickParameter<Real> b(BiasOf<Real>(block.parameters), block.per_element, static_cast<Real>(-0.0));
  QuickLanes<Real> lanes[kRows];
  for (int r = 0; r < kRows; ++r) lanes[r] = QuickLanes<Real>(rows, row + r);
  const auto carefully = [&](unsigned which, int64_t begin, int64_t end) HWY_ATTR {
    for (int r = 0; r < kRows; ++r) {
      if ((which >> r & 1) != 0) LookCarefully<kStatistic>(tag, block, nearest, rows, row + r, begin, end);
    }
  };
  const auto sweep = [&](int64_t begin, auto relative, auto store) HWY_ATTR {
    constexpr bool kRelative = decltype(relative)::value;
    const int64_t whole = begin + (block.n - begin) / kStep * kStep;
    constexpr int64_t kLook = (kRelative ? 2 : 1) * kLookElements<T>;
    for (int64_t i = begin; i < whole; i += kLook) {
      const int64_t count = HWY_MIN(kLook, whole - i);
      const unsigned near =
          block.prefetch == 0 ? LookQuickly<kRows, kCentred, false, kRelative>(tag, task, lanes, i, count, w, b, store)
                              : LookQuickly<kRows, kCentred, true, kRelative>(tag, task, lanes, i, count, w, b, store);
      if (HWY_UNLIKELY(near != 0)) carefully(near, i, i + count);
    }
    if (whole < block.n) carefully((1u << kRows) - 1, whole, block.n);
  };
  const auto store_any = [](auto v, auto tag_of, auto* to) HWY_ATTR { hn::StoreU(v, tag_of, to); };
  // Streaming stores need alignment.
  constexpr uintptr_t kBytes = 64;
  const auto misaligned = reinterpret_cast<uintptr_t>(task.y) % kBytes;
  if (kRows == 1 && block.stream && misaligned % sizeof(typename T::Storage) == 0) {
    const auto begin = static_cast<int64_t>((kBytes - misaligned) % kBytes / sizeof(typename T::Storage));
    if (begin > 0) carefully(1, 0, HWY_MIN(begin, block.n));
    if (begin < block.n)
      sweep(begin, std::false_type(), [](auto v, auto tag_of, auto* to) HWY_ATTR { hn::Stream(v, tag_of, to); });
    return;
  }
  if constexpr (std::is_same_v<T, BF16> && !kCentred) {
    // Products of elements, 1 / D and a weight that is not huge are normal where y is.
    const bool few = lanes[0].ulps <= kMostUlps && lanes[kRows - 1].ulps <= kMostUlps;
    if (few && block.parameters.bias == nullptr && nearest.largest_weight <= 0x1p+20) {
      return sweep(0, std::true_type(), store_any);
    }
  }
  sweep(0, std::false_type(), store_any);
}

template <Statistic kStatistic, typename T>
uint32_t NormaliseNearest(T tag, const RowBlock& block, const NearestRows& nearest, FinishedStatistics* results) {
  BlockSums sums;
  for (double& second : sums.second) second = std::numeric_limits<double>::quiet_NaN();  // of rows that are left out
  for (double& first : sums.first) first = 0;
  RowBounds rows;
  // The results are those of sums in f64.
  const bool in_runs = !std::is_same_v<T, F32> && kStatistic == Statistic::kMeanSquare && !block.wants_results;
  if constexpr (!std::is_same_v<T, F32>) {
    if (in_runs) SumRowsInRuns(tag, block, &sums, &rows.in_runs);
  }
  if (!in_runs) SumRows<kStatistic>(tag, TypeTag<double>(), block, &sums);
  FinishRows<kStatistic>(block, &sums, &rows, results);
  uint32_t done = 0;
  for (int64_t row = 0; row < block.rows; ++row) {
    if (BoundRow<kStatistic>(tag, block, nearest, row, &rows)) done |= uint32_t{1} << row;
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
