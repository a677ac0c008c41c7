// The vector kernels of PowerNorm to the nearest value (nearest_power.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/nearest_power.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/nearest-inl.h"
#include "kernels/cpu/nearest_power.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::PowerRows;
using cpu::TermRows;

// ---- Sums of squares ----

template <typename T>
HWY_INLINE Pair Square(T /*tag*/, V x) {
  const V square = hn::Mul(x, x);  // of narrow elements exact
  if constexpr (!std::is_same_v<T, F64>) return {square, Zero()};
  return {square, Fma(x, x, hn::Neg(square))};
}

// Adds x^2: the sum in hi, and the errors of its additions in lo. This is TwoSum, in which products of narrow elements,
// which are exact, are fused.
template <typename T>
HWY_INLINE void AddSquare(T tag, V x, Pair* sum) {
  if constexpr (std::is_same_v<T, F64>) {
    const Pair square = Square(tag, x);
    const Pair total = TwoSum(sum->hi, square.hi);
    *sum = {total.hi, hn::Add(sum->lo, hn::Add(total.lo, square.lo))};
  } else {
    const V total = Fma(x, x, sum->hi);
    const V added = hn::Sub(total, sum->hi);
    const V of_sum = hn::Sub(sum->hi, hn::Sub(total, added));
    *sum = {total, hn::Add(sum->lo, hn::Add(of_sum, Fma(x, x, hn::Neg(added))))};
  }
}

HWY_INLINE void AddSum(const DoublePair& other, DoublePair* sum) {
  const DoublePair total = normd::TwoSum(sum->hi, other.hi);
  *sum = {total.hi, sum->lo + (other.lo + total.lo)};
}

// The sum of the squares of n elements in f64.
template <typename T>
double SumPlainly(T tag, const typename T::Storage* HWY_RESTRICT x, int64_t n) {
  constexpr int64_t kWays = 4;
  V ways[kWays];
  for (V& way : ways) way = Zero();
  int64_t i = 0;
  for (; i + kWays * kLanes <= n; i += kWays * kLanes) {
    for (int64_t way = 0; way < kWays; ++way) {
      const V v = LoadAsF64(tag, x + i + way * kLanes);
      ways[way] = Fma(v, v, ways[way]);
    }
  }
  for (; i < n; i += kLanes) {
    const V v = LoadUpTo(tag, x + i, n - i);
    ways[0] = Fma(v, v, ways[0]);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(ways[0], ways[1]), hn::Add(ways[2], ways[3]))));
}

template <typename T>
DoublePair SumSquares(T tag, const typename T::Storage* HWY_RESTRICT x, int64_t n) {
  constexpr int64_t kWays = 4;
  Pair ways[kWays];
  for (Pair& way : ways) way = {Zero(), Zero()};
  int64_t i = 0;
  for (; i + kWays * kLanes <= n; i += kWays * kLanes) {
    for (int64_t way = 0; way < kWays; ++way) AddSquare(tag, LoadAsF64(tag, x + i + way * kLanes), &ways[way]);
  }
  for (; i < n; i += kLanes) AddSquare(tag, LoadUpTo(tag, x + i, n - i), &ways[0]);
  for (const int64_t half : {2, 1}) {
    for (int64_t way = 0; way < half; ++way) {
      const Pair total = TwoSum(ways[way].hi, ways[way + half].hi);
      ways[way] = {total.hi, hn::Add(hn::Add(ways[way].lo, ways[way + half].lo), total.lo)};
    }
  }
  HWY_ALIGN double hi[kLanes], lo[kLanes];
  hn::Store(ways[0].hi, d, hi);
  hn::Store(ways[0].lo, d, lo);
  DoublePair sums[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] = {hi[lane], lo[lane]};
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) AddSum(sums[lane + half], &sums[lane]);
  }
  return normd::Renormalise(sums[0].hi, sums[0].lo);
}

// ---- Terms ----

// Reports the lanes `left` of a vector of terms.
HWY_NOINLINE void ReportTerms(const TermRows& rows, int64_t row, int64_t channel, M undecided, M left, V term) {
  HWY_ALIGN double terms[kLanes], are_left[kLanes];
  // The square of an f64 that is smaller than that may have lost digits.
  const M is_lost = hn::Lt(term, Set(0x1p-500));
  const V nan = Set(std::numeric_limits<double>::quiet_NaN());
  hn::Store(hn::IfThenElse(hn::Or(undecided, is_lost), nan, term), d, terms);
  hn::Store(hn::IfThenElseZero(left, Set(1)), d, are_left);
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    if (are_left[lane] != 0) rows.report(rows.context, {row, channel + lane, terms[lane]});
  }
}

// Adds the terms of a vector of channels to their bins; true if all of them belong there. kReports: those that do not
// are left out and reported.
template <bool kReports, typename T>
HWY_INLINE bool AddVector(T tag, const TermRows& rows, int64_t channel, Pair* bins) {
  const V stretch = Set(1 + rows.slack);
  const V least = Set(rows.least);
  const int64_t count = rows.n - channel;
  Pair sums = *bins;
  M is_any_left = hn::Lt(Zero(), Zero());
  for (int64_t row = 0; row < rows.rows; ++row) {
    const V value = LoadUpTo(tag, static_cast<const typename T::Storage*>(rows.x[row]) + channel, count);
    const V inverse = Set(rows.inverse[row].hi);
    const Pair square = Square(tag, value);
    const V product = hn::Mul(square.hi, inverse);
    V error = Fma(square.hi, inverse, hn::Neg(product));
    if constexpr (std::is_same_v<T, F64>) error = Fma(square.lo, inverse, error);
    error = Fma(square.hi, Set(rows.inverse[row].lo), error);
    V term = hn::Add(product, error);
    const V rest = hn::Sub(error, hn::Sub(term, product));
    // What rounding leaves of the term is at most half an ulp; see PowerBound::slack().
    const M undecided = hn::Not(hn::Eq(Fma(rest, stretch, term), term));
    const M is_small = hn::And(hn::Lt(term, least), hn::Not(hn::Eq(value, Zero())));
    const M left = hn::Or(undecided, is_small);
    is_any_left = hn::Or(is_any_left, left);
    if constexpr (kReports) {
      if (!hn::AllFalse(d, left)) ReportTerms(rows, row, channel, undecided, left, term);
      term = hn::IfThenZeroElse(left, term);
    }
    const V sum = hn::Add(sums.hi, term);
    sums.lo = hn::Add(sums.lo, hn::Sub(term, hn::Sub(sum, sums.hi)));
    sums.hi = sum;
  }
  *bins = sums;
  return hn::AllFalse(d, is_any_left);
}

template <typename T>
void AddTermsOf(T tag, const TermRows& rows) {
  for (int64_t channel = 0; channel < rows.n; channel += kLanes) {
    const Pair before = {hn::LoadU(d, rows.high + channel), hn::LoadU(d, rows.low + channel)};
    Pair bins = before;
    if (HWY_UNLIKELY(!AddVector<false>(tag, rows, channel, &bins))) {
      bins = before;
      AddVector<true>(tag, rows, channel, &bins);
    }
    hn::StoreU(bins.hi, d, rows.high + channel);
    hn::StoreU(bins.lo, d, rows.low + channel);
  }
}

void AddTerms(const TermRows& rows) {
  if (rows.dtype == DType::kF64) return AddTermsOf(F64(), rows);
  WithNarrowType(rows.dtype, [&](auto tag) HWY_ATTR { AddTermsOf(tag, rows); });
}

DoublePair SumSquaresInPairs(const cpu::Elements& x, int64_t n) {
  if (x.dtype == DType::kF64) return SumSquares(F64(), static_cast<const double*>(x.data), n);
  return WithNarrowType(x.dtype, [&](auto tag) HWY_ATTR {
    using Storage = typename decltype(tag)::Storage;
    return SumSquares(tag, static_cast<const Storage*>(x.data), n);
  });
}

// ---- Elements ----

// The elements of one row, and 1 / D in pairs.
template <typename T>
struct PowerRow {
  const PowerRows& all;
  int64_t index;
  const typename T::Storage* x;
  typename T::Storage* y;
  DoublePair inverse;

  PowerRow(const PowerRows& rows, int64_t row)
      : all(rows),
        index(row),
        x(static_cast<const typename T::Storage*>(rows.x.data) + row * rows.stride),
        y(static_cast<typename T::Storage*>(rows.y) + row * rows.stride) {}

  // Sets `inverse`; false if the row is not to be taken.
  bool DivideInPairs() {
    const DoublePair square = cpu::MeanSquareOf(SumSquares(T(), x, all.n), all.n, all.eps);
    inverse = normd::Reciprocal(normd::Sqrt(square));
    return cpu::TakesMeanSquare(square.hi);
  }
};

// y in pairs, and the bound of its error. `zero`: n * w is 0 exactly, so that y is b.
struct PowerSum {
  V y, rest, product, error;
  M zero;
};

template <typename T>
HWY_INLINE PowerSum SumInPairs(const PowerRow<T>& row, int64_t channel, V x) {
  const PowerRows& all = row.all;
  const V factor = hn::LoadU(d, all.factor + channel), factor_lo = hn::LoadU(d, all.factor_lo + channel);
  const V bias = hn::LoadU(d, all.bias + channel);
  const V inverse = Set(row.inverse.hi);
  const V n = hn::Mul(x, inverse);
  const V n_lo = Fma(x, Set(row.inverse.lo), Fma(x, inverse, hn::Neg(n)));
  PowerSum sum;
  sum.product = hn::Mul(n, factor);
  const V low = Fma(n, factor_lo, hn::Mul(n_lo, factor));
  const V product_lo = hn::Add(Fma(n, factor, hn::Neg(sum.product)), low);
  const Pair total = TwoSum(sum.product, bias);
  const Pair y = TwoSum(total.hi, hn::Add(total.lo, product_lo));
  sum.zero = hn::And(hn::Eq(sum.product, Zero()), hn::Or(hn::Eq(x, Zero()), hn::Eq(factor, Zero())));
  sum.y = hn::IfThenElse(sum.zero, total.hi, y.hi);
  sum.rest = hn::IfThenZeroElse(sum.zero, y.lo);
  const V of_bias = hn::Mul(hn::Abs(bias), Set(all.bound.of_bias));
  sum.error = hn::IfThenZeroElse(sum.zero, Fma(hn::Abs(sum.product), Set(all.bound.of_product), of_bias));
  return sum;
}

// True where a middle between two f64 may lie between the pair and the exact value.
HWY_INLINE M IsUndecided(F64 /*tag*/, const PowerSum& sum) {
  const M same = hn::And(hn::Eq(hn::Add(sum.y, hn::Add(sum.rest, sum.error)), sum.y),
                         hn::Eq(hn::Add(sum.y, hn::Sub(sum.rest, sum.error)), sum.y));
  const V magnitude = hn::Abs(sum.y);
  // Smaller numbers may have lost digits on the way.
  const M in_range = hn::And(hn::Ge(magnitude, Set(0x1p-500)), hn::Le(magnitude, Set(0x1p+1000)));
  return hn::Not(hn::Or(hn::And(same, in_range), sum.zero));
}
template <typename T>
HWY_INLINE M IsUndecided(T tag, const PowerSum& sum) {
  constexpr int kDropped = 53 - Narrowness<T>::kBits;
  const auto above = hn::AndNot(hn::Set(du, (uint64_t{1} << kDropped) - 1), hn::BitCast(du, sum.y));
  const V middle = hn::BitCast(d, hn::Or(above, hn::Set(du, uint64_t{1} << (kDropped - 1))));
  const V distance = hn::Abs(hn::Add(hn::Sub(sum.y, middle), sum.rest));
  // The last digit of the distance is no part of the bound.
  const M far = hn::Gt(distance, hn::Add(sum.error, sum.error));
  const V magnitude = hn::Abs(sum.y);
  const M sure = hn::And(far, hn::Gt(hn::Mul(magnitude, Set(0x1p-40)), sum.error));
  const M small = hn::Lt(magnitude, Set(std::ldexp(1.0, Narrowness<T>::kMinExponent)));
  if (HWY_LIKELY(hn::AllFalse(d, small))) return hn::Not(sure);
  NearestLanes lanes;
  lanes.fixed = hn::Add(sum.error, sum.error);
  lanes.relative = Zero();
  lanes.rounding = Set(0x1p-51);
  return hn::Or(hn::And(small, IsDoubtful(tag, sum.y, sum.product, lanes)), hn::Not(hn::Or(small, sure)));
}

// y rounded to T, and what CAST_THEN_AFFINE does after that.
template <CastOrder kOrder, typename T>
HWY_INLINE V Finish(T tag, const PowerRows& rows, int64_t channel, V y) {
  if constexpr (kOrder == CastOrder::kAffineThenCast) return y;
  const V product = MultiplyIn(tag, RoundTo(tag, y), hn::LoadU(d, rows.weight + channel));
  return AddIn(tag, product, hn::LoadU(d, rows.added + channel));
}

// Calculates a vector in pairs, and reports what they leave. REQUIRES: the row's `inverse`.
template <CastOrder kOrder, typename T>
HWY_NOINLINE void ApplyInPairs(T tag, const PowerRow<T>& row, int64_t channel) {
  const int64_t count = row.all.n - channel;
  const PowerSum sum = SumInPairs(row, channel, LoadUpTo(tag, row.x + channel, count));
  V y = sum.y;
  if constexpr (!std::is_same_v<T, F64>) y = RoundTo(tag, RoundToOdd(y, sum.rest));
  y = Finish<kOrder>(tag, row.all, channel, y);
  StoreUpTo(tag, y, row.y + channel, count);
  const M undecided = IsUndecided(tag, sum);
  if (HWY_LIKELY(hn::AllFalse(d, undecided))) return;
  HWY_ALIGN double lanes[kLanes];
  hn::Store(hn::IfThenElseZero(undecided, Set(1)), d, lanes);
  for (int64_t lane = 0; lane < HWY_MIN(count, kLanes); ++lane) {
    if (lanes[lane] != 0) row.all.report(row.all.context, row.index, channel + lane);
  }
}

// True where a middle may lie near a y that was calculated in f64, where y is subnormal in T, Inf or NaN. A y of 0
// whose bound is 0 is not: it is the product of a 0.
template <typename T>
HWY_INLINE M MayBeNear(T /*tag*/, V y, V bound) {
  constexpr int kDropped = 53 - Narrowness<T>::kBits;
  const auto above = hn::AndNot(hn::Set(du, (uint64_t{1} << kDropped) - 1), hn::BitCast(du, y));
  const V middle = hn::BitCast(d, hn::Or(above, hn::Set(du, uint64_t{1} << (kDropped - 1))));
  const V magnitude = hn::Abs(y);
  const V least = Set(std::ldexp(1.0, Narrowness<T>::kMinExponent));
  const M small = hn::And(hn::Lt(magnitude, least), hn::Gt(magnitude, Zero()));
  return hn::Or(hn::Not(hn::Gt(hn::Abs(hn::Sub(y, middle)), bound)), small);
}

// Stores a whole vector of numbers that are 0, or normal in T and no middle; what others become does not matter.
HWY_INLINE void StoreWhole(F32 /*tag*/, V y, float* HWY_RESTRICT p) { hn::StoreU(ToF32(y), df, p); }
template <typename T>
HWY_INLINE hn::Vec<DF> RoundedToF32(T /*tag*/, V y) {
  constexpr int kDropped = 53 - Narrowness<T>::kBits;
  const auto bits = hn::Add(hn::BitCast(du, y), hn::Set(du, uint64_t{1} << (kDropped - 1)));
  return ToF32(hn::BitCast(d, hn::AndNot(hn::Set(du, (uint64_t{1} << kDropped) - 1), bits)));  // exact
}
HWY_INLINE void StoreWhole(F16 tag, V y, uint16_t* HWY_RESTRICT p) {
  hn::StoreU(Narrow(tag, df, RoundedToF32(tag, y)), Raw<F16, DF>(), p);
}
HWY_INLINE void StoreWhole(BF16 tag, V y, uint16_t* HWY_RESTRICT p) {
  const hn::Rebind<uint32_t, DF> words;
  const auto upper = hn::ShiftRight<16>(hn::BitCast(words, RoundedToF32(tag, y)));
  hn::StoreU(hn::DemoteTo(Raw<BF16, DF>(), hn::BitCast(hn::Rebind<int32_t, DF>(), upper)), Raw<BF16, DF>(), p);
}

// A look in f64 at each vector; one that leaves an element is calculated again in pairs.
template <bool kHasBias, typename T>
HWY_INLINE void LookAtRow(T tag, PowerRow<T> row, double inverse) {
  const int64_t size = row.all.n;
  const auto* const x = row.x;
  auto* const y = row.y;
  const double* const factors = row.all.factor;
  const double* const biases = row.all.bias;
  const V inverses = Set(inverse), of_y = Set(row.all.bound.f64_of_y), of_bias = Set(row.all.bound.f64_of_bias);
  bool has_pairs = false;
  const auto again = [&](int64_t channel) HWY_ATTR {
    if (!has_pairs) row.DivideInPairs();
    has_pairs = true;
    ApplyInPairs<CastOrder::kAffineThenCast>(tag, row, channel);
  };
  int64_t channel = 0;
  for (; channel + kLanes <= size; channel += kLanes) {
    const V n = hn::Mul(LoadAsF64(tag, x + channel), inverses);
    const V factor = hn::LoadU(d, factors + channel);
    V value, bound;
    if constexpr (kHasBias) {
      const V bias = hn::LoadU(d, biases + channel);
      value = Fma(n, factor, bias);
      bound = Fma(hn::Abs(value), of_y, hn::Mul(hn::Abs(bias), of_bias));
    } else {
      value = hn::Mul(n, factor);
      bound = hn::Mul(hn::Abs(value), of_y);
    }
    StoreWhole(tag, value, y + channel);
    if (HWY_UNLIKELY(!hn::AllFalse(d, MayBeNear(tag, value, bound)))) again(channel);
  }
  if (channel < size) again(channel);
}

// The rows one step after the other, so that the divisions of one do not wait for those of another.
template <typename T>
uint32_t LookAtRows(T tag, const PowerRows& rows) {
  double sums[PowerRows::kMostRows], squares[PowerRows::kMostRows], inverses[PowerRows::kMostRows];
  for (int64_t row = 0; row < rows.rows; ++row) sums[row] = SumPlainly(tag, PowerRow<T>(rows, row).x, rows.n);
  for (int64_t row = 0; row < rows.rows; ++row) {
    squares[row] = sums[row] / static_cast<double>(rows.n) + rows.eps;
    inverses[row] = 1 / std::sqrt(squares[row]);
  }
  uint32_t taken = 0;
  for (int64_t row = 0; row < rows.rows; ++row) {
    if (!cpu::TakesMeanSquare(squares[row])) continue;
    taken |= uint32_t{1} << row;
    rows.has_bias ? LookAtRow<true>(tag, PowerRow<T>(rows, row), inverses[row])
                  : LookAtRow<false>(tag, PowerRow<T>(rows, row), inverses[row]);
  }
  return taken;
}

template <CastOrder kOrder, typename T>
uint32_t ApplyRowsInPairs(T tag, const PowerRows& rows) {
  uint32_t taken = 0;
  for (int64_t index = 0; index < rows.rows; ++index) {
    PowerRow<T> row(rows, index);
    if (!row.DivideInPairs()) continue;
    taken |= uint32_t{1} << index;
    for (int64_t channel = 0; channel < rows.n; channel += kLanes) ApplyInPairs<kOrder>(tag, row, channel);
  }
  return taken;
}

template <typename T>
uint32_t ApplyRows(T tag, const PowerRows& rows) {
  if (rows.cast_order == CastOrder::kCastThenAffine) {
    return ApplyRowsInPairs<CastOrder::kCastThenAffine>(tag, rows);
  }
  if constexpr (std::is_same_v<T, F64>) {
    return ApplyRowsInPairs<CastOrder::kAffineThenCast>(tag, rows);
  } else {
    return LookAtRows(tag, rows);
  }
}

uint32_t ApplyPowerRows(const PowerRows& rows) {
  if (rows.x.dtype == DType::kF64) return ApplyRows(F64(), rows);
  return WithNarrowType(rows.x.dtype, [&](auto tag) HWY_ATTR { return ApplyRows(tag, rows); });
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(SumSquaresInPairs);
HWY_EXPORT(AddTerms);
HWY_EXPORT(ApplyPowerRows);

TermBins::TermBins(int64_t n) {
  constexpr int kLogTerms = std::bit_width(static_cast<uint64_t>(TermRows::kMostTerms)) - 1;
  const int digits = std::bit_width(static_cast<uint64_t>(n));  // a term is under 2^digits
  // The sum of the terms is less than half of the anchor's last 52 binary digits; a rest is at most half a grid.
  const int grid = digits + kLogTerms - 51;
  anchor = std::ldexp(1.5, grid + 52);
  // The sum of the rests is under 2^53 units of the least term, whose leading bit is 52 above its unit.
  least = std::ldexp(1.0, grid - 1 + kLogTerms - 53 + 52);
}

DoublePair SumSquaresInPairs(const Elements& x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumSquaresInPairs)(x, n); }
void AddTerms(const TermRows& rows) { HWY_DYNAMIC_DISPATCH(AddTerms)(rows); }
uint32_t ApplyPowerRows(const PowerRows& rows) { return HWY_DYNAMIC_DISPATCH(ApplyPowerRows)(rows); }
}  // namespace normd::cpu
#endif  // HWY_ONCE
