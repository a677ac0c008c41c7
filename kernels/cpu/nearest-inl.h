// What elements to the nearest value have in common: the numbers of a vector, the test of an element against the middle
// between two values of its type, and the report of those that are undecided.
// In the path: included by nearest.cc and nearest_wide.cc. Highway recompiles this file for each instruction set, hence
// the per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_NEAREST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_NEAREST_INL_H_
#undef NORMD_KERNELS_CPU_NEAREST_INL_H_
#else
#define NORMD_KERNELS_CPU_NEAREST_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
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
      // What NaN and Inf give is known.
      if (doubts[lane] == 0 || !std::isfinite(values[lane])) continue;
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

// True where a middle between two adjacent values of T, or 0, whose sides have different signs, may lie between y and
// the exact value. `product` is n * w. An element that is exactly 0 is not doubtful if its bound is 0. A y that is NaN
// or Inf is doubtful: n may have left the range of f64, and an infinite w asks for the sign of n, however small it is.
// Nothing is where the bound is negative, see GroupBound.
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
  // Also where one of them is NaN.
  const M near = hn::AndNot(hn::Gt(distance, bound), hn::Ge(lanes.fixed, Zero()));
  const M small =
      hn::And(hn::Lt(magnitude, Set(std::ldexp(1.0, Narrowness<T>::kMinExponent))), hn::Gt(magnitude, Zero()));
  if (HWY_LIKELY(hn::AllFalse(d, small))) return near;
  // The middles of subnormal values are the odd multiples of half an ulp of theirs.
  constexpr int kUlp = Narrowness<T>::kMinExponent - Narrowness<T>::kBits + 1;
  const V c = Set(std::ldexp(1.5, kUlp + 52));
  const V from_value = hn::Abs(hn::Sub(magnitude, hn::Sub(hn::Add(magnitude, c), c)));
  const V from_middle = hn::Sub(Set(std::ldexp(1.0, kUlp - 1)), from_value);
  const M is_near_zero = hn::Le(magnitude, bound);
  return hn::Or(hn::And(small, hn::Or(hn::Le(from_middle, bound), is_near_zero)), hn::AndNot(small, near));
}

// An f32 of y that rounds to T as y does: its first 24 bits, except for tiny numbers, of which f32 has fewer.
template <typename T>
HWY_INLINE V CutToF32(T tag, V y) {
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Lt(hn::Abs(y), Set(0x1p-126))))) return RoundTo(tag, y);
  return CutTo24Bits(y);
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_NEAREST_INL_H_
