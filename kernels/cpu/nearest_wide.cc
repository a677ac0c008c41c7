// The apply pass to the nearest value of f64 elements, and of those of a residual stream that is kept wide: in pairs.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/nearest_wide.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/certificate.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/nearest-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/cpu/wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::Along;

// True where the pair y = hi + rest, off by less than its bound, may round to another f64 than `rounded`. The last
// digit of the sums is no part of the bound, which is doubled.
HWY_INLINE M IsDoubtful(F64 /*tag*/, V rounded, const WideArithmetic::Sum& sum, const NearestLanes& lanes) {
  const V rest = hn::Sub(sum.rest, hn::Sub(rounded, sum.hi));
  const V error = Fma(hn::Abs(sum.product), lanes.relative, lanes.fixed);
  const M same = hn::And(hn::Eq(hn::Add(rounded, hn::Add(rest, error)), rounded),
                         hn::Eq(hn::Add(rounded, hn::Sub(rest, error)), rounded));
  return hn::Not(same);
}
template <typename T>
HWY_INLINE M IsDoubtful(T tag, V rounded, const WideArithmetic::Sum& sum, const NearestLanes& lanes) {
  return IsDoubtful(tag, rounded, sum.product, lanes);
}

// As NearestValue. Values that overflow on the way are doubtful, too. `zero_is_exact` is false where x + scale * r may
// be a 0 that only f64 makes of it.
template <bool kCentred, CastOrder kOrder, typename T>
HWY_INLINE V NearestWideValue(T tag, V x, V lo, const NearestLanes& lanes, bool zero_is_exact, M* doubtful) {
  constexpr bool kCastsFirst = kOrder == CastOrder::kCastThenAffine;
  const Centre centre = {lanes.scale, lanes.shift, lanes.delta, lanes.delta_lo, lanes.inverse, lanes.inverse_lo};
  const V w = kCastsFirst ? Set(1.0) : lanes.weight;
  const V b = kCastsFirst ? Set(-0.0) : lanes.bias;
  const WideArithmetic::Sum sum = WideArithmetic::AffineInPairs(x, lo, centre, PositionScale(), w, b);
  const V rounded = hn::Add(sum.hi, sum.rest);
  const V y = WideArithmetic::Choose(rounded, sum.plain);
  const M overflows = hn::And(hn::Not(hn::Lt(hn::Abs(rounded), Set(0x1p+1000))), hn::Eq(hn::Sub(x, x), Zero()));
  *doubtful = hn::Or(IsDoubtful(tag, rounded, sum, lanes), overflows);
  if (!kCentred && std::is_same_v<T, F64> && zero_is_exact) {
    const M is_zero = hn::And(hn::Eq(x, Zero()), hn::Eq(sum.hi, b));
    *doubtful = hn::AndNot(is_zero, *doubtful);
  }
  if constexpr (!kCastsFirst) return y;
  return AddIn(tag, MultiplyIn(tag, RoundTo(tag, y), lanes.weight), lanes.bias);
}

// The numbers of the vector of elements at (position, column), of which `count` exist; `run` is that of its parameters.
HWY_INLINE NearestLanes LoadWide(const NearestSpan& span, int64_t position, int64_t run, int64_t column,
                                 int64_t count) {
  const auto load = [&](Along along, int64_t one, const double* values, double absent) HWY_ATTR {
    if (values == nullptr) return Set(absent);
    if (along == Along::kColumns) return LoadUpTo(F64(), values + column, count);
    return Set(values[along == Along::kPositions ? position : one]);
  };
  const auto statistic = [&](const double* values) HWY_ATTR { return load(span.statistics_along, 0, values, 0); };
  NearestLanes lanes;
  lanes.rounding = Set(span.rounding);
  lanes.scale = statistic(span.scale);
  lanes.shift = statistic(span.shift);
  lanes.delta = statistic(span.delta);
  lanes.delta_lo = statistic(span.delta_lo);
  lanes.inverse = statistic(span.inverse);
  lanes.inverse_lo = statistic(span.inverse_lo);
  lanes.fixed = statistic(span.fixed);
  lanes.relative = statistic(span.relative);
  lanes.weight = load(span.parameters_along, run, span.weight, 1);
  lanes.bias = load(span.parameters_along, run, span.bias, -0.0);
  return lanes;
}

// Applies one vector.
template <bool kCentred, CastOrder kOrder, typename T>
HWY_INLINE void ApplyWideVector(T tag, const NearestSpan& span, int64_t position, int64_t column, int64_t count,
                                const NearestLanes& lanes, Reporter* reporter) {
  const int64_t at = position * span.stride + column;
  const V value = LoadUpTo(F64(), static_cast<const double*>(span.x.data) + at, count);
  const V low = span.x.lo == nullptr ? Zero() : LoadUpTo(F64(), span.x.lo + at, count);
  M doubtful;
  V rounded = NearestWideValue<kCentred, kOrder>(tag, value, low, lanes, span.x.lo == nullptr, &doubtful);
  if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) rounded = CutToF32(tag, rounded);
  StoreUpTo(tag, rounded, static_cast<typename T::Storage*>(span.y) + at, count);
  if (HWY_UNLIKELY(!hn::AllFalse(d, doubtful))) reporter->Add(doubtful, value, position, column, count);
}

// One loop for all spans: the numbers of a span that are not along the columns are one number in every lane.
template <bool kCentred, CastOrder kOrder, typename T>
void ApplyNearestWideOf(T tag, const NearestSpan& span) {
  Reporter reporter(span);
  const int64_t step = span.parameter_run != 0 ? span.parameter_run : HWY_MAX(int64_t{1}, span.columns);
  for (int64_t p = 0; p < span.positions; ++p) {
    for (int64_t begin = 0; begin < span.columns; begin += step) {
      for (int64_t column = begin; column < begin + step; column += kLanes) {
        const int64_t count = HWY_MIN(kLanes, begin + step - column);
        const NearestLanes lanes = LoadWide(span, p, begin / step, column, count);
        ApplyWideVector<kCentred, kOrder>(tag, span, p, column, count, lanes, &reporter);
      }
    }
  }
}

// A quick look at f64 elements: y = (x - mean) * factor + b with a mean and a factor, 1 / D times w, in pairs, without
// what Inf, NaN and zeros need.
struct QuickWide {
  V mean, mean_lo, factor, factor_lo, bias;
  V least;  // a smaller |y| is not decided
};

template <bool kCentred>
HWY_INLINE QuickWide FoldWide(const NearestLanes& lanes) {
  QuickWide n;
  n.bias = lanes.bias;
  n.factor = hn::Mul(lanes.inverse, lanes.weight);
  n.factor_lo = Fma(lanes.inverse_lo, lanes.weight, Fma(lanes.inverse, lanes.weight, hn::Neg(n.factor)));
  V fixed = Fma(hn::Abs(lanes.bias), lanes.relative, lanes.fixed);
  if constexpr (kCentred) {
    const Pair mean = TwoSum(lanes.shift, lanes.delta);
    n.mean = mean.hi;
    n.mean_lo = hn::Add(mean.lo, lanes.delta_lo);
    // The low part of the mean and of its difference from an element are rounded once each.
    fixed = Fma(hn::Abs(hn::Mul(mean.hi, n.factor)), Set(4 * kPairUnit), fixed);
  }
  const V magnitude = hn::Abs(n.factor);
  const M in_range =
      hn::And(hn::Le(magnitude, Set(0x1p+480)), hn::Or(hn::Ge(magnitude, Set(0x1p-480)), hn::Eq(lanes.weight, Zero())));
  const M usable = hn::And(hn::And(in_range, hn::Eq(lanes.scale, Set(1))), hn::Le(lanes.relative, Set(0x1p-78)));
  // The bound of the error is then at most 2^-75 |y|.
  n.least = hn::IfThenElse(usable, hn::Mul(fixed, Set(0x1p+76)), Set(std::numeric_limits<double>::infinity()));
  return n;
}

// y, which is the nearest value but in the lanes that are doubtful. What y leaves of the sum is at most half an ulp; if
// it is so small that 2^-20 more of it changes nothing, no middle lies within 2^-75 |y| of the sum.
template <bool kCentred>
HWY_INLINE V QuickWideValue(V x, const QuickWide& n, M* doubtful) {
  V difference = x;
  V error = Zero();
  if constexpr (kCentred) {
    const Pair centred = TwoSum(x, hn::Neg(n.mean));
    difference = centred.hi;
    error = hn::Mul(hn::Sub(centred.lo, n.mean_lo), n.factor);
  }
  const V product = hn::Mul(difference, n.factor);
  error = Fma(difference, n.factor_lo, error);
  error = hn::Add(Fma(difference, n.factor, hn::Neg(product)), error);
  const Pair sum = TwoSum(product, n.bias);
  const V rest = hn::Add(sum.lo, error);
  const V y = hn::Add(sum.hi, rest);
  const V left = hn::Sub(rest, hn::Sub(y, sum.hi));
  const M same = hn::Eq(Fma(left, Set(1 + 0x1p-20), y), y);
  const V magnitude = hn::Abs(y);
  const M in_range = hn::And(hn::Gt(magnitude, n.least), hn::Lt(magnitude, Set(0x1p+1000)));
  *doubtful = hn::Not(hn::And(same, in_range));
  return y;
}

// One vector of QuickWideValue; where that leaves any element, the vector is calculated again.
template <bool kCentred>
HWY_INLINE void LookAtWide(const NearestSpan& span, const QuickWide& numbers, int64_t position, int64_t run,
                           int64_t column, int64_t count, Reporter* reporter) {
  const int64_t at = position * span.stride + column;
  const V x = LoadUpTo(F64(), static_cast<const double*>(span.x.data) + at, count);
  M doubtful;
  const V y = QuickWideValue<kCentred>(x, numbers, &doubtful);
  if (HWY_LIKELY(hn::AllFalse(d, doubtful))) return StoreUpTo(F64(), y, static_cast<double*>(span.y) + at, count);
  const NearestLanes lanes = LoadWide(span, position, run, column, count);
  ApplyWideVector<kCentred, CastOrder::kAffineThenCast>(F64(), span, position, column, count, lanes, reporter);
}

// A few positions share the numbers if these are along the columns.
template <bool kCentred, bool kPerColumn>
void LookAtWideSpan(const NearestSpan& span) {
  Reporter reporter(span);
  const int64_t step = span.parameter_run != 0 ? span.parameter_run : HWY_MAX(int64_t{1}, span.columns);
  const bool is_along_positions =
      span.statistics_along == Along::kPositions || span.parameters_along == Along::kPositions;
  const int64_t together = kPerColumn && !is_along_positions ? 4 : 1;
  for (int64_t p = 0; p < span.positions; p += together) {
    const int64_t stop = HWY_MIN(span.positions, p + together);
    for (int64_t begin = 0; begin < span.columns; begin += step) {
      QuickWide numbers;
      if constexpr (!kPerColumn) numbers = FoldWide<kCentred>(LoadWide(span, p, begin / step, begin, kLanes));
      for (int64_t column = begin; column < begin + step; column += kLanes) {
        const int64_t count = HWY_MIN(kLanes, begin + step - column);
        if constexpr (kPerColumn) numbers = FoldWide<kCentred>(LoadWide(span, p, begin / step, column, count));
        for (int64_t i = p; i < stop; ++i) {
          LookAtWide<kCentred>(span, numbers, i, begin / step, column, count, &reporter);
        }
      }
    }
  }
}

// Of f64 elements that are not a pair.
void LookAtWideElements(const NearestSpan& span) {
  const bool per_column = span.statistics_along == Along::kColumns || span.parameters_along == Along::kColumns;
  if (span.centring == Centring::kNone) {
    return per_column ? LookAtWideSpan<false, true>(span) : LookAtWideSpan<false, false>(span);
  }
  per_column ? LookAtWideSpan<true, true>(span) : LookAtWideSpan<true, false>(span);
}

template <typename T>
void ApplyNearestWide(T tag, const NearestSpan& span) {
  const bool centred = span.centring != Centring::kNone;
  if (span.cast_order == CastOrder::kAffineThenCast) {
    return centred ? ApplyNearestWideOf<true, CastOrder::kAffineThenCast>(tag, span)
                   : ApplyNearestWideOf<false, CastOrder::kAffineThenCast>(tag, span);
  }
  centred ? ApplyNearestWideOf<true, CastOrder::kCastThenAffine>(tag, span)
          : ApplyNearestWideOf<false, CastOrder::kCastThenAffine>(tag, span);
}

void ApplyNearestInPairs(const NearestSpan& span) {
  if (span.y_dtype != DType::kF64) {
    return WithNarrowType(span.y_dtype, [&](auto tag) HWY_ATTR { ApplyNearestWide(tag, span); });
  }
  const bool quickly = span.x.lo == nullptr && span.cast_order == CastOrder::kAffineThenCast;
  quickly ? LookAtWideElements(span) : ApplyNearestWide(F64(), span);
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();
