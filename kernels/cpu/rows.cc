// Pattern::kRows (the innermost extent is reduced): the reduce pass over the chunks of a statistics group, and both
// passes over short rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <new>

#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::Elements;
using cpu::RowBlock;
using cpu::RowChunks;

// The number of interleaved partial sums, which stay in registers: element i of a chunk belongs to partial sum i %
// kPartials.
template <typename Real>
inline constexpr int64_t kPartials = std::is_same_v<Real, float> ? order::kFastPartials : order::kPartials;
template <typename Real>
inline constexpr int64_t kVectors = kPartials<Real> / kLanesOf<Real>;

// The lanes folded by halves into one value.
template <class DT>
HWY_INLINE hn::TFromD<DT> FoldLanes(DT dt, hn::Vec<DT> v) {
#if HWY_NATIVE_FMA
  if constexpr (hn::MaxLanes(DT()) > 1) {
    const hn::Half<DT> half;
    return FoldLanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
  (void)dt;
  return hn::GetLane(v);
#else
  hn::TFromD<DT> lanes[hn::MaxLanes(DT())];
  hn::StoreU(v, dt, lanes);
  for (size_t width = hn::MaxLanes(DT()); width > 1; width /= 2) {
    for (size_t i = 0; i < width / 2; ++i) lanes[i] += lanes[i + width / 2];
  }
  return lanes[0];
#endif
}

// Folds the partial sums by halves, first across vectors, then across the lanes of the last vector.
template <typename Real>
HWY_INLINE DoublePair Fold(TypeTag<Real> /*type*/, Vector<Real>* partials) {
  for (int64_t width = kVectors<Real>; width > 1; width /= 2) {
    for (int64_t i = 0; i < width / 2; ++i) partials[i] = hn::Add(partials[i], partials[i + width / 2]);
  }
  return {FoldLanes(Tag<Real>(), partials[0]), 0};
}

HWY_INLINE DoublePair Fold(TypeTag<double> /*type*/, Pair* partials) {
  for (int64_t width = kVectors<double>; width > 1; width /= 2) {
    for (int64_t i = 0; i < width / 2; ++i) partials[i] = Add(partials[i], partials[i + width / 2]);
  }
  HWY_ALIGN double hi[kLanes];
  HWY_ALIGN double lo[kLanes];
  hn::Store(partials[0].hi, d, hi);
  hn::Store(partials[0].lo, d, lo);
  for (int64_t width = kLanes; width > 1; width /= 2) {
    for (int64_t i = 0; i < width / 2; ++i) {
      const DoublePair sum = normd::Add({hi[i], lo[i]}, {hi[i + width / 2], lo[i + width / 2]});
      hi[i] = sum.hi;
      lo[i] = sum.lo;
    }
  }
  return {hi[0], lo[0]};
}

// True where sums need no shift as long as the mean is near 0: narrow elements in f64, see ExactShift.
template <typename Sums>
inline constexpr bool kMayLackShift = std::is_same_v<Sums, NarrowSums<double>>;

// The sums of one chunk, see summation_order.h: `segments` segments of n elements. kGeneral: there may be a mask, a
// shift where sums may lack one, and several segments in f32.
template <Statistic kStatistic, bool kGeneral, typename T, typename Sums>
HWY_INLINE PairSums SumChunk(T tag, TypeTag<Sums> /*type*/, const RowChunks& rows, int64_t segments, int64_t n,
                             double shift_value, double scale_value) {
  using Real = typename Sums::Real;
  using Value = Vector<Real>;
  const Tag<Real> real;
  constexpr int64_t kStep = kLanesOf<Real>;
  constexpr int64_t kSums = kVectors<Real>;
  constexpr bool kSubtract = kStatistic == Statistic::kMeanVariance && (kGeneral || !kMayLackShift<Sums>);
  // f32 only: partial sums of a step are added to those of the earlier steps.
  constexpr bool kInSteps = std::is_same_v<Real, float>;
  const Value shift = hn::Set(real, static_cast<Real>(shift_value));
  const Value scale = hn::Set(real, static_cast<Real>(scale_value));
  const auto* HWY_RESTRICT data = static_cast<const typename T::Storage*>(rows.x.data);
  const double* HWY_RESTRICT lows = rows.x.lo;
  const uint8_t* HWY_RESTRICT mask = rows.mask;
  const auto low = [&](int64_t at, int64_t count) HWY_ATTR {
    if constexpr (std::is_same_v<T, F64>) {
      if (lows != nullptr) return LoadUpTo(F64(), lows + at, count);
    }
    return hn::Zero(real);
  };
  const auto difference = [&](Value value, int64_t at, int64_t count) HWY_ATTR {
    const auto read = Sums::Read(value, low(at, count), scale);
    return kSubtract ? Sums::Subtract(read, shift) : read;
  };
  Sums sums[kSums];
  Sums totals[kSums];
  for (int64_t k = 0; k < kSums; ++k) {
    sums[k].Clear();
    totals[k].Clear();
  }
  constexpr bool kSeveral = kGeneral || !kInSteps;  // segments
  const int64_t step_segments = kSeveral && segments > 1 ? order::StepSegments(n) : 1;
  const int64_t last = kSeveral ? segments - 1 : 0;
  for (int64_t segment = 0; segment <= last; ++segment) {
    for (int64_t i = 0; i < n;) {
      const int64_t stop = kInSteps ? HWY_MIN(n, i + order::kFastRowStep) : n;
      for (; i + kPartials<Real> <= stop; i += kPartials<Real>) {
        for (int64_t k = 0; k < kSums; ++k) {
          const int64_t at = i + k * kStep;
          auto diff = difference(LoadAs<Real>(tag, data + at), at, kStep);
          if constexpr (kGeneral) {
            if (mask != nullptr) diff = Sums::Only(LoadMaskBytes<Real>(mask + at), diff);
          }
          sums[k].template Take<kStatistic>(diff);
        }
      }
      // The last, incomplete group of lanes: lanes past the end add exactly 0. Unrolled, so that the sums stay in
      // registers.
      for (int64_t k = 0; k < kSums; ++k) {
        const int64_t at = i + k * kStep;
        if (at >= stop) break;
        const int64_t count = HWY_MIN(kStep, stop - at);
        auto diff = difference(LoadFirstAs<Real>(tag, data + at, count), at, count);
        if constexpr (kSubtract) diff = Sums::Only(hn::FirstN(real, static_cast<size_t>(count)), diff);
        if constexpr (kGeneral) {
          if (mask != nullptr) {
            uint8_t bytes[kStep] = {};
            std::memcpy(bytes, mask + at, static_cast<size_t>(count));
            diff = Sums::Only(LoadMaskBytes<Real>(bytes), diff);
          }
        }
        sums[k].template Take<kStatistic>(diff);
      }
      i = stop;
      if constexpr (kInSteps) {
        const bool ends =
            !kSeveral || n >= order::kFastRowStep || (segment + 1) % step_segments == 0 || segment == last;
        for (int64_t k = 0; ends && k < kSums; ++k) {
          totals[k].first = hn::Add(totals[k].first, sums[k].first);
          totals[k].second = hn::Add(totals[k].second, sums[k].second);
          sums[k].Clear();
        }
      }
    }
    if constexpr (kSeveral) {
      data += rows.stride;
      if (lows != nullptr) lows += rows.stride;
      if (mask != nullptr) mask += rows.mask_stride;
    }
  }
  decltype(Sums::first) first[kSums];
  decltype(Sums::second) second[kSums];
  for (int64_t k = 0; k < kSums; ++k) {
    first[k] = kInSteps ? totals[k].first : sums[k].first;
    second[k] = kInSteps ? totals[k].second : sums[k].second;
  }
  PairSums total;
  if (kStatistic == Statistic::kMeanVariance) total.first = Fold(TypeTag<Real>(), first);
  total.second = Fold(TypeTag<Real>(), second);
  return total;
}

// The FAST sums of one chunk of n elements about a shift, without a mask: what SumChunk<kMeanVariance, false> returns.
// The vectors of partial sums take turns, as many at a time as stay in registers: two sums for each of all of them do
// not fit those of AVX2, and every element would wait for a store and a load. A step is in L1 when its second turn
// comes.
template <typename T>
HWY_INLINE PairSums SumCentredFast(T tag, const typename T::Storage* HWY_RESTRICT x, int64_t n, double shift_value) {
  constexpr Statistic kStatistic = Statistic::kMeanVariance;
  using Sums = NarrowSums<float>;
  const Tag<float> real;
  constexpr int64_t kStep = kLanesOf<float>;
  constexpr int64_t kTogether = HWY_MIN(kVectors<float>, 4);
  const auto shift = hn::Set(real, static_cast<float>(shift_value));
  Vector<float> first[kVectors<float>];
  Vector<float> second[kVectors<float>];
  for (int64_t begin = 0; begin < n; begin += order::kFastRowStep) {
    const int64_t stop = HWY_MIN(n, begin + order::kFastRowStep);
    for (int64_t from = 0; from < kVectors<float>; from += kTogether) {
      Sums sums[kTogether];
      for (int64_t k = 0; k < kTogether; ++k) sums[k].Clear();
      int64_t i = begin;
      for (; i + kPartials<float> <= stop; i += kPartials<float>) {
        for (int64_t k = 0; k < kTogether; ++k) {
          const auto value = LoadAs<float>(tag, x + i + (from + k) * kStep);
          sums[k].template Take<kStatistic>(Sums::Subtract(value, shift));
        }
      }
      // The last, incomplete group of lanes: lanes past the end add exactly 0. Unrolled, so that the sums stay in
      // registers.
      for (int64_t k = 0; k < kTogether; ++k) {
        const int64_t at = i + (from + k) * kStep;
        if (at >= stop) break;
        const int64_t count = HWY_MIN(kStep, stop - at);
        const auto diff = Sums::Subtract(LoadFirstAs<float>(tag, x + at, count), shift);
        sums[k].template Take<kStatistic>(Sums::Only(hn::FirstN(real, static_cast<size_t>(count)), diff));
      }
      for (int64_t k = 0; k < kTogether; ++k) {
        first[from + k] = begin > 0 ? hn::Add(first[from + k], sums[k].first) : sums[k].first;
        second[from + k] = begin > 0 ? hn::Add(second[from + k], sums[k].second) : sums[k].second;
      }
    }
  }
  const DoublePair sum = Fold(TypeTag<float>(), first);
  return {sum, Fold(TypeTag<float>(), second)};
}

template <Statistic kStatistic, typename T, typename Sums>
void SumChunks(T tag, TypeTag<Sums> type, const RowChunks& rows, int64_t begin, int64_t end, double shift, double scale,
               PairSums* sums) {
  const bool shifted = kStatistic == Statistic::kMeanVariance && kMayLackShift<Sums> && shift != 0;
  if (begin >= end) return;  // a group without elements has no chunk
  order::Chunk chunk = order::ChunkAt(rows.segments, rows.n, begin);
  for (int64_t i = begin; i < end; ++i) {
    if (i > begin) chunk = order::ChunkAfter(chunk, rows.segments, rows.n);
    RowChunks from = rows;
    from.x = rows.x.At(chunk.segment * rows.stride + chunk.at);
    if (rows.mask != nullptr) from.mask += chunk.segment * rows.mask_stride + chunk.at;
    const bool in_steps = std::is_same_v<typename Sums::Real, float> && chunk.segments > 1;
    sums[i] = rows.mask == nullptr && !shifted && !in_steps
                  ? SumChunk<kStatistic, false>(tag, type, from, chunk.segments, chunk.length, shift, scale)
                  : SumChunk<kStatistic, true>(tag, type, from, chunk.segments, chunk.length, shift, scale);
  }
}

template <Statistic kStatistic>
void SumChunksOf(Precision precision, const RowChunks& rows, int64_t begin, int64_t end, double shift, double scale,
                 PairSums* sums) {
  if (precision == Precision::kFast) {
    WithNarrowType(rows.x.dtype, [&](auto tag) HWY_ATTR {
      SumChunks<kStatistic>(tag, TypeTag<NarrowSums<float>>(), rows, begin, end, shift, scale, sums);
    });
    return;
  }
  WithElementType(rows.x.dtype, [&](auto tag, auto type) HWY_ATTR {
    SumChunks<kStatistic>(tag, type, rows, begin, end, shift, scale, sums);
  });
}

void ReduceRowChunks(Statistic statistic, Precision precision, const RowChunks& rows, int64_t begin, int64_t end,
                     double shift, double scale, PairSums* sums) {
  switch (statistic) {
    case Statistic::kMeanVariance:
      return SumChunksOf<Statistic::kMeanVariance>(precision, rows, begin, end, shift, scale, sums);
    case Statistic::kAbsSum:
      return SumChunksOf<Statistic::kAbsSum>(precision, rows, begin, end, shift, scale, sums);
    case Statistic::kMeanSquare:
    case Statistic::kSumSquares:
    case Statistic::kPowerSum:  // its terms are summed as kAbsSum
    case Statistic::kMaxAbs:    // has no sums
      break;
  }
  SumChunksOf<Statistic::kMeanSquare>(precision, rows, begin, end, shift, scale, sums);
}

template <typename T>
HWY_INLINE double ShiftOf(T tag, Precision precision, const typename T::Storage* x, int64_t n, bool masked) {
  const auto element = [&](int64_t i) HWY_ATTR { return ElementAt(tag, x + i); };
  double shift = 0;
  if (masked || std::is_same_v<T, F64>) {
    shift = element(0);
  } else if (precision == Precision::kExact) {
    return ExactShift(element(SampleIndex(n, 0)), element(SampleIndex(n, 1)), element(SampleIndex(n, 2)),
                      element(SampleIndex(n, 3)));
  } else if constexpr (!std::is_same_v<T, F64>) {
    Vector<float> sums[kVectors<float>];
    const int64_t count = HWY_MIN(kPartials<float>, n);
    for (int64_t k = 0; k < kVectors<float>; ++k) {
      const int64_t left = HWY_MIN(kLanesOf<float>, count - k * kLanesOf<float>);
#if HWY_TARGET != HWY_AVX3  // which loads a part of a vector as fast as a whole one
      if (left == kLanesOf<float>) {
        sums[k] = LoadAs<float>(tag, x + k * kLanesOf<float>);
        continue;
      }
#endif
      sums[k] = left > 0 ? LoadFirstAs<float>(tag, x + k * kLanesOf<float>, left) : hn::Zero(Tag<float>());
    }
    shift = static_cast<float>(Fold(TypeTag<float>(), sums).hi / static_cast<double>(count));
  }
  return std::isfinite(shift) ? shift : 0;
}

double FirstShift(Precision precision, const Elements& x, int64_t n, bool masked) {
  return WithElementType(x.dtype, [&](auto tag, auto /*sums*/) HWY_ATTR {
    return ShiftOf(tag, precision, static_cast<const typename decltype(tag)::Storage*>(x.data), n, masked);
  });
}

template <Statistic kStatistic, typename T>
HWY_INLINE double ShiftOfRow(T tag, Precision precision, const RowBlock& block, int64_t row) {
  if (kStatistic != Statistic::kMeanVariance) return 0;
  const auto* x = static_cast<const typename T::Storage*>(block.x.data) + row * block.n;
  return ShiftOf(tag, precision, x, block.counted, false);
}

// The sums of a row whose shift is 0 (EXACT), or any (FAST).
template <Statistic kStatistic, typename Real, typename T>
HWY_INLINE PairSums SumsOfRow(T tag, TypeTag<Real> /*type*/, const RowBlock& block, int64_t row, double shift) {
  const Elements x = block.x.At(row * block.n);
  const auto chunk_of = [&](int64_t at) HWY_ATTR {
    const int64_t n = HWY_MIN(order::kRowChunk, block.counted - at);
    if constexpr (kStatistic == Statistic::kMeanVariance && std::is_same_v<Real, float>) {
      return SumCentredFast(tag, static_cast<const typename T::Storage*>(x.At(at).data), n, shift);
    } else {
      return SumChunk<kStatistic, false>(tag, TypeTag<NarrowSums<Real>>(), {.x = x.At(at)}, 1, n, shift, 1);
    }
  };
  // Chunks are folded as they come: see order::FoldsAfter. As many wait as the count has binary digits.
  static_assert(RowBlock::kMaxChunks < 1 << 7);
  double first[7], second[7];  // not initialised, which would take short rows as long as their sums
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

// What SumsOfRow returns, by SumChunks and for any shift: such rows are few, and a second copy of the loops would take
// the compiler as long as the first.
template <Statistic kStatistic, typename Real, typename T>
PairSums SumsOfCarefulRow(T tag, const RowBlock& block, int64_t row, double shift) {
  PairSums sums[RowBlock::kMaxChunks];
  const int64_t chunks = order::RowChunks(block.counted);
  const RowChunks whole = {.x = block.x.At(row * block.n), .n = block.counted};
  SumChunks<kStatistic>(tag, TypeTag<NarrowSums<Real>>(), whole, 0, chunks, shift, 1, sums);
  order::PairwiseFold(sums, chunks, 1, AddPlain);
  return sums[0];
}

// The statistics of a row in as many rounds as it needs; most rows need only one, which ReduceRows makes.
template <Statistic kStatistic, typename T>
HWY_NOINLINE FinishedStatistics CarefulRow(T tag, const RowBlock& block, int64_t row) {
  const auto shift_of = [&](Precision precision)
                            HWY_ATTR { return ShiftOfRow<kStatistic>(tag, precision, block, row); };
  const auto sums_of = [&](Precision precision, double shift) HWY_ATTR {
    return precision == Precision::kFast ? SumsOfCarefulRow<kStatistic, float>(tag, block, row, shift)
                                         : SumsOfCarefulRow<kStatistic, double>(tag, block, row, shift);
  };
  return FinishNarrowGroup(block.statistic, block.rule, block.precision, static_cast<double>(block.counted), shift_of,
                           sums_of);
}

// Takes each step for all rows before the next one, because a step of a row waits dozens of cycles for the step before
// it, and another row can use these cycles.
template <Statistic kStatistic, typename Real, typename T>
HWY_INLINE void ReduceRows(T tag, TypeTag<Real> type, const RowBlock& block, FinishedStatistics* results) {
  double shifts[RowBlock::kMaxRows];
  PairSums sums[RowBlock::kMaxRows];
  const auto n = static_cast<double>(block.counted);
  for (int64_t row = 0; row < block.rows; ++row) {
    shifts[row] = ShiftOfRow<kStatistic>(tag, block.precision, block, row);
  }
  constexpr bool kNoShift = kStatistic == Statistic::kMeanVariance && kMayLackShift<NarrowSums<Real>>;
  for (int64_t row = 0; row < block.rows; ++row) {
    if (kNoShift && shifts[row] != 0) continue;
    sums[row] = SumsOfRow<kStatistic>(tag, type, block, row, shifts[row]);
  }
  const Statistic statistic = kStatistic == Statistic::kMeanSquare ? block.statistic : kStatistic;
  for (int64_t row = 0; row < block.rows; ++row) {
    // Made in its place: a copy would read in vectors what was just written member by member, and wait for it.
    new (results + row)
        FinishedStatistics(FinishNarrow(statistic, block.rule, sums[row], n, shifts[row], block.precision));
  }
  for (int64_t row = 0; row < block.rows; ++row) {
    const bool is_careful =
        results[row].shift_too_far || results[row].out_of_fast_range || (kNoShift && shifts[row] != 0);
    if (is_careful) results[row] = CarefulRow<kStatistic>(tag, block, row);
    if (!std::is_same_v<T, F32>) Calculate16BitInF32(&results[row]);
  }
}

// Applies two adjacent rows that are calculated in the same way, if that is one of the ways that are worth a loop.
template <Statistic kStatistic, typename T>
HWY_INLINE bool ApplyTwoRows(T tag, Form form, bool in_f32, const typename T::Storage* x, typename T::Storage* y,
                             const RowBlock& block, const FinishedStatistics* results) {
  const GroupStatistics* const both[] = {&results[0].statistics, &results[1].statistics};
  const auto apply = [&](auto of_form, auto real) HWY_ATTR {
    ApplyRows<decltype(real), decltype(of_form)::value, false, 2>(tag, x, y, block.n, {}, both, block.parameters, true,
                                                                  {false, block.prefetch});
    return true;
  };
  if constexpr (kStatistic == Statistic::kMeanVariance) {
    if (in_f32 && form == Form::kOnce) return apply(FormTag<Form::kOnce>(), float());
    if (in_f32 && form == Form::kTwice) return apply(FormTag<Form::kTwice>(), float());
    if constexpr (std::is_same_v<T, F32>) {
      if (form == Form::kFolded) return apply(FormTag<Form::kFolded>(), double());
    }
  } else {
    if (in_f32 && form == Form::kPlain) return apply(FormTag<Form::kPlain>(), float());
    if constexpr (std::is_same_v<T, F32>) {
      if (form == Form::kPairs) return apply(FormTag<Form::kPairs>(), float());
    }
  }
  return false;
}

template <Statistic kStatistic, typename T>
void NormaliseRowsOf(T tag, const RowBlock& block, FinishedStatistics* results) {
  if (block.precision == Precision::kFast) {
    ReduceRows<kStatistic>(tag, TypeTag<float>(), block, results);
  } else {
    ReduceRows<kStatistic>(tag, TypeTag<double>(), block, results);
  }
  struct Way {
    bool may_be_nan, in_f32;
    Form form;
  };
  const auto way_of = [&](const FinishedStatistics& finished) {
    const bool may_be_nan = !finished.finite || !block.parameters.fit_f32 || block.counted != block.n;
    const bool in_f32 = finished.elements_in_f32 && block.parameters.fit_f32;
    return Way{may_be_nan, in_f32,
               FormOf(tag, CentringOf(block.statistic, finished.statistics), finished.statistics, in_f32,
                      block.parameters, true, may_be_nan)};
  };
  Way ways[RowBlock::kMaxRows];
  for (int64_t row = 0; row < block.rows; ++row) {
    ways[row] = way_of(results[row]);
    Prepare(ways[row].form, &results[row].statistics);
  }
  for (int64_t row = 0; row < block.rows; ++row) {
    const FinishedStatistics& finished = results[row];
    const auto* x = static_cast<const typename T::Storage*>(block.x.data) + row * block.n;
    auto* y = static_cast<typename T::Storage*>(block.y) + row * block.n;
    const Way way = ways[row];
    if (!block.stream && row + 1 < block.rows && !way.may_be_nan) {
      const Way next = ways[row + 1];
      if (!next.may_be_nan && next.in_f32 == way.in_f32 && next.form == way.form &&
          ApplyTwoRows<kStatistic>(tag, way.form, way.in_f32, x, y, block, results + row)) {
        ++row;
        continue;
      }
    }
    ApplyElements(tag, x, y, block.n, {}, finished.statistics, way.in_f32, way.form, block.parameters, true,
                  way.may_be_nan, {block.stream, block.prefetch});
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

Magnitude MeasureRow(const double* x, const uint8_t* mask, int64_t n) {
  MagnitudeLanes lanes;
  lanes.Clear();
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = HWY_MIN(kLanes, n - i);
    V value = LoadUpTo(F64(), x + i, count);
    if (mask != nullptr) {
      uint8_t bytes[kLanes] = {};
      std::memcpy(bytes, mask + i, static_cast<size_t>(count));
      value = hn::IfThenElseZero(LoadMaskBytes<double>(bytes), value);
    }
    lanes.Take(value);
  }
  Magnitude all[kLanes];
  lanes.Store(all);
  for (int64_t i = 1; i < kLanes; ++i) all[0].Include(all[i]);
  return all[0];
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(ReduceRowChunks);
HWY_EXPORT(FirstShift);
HWY_EXPORT(NormaliseRows);
HWY_EXPORT(MeasureRow);

void ReduceRowChunks(Statistic statistic, Precision precision, const RowChunks& rows, int64_t begin, int64_t end,
                     double shift, double scale, PairSums* sums) {
  HWY_DYNAMIC_DISPATCH(ReduceRowChunks)(statistic, precision, rows, begin, end, shift, scale, sums);
}
double FirstShift(Precision precision, const Elements& x, int64_t n, bool masked) {
  return HWY_DYNAMIC_DISPATCH(FirstShift)(precision, x, n, masked);
}
void NormaliseRows(const RowBlock& block, FinishedStatistics* results) {
  HWY_DYNAMIC_DISPATCH(NormaliseRows)(block, results);
}
Magnitude MeasureRow(const double* x, const uint8_t* mask, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(MeasureRow)(x, mask, n);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
