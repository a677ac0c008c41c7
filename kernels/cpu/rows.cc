// Pattern::kRows (the innermost extent is reduced): the reduce pass over the chunks of a statistics group, and both
// passes over short rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
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

// The sums of n elements of one run (f32) or one chunk (f64), see summation_order.h. `mask` is read if kMasked.
template <Statistic kStatistic, bool kMasked, typename T, typename Sums>
HWY_INLINE PairSums SumRun(T tag, TypeTag<Sums> /*type*/, const Elements& x, const uint8_t* mask, int64_t n,
                           double shift_value, double scale_value) {
  using Real = typename Sums::Real;
  using Value = Vector<Real>;
  const Tag<Real> real;
  constexpr int64_t kStep = kLanesOf<Real>;
  constexpr int64_t kSums = kVectors<Real>;
  const auto* HWY_RESTRICT data = static_cast<const typename T::Storage*>(x.data);
  const Value shift = hn::Set(real, static_cast<Real>(shift_value));
  const Value scale = hn::Set(real, static_cast<Real>(scale_value));
  const auto low = [&](int64_t at, int64_t count) HWY_ATTR {
    if constexpr (std::is_same_v<T, F64>) {
      if (x.lo != nullptr) return LoadUpTo(F64(), x.lo + at, count);
    }
    return hn::Zero(real);
  };
  const auto difference = [&](Value value, int64_t at, int64_t count) HWY_ATTR {
    const auto read = Sums::Read(value, low(at, count), scale);
    return kStatistic == Statistic::kMeanVariance ? Sums::Subtract(read, shift) : read;
  };
  Sums sums[kSums];
  for (int64_t k = 0; k < kSums; ++k) sums[k].Clear();
  // f32 only: the sums of the earlier steps.
  constexpr bool kInSteps = std::is_same_v<Real, float>;
  Sums totals[kSums];
  for (int64_t k = 0; k < kSums; ++k) totals[k].Clear();
  int64_t i = 0;
  while (i + kPartials<Real> <= n) {
    const int64_t stop = kInSteps ? HWY_MIN(n, i + order::kFastRowStep) : n;
    for (; i + kPartials<Real> <= stop; i += kPartials<Real>) {
      for (int64_t k = 0; k < kSums; ++k) {
        const int64_t at = i + k * kStep;
        auto diff = difference(LoadAs<Real>(tag, data + at), at, kStep);
        if constexpr (kMasked) diff = Sums::Only(LoadMaskBytes<Real>(mask + at), diff);
        sums[k].template Take<kStatistic>(diff);
      }
    }
    if constexpr (kInSteps) {
      for (int64_t k = 0; k < kSums; ++k) {
        totals[k].first = hn::Add(totals[k].first, sums[k].first);
        totals[k].second = hn::Add(totals[k].second, sums[k].second);
        sums[k].Clear();
      }
    }
  }
  // The last, incomplete group of lanes: lanes past the end add exactly 0. Unrolled, so that the sums stay in
  // registers.
  for (int64_t k = 0; k < kSums; ++k) {
    const int64_t at = i + k * kStep;
    if (at >= n) break;
    const int64_t count = HWY_MIN(kStep, n - at);
    auto diff = difference(LoadFirstAs<Real>(tag, data + at, count), at, count);
    diff = Sums::Only(hn::FirstN(real, static_cast<size_t>(count)), diff);
    if constexpr (kMasked) {
      uint8_t bytes[kStep] = {};
      std::memcpy(bytes, mask + at, static_cast<size_t>(count));
      diff = Sums::Only(LoadMaskBytes<Real>(bytes), diff);
    }
    sums[k].template Take<kStatistic>(diff);
  }
  decltype(Sums::first) first[kSums];
  decltype(Sums::second) second[kSums];
  for (int64_t k = 0; k < kSums; ++k) {
    first[k] = sums[k].first;
    second[k] = sums[k].second;
    if constexpr (kInSteps) {
      first[k] = hn::Add(totals[k].first, first[k]);
      second[k] = hn::Add(totals[k].second, second[k]);
    }
  }
  PairSums total;
  if (kStatistic == Statistic::kMeanVariance) total.first = Fold(TypeTag<Real>(), first);
  total.second = Fold(TypeTag<Real>(), second);
  return total;
}

// The sums of a chunk: one run in f64, several in f32, so that few additions follow one another there.
template <Statistic kStatistic, bool kMasked, typename T, typename Sums>
HWY_INLINE PairSums SumChunk(T tag, TypeTag<Sums> type, const Elements& x, const uint8_t* mask, int64_t n, double shift,
                             double scale) {
  if constexpr (std::is_same_v<typename Sums::Real, double>) {
    return SumRun<kStatistic, kMasked>(tag, type, x, mask, n, shift, scale);
  } else {
    PairSums runs[order::kRowChunk / order::kFastRowRun];
    int64_t count = 0;
    for (int64_t at = 0; at < n; at += order::kFastRowRun) {
      runs[count++] = SumRun<kStatistic, kMasked>(tag, type, x.At(at), mask == nullptr ? nullptr : mask + at,
                                                  HWY_MIN(order::kFastRowRun, n - at), shift, scale);
    }
    order::PairwiseFold(runs, count, 1, AddPlain);
    return runs[0];
  }
}

template <Statistic kStatistic, typename T, typename Sums>
void SumChunks(T tag, TypeTag<Sums> type, const RowChunks& rows, int64_t begin, int64_t end, double shift, double scale,
               PairSums* sums) {
  const int64_t per_segment = order::RowChunks(rows.n);
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t segment = chunk / per_segment;
    const int64_t at = chunk % per_segment * order::kRowChunk;
    const int64_t n = HWY_MIN(order::kRowChunk, rows.n - at);
    const Elements x = rows.x.At(segment * rows.stride + at);
    sums[chunk] =
        rows.mask == nullptr
            ? SumChunk<kStatistic, false>(tag, type, x, nullptr, n, shift, scale)
            : SumChunk<kStatistic, true>(tag, type, x, rows.mask + segment * rows.mask_stride + at, n, shift, scale);
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
  double shift = hn::GetLane(LoadFirstAs<double>(tag, x, 1));
  if (precision == Precision::kFast && !masked) {
    using Real = std::conditional_t<std::is_same_v<T, F64>, double, float>;
    Vector<Real> sums[kVectors<Real>];
    const int64_t count = HWY_MIN(kPartials<Real>, n);
    for (int64_t k = 0; k < kVectors<Real>; ++k) {
      const int64_t left = HWY_MIN(kLanesOf<Real>, count - k * kLanesOf<Real>);
#if HWY_TARGET != HWY_AVX3  // which loads a part of a vector as fast as a whole one
      if (left == kLanesOf<Real>) {
        sums[k] = LoadAs<Real>(tag, x + k * kLanesOf<Real>);
        continue;
      }
#endif
      sums[k] = left > 0 ? LoadFirstAs<Real>(tag, x + k * kLanesOf<Real>, left) : hn::Zero(Tag<Real>());
    }
    shift = static_cast<float>(Fold(TypeTag<Real>(), sums).hi / static_cast<double>(count));
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

template <Statistic kStatistic, typename Real, typename T>
HWY_INLINE PairSums SumsOfRow(T tag, TypeTag<Real> /*type*/, const RowBlock& block, int64_t row, double shift) {
  const Elements x = block.x.At(row * block.n);
  const auto chunk_of = [&](int64_t at) HWY_ATTR {
    const int64_t n = HWY_MIN(order::kRowChunk, block.counted - at);
    return SumChunk<kStatistic, false>(tag, TypeTag<NarrowSums<Real>>(), x.At(at), nullptr, n, shift, 1);
  };
  if (block.counted <= order::kRowChunk) return chunk_of(0);
  const int64_t chunks = order::RowChunks(block.counted);
  PairSums sums[RowBlock::kMaxChunks];
  for (int64_t chunk = 0; chunk < chunks; ++chunk) sums[chunk] = chunk_of(chunk * order::kRowChunk);
  order::PairwiseFold(sums, chunks, 1, AddPlain);
  return sums[0];
}

// What SumsOfRow returns, by SumChunks: such rows are few, and a second copy of the loops would take the compiler as
// long as the first.
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
  for (int64_t row = 0; row < block.rows; ++row) {
    sums[row] = SumsOfRow<kStatistic>(tag, type, block, row, shifts[row]);
  }
  for (int64_t row = 0; row < block.rows; ++row) {
    results[row] = FinishNarrow(block.statistic, block.rule, sums[row], n, shifts[row], block.precision);
  }
  for (int64_t row = 0; row < block.rows; ++row) {
    const bool is_careful = results[row].shift_too_far || results[row].out_of_fast_range;
    if (is_careful) results[row] = CarefulRow<kStatistic>(tag, block, row);
    if (!std::is_same_v<T, F32>) Calculate16BitInF32(&results[row]);
  }
}

template <Statistic kStatistic, typename T>
void NormaliseRowsOf(T tag, const RowBlock& block, FinishedStatistics* results) {
  if (block.precision == Precision::kFast) {
    ReduceRows<kStatistic>(tag, TypeTag<float>(), block, results);
  } else {
    ReduceRows<kStatistic>(tag, TypeTag<double>(), block, results);
  }
  const auto may_be_nan = [&](const FinishedStatistics& finished) {
    return !finished.finite || !block.parameters.fit_f32 || block.counted != block.n;
  };
  const auto in_f32 = [&](const FinishedStatistics& finished) {
    return finished.elements_in_f32 && block.parameters.fit_f32;
  };
  for (int64_t row = 0; row < block.rows; ++row) {
    const FinishedStatistics& finished = results[row];
    const auto* x = static_cast<const typename T::Storage*>(block.x.data) + row * block.n;
    auto* y = static_cast<typename T::Storage*>(block.y) + row * block.n;
    const Centring centring = CentringOf(block.statistic, finished.statistics);
    const bool two = !block.stream && row + 1 < block.rows && !may_be_nan(finished) && centring != Centring::kTwice &&
                     !may_be_nan(results[row + 1]) && in_f32(finished) == in_f32(results[row + 1]) &&
                     centring == CentringOf(block.statistic, results[row + 1].statistics);
    if (two) {
      constexpr Centring kCentring =
          kStatistic == Statistic::kMeanVariance ? Centring::kOnce : Centring::kNone;  // see `centring`
      const GroupStatistics* const both[] = {&finished.statistics, &results[row + 1].statistics};
      if (in_f32(finished)) {
        ApplyRows<float, kCentring, false, 2>(tag, x, y, block.n, {}, both, block.parameters, true,
                                              {false, block.prefetch});
      } else {
        ApplyRows<double, kCentring, false, 2>(tag, x, y, block.n, {}, both, block.parameters, true,
                                               {false, block.prefetch});
      }
      ++row;
      continue;
    }
    ApplyElements(tag, x, y, block.n, {}, finished.statistics, in_f32(finished), centring, block.parameters, true,
                  may_be_nan(finished), {block.stream, block.prefetch});
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
