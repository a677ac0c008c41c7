// f64 elements of y, and those of residual streams that are kept wide, in error-free pairs.
// In the path: included by apply.cc and nearest.cc. Highway recompiles this file for each instruction set, hence the
// per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_WIDE_INL_H_
#undef NORMD_KERNELS_CPU_WIDE_INL_H_
#else
#define NORMD_KERNELS_CPU_WIDE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/group_statistics.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::PositionScale;

// GroupStatistics of one vector of elements, lane by lane.
struct Centre {
  V scale, shift, delta_hi, delta_lo, inverse_hi, inverse_lo;
};

HWY_INLINE Centre Broadcast(const GroupStatistics& s) {
  return {Set(s.scale), Set(s.shift), Set(s.delta.hi), Set(s.delta.lo), Set(s.inverse.hi), Set(s.inverse.lo)};
}
HWY_INLINE Centre LoadCentre(const ColumnStatistics& s, int64_t column, int64_t count) {
  return {LoadUpTo(F64(), s.scale + column, count),      LoadUpTo(F64(), s.shift + column, count),
          LoadUpTo(F64(), s.delta_hi + column, count),   LoadUpTo(F64(), s.delta_lo + column, count),
          LoadUpTo(F64(), s.inverse_hi + column, count), LoadUpTo(F64(), s.inverse_lo + column, count)};
}

// f64 elements: pairs throughout.
struct WideArithmetic {
  // A vector of values in pairs, and `plain`, the results of the same formula in plain f64. They have the right sign of
  // zero, Inf and NaN, and are used where the pairs give NaN or the same value.
  struct Values {
    Pair pairs;
    V plain;
  };
  static HWY_INLINE V Choose(V paired, V plain) {
    return hn::IfThenElse(hn::Or(IsNan(paired), hn::Eq(paired, plain)), plain, paired);
  }
  static HWY_INLINE Values Centred(Pair x, const Centre& c, const PositionScale& pre) {
    Centre scaled = c;
    scaled.scale = hn::Mul(c.scale, Set(pre.scale));  // powers of two, at least one of them 1
    const Values result = Scaled(x, scaled, pre);
    const M far = hn::And(hn::Gt(scaled.scale, Set(1.0)), hn::Ge(hn::Abs(x.hi), Set(kFarBeyond)));
    if (HWY_LIKELY(hn::AllFalse(d, far))) return result;
    return ScaleLate(far, result, x, scaled, pre);
  }
  static HWY_INLINE Values Scaled(Pair x, const Centre& c, const PositionScale& pre) {
    const Pair scaled = {hn::Mul(x.hi, c.scale), hn::Mul(x.lo, c.scale)};
    const Pair value = Multiply(scaled, {Set(pre.hi), Set(pre.lo)});  // by exactly 1 unless this is PowerNorm
    const V plain = hn::Sub(hn::Sub(hn::Mul(scaled.hi, Set(pre.hi)), c.shift), c.delta_hi);
    const Pair shifted = TwoSum(value.hi, hn::Neg(c.shift));
    const Pair centred = TwoSum(shifted.hi, hn::Neg(c.delta_hi));
    const V rest = hn::Add(centred.lo, hn::Add(shifted.lo, hn::Sub(value.lo, c.delta_lo)));
    return {Multiply(Renormalise(centred.hi, rest), {c.inverse_hi, c.inverse_lo}), hn::Mul(plain, c.inverse_hi)};
  }
  // Recalculates the lanes `far` of `early`, with the scale applied at the end.
  static HWY_NOINLINE Values ScaleLate(M far, const Values& early, Pair x, const Centre& c, const PositionScale& pre) {
    Centre unscaled = c;
    unscaled.scale = Set(1.0);
    const Values late = Scaled(x, unscaled, pre);
    const auto choose = [&](V of_late, V of_early)
                            HWY_ATTR { return hn::IfThenElse(far, hn::Mul(of_late, c.scale), of_early); };
    return {{choose(late.pairs.hi, early.pairs.hi), choose(late.pairs.lo, early.pairs.lo)},
            choose(late.plain, early.plain)};
  }
  static HWY_INLINE V Normalise(V x, V lo, const Centre& c, const PositionScale& pre) {
    const Values value = Centred({x, lo}, c, pre);
    return Choose(value.pairs.hi, value.plain);
  }
  // y before it is rounded to f64, and `plain` as above; the product n * w for the bound of the error.
  struct Sum {
    V hi, rest;
    V plain;
    V product;
  };
  static HWY_INLINE Sum AffineInPairs(V x, V lo, const Centre& c, const PositionScale& pre, V w, V b) {
    const Values value = Centred({x, lo}, c, pre);
    const Pair scaled = TwoProduct(value.pairs.hi, w);
    const Pair sum = TwoSum(scaled.hi, b);
    return {sum.hi, hn::Add(sum.lo, Fma(value.pairs.lo, w, scaled.lo)), hn::Add(hn::Mul(value.plain, w), b), scaled.hi};
  }
  static HWY_INLINE V Affine(V x, V lo, const Centre& c, const PositionScale& pre, V w, V b) {
    const Sum sum = AffineInPairs(x, lo, c, pre, w, b);
    return Choose(hn::Add(sum.hi, sum.rest), sum.plain);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_WIDE_INL_H_
