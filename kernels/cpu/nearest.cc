// The apply pass of narrow elements to the nearest value: y in f64, with a test of every element against the middle
// between the two values of the type that it lies between (kernels/certificate.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/nearest.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/nearest-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::Along;
using cpu::NearestSpan;

void ApplyNearestInPairs(const NearestSpan& span);  // nearest_wide.cc

// One vector of y before it is rounded to T, or, for CAST_THEN_AFFINE, after it.
template <Centring kCentring, CastOrder kOrder, typename T>
HWY_INLINE V NearestValue(T tag, V x, const NearestLanes& lanes, M* doubtful) {
  V n = x;
  if constexpr (kCentring != Centring::kNone) n = hn::Sub(n, lanes.shift);
  if constexpr (kCentring == Centring::kTwice) n = hn::Sub(n, lanes.delta);
  n = hn::Mul(n, lanes.inverse);
  if constexpr (kOrder == CastOrder::kCastThenAffine) {
    *doubtful = IsDoubtful(tag, n, n, lanes);
    return AddIn(tag, MultiplyIn(tag, RoundTo(tag, n), lanes.weight), lanes.bias);
  }
  const V product = hn::Mul(n, lanes.weight);
  const V y = hn::Add(product, lanes.bias);
  *doubtful = IsDoubtful(tag, y, product, lanes);
  return y;
}

// Where the numbers of a span are read: from `column` on, or one number in every lane.
template <bool kPerColumn>
HWY_INLINE V NumbersAt(const double* values, int64_t one, int64_t column, int64_t count) {
  if constexpr (kPerColumn) return LoadUpTo(F64(), values + column, count);
  return Set(values[one]);
}

template <bool kPerColumn, Centring kCentring>
HWY_INLINE void LoadStatistics(const NearestSpan& span, int64_t one, int64_t column, int64_t count,
                               NearestLanes* lanes) {
  const auto load = [&](const double* values) HWY_ATTR { return NumbersAt<kPerColumn>(values, one, column, count); };
  if constexpr (kCentring != Centring::kNone) lanes->shift = load(span.shift);
  if constexpr (kCentring == Centring::kTwice) lanes->delta = load(span.delta);
  lanes->inverse = load(span.inverse);
  lanes->fixed = load(span.fixed);
  lanes->relative = load(span.relative);
}

template <bool kPerColumn>
HWY_INLINE void LoadParameters(const NearestSpan& span, int64_t one, int64_t column, int64_t count,
                               NearestLanes* lanes) {
  if (span.weight != nullptr) lanes->weight = NumbersAt<kPerColumn>(span.weight, one, column, count);
  if (span.bias != nullptr) lanes->bias = NumbersAt<kPerColumn>(span.bias, one, column, count);
}

// Applies the columns [begin, end) of one position. `lanes` has the numbers that are not per column.
template <bool kStatisticsPerColumn, bool kParametersPerColumn, Centring kCentring, CastOrder kOrder, typename T>
HWY_INLINE void ApplyNearestColumns(T tag, const NearestSpan& span, int64_t position, int64_t begin, int64_t end,
                                    NearestLanes lanes, Reporter* reporter) {
  const auto* HWY_RESTRICT x = static_cast<const typename T::Storage*>(span.x.data) + position * span.stride;
  auto* y = static_cast<typename T::Storage*>(span.y) + position * span.stride;
  for (int64_t column = begin; column < end; column += kLanes) {
    const int64_t count = HWY_MIN(kLanes, end - column);
    if constexpr (kStatisticsPerColumn) LoadStatistics<true, kCentring>(span, 0, column, count, &lanes);
    if constexpr (kParametersPerColumn) LoadParameters<true>(span, 0, column, count, &lanes);
    const V value = LoadUpTo(tag, x + column, count);
    M doubtful;
    V rounded = NearestValue<kCentring, kOrder>(tag, value, lanes, &doubtful);
    // StoreUpTo rounds 16-bit elements to f32 first.
    if constexpr (!std::is_same_v<T, F32>) rounded = CutToF32(tag, rounded);
    StoreUpTo(tag, rounded, y + column, count);
    if (HWY_UNLIKELY(!hn::AllFalse(d, doubtful))) reporter->Add(doubtful, value, position, column, count);
  }
}

template <bool kStatisticsPerColumn, bool kParametersPerColumn, Centring kCentring, CastOrder kOrder, typename T>
void ApplyNearestOf(T tag, const NearestSpan& span) {
  Reporter reporter(span);
  NearestLanes lanes;
  lanes.rounding = Set(span.rounding);
  lanes.weight = Set(1.0);
  lanes.bias = Set(-0.0);  // absent: it leaves every value unchanged, zeros included
  const bool runs = !kParametersPerColumn && span.parameter_run != 0;
  const int64_t step = runs ? span.parameter_run : HWY_MAX(int64_t{1}, span.columns);
  for (int64_t p = 0; p < span.positions; ++p) {
    if constexpr (!kStatisticsPerColumn) {
      LoadStatistics<false, kCentring>(span, span.statistics_along == Along::kPositions ? p : 0, 0, kLanes, &lanes);
    }
    for (int64_t column = 0; column < span.columns; column += step) {
      if constexpr (!kParametersPerColumn) {
        const int64_t one = runs ? column / step : span.parameters_along == Along::kPositions ? p : 0;
        LoadParameters<false>(span, one, 0, kLanes, &lanes);
      }
      ApplyNearestColumns<kStatisticsPerColumn, kParametersPerColumn, kCentring, kOrder>(
          tag, span, p, column, column + step, lanes, &reporter);
    }
  }
}

template <bool kStatisticsPerColumn, bool kParametersPerColumn, CastOrder kOrder, typename T>
void ApplyNearestCentred(T tag, const NearestSpan& span) {
  switch (span.centring) {
    case Centring::kNone:
      return ApplyNearestOf<kStatisticsPerColumn, kParametersPerColumn, Centring::kNone, kOrder>(tag, span);
    case Centring::kOnce:
      return ApplyNearestOf<kStatisticsPerColumn, kParametersPerColumn, Centring::kOnce, kOrder>(tag, span);
    case Centring::kTwice:
      break;
  }
  ApplyNearestOf<kStatisticsPerColumn, kParametersPerColumn, Centring::kTwice, kOrder>(tag, span);
}

template <CastOrder kOrder, typename T>
void ApplyNearestOrdered(T tag, const NearestSpan& span) {
  const bool statistics = span.statistics_along == Along::kColumns;
  const bool parameters = span.parameters_along == Along::kColumns;
  if (statistics) {
    return parameters ? ApplyNearestCentred<true, true, kOrder>(tag, span)
                      : ApplyNearestCentred<true, false, kOrder>(tag, span);
  }
  parameters ? ApplyNearestCentred<false, true, kOrder>(tag, span)
             : ApplyNearestCentred<false, false, kOrder>(tag, span);
}

void ApplyNearest(const NearestSpan& span) {
  if (span.x.dtype == DType::kF64) return ApplyNearestInPairs(span);
  WithNarrowType(span.x.dtype, [&](auto tag) HWY_ATTR {
    span.cast_order == CastOrder::kAffineThenCast ? ApplyNearestOrdered<CastOrder::kAffineThenCast>(tag, span)
                                                  : ApplyNearestOrdered<CastOrder::kCastThenAffine>(tag, span);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(ApplyNearest);

void ApplyNearest(const NearestSpan& span) { HWY_DYNAMIC_DISPATCH(ApplyNearest)(span); }
}  // namespace normd::cpu
#endif  // HWY_ONCE
