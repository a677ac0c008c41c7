// Elements of adjacent columns or channels to the nearest value: a quick look at each block that shows whether any
// element lies near a middle, and a careful look, by ApplyNearest, at the blocks in which one may.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/nearest_columns.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/certificate.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::Along;
using cpu::ColumnsToFold;
using cpu::FoldedArrays;
using cpu::FoldedNumbers;
using cpu::NearestSpan;
using cpu::QuickSpan;
using cpu::Undecided;

void ApplyNearest(const NearestSpan& span);  // nearest.cc

// A part of a span.
struct Block {
  int64_t position, positions, column, columns;
};

// Calculates a block of the span by ApplyNearest.
HWY_NOINLINE void ApplyCarefully(const QuickSpan& span, const Block& block) {
  struct Context {
    const NearestSpan* whole;
    const Block* block;
  } context = {&span.careful, &block};
  NearestSpan part = span.careful;
  const int64_t offset = block.position * part.stride + block.column;
  const auto advance = [&](Along along, const double*& numbers) {
    if (numbers == nullptr || along == Along::kNothing) return;
    numbers += along == Along::kColumns ? block.column : block.position;
  };
  for (const double** numbers : {&part.shift, &part.delta, &part.inverse, &part.fixed, &part.relative}) {
    advance(part.statistics_along, *numbers);
  }
  for (const double** numbers : {&part.weight, &part.bias}) advance(part.parameters_along, *numbers);
  part.x = part.x.At(offset);
  part.y = static_cast<char*>(part.y) + offset * SizeOf(part.y_dtype);
  part.positions = block.positions;
  part.columns = block.columns;
  part.context = &context;
  part.report = [](void* of, const Undecided* elements, int64_t n) {
    const auto& known = *static_cast<const Context*>(of);
    Undecided moved[NearestSpan::kMostUndecided];
    for (int64_t i = 0; i < n; ++i) {
      moved[i] = {known.block->position + elements[i].position, known.block->column + elements[i].column,
                  elements[i].x};
    }
    known.whole->report(known.whole->context, moved, n);
  };
  HWY_NAMESPACE::ApplyNearest(part);
}

// The middles of subnormal values lie elsewhere than the quick look expects, and |y| is nearer to one than this.
double LeastDistance(DType dtype) {
  return dtype == DType::kF16 ? 0x1p-25 : dtype == DType::kBF16 ? 0x1p-134 : 0x1p-150;
}

HWY_INLINE bool IsFinite(double value) { return value - value == 0; }

// True if f and g, and what they make of an element, are in the range of Real with all their digits.
template <typename Real>
HWY_INLINE bool Folds(double f, double g) {
  constexpr double kMost = std::is_same_v<Real, float> ? 0x1p+100 : 0x1p+800;
  constexpr double kLeast = std::is_same_v<Real, float> ? 0x1p-100 : 0;
  return std::abs(f) <= kMost && std::abs(g) <= kMost && (std::abs(f) >= kLeast || f == 0);
}

template <typename Real>
void FoldColumnsOf(const ColumnsToFold& columns, Real* HWY_RESTRICT numbers, const FoldedArrays& to) {
  const int64_t n = columns.count;
  Real* HWY_RESTRICT offsets = numbers + n;
  Real* HWY_RESTRICT fixed = offsets + n;
  Real* HWY_RESTRICT relative = fixed + n;
  double* HWY_RESTRICT careful_fixed = to.fixed;
  double* HWY_RESTRICT careful_relative = to.relative;
  const double least = LeastDistance(columns.dtype);
  const double factor = columns.bound_factor;
  for (int64_t c = 0; c < n; ++c) {
    const NormalisedBound bound = {columns.beta == nullptr ? 0 : columns.beta[c], columns.kappa[c]};
    const double w = columns.weight == nullptr ? 1 : columns.weight[c];
    const double b = columns.bias == nullptr ? -0.0 : columns.bias[c];
    const double f = columns.inverse[c] * w;
    const double of_mean = columns.mean == nullptr ? 0 : columns.mean[c] * f;
    const double g = b - of_mean;
    const ElementBound quick =
        std::is_same_v<Real, float> ? BoundOfFoldedInF32(bound, of_mean, w, b) : BoundOfFolded(bound, of_mean, w, b);
    const bool folds = Folds<Real>(f, g) && bound.decides();
    numbers[c] = static_cast<Real>(folds ? f : 0);
    offsets[c] = static_cast<Real>(folds ? g : 0);
    fixed[c] = static_cast<Real>(folds ? quick.fixed * factor + least : std::numeric_limits<double>::infinity());
    relative[c] = static_cast<Real>(quick.relative * factor);
    const ElementBound careful = BoundOfElements(bound, w, b);
    // Where w is 0 and no b is added, y has the sign of n, which an element near the mean may not show.
    const bool keeps_sign = columns.mean != nullptr && w == 0 && b == 0 && std::signbit(b);
    // Statistics that are not finite leave nothing undecided, see GroupBound.
    const bool is_finite = IsFinite(columns.mean == nullptr ? 0 : columns.mean[c]) && IsFinite(columns.inverse[c]) &&
                           columns.inverse[c] != 0;
    careful_fixed[c] = is_finite ? careful.fixed * factor + (keeps_sign ? 0x1p-1000 : 0) : -1;
    careful_relative[c] = is_finite ? careful.relative * factor : 0;
  }
}

void FoldColumns(const ColumnsToFold& columns, const FoldedArrays& to) {
  to.numbers32 == nullptr ? FoldColumnsOf(columns, to.numbers, to) : FoldColumnsOf(columns, to.numbers32, to);
}

#if HWY_TARGET != HWY_SCALAR

// The type that elements of T are calculated in, and the elements of one step.
template <typename T>
using LookReal = std::conditional_t<std::is_same_v<T, F32>, double, float>;
template <typename T>
inline constexpr int64_t kStepElements = 2 * kLanesOf<LookReal<T>>;

// Two vectors of numbers or elements, in the order of LoadTwo.
template <typename T>
struct Both {
  Vector<LookReal<T>> first, second;
};
HWY_INLINE Both<F32> LoadElements(F32 tag, const float* HWY_RESTRICT p) {
  return {LoadAs<double>(tag, p), LoadAs<double>(tag, p + kLanes)};
}
template <typename T>
HWY_INLINE Both<T> LoadElements(T tag, const uint16_t* HWY_RESTRICT p) {
  const TwoVectors v = LoadTwo(tag, p);
  return {v.first, v.second};
}
HWY_INLINE Both<F32> LoadNumbers(F32, const double* HWY_RESTRICT p) {
  return {hn::LoadU(d, p), hn::LoadU(d, p + kLanes)};
}
template <typename T>
HWY_INLINE Both<T> LoadNumbers(T tag, const float* HWY_RESTRICT p) {
  const TwoVectors v = LoadTwoFor(tag, p);
  return {v.first, v.second};
}
template <typename T>
HWY_INLINE Both<T> SetBoth(T /*tag*/, LookReal<T> value) {
  const auto v = hn::Set(Tag<LookReal<T>>(), value);
  return {v, v};
}

// Stores a vector, past the caches if kStream.
template <bool kStream, class DT>
HWY_INLINE void StoreVector(hn::Vec<DT> v, DT dt, hn::TFromD<DT>* HWY_RESTRICT p) {
  kStream ? hn::Stream(v, dt, p) : hn::StoreU(v, dt, p);
}

// Rounds to T and stores. An element that is a middle may go either way. REQUIRES: no NaN.
template <bool kStream>
HWY_INLINE void StoreBoth(F32, const Both<F32>& v, float* HWY_RESTRICT p) {
  if constexpr (kStream) {
    const Tag<float> floats;
    return hn::Stream(hn::Combine(floats, ToF32(v.second), ToF32(v.first)), floats, p);
  }
  hn::StoreU(ToF32(v.first), df, p);
  hn::StoreU(ToF32(v.second), df, p + kLanes);
}
template <bool kStream>
HWY_INLINE void StoreBoth(F16 tag, const Both<F16>& v, uint16_t* HWY_RESTRICT p) {
  const Tag<float> floats;
  const Raw<F16, Tag<float>> raw;
  StoreVector<kStream>(Narrow(tag, floats, v.first), raw, p);
  StoreVector<kStream>(Narrow(tag, floats, v.second), raw, p + kLanesOf<float>);
}
template <bool kStream>
HWY_INLINE void StoreBoth(BF16, const Both<BF16>& v, uint16_t* HWY_RESTRICT p) {
  const hn::RebindToUnsigned<Tag<float>> words;
  const auto half = hn::Set(words, 0x8000u);
  const auto even = hn::ShiftRight<16>(hn::Add(hn::BitCast(words, v.first), half));
  const auto odd = hn::And(hn::Add(hn::BitCast(words, v.second), half), hn::Set(words, 0xFFFF0000u));
  const hn::Repartition<uint16_t, Tag<float>> raw;
  StoreVector<kStream>(hn::BitCast(raw, hn::Or(even, odd)), raw, p);
}

// The middle between the two values of T that y lies between.
HWY_INLINE V MiddleBeside(F32, V y) {
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_castsi512_pd(_mm512_ternarylogic_epi64(_mm512_castpd_si512(y.raw), _mm512_set1_epi64(0x1FFFFFFF),
                                                         _mm512_set1_epi64(0x10000000), 0xBA))};
#else
  const auto above = hn::AndNot(hn::Set(du, uint64_t{0x1FFFFFFF}), hn::BitCast(du, y));
  return hn::BitCast(d, hn::Or(above, hn::Set(du, uint64_t{0x10000000})));
#endif
}
template <typename T>
HWY_INLINE Vector<float> MiddleBeside(T, Vector<float> y) {
  constexpr uint32_t kHalf = std::is_same_v<T, BF16> ? 0x8000 : 0x1000;
#if HWY_TARGET == HWY_AVX3
  return Vector<float>{_mm512_castsi512_ps(_mm512_ternarylogic_epi32(
      _mm512_castps_si512(y.raw), _mm512_set1_epi32(2 * kHalf - 1), _mm512_set1_epi32(kHalf), 0xBA))};
#else
  const hn::RebindToUnsigned<Tag<float>> words;
  const auto above = hn::AndNot(hn::Set(words, 2 * kHalf - 1), hn::BitCast(words, y));
  return hn::BitCast(Tag<float>(), hn::Or(above, hn::Set(words, kHalf)));
#endif
}

// The smaller of `so_far`, which is not negative, and |value|.
HWY_INLINE V Lesser(V so_far, V value) {
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_range_pd(so_far.raw, value.raw, (2 << 2) | 2)};
#else
  return hn::Min(hn::Abs(value), so_far);
#endif
}
HWY_INLINE Vector<float> Lesser(Vector<float> so_far, Vector<float> value) {
#if HWY_TARGET == HWY_AVX3
  return Vector<float>{_mm512_range_ps(so_far.raw, value.raw, (2 << 2) | 2)};
#else
  return hn::Min(hn::Abs(value), so_far);
#endif
}

// The elements of a step as they lie in memory, in unsigned integers.
template <typename T>
using Bits = hn::Repartition<hwy::MakeUnsigned<typename T::Storage>, Tag<float>>;

// The numbers of a step of columns, or of one position in every lane, and what its elements have come to.
template <typename T>
struct Look {
  using Real = LookReal<T>;
  using Storage = typename T::Storage;
  Both<T> factor, offset, least;  // the least distance to a middle
  hn::Vec<Bits<T>> most;          // the largest |x|, which is an order of integers, too; NaN is the largest

  HWY_INLINE Look(T tag, const Both<T>& of_factor, const Both<T>& of_offset) : factor(of_factor), offset(of_offset) {
    Clear(tag);
  }
  HWY_INLINE void Clear(T tag) {
    least = SetBoth(tag, std::numeric_limits<Real>::infinity());
    most = hn::Zero(Bits<T>());
  }

  // Calculates and stores one step.
  template <bool kStream>
  HWY_INLINE void Step(T tag, const Storage* HWY_RESTRICT x, Storage* HWY_RESTRICT y) {
    using Unsigned = hn::TFromD<Bits<T>>;
    constexpr auto kMagnitude = static_cast<Unsigned>(static_cast<Unsigned>(~Unsigned{0}) >> 1);
    const auto bits = hn::LoadU(Bits<T>(), reinterpret_cast<const Unsigned*>(x));
    most = hn::Max(most, hn::And(bits, hn::Set(Bits<T>(), kMagnitude)));
    const Both<T> of = LoadElements(tag, x);
    const Both<T> value = {Fma(of.first, factor.first, offset.first), Fma(of.second, factor.second, offset.second)};
    least.first = Lesser(least.first, hn::Sub(value.first, MiddleBeside(tag, value.first)));
    least.second = Lesser(least.second, hn::Sub(value.second, MiddleBeside(tag, value.second)));
    StoreBoth<kStream>(tag, value, y);
  }

  // The bound of the error of each lane, |y| <= |x| |factor| + |offset|. Inf or NaN where an x is not finite.
  HWY_INLINE Both<T> Limit(T tag, const Both<T>& fixed, const Both<T>& relative) const {
    HWY_ALIGN Storage elements[kStepElements<T>];
    hn::Store(most, Bits<T>(), reinterpret_cast<hn::TFromD<Bits<T>>*>(elements));
    const Both<T> x = LoadElements(tag, elements);
    const auto limit = [](auto of_x, auto f, auto g, auto of_fixed, auto of_relative)
                           HWY_ATTR { return Fma(Fma(of_x, hn::Abs(f), hn::Abs(g)), of_relative, of_fixed); };
    return {limit(x.first, factor.first, offset.first, fixed.first, relative.first),
            limit(x.second, factor.second, offset.second, fixed.second, relative.second)};
  }

  // A bit for each lane in which an element may lie near a middle: those of `first`, then those of `second`.
  HWY_INLINE uint64_t Near(const Both<T>& limit) const {
    const Tag<Real> real;
    const auto first = hn::Not(hn::Gt(least.first, limit.first));
    const auto second = hn::Not(hn::Gt(least.second, limit.second));
    if (HWY_LIKELY(hn::AllFalse(real, hn::Or(first, second)))) return 0;
    uint8_t bits[2][8] = {};
    hn::StoreMaskBits(real, first, bits[0]);
    hn::StoreMaskBits(real, second, bits[1]);
    uint64_t words[2];
    std::memcpy(words, bits, sizeof(words));
    return words[0] | words[1] << kLanesOf<Real>;
  }
};

// The element of a step that a bit of Look::Near means.
template <typename T>
HWY_INLINE int64_t ElementOfBit(T /*tag*/, int64_t bit) {
  constexpr int64_t kHalf = kLanesOf<LookReal<T>>;
  if constexpr (!std::is_same_v<T, BF16>) return bit;
  return bit < kHalf ? 2 * bit : 2 * (bit - kHalf) + 1;
}

// The bits of T's value that is y rounded, which is no middle, not tiny and no NaN.
HWY_INLINE float RoundedBits(F32, double y) { return static_cast<float>(y); }
HWY_INLINE uint16_t RoundedBits(BF16, double y) {
  uint64_t bits;
  std::memcpy(&bits, &y, sizeof(bits));
  bits = (bits + (uint64_t{1} << 44)) & ~((uint64_t{1} << 45) - 1);
  double rounded;
  std::memcpy(&rounded, &bits, sizeof(bits));
  const auto cut = static_cast<float>(rounded);  // exact
  uint32_t word;
  std::memcpy(&word, &cut, sizeof(word));
  return static_cast<uint16_t>(word >> 16);
}
HWY_INLINE uint16_t RoundedBits(F16, double y) {
  uint64_t bits;
  std::memcpy(&bits, &y, sizeof(bits));
  bits += uint64_t{1} << 41;
  const auto exponent = static_cast<int64_t>(bits >> 52 & 0x7FF) - 1023 + 15;
  const uint64_t magnitude = exponent >= 31 ? 0x7C00 : static_cast<uint64_t>(exponent) << 10 | (bits >> 42 & 0x3FF);
  return static_cast<uint16_t>(bits >> 63 << 15 | magnitude);
}

HWY_INLINE float ZeroBits(F32, bool is_negative) { return is_negative ? -0.0F : 0.0F; }
template <typename T>
HWY_INLINE uint16_t ZeroBits(T, bool is_negative) {
  return is_negative ? 0x8000 : 0;
}

// Calculates one element in f64, as ApplyNearest does, which gets what that leaves.
template <typename T>
HWY_NOINLINE void ApplyOne(T tag, const QuickSpan& span, int64_t position, int64_t column) {
  constexpr int kBits = std::is_same_v<T, F32> ? 24 : std::is_same_v<T, BF16> ? 8 : 11;
  constexpr double kLeast = std::is_same_v<T, F16> ? 0x1p-14 : 0x1p-126;
  constexpr uint64_t kHalf = uint64_t{1} << (52 - kBits);
  using Storage = typename T::Storage;
  const NearestSpan& all = span.careful;
  const int64_t offset = position * all.stride + column;
  const int64_t at = all.statistics_along == Along::kColumns ? column : position;
  double n = ElementAt(tag, static_cast<const Storage*>(all.x.data) + offset);
  if (all.centring != Centring::kNone) n -= all.shift[at];
  if (all.centring == Centring::kTwice) n -= all.delta[at];
  n *= all.inverse[at];
  const double product = all.weight == nullptr ? n : n * all.weight[at];
  const double y = all.bias == nullptr ? product : product + all.bias[at];
  const double magnitude = std::abs(y);
  uint64_t bits;
  std::memcpy(&bits, &magnitude, sizeof(bits));
  bits = (bits & ~(2 * kHalf - 1)) | kHalf;
  double middle;
  std::memcpy(&middle, &bits, sizeof(bits));
  const double bound = magnitude * all.rounding + (std::abs(product) * all.relative[at] + all.fixed[at]);
  if (magnitude == 0 && bound == 0) {  // an element that is the mean exactly
    const auto zero = ZeroBits(tag, std::signbit(y));
    std::memcpy(static_cast<Storage*>(all.y) + offset, &zero, sizeof(zero));
    return;
  }
  const bool is_usual = magnitude >= kLeast && magnitude <= 0x1p+100;
  if (!is_usual || !(std::abs(magnitude - middle) > bound)) return ApplyCarefully(span, {position, 1, column, 1});
  const auto rounded = RoundedBits(tag, y);
  std::memcpy(static_cast<Storage*>(all.y) + offset, &rounded, sizeof(rounded));
}

// Calculates the elements of one step at (position, column) again, of which `near` are near a middle.
template <typename T>
HWY_NOINLINE void ApplyStep(T tag, const QuickSpan& span, uint64_t near, int64_t position, int64_t column) {
  constexpr int kMost = 6;  // as many single elements take as long as a step
  if (hwy::PopCount(near) > kMost) return ApplyCarefully(span, {position, 1, column, kStepElements<T>});
  for (; near != 0; near &= near - 1) {
    const auto bit = static_cast<int64_t>(hwy::Num0BitsBelowLS1Bit_Nonzero64(near));
    ApplyOne(tag, span, position, column + ElementOfBit(tag, bit));
  }
}

template <typename Real>
HWY_INLINE const FoldedNumbers<Real>& NumbersOf(const QuickSpan& span) {
  if constexpr (std::is_same_v<Real, float>) {
    return span.numbers32;
  } else {
    return span.numbers;
  }
}

// One step of columns from `column` on, at kPositions positions.
template <bool kStream, int64_t kPositions, typename T>
HWY_INLINE void LookAtColumns(T tag, const QuickSpan& span, const FoldedNumbers<LookReal<T>>& numbers, int64_t position,
                              int64_t column) {
  using Storage = typename T::Storage;
  const int64_t stride = span.careful.stride;
  const int64_t offset = position * stride + column;
  const auto* const x = static_cast<const Storage*>(span.careful.x.data) + offset;
  auto* const y = static_cast<Storage*>(span.careful.y) + offset;
  Look<T> look(tag, LoadNumbers(tag, numbers.factor + column), LoadNumbers(tag, numbers.offset + column));
  for (int64_t p = 0; p < kPositions; ++p) {
    if (span.prefetch) hwy::Prefetch(x + (p + kPositions) * stride);
    look.template Step<kStream>(tag, x + p * stride, y + p * stride);
  }
  const Both<T> limit =
      look.Limit(tag, LoadNumbers(tag, numbers.fixed + column), LoadNumbers(tag, numbers.relative + column));
  const uint64_t near = look.Near(limit);
  if (HWY_LIKELY(near == 0)) return;
  if (kPositions == 1) return ApplyStep(tag, span, near, position, column);
  if (hwy::PopCount(near) > kStepElements<T> / 2) {
    return ApplyCarefully(span, {position, kPositions, column, kStepElements<T>});
  }
  for (int64_t p = 0; p < kPositions; ++p) {
    look.Clear(tag);
    look.template Step<false>(tag, x + p * stride, y + p * stride);
    const uint64_t here = look.Near(limit);
    if (here != 0) ApplyStep(tag, span, here, position + p, column);
  }
}

// Statistics along the columns: a few positions share the loads of the numbers. The last step overlaps the one before
// it, which y, not being x, allows.
template <bool kStream, typename T>
void LookAlongColumns(T tag, const QuickSpan& span) {
  constexpr int64_t kStep = kStepElements<T>;
  constexpr int64_t kPositions = std::is_same_v<T, F32> ? 16 : 8;  // of 16-bit elements more lie near a middle
  const FoldedNumbers<LookReal<T>> numbers = NumbersOf<LookReal<T>>(span);
  const int64_t columns = span.careful.columns;
  const auto sweep = [&](int64_t position, auto positions) HWY_ATTR {
    constexpr int64_t kHere = decltype(positions)::value;
    int64_t c = 0;
    for (; c + kStep <= columns; c += kStep) LookAtColumns<kStream, kHere>(tag, span, numbers, position, c);
    if (c < columns) LookAtColumns<false, kHere>(tag, span, numbers, position, columns - kStep);
  };
  const int64_t all = span.careful.positions;
  int64_t p = 0;
  for (; p + kPositions <= all; p += kPositions) sweep(p, std::integral_constant<int64_t, kPositions>());
  constexpr int64_t kFew = 4;
  for (; p + kFew <= all; p += kFew) sweep(p, std::integral_constant<int64_t, kFew>());
  for (; p < all; ++p) sweep(p, std::integral_constant<int64_t, 1>());
}

// Statistics along the positions, whose elements have the same numbers: looks at a few steps of each at once.
template <bool kStream, typename T>
void LookAlongPositions(T tag, const QuickSpan& span) {
  using Storage = typename T::Storage;
  constexpr int64_t kStep = kStepElements<T>;
  // Of 16-bit elements more lie near a middle.
  constexpr int64_t kAtOnce = (std::is_same_v<T, F32> ? 32 : 8) * kStep;
  const FoldedNumbers<LookReal<T>> numbers = NumbersOf<LookReal<T>>(span);
  const int64_t columns = span.careful.columns;
  for (int64_t p = 0; p < span.careful.positions; ++p) {
    const int64_t row = p * span.careful.stride;
    const auto* const x = static_cast<const Storage*>(span.careful.x.data) + row;
    auto* const y = static_cast<Storage*>(span.careful.y) + row;
    const Both<T> fixed = SetBoth(tag, numbers.fixed[p]);
    const Both<T> relative = SetBoth(tag, numbers.relative[p]);
    Look<T> look(tag, SetBoth(tag, numbers.factor[p]), SetBoth(tag, numbers.offset[p]));
    for (int64_t begin = 0; begin < columns; begin += kAtOnce) {
      const int64_t end = HWY_MIN(columns, begin + kAtOnce);
      look.Clear(tag);
      int64_t c = begin;
      for (; c + kStep <= end; c += kStep) look.template Step<kStream>(tag, x + c, y + c);
      if (c < end) look.template Step<false>(tag, x + end - kStep, y + end - kStep);
      const Both<T> limit = look.Limit(tag, fixed, relative);
      if (HWY_LIKELY(look.Near(limit) == 0)) continue;
      for (c = begin; c < end; c += kStep) {
        const int64_t at = HWY_MIN(c, end - kStep);
        look.Clear(tag);
        look.template Step<false>(tag, x + at, y + at);
        const uint64_t here = look.Near(limit);
        if (here != 0) ApplyStep(tag, span, here, p, at);
      }
    }
  }
}

template <bool kStream, typename T>
void LookAt(T tag, const QuickSpan& span) {
  span.careful.statistics_along == Along::kColumns ? LookAlongColumns<kStream>(tag, span)
                                                   : LookAlongPositions<kStream>(tag, span);
}

// Streaming stores need alignment.
template <typename T>
bool Streams(const QuickSpan& span) {
  constexpr int64_t kSize = static_cast<int64_t>(sizeof(typename T::Storage));
  constexpr int64_t kBytes = kStepElements<T> * kSize;
  return span.stream && reinterpret_cast<uintptr_t>(span.careful.y) % kBytes == 0 &&
         span.careful.stride * kSize % kBytes == 0;
}

void ApplyNearestQuickly(const QuickSpan& span) {
  const NearestSpan& all = span.careful;
  WithNarrowType(all.x.dtype, [&](auto tag) HWY_ATTR {
    using T = decltype(tag);
    if (all.columns < kStepElements<T>) return ApplyCarefully(span, {0, all.positions, 0, all.columns});
    Streams<T>(span) ? LookAt<true>(tag, span) : LookAt<false>(tag, span);
  });
}

#else  // HWY_SCALAR

void ApplyNearestQuickly(const QuickSpan& span) {
  ApplyCarefully(span, {0, span.careful.positions, 0, span.careful.columns});
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace normd::cpu {
HWY_EXPORT(ApplyNearestQuickly);
HWY_EXPORT(FoldColumns);

void ApplyNearestQuickly(const QuickSpan& span) { HWY_DYNAMIC_DISPATCH(ApplyNearestQuickly)(span); }
void FoldColumns(const ColumnsToFold& columns, const FoldedArrays& to) {
  HWY_DYNAMIC_DISPATCH(FoldColumns)(columns, to);
}
}  // namespace normd::cpu
#endif  // HWY_ONCE
