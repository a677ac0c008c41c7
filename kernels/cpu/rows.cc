// Reduce where the innermost extent is reduced: one chunk of one statistic set at a time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::Elements;

// 32 partial sums in registers; element i of a chunk belongs to partial i % 32.
inline constexpr int64_t kVectors = order::kPartials / kLanes;

// Folds the partials by halves, first across vectors, then across the lanes of the last one.
HWY_INLINE double Fold(V (&partials)[kVectors]) {
  for (int64_t width = kVectors; width > 1; width /= 2) {
    for (int64_t i = 0; i < width / 2; ++i) partials[i] = hn::Add(partials[i], partials[i + width / 2]);
  }
  HWY_ALIGN double lanes[kLanes];
  hn::Store(partials[0], d, lanes);
  for (int64_t width = kLanes; width > 1; width /= 2) {
    for (int64_t i = 0; i < width / 2; ++i) lanes[i] += lanes[i + width / 2];
  }
  return lanes[0];
}

HWY_INLINE DoublePair Fold(Pair (&partials)[kVectors]) {
  for (int64_t width = kVectors; width > 1; width /= 2) {
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

HWY_INLINE DoublePair AsPair(double x) { return {x, 0}; }
HWY_INLINE DoublePair AsPair(DoublePair x) { return x; }

template <Statistic kStatistic, bool kMasked, typename T, typename Sums>
PairSums SumChunk(T tag, TypeTag<Sums> /*type*/, const Elements& x, const uint8_t* mask, int64_t n, double shift_value,
                  double scale_value) {
  const auto* HWY_RESTRICT data = static_cast<const typename T::Storage*>(x.data);
  const V shift = Set(shift_value);
  const V scale = Set(scale_value);
  const auto difference = [&](V value, int64_t at, int64_t count) HWY_ATTR {
    const V lo = x.lo == nullptr ? Zero() : LoadUpTo(F64(), x.lo + at, count);
    const auto read = Sums::Read(value, lo, scale);
    return kStatistic == Statistic::kMeanVariance ? Sums::Subtract(read, shift) : read;
  };
  Sums sums[kVectors];
  for (int64_t k = 0; k < kVectors; ++k) sums[k].Clear();
  int64_t i = 0;
  for (; i + order::kPartials <= n; i += order::kPartials) {
    for (int64_t k = 0; k < kVectors; ++k) {
      const int64_t at = i + k * kLanes;
      auto diff = difference(LoadAsF64(tag, data + at), at, kLanes);
      if constexpr (kMasked) diff = Sums::Only(LoadMaskBytes(mask + at), diff);
      sums[k].template Take<kStatistic>(diff);
    }
  }
  // The last, incomplete group of 32: lanes past the end add exactly 0.
  for (int64_t k = 0; i < n; ++k, i += kLanes) {
    const int64_t count = HWY_MIN(kLanes, n - i);
    uint8_t bytes[kLanes] = {};
    for (int64_t lane = 0; lane < count; ++lane) bytes[lane] = kMasked ? mask[i + lane] : 1;
    const auto diff = difference(LoadUpTo(tag, data + i, count), i, count);
    sums[k].template Take<kStatistic>(Sums::Only(LoadMaskBytes(bytes), diff));
  }
  decltype(Sums::first) first[kVectors];
  decltype(Sums::second) second[kVectors];
  for (int64_t k = 0; k < kVectors; ++k) {
    first[k] = sums[k].first;
    second[k] = sums[k].second;
  }
  PairSums total;
  if (kStatistic == Statistic::kMeanVariance) total.first = AsPair(Fold(first));
  total.second = AsPair(Fold(second));
  return total;
}

template <Statistic kStatistic>
PairSums SumChunkOf(const Elements& x, const uint8_t* mask, int64_t n, double shift, double scale) {
  return WithElementType(x.dtype, [&](auto tag, auto sums) HWY_ATTR {
    return mask == nullptr ? SumChunk<kStatistic, false>(tag, sums, x, mask, n, shift, scale)
                           : SumChunk<kStatistic, true>(tag, sums, x, mask, n, shift, scale);
  });
}

PairSums ReduceRowChunk(Statistic statistic, const Elements& x, const uint8_t* mask, int64_t n, double shift,
                        double scale) {
  switch (statistic) {
    case Statistic::kMeanVariance:
      return SumChunkOf<Statistic::kMeanVariance>(x, mask, n, shift, scale);
    case Statistic::kAbsSum:
      return SumChunkOf<Statistic::kAbsSum>(x, mask, n, shift, scale);
    case Statistic::kMeanSquare:
    case Statistic::kSumSquares:
      break;
  }
  return SumChunkOf<Statistic::kMeanSquare>(x, mask, n, shift, scale);
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
      value = hn::IfThenElseZero(LoadMaskBytes(bytes), value);
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
HWY_EXPORT(ReduceRowChunk);
HWY_EXPORT(MeasureRow);

PairSums ReduceRowChunk(Statistic statistic, const Elements& x, const uint8_t* mask, int64_t n, double shift,
                        double scale) {
  return HWY_DYNAMIC_DISPATCH(ReduceRowChunk)(statistic, x, mask, n, shift, scale);
}
Magnitude MeasureRow(const double* x, const uint8_t* mask, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(MeasureRow)(x, mask, n);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
