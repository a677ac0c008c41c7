// Elementwise kernels: the residual sum, exactly rounded, and conversions to and from f64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/residual.cc"
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
using cpu::ResidualSum;

// The elements of the residual pass through a small f64 buffer, so that a pair of dtypes needs no kernel of its own.
inline constexpr int64_t kTileElements = 512;

void ConvertToF64(const Elements& x, int64_t n, double* y) {
  WithElementType(x.dtype, [&](auto tag, auto /*sums*/) HWY_ATTR {
    const auto* HWY_RESTRICT data = static_cast<const typename decltype(tag)::Storage*>(x.data);
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t count = HWY_MIN(kLanes, n - i);
      const V value = LoadUpTo(tag, data + i, count);
      if (count == kLanes) {
        hn::StoreU(value, d, y + i);
      } else {
        HWY_ALIGN double lanes[kLanes];
        hn::Store(value, d, lanes);
        std::memcpy(y + i, lanes, static_cast<size_t>(count) * sizeof(double));
      }
    }
  });
}

void ConvertFromF64(const double* x, int64_t n, DType dtype, void* y) {
  WithElementType(dtype, [&](auto tag, auto /*sums*/) HWY_ATTR {
    auto* HWY_RESTRICT out = static_cast<typename decltype(tag)::Storage*>(y);
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t count = HWY_MIN(kLanes, n - i);
      StoreUpTo(tag, RoundTo(tag, LoadUpTo(F64(), x + i, count)), out + i, count);
    }
  });
}

// x + scale * r, rounded once to T: the sum in f64 together with the sign of its error, see RoundToOdd.
template <typename T>
HWY_INLINE V RoundedSum(T tag, V x, V r, V scale) {
  const V plain = Fma(scale, r, x);
  const Pair product = TwoProduct(scale, r);
  const Pair sum = TwoSum(x, product.hi);
  const Pair errors = TwoSum(product.lo, sum.lo);
  const Pair total = TwoSum(sum.hi, errors.hi);
  const V odd = RoundToOdd(total.hi, hn::Add(total.lo, errors.lo));
  // `plain` is used where the pairs give NaN (from Inf or NaN), or the same value: it has the right sign of zero.
  const M use_plain = hn::Or(IsNan(odd), hn::Eq(odd, plain));
  return RoundTo(tag, hn::IfThenElse(use_plain, plain, odd));
}
HWY_INLINE V RoundedSum(F64, V x, V r, V scale) { return Fma(scale, r, x); }

void AddResidualRounded(const ResidualSum& residual, void* h) {
  const Elements& x = residual.x;
  const int64_t n = residual.n;
  const V scale = Set(residual.scale);
  WithElementType(x.dtype, [&](auto tag, auto /*sums*/) HWY_ATTR {
    using Storage = typename decltype(tag)::Storage;
    const auto* HWY_RESTRICT data = static_cast<const Storage*>(x.data);
    auto* HWY_RESTRICT out = static_cast<Storage*>(h);
    HWY_ALIGN double tile[kTileElements];
    for (int64_t begin = 0; begin < n; begin += kTileElements) {
      const int64_t size = HWY_MIN(kTileElements, n - begin);
      HWY_NAMESPACE::ConvertToF64(residual.r.At(begin), size, tile);
      for (int64_t i = 0; i < size; i += kLanes) {
        const int64_t count = HWY_MIN(kLanes, size - i);
        const V sum = RoundedSum(tag, LoadUpTo(tag, data + begin + i, count), LoadUpTo(F64(), tile + i, count), scale);
        StoreUpTo(tag, sum, out + begin + i, count);
      }
    }
  });
}

void AddResidualWide(const ResidualSum& residual, double* hi, double* lo) {
  const int64_t n = residual.n;
  const V scale = Set(residual.scale);
  HWY_ALIGN double x_tile[kTileElements];
  HWY_ALIGN double r_tile[kTileElements];
  for (int64_t begin = 0; begin < n; begin += kTileElements) {
    const int64_t size = HWY_MIN(kTileElements, n - begin);
    HWY_NAMESPACE::ConvertToF64(residual.x.At(begin), size, x_tile);
    HWY_NAMESPACE::ConvertToF64(residual.r.At(begin), size, r_tile);
    for (int64_t i = 0; i < size; i += kLanes) {
      const int64_t count = HWY_MIN(kLanes, size - i);
      const V value = LoadUpTo(F64(), x_tile + i, count);
      const V addend = LoadUpTo(F64(), r_tile + i, count);
      const V plain = Fma(scale, addend, value);
      if (lo == nullptr) {
        StoreUpTo(F64(), plain, hi + begin + i, count);
        continue;
      }
      const Pair product = TwoProduct(scale, addend);
      const Pair sum = TwoSum(value, product.hi);
      const Pair total = Renormalise(sum.hi, hn::Add(sum.lo, product.lo));
      const M finite = hn::Eq(hn::Sub(total.hi, total.hi), Zero());
      // `plain` has the right sign of zero.
      const M use_plain = hn::Or(hn::Not(finite), hn::Eq(total.hi, plain));
      StoreUpTo(F64(), hn::IfThenElse(use_plain, plain, total.hi), hi + begin + i, count);
      StoreUpTo(F64(), hn::IfThenElseZero(finite, total.lo), lo + begin + i, count);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(ConvertToF64);
HWY_EXPORT(ConvertFromF64);
HWY_EXPORT(AddResidualRounded);
HWY_EXPORT(AddResidualWide);

void ConvertToF64(const Elements& x, int64_t n, double* y) { HWY_DYNAMIC_DISPATCH(ConvertToF64)(x, n, y); }
void ConvertFromF64(const double* x, int64_t n, DType dtype, void* y) {
  HWY_DYNAMIC_DISPATCH(ConvertFromF64)(x, n, dtype, y);
}
void AddResidualRounded(const ResidualSum& sum, void* h) { HWY_DYNAMIC_DISPATCH(AddResidualRounded)(sum, h); }
void AddResidualWide(const ResidualSum& sum, double* hi, double* lo) {
  HWY_DYNAMIC_DISPATCH(AddResidualWide)(sum, hi, lo);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
