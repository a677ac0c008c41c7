// The apply pass: y = ((x * scale - shift) - delta) * inverse * w + b over spans. Narrow elements run through the loops
// of elements-inl.h and factors-inl.h, in f32. f64 elements and PowerNorm run through the general loop of this file.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/apply.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/factors-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/cpu/wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::ApplySpan;

// Narrow elements: plain f64, rounded once at the end, or after each step for CAST_THEN_AFFINE.
struct NarrowArithmetic {
  static HWY_INLINE V Normalise(V x, V /*lo*/, const Centre& c, const PositionScale& pre) {
    const V value = hn::Mul(x, Set(pre.hi));  // by exactly 1 unless this is PowerNorm
    return hn::Mul(hn::Sub(hn::Sub(value, c.shift), c.delta_hi), c.inverse_hi);
  }
  static HWY_INLINE V Affine(V x, V lo, const Centre& c, const PositionScale& pre, V w, V b) {
    return hn::Add(hn::Mul(Normalise(x, lo, c, pre), w), b);
  }
};

// One vector of y, rounded as kOrder says.
template <typename Arithmetic, CastOrder kOrder, typename TOut>
HWY_INLINE V Result(TOut tag, V x, V lo, const Centre& c, const PositionScale& pre, V w, V b) {
  if (kOrder == CastOrder::kAffineThenCast) return Arithmetic::Affine(x, lo, c, pre, w, b);
  return AddIn(tag, MultiplyIn(tag, RoundTo(tag, Arithmetic::Normalise(x, lo, c, pre)), w), b);
}

template <typename Arithmetic, CastOrder kOrder, typename TIn, typename TOut>
void ApplyTyped(TIn in, TOut out, const ApplySpan& span) {
  const PositionScale no_scale;
  const Centre one = span.statistics_per_column ? Centre() : Broadcast(*span.statistics);
  for (int64_t p = 0; p < span.positions; ++p) {
    const auto* HWY_RESTRICT x = static_cast<const typename TIn::Storage*>(span.x.data) + p * span.stride;
    const double* lo = span.x.lo == nullptr ? nullptr : span.x.lo + p * span.stride;
    auto* HWY_RESTRICT y = static_cast<typename TOut::Storage*>(span.y) + p * span.stride;
    const PositionScale& pre = span.pre == nullptr ? no_scale : span.pre[p * span.pre_stride];
    // An absent b is -0, which leaves every value unchanged, zeros included.
    const double* const weight = span.parameters.weight;
    const double* const bias = span.parameters.bias;
    const V w_one = Set(weight == nullptr || span.parameters_per_column ? 1.0 : *weight);
    const V b_one = Set(bias == nullptr || span.parameters_per_column ? -0.0 : *bias);
    const auto step = [&](int64_t i, int64_t count) HWY_ATTR {
      const Centre c = span.statistics_per_column ? LoadCentre(span.column_statistics[0], i, count) : one;
      const bool per_column = span.parameters_per_column;
      const V w = per_column && weight != nullptr ? LoadUpTo(F64(), weight + i, count) : w_one;
      const V b = per_column && bias != nullptr ? LoadUpTo(F64(), bias + i, count) : b_one;
      const V low = lo == nullptr ? Zero() : LoadUpTo(F64(), lo + i, count);
      const V value = Result<Arithmetic, kOrder>(out, LoadUpTo(in, x + i, count), low, c, pre, w, b);
      StoreUpTo(out, value, y + i, count);
    };
    // One loop, the incomplete vector included: a second copy of the body would double the compile time.
    for (int64_t i = 0; i < span.columns; i += kLanes) step(i, HWY_MIN(kLanes, span.columns - i));
  }
}

template <typename Arithmetic, typename TIn, typename TOut>
void ApplyOrdered(TIn in, TOut out, const ApplySpan& span) {
  if (span.cast_order == CastOrder::kAffineThenCast) {
    ApplyTyped<Arithmetic, CastOrder::kAffineThenCast>(in, out, span);
  } else {
    ApplyTyped<Arithmetic, CastOrder::kCastThenAffine>(in, out, span);
  }
}

template ApplyElementsFunction<F32> ApplyElements<F32>;
template ApplyElementsFunction<F16> ApplyElements<F16>;
template ApplyElementsFunction<BF16> ApplyElements<BF16>;

template <typename T>
void ApplyNarrow(T tag, const ApplySpan& span) {
  if (span.statistics_per_position) return ApplyAllPositions(tag, span);
  if (span.statistics_per_column) return ApplyAllColumns(tag, span);
  const int64_t run = span.parameter_run == 0 ? span.columns : span.parameter_run;
  const RowTask<T> task = {.x = static_cast<const typename T::Storage*>(span.x.data),
                           .y = static_cast<typename T::Storage*>(span.y),
                           .n = run,
                           .parameters = &span.parameters,
                           .per_element = span.parameters_per_column,
                           .caching = {span.stream, span.prefetch},
                           .pieces = {span.positions, span.stride, span.columns / run}};
  ApplyElements(tag, task, *span.statistics, {FormOf(task, span.centring), span.may_be_nan});
}

void Apply(const ApplySpan& span) {
  const bool general = span.x.dtype == DType::kF64 || span.pre != nullptr;
  if (!general) return WithNarrowType(span.x.dtype, [&](auto tag) HWY_ATTR { ApplyNarrow(tag, span); });
  switch (span.x.dtype) {
    case DType::kF32:
      return ApplyOrdered<NarrowArithmetic>(F32(), F32(), span);
    case DType::kF16:
      return ApplyOrdered<NarrowArithmetic>(F16(), F16(), span);
    case DType::kBF16:
      return ApplyOrdered<NarrowArithmetic>(BF16(), BF16(), span);
    case DType::kF64:
      break;
  }
  switch (span.y_dtype) {
    case DType::kF32:
      return ApplyOrdered<WideArithmetic>(F64(), F32(), span);
    case DType::kF16:
      return ApplyOrdered<WideArithmetic>(F64(), F16(), span);
    case DType::kBF16:
      return ApplyOrdered<WideArithmetic>(F64(), BF16(), span);
    case DType::kF64:
      return ApplyOrdered<WideArithmetic>(F64(), F64(), span);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(Apply);

void Apply(const ApplySpan& span) { HWY_DYNAMIC_DISPATCH(Apply)(span); }
void FlushStreams() { hwy::FlushStream(); }
}  // namespace normd::cpu
#endif  // HWY_ONCE
