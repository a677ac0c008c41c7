// One vector of partial sums, shared by the row and the column kernels: how an element becomes a difference from the
// shift, and how differences are added. NarrowSums (f32, f16, bf16 elements): plain f64, whose 29 spare bits and a
// shift near the mean are enough, or f32 for FAST. WideSums (f64 elements): error-free pairs.
// In the path: included by rows.cc, row_blocks.cc, channels.cc, columns.cc, apply.cc and residual.cc. Highway
// recompiles this file for each instruction set, hence the per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_SUMS_INL_H_
#undef NORMD_KERNELS_CPU_SUMS_INL_H_
#else
#define NORMD_KERNELS_CPU_SUMS_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/base/types.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/group_statistics.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {

// Sums of narrow elements in lanes of RealType. Read, Subtract, Times and Only prepare an element; Take adds it.
template <typename RealType>
struct NarrowSums {
  using Real = RealType;
  using Value = Vector<Real>;
  Value first, second;

  HWY_INLINE void Clear() { first = second = hn::Zero(Tag<Real>()); }
  static HWY_INLINE Value Read(Value x, Value /*lo*/, Value /*scale*/) { return x; }
  static HWY_INLINE Value Subtract(Value x, Value shift) { return hn::Sub(x, shift); }
  static HWY_INLINE Value Times(Value x, Value hi, Value /*lo*/) { return hn::Mul(x, hi); }
  template <class Mask>
  static HWY_INLINE Value Only(Mask counted, Value x) {
    return hn::IfThenElseZero(counted, x);
  }

  template <Statistic kStatistic>
  HWY_INLINE void Take(Value diff) {
    if constexpr (kStatistic == Statistic::kMeanVariance && std::is_same_v<Real, double>) {
      first = AddBesideConversions(diff, first);
    } else if (kStatistic == Statistic::kMeanVariance) {
      first = hn::Add(first, diff);
    }
    second = kStatistic == Statistic::kAbsSum ? hn::Add(second, hn::Abs(diff)) : Fma(diff, diff, second);
  }
};

// The same for f64 elements, in pairs.
struct WideSums {
  using Real = double;
  using Value = Pair;
  Pair first, second;

  HWY_INLINE void Clear() { first = second = {Zero(), Zero()}; }
  static HWY_INLINE Value Read(V x, V lo, V scale) { return {hn::Mul(x, scale), hn::Mul(lo, scale)}; }
  static HWY_INLINE Value Subtract(Value x, V shift) {
    const Pair exact = TwoSum(x.hi, hn::Neg(shift));
    return Renormalise(exact.hi, hn::Add(exact.lo, x.lo));
  }
  static HWY_INLINE Value Times(Value x, V hi, V lo) { return Multiply(x, Pair{hi, lo}); }
  static HWY_INLINE Value Only(M counted, Value x) {
    return {hn::IfThenElseZero(counted, x.hi), hn::IfThenElseZero(counted, x.lo)};
  }

  template <Statistic kStatistic>
  HWY_INLINE void Take(Value diff) {
    if (kStatistic == Statistic::kMeanVariance) first = Add(first, diff);
    if (kStatistic == Statistic::kAbsSum) {
      const M negative = hn::Lt(diff.hi, Zero());
      second = Add(second, Pair{hn::Abs(diff.hi), hn::IfThenElse(negative, hn::Neg(diff.lo), diff.lo)});
    } else {
      second = Add(second, Multiply(diff, diff));
    }
  }
};

// The Magnitude (group_statistics.h) of each lane. The bit patterns of magnitudes order as integers do: NaN above Inf
// above all other values.
struct MagnitudeLanes {
  using DI = hn::RebindToSigned<D>;
  hn::Vec<DI> largest;
  V non_finite_sum;

  HWY_INLINE void Clear() {
    largest = hn::Zero(DI());
    non_finite_sum = Zero();
  }
  HWY_INLINE void Take(V x) {
    const auto bits = hn::BitCast(DI(), hn::Abs(x));
    largest = hn::IfThenElse(hn::Gt(bits, largest), bits, largest);
    const M finite = hn::Lt(hn::Abs(x), hn::BitCast(d, hn::Set(du, 0x7FF0000000000000ull)));
    non_finite_sum = hn::Add(non_finite_sum, hn::IfThenZeroElse(finite, x));
  }
  HWY_INLINE void Store(Magnitude* out) const {
    HWY_ALIGN int64_t bits[kLanes];
    HWY_ALIGN double sums[kLanes];
    hn::Store(largest, DI(), bits);
    hn::Store(non_finite_sum, d, sums);
    for (int64_t i = 0; i < kLanes; ++i) out[i] = {static_cast<uint64_t>(bits[i]), sums[i]};
  }
};

template <typename T>
struct TypeTag {
  using Type = T;
};

// Calls f(tag, TypeTag<Sums>()) for `dtype`. This is the one place that pairs element types with their EXACT sums.
template <typename F>
HWY_INLINE auto WithElementType(DType dtype, F f) {
  switch (dtype) {
    case DType::kF16:
      return f(F16(), TypeTag<NarrowSums<double>>());
    case DType::kBF16:
      return f(BF16(), TypeTag<NarrowSums<double>>());
    case DType::kF64:
      return f(F64(), TypeTag<WideSums>());
    case DType::kF32:
      break;
  }
  return f(F32(), TypeTag<NarrowSums<double>>());
}

// Calls f(tag) for `dtype`. REQUIRES: it is not f64.
template <typename F>
HWY_INLINE auto WithNarrowType(DType dtype, F f) {
  if (dtype == DType::kF16) return f(F16());
  if (dtype == DType::kBF16) return f(BF16());
  return f(F32());
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_SUMS_INL_H_
