// The apply pass of narrow elements to the nearest value: y in f64, with a test of every element against the middle
// between the two values of the type that it lies between (kernels/certificate.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/nearest.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/cpu/wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::Along;
using cpu::NearestSpan;
using cpu::Undecided;

// The significand bits of T and the least exponent of its normal values.
template <typename T>
struct Narrowness;
template <>
struct Narrowness<F32> {
  static constexpr int kBits = 24, kMinExponent = -126;
};
template <>
struct Narrowness<BF16> {
  static constexpr int kBits = 8, kMinExponent = -126;
};
template <>
struct Narrowness<F16> {
  static constexpr int kBits = 11, kMinExponent = -14;
};

// The numbers of one vector of elements.
struct NearestLanes {
  V shift, delta, inverse, fixed, relative;
  V scale, delta_lo, inverse_lo;  // of f64 elements
  V rounding;                     // of y, see kRoundingOfY
  V weight, bias;
};

// Collects the elements of a span that are undecided.
class Reporter {
 public:
  explicit Reporter(const NearestSpan& span) : span_(span) {}
  ~Reporter() { Flush(); }
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  // The lanes of a vector whose first element is at (position, column), of which the first `count` exist.
  HWY_NOINLINE void Add(M doubtful, V x, int64_t position, int64_t column, int64_t count) {
    HWY_ALIGN double values[kLanes], doubts[kLanes];
    hn::Store(x, d, values);
    hn::Store(hn::IfThenElseZero(doubtful, Set(1)), d, doubts);
    for (int64_t lane = 0; lane < count; ++lane) {
      if (doubts[lane] == 0) continue;
      if (size_ == NearestSpan::kMostUndecided) Flush();
      elements_[size_++] = {position, column + lane, values[lane]};
    }
  }

 private:
  void Flush() {
    if (size_ > 0) span_.report(span_.context, elements_, size_);
    size_ = 0;
  }

  const NearestSpan& span_;
  int64_t size_ = 0;
  Undecided elements_[NearestSpan::kMostUndecided];
};

// True where a middle between two adjacent values of T may lie between y and the exact value. `product` is n * w. An
// element that is exactly 0 is not doubtful if its bound is 0.
template <typename T>
HWY_INLINE M IsDoubtful(T /*tag*/, V y, V product, const NearestLanes& lanes) {
  constexpr int kDropped = 53 - Narrowness<T>::kBits;
  constexpr uint64_t kLow = (uint64_t{1} << kDropped) - 1;
  constexpr uint64_t kHalf = uint64_t{1} << (kDropped - 1);
  const auto above = hn::AndNot(hn::Set(du, kLow), hn::BitCast(du, y));
  const V middle = hn::BitCast(d, hn::Or(above, hn::Set(du, kHalf)));
  const V distance = hn::Abs(hn::Sub(y, middle));
  const V magnitude = hn::Abs(y);
  const V rounding = hn::Mul(magnitude, lanes.rounding);
  const V bound = hn::Add(rounding, Fma(hn::Abs(product), lanes.relative, lanes.fixed));
  const M near = hn::Le(distance, bound);
  const M small =
      hn::And(hn::Lt(magnitude, Set(std::ldexp(1.0, Narrowness<T>::kMinExponent))), hn::Gt(magnitude, Zero()));
  if (HWY_LIKELY(hn::AllFalse(d, small))) return near;
  // The middles of subnormal values are the odd multiples of half an ulp of theirs.
  constexpr int kUlp = Narrowness<T>::kMinExponent - Narrowness<T>::kBits + 1;
  const V c = Set(std::ldexp(1.5, kUlp + 52));
  const V from_value = hn::Abs(hn::Sub(magnitude, hn::Sub(hn::Add(magnitude, c), c)));
  const V from_middle = hn::Sub(Set(std::ldexp(1.0, kUlp - 1)), from_value);
  return hn::Or(hn::And(small, hn::Le(from_middle, bound)), hn::AndNot(small, near));
}

// y in 24 bits, of which the last is set if anything was cut off: rounding that to T rounds y once. Tiny numbers, of
// which f32 has fewer bits, are rounded by hand.
template <typename T>
HWY_INLINE V CutToF32(T tag, V y) {
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Lt(hn::Abs(y), Set(0x1p-126))))) return RoundTo(tag, y);
  const auto low = hn::Set(du, uint64_t{0x1FFFFFFF});
  const auto bits = hn::BitCast(du, y);
  const auto is_cut = hn::And(hn::Add(hn::And(bits, low), low), hn::Set(du, uint64_t{0x20000000}));
  return hn::BitCast(d, hn::Or(hn::AndNot(low, bits), is_cut));
}

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

// ---- f64 elements ----

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

// One loop for all spans: the numbers of a span that are not along the columns are one number in every lane.
template <bool kCentred, CastOrder kOrder, typename T>
void ApplyNearestWideOf(T tag, const NearestSpan& span) {
  Reporter reporter(span);
  const bool runs = span.parameter_run != 0;
  for (int64_t p = 0; p < span.positions; ++p) {
    const auto* const x = static_cast<const double*>(span.x.data) + p * span.stride;
    const double* const lo = span.x.lo == nullptr ? nullptr : span.x.lo + p * span.stride;
    auto* const y = static_cast<typename T::Storage*>(span.y) + p * span.stride;
    const int64_t step = runs ? span.parameter_run : HWY_MAX(int64_t{1}, span.columns);
    for (int64_t begin = 0; begin < span.columns; begin += step) {
      for (int64_t column = begin; column < begin + step; column += kLanes) {
        const int64_t count = HWY_MIN(kLanes, begin + step - column);
        const auto load = [&](Along along, int64_t one, const double* values, double absent) HWY_ATTR {
          if (values == nullptr) return Set(absent);
          if (along == Along::kColumns) return LoadUpTo(F64(), values + column, count);
          return Set(values[along == Along::kPositions ? p : one]);
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
        lanes.weight = load(span.parameters_along, begin / step, span.weight, 1);
        lanes.bias = load(span.parameters_along, begin / step, span.bias, -0.0);
        const V value = LoadUpTo(F64(), x + column, count);
        const V low = lo == nullptr ? Zero() : LoadUpTo(F64(), lo + column, count);
        M doubtful;
        V rounded = NearestWideValue<kCentred, kOrder>(tag, value, low, lanes, lo == nullptr, &doubtful);
        if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) rounded = CutToF32(tag, rounded);
        StoreUpTo(tag, rounded, y + column, count);
        if (HWY_UNLIKELY(!hn::AllFalse(d, doubtful))) reporter.Add(doubtful, value, p, column, count);
      }
    }
  }
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

void ApplyNearest(const NearestSpan& span) {
  if (span.x.dtype == DType::kF64) {
    if (span.y_dtype == DType::kF64) return ApplyNearestWide(F64(), span);
    return WithNarrowType(span.y_dtype, [&](auto tag) HWY_ATTR { ApplyNearestWide(tag, span); });
  }
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
