// Elements of adjacent columns or channels to the nearest value: a quick look at each block that shows whether any
// element lies near a middle, and a careful look, by ApplyNearest, at the blocks in which one may.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/nearest_columns.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// foreach_target.h first.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/few-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/look-inl.h"
#include "kernels/cpu/pair_look-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
using cpu::Along;
using cpu::FoldedNumbers;
using cpu::FoldedPairs;
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

#if HWY_TARGET != HWY_SCALAR

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
  bits &= ~(2 * kHalf - 1);
  const uint64_t numbers[] = {bits, bits | kHalf, bits + 2 * kHalf};
  double below, middle, above;
  std::memcpy(&below, &numbers[0], sizeof(below));
  std::memcpy(&middle, &numbers[1], sizeof(middle));
  std::memcpy(&above, &numbers[2], sizeof(above));
  const double bound = magnitude * all.rounding + (std::abs(product) * all.relative[at] + all.fixed[at]);
  if (magnitude == 0 && bound == 0) {  // an element that is the mean exactly
    const auto zero = ZeroBits(tag, std::signbit(y));
    std::memcpy(static_cast<Storage*>(all.y) + offset, &zero, sizeof(zero));
    return;
  }
  const bool is_usual = magnitude >= kLeast && magnitude <= 0x1p+100;
  // The bound is doubled, see ElementBound. Where half of it is less than a quarter of an ulp, this is the only middle
  // that it can reach.
  const double error = bound / 2;
  const bool is_near = !(std::abs(magnitude - middle) > error && error < (above - below) / 4);
  if (!is_usual || is_near) return ApplyCarefully(span, {position, 1, column, 1});
  const auto rounded = RoundedBits(tag, y);
  std::memcpy(static_cast<Storage*>(all.y) + offset, &rounded, sizeof(rounded));
}

// Calculates the elements of one step at (position, column) again for which `bits` has a bit; element_of(bit) is its
// place in the step.
template <typename T, typename ElementOf>
HWY_NOINLINE void ApplySome(T tag, const QuickSpan& span, uint64_t bits, int64_t position, int64_t column,
                            ElementOf element_of) {
  constexpr int kMost = 8;  // as many single elements take as long as a step
  if (hwy::PopCount(bits) > kMost) return ApplyCarefully(span, {position, 1, column, kStepElements<T>});
  for (; bits != 0; bits &= bits - 1) {
    const auto bit = static_cast<int64_t>(hwy::Num0BitsBelowLS1Bit_Nonzero64(bits));
    ApplyOne(tag, span, position, column + element_of(bit));
  }
}

// Elements that have the same numbers: the first one, how far the next ones lie from one another, and the column that
// none goes beyond.
struct AlikeElements {
  int64_t position, column, count, next_position, next_column, last_column;

  HWY_INLINE int64_t Position(int64_t i) const { return position + i * next_position; }
  HWY_INLINE int64_t Column(int64_t i) const { return HWY_MIN(column + i * next_column, last_column); }
};

// Calculates some elements as ApplyOne does, which gets those that are left, but all in one vector or a few.
template <typename T>
HWY_NOINLINE void ApplyAlike(T tag, const QuickSpan& span, const AlikeElements& elements) {
  const NearestSpan& all = span.careful;
  const int64_t at = all.statistics_along == Along::kColumns ? elements.column : elements.position;
  const double weight = all.weight == nullptr ? 1 : all.weight[at];
  const double bias = all.bias == nullptr ? -0.0 : all.bias[at];
  const auto* const x = static_cast<const typename T::Storage*>(all.x.data);
  auto* const y = static_cast<typename T::Storage*>(all.y);
  for (int64_t begin = 0; begin < elements.count; begin += kLanes) {
    const int64_t count = HWY_MIN(kLanes, elements.count - begin);
    const auto offset = [&](int64_t i) {
      return elements.Position(begin + i) * all.stride + elements.Column(begin + i);
    };
    Few<T> few;
    V value = few.Gather(tag, x, count, offset);
    if (all.centring != Centring::kNone) value = hn::Sub(value, Set(all.shift[at]));
    if (all.centring == Centring::kTwice) value = hn::Sub(value, Set(all.delta[at]));
    const V product = hn::Mul(hn::Mul(value, Set(all.inverse[at])), Set(weight));
    const V result = hn::Add(product, Set(bias));
    const V of_product = Fma(hn::Abs(product), Set(all.relative[at]), Set(all.fixed[at]));
    const V bound = Fma(hn::Abs(result), Set(all.rounding), of_product);
    for (unsigned left = few.Scatter(tag, result, AreSure(tag, result, bound), y, count, offset); left != 0;
         left &= left - 1) {
      const auto i = begin + static_cast<int64_t>(hwy::Num0BitsBelowLS1Bit_Nonzero32(left));
      ApplyOne(tag, span, elements.Position(i), elements.Column(i));
    }
  }
}

// A load waits for a store to an address that is the same but for a multiple of 4 KiB. True where x and y of all
// positions may be that far apart.
template <typename T>
HWY_INLINE bool Collides(const QuickSpan& span) {
  return span.careful.stride * static_cast<int64_t>(sizeof(typename T::Storage)) % 4096 == 0;
}

// Calls step(from, p) for positions 0 to kPositions - 1 with a step of elements each, which are those of x at p *
// stride. If they collide, all are loaded before y is stored.
template <int64_t kPositions, bool kCollide, typename T, typename Step>
HWY_INLINE void ForPositions(T /*tag*/, const typename T::Storage* x, int64_t stride, Step step) {
  if constexpr (kCollide) {
    using Storage = typename T::Storage;
    constexpr int64_t kElements = kStepElements<T>;
    HWY_ALIGN Storage elements[kPositions * kElements];
    for (int64_t p = 0; p < kPositions; ++p) {
      std::memcpy(elements + p * kElements, x + p * stride, kElements * sizeof(Storage));
    }
    for (int64_t p = 0; p < kPositions; ++p) step(elements + p * kElements, p);
  } else {
    for (int64_t p = 0; p < kPositions; ++p) step(x + p * stride, p);
  }
}

// ---- f32: the distances of a look to their middles are collected ----

// Of the lanes of a look: the elements of more of them take as long as all elements.
inline constexpr size_t kMostLanes = 8;

// What a look at any column starts with: nothing.
struct NoLook {};
HWY_INLINE NoLook StartLook(F32 /*tag*/, const QuickSpan& /*span*/) { return {}; }

// One step of columns from `column` on, at kPositions positions.
template <bool kStream, int64_t kPositions, bool kCollide>
HWY_INLINE void LookAtPositions(F32 tag, const QuickSpan& span, NoLook /*look*/, int64_t position, int64_t column) {
  const FoldedNumbers& numbers = span.numbers;
  const int64_t stride = span.careful.stride;
  const int64_t offset = position * stride + column;
  const auto* const x = static_cast<const float*>(span.careful.x.data) + offset;
  auto* const y = static_cast<float*>(span.careful.y) + offset;
  Look look(LoadNumbers(tag, numbers.factor + column), LoadNumbers(tag, numbers.offset + column));
  ForPositions<kPositions, kCollide>(tag, x, stride, [&](const float* from, int64_t p) HWY_ATTR {
    if (span.prefetch) hwy::Prefetch(x + (p + kPositions) * stride);
    look.Step<kStream>(from, y + p * stride);
  });
  const Both<F32> limit =
      look.Limit(LoadNumbers(tag, numbers.fixed + column), LoadNumbers(tag, numbers.relative + column));
  const uint64_t near = look.Near(limit);
  if (HWY_LIKELY(near == 0)) return;
  if (kPositions == 1) return ApplySome(tag, span, near, position, column, [](int64_t bit) { return bit; });
  if (hwy::PopCount(near) > kMostLanes) {
    return ApplyCarefully(span, {position, kPositions, column, kStepElements<F32>});
  }
  for (uint64_t bits = near; bits != 0; bits &= bits - 1) {
    const auto element = static_cast<int64_t>(hwy::Num0BitsBelowLS1Bit_Nonzero64(bits));
    ApplyAlike(tag, span, {position, column + element, kPositions, 1, 0, column + element});
  }
}

// Columns [begin, end) of a position, at least a step.
template <bool kStream>
HWY_INLINE void LookAtPosition(F32 tag, const QuickSpan& span, Look look, int64_t p, int64_t begin, int64_t end) {
  constexpr int64_t kStep = kStepElements<F32>;
  const FoldedNumbers& numbers = span.numbers;
  const int64_t row = p * span.careful.stride;
  const auto* const x = static_cast<const float*>(span.careful.x.data) + row;
  auto* const y = static_cast<float*>(span.careful.y) + row;
  int64_t c = begin;
  for (; c + kStep <= end; c += kStep) look.Step<kStream>(x + c, y + c);
  if (c < end) look.Step<false>(x + end - kStep, y + end - kStep);
  uint64_t near = look.Near(look.Limit(SetBoth(tag, numbers.fixed[p]), SetBoth(tag, numbers.relative[p])));
  if (HWY_LIKELY(near == 0)) return;
  if (hwy::PopCount(near) > kMostLanes) {
    const int64_t from = HWY_MIN(begin, end - kStep);
    return ApplyCarefully(span, {p, 1, from, end - from});
  }
  for (; near != 0; near &= near - 1) {
    const auto element = static_cast<int64_t>(hwy::Num0BitsBelowLS1Bit_Nonzero64(near));
    const int64_t steps = (end - begin + kStep - 1) / kStep;
    ApplyAlike(tag, span, {p, begin + element, steps, 0, kStep, end - kStep + element});
  }
}

HWY_INLINE Look LookOf(F32 tag, const QuickSpan& span, NoLook /*start*/, int64_t p) {
  return Look(SetBoth(tag, span.numbers.factor[p]), SetBoth(tag, span.numbers.offset[p]));
}

// ---- 16-bit types: each element near a middle is calculated again at once ----

// The element of a step that a bit of PairLook::Step means.
template <typename T>
HWY_INLINE int64_t ElementOfBit(T /*tag*/, int64_t bit) {
  constexpr int64_t kHalf = kLanesOf<float>;
  if constexpr (!std::is_same_v<T, BF16>) return bit;
  return bit < kHalf ? 2 * bit : 2 * (bit - kHalf) + 1;
}

// Applies the elements of a step again that PairLook::Step() finds.
template <typename T>
HWY_NOINLINE void ApplyNear(T tag, const QuickSpan& span, uint64_t near, int64_t position, int64_t column) {
  ApplySome(tag, span, near, position, column, [](int64_t bit) { return ElementOfBit(T(), bit); });
}

// Applies the elements of a block of whole steps again that PairLook::Unusual() finds.
template <typename T>
HWY_NOINLINE void ApplyUnusual(T tag, const QuickSpan& span, const Block& block) {
  const PairLook<T> look(span.limits);
  constexpr int64_t kStep = kStepElements<T>;
  constexpr size_t kMost = 16;  // as many single elements take as long as a block
  const auto each_step = [&](auto take) HWY_ATTR {
    for (int64_t p = block.position; p < block.position + block.positions; ++p) {
      for (int64_t c = block.column; c < block.column + block.columns; c += kStep) {
        const int64_t column = HWY_MIN(c, block.column + block.columns - kStep);
        take(look.Unusual(static_cast<const uint16_t*>(span.careful.y) + p * span.careful.stride + column), p, column);
      }
    }
  };
  size_t count = 0;
  each_step([&](uint64_t bits, int64_t, int64_t) { count += hwy::PopCount(bits); });
  if (count > kMost) return ApplyCarefully(span, block);
  each_step([&](uint64_t bits, int64_t p, int64_t column) {
    ApplySome(tag, span, bits, p, column, [](int64_t bit) { return bit; });
  });
}

template <typename T>
HWY_INLINE PairLook<T> StartLook(T /*tag*/, const QuickSpan& span) {
  return PairLook<T>(span.limits);
}

// `look` comes by value, so that a store to y does not change it.
template <bool kStream, int64_t kPositions, bool kCollide, typename T>
HWY_INLINE void LookAtPositions(T tag, const QuickSpan& span, PairLook<T> look, int64_t position, int64_t column) {
  const int64_t stride = span.careful.stride;
  const int64_t offset = position * stride + column;
  const auto* const x = static_cast<const uint16_t*>(span.careful.x.data) + offset;
  auto* const y = static_cast<uint16_t*>(span.careful.y) + offset;
  const bool prefetch = span.prefetch;
  const auto numbers = PairNumbers<T>::OfColumns(tag, span.pairs, column);
  ForPositions<kPositions, kCollide>(tag, x, stride, [&](const uint16_t* from, int64_t p) HWY_ATTR {
    if (prefetch) hwy::Prefetch(x + (p + kPositions) * stride);
    const uint64_t near = look.template Step<kStream>(tag, numbers, from, y + p * stride);
    if (HWY_UNLIKELY(near != 0)) ApplyNear(tag, span, near, position + p, column);
  });
  if (HWY_UNLIKELY(look.IsUnusual())) ApplyUnusual(tag, span, {position, kPositions, column, kStepElements<T>});
}

// The numbers of a position in every lane.
template <typename T>
struct PairsOfPosition {
  PairNumbers<T> numbers;
  PairLook<T> look;
};
template <typename T>
HWY_INLINE PairsOfPosition<T> LookOf(T tag, const QuickSpan& span, const PairLook<T>& start, int64_t p) {
  return {PairNumbers<T>::OfPosition(tag, span.pairs, p), start};
}

// Columns [begin, end) of a position, at least a step. `of` comes by value, so that a store to y does not change it.
template <bool kStream, typename T>
HWY_INLINE void LookAtPosition(T tag, const QuickSpan& span, PairsOfPosition<T> of, int64_t p, int64_t begin,
                               int64_t end) {
  constexpr int64_t kStep = kStepElements<T>;
  const int64_t row = p * span.careful.stride;
  const auto* const x = static_cast<const uint16_t*>(span.careful.x.data) + row;
  auto* const y = static_cast<uint16_t*>(span.careful.y) + row;
  const auto step = [&](auto stream, int64_t c) HWY_ATTR {
    const uint64_t near = of.look.template Step<decltype(stream)::value>(tag, of.numbers, x + c, y + c);
    if (HWY_UNLIKELY(near != 0)) ApplyNear(tag, span, near, p, c);
  };
  int64_t c = begin;
  for (; c + kStep <= end; c += kStep) step(std::bool_constant<kStream>(), c);
  if (c < end) step(std::false_type(), end - kStep);
  if (HWY_UNLIKELY(of.look.IsUnusual())) {
    const int64_t from = HWY_MIN(begin, end - kStep);
    ApplyUnusual(tag, span, {p, 1, from, end - from});
  }
}

// All columns of the positions [begin, end).
template <bool kStream, typename T>
HWY_INLINE void LookAtShortPositions(T tag, const QuickSpan& span, PairLook<T> look, int64_t begin, int64_t end) {
  constexpr int64_t kStep = kStepElements<T>;
  const int64_t columns = span.careful.columns;
  const int64_t stride = span.careful.stride;
  const auto* x = static_cast<const uint16_t*>(span.careful.x.data) + begin * stride;
  auto* y = static_cast<uint16_t*>(span.careful.y) + begin * stride;
  const cpu::FoldedPairs pairs = span.pairs;
  for (int64_t p = begin; p < end; ++p, x += stride, y += stride) {
    const auto numbers = PairNumbers<T>::OfPosition(tag, pairs, p);
    const auto step = [&](auto stream, int64_t c) HWY_ATTR {
      const uint64_t near = look.template Step<decltype(stream)::value>(tag, numbers, x + c, y + c);
      if (HWY_UNLIKELY(near != 0)) ApplyNear(tag, span, near, p, c);
    };
    int64_t c = 0;
    for (; c + kStep <= columns; c += kStep) step(std::bool_constant<kStream>(), c);
    if (c < columns) step(std::false_type(), columns - kStep);
  }
  if (HWY_UNLIKELY(look.IsUnusual())) ApplyUnusual(tag, span, {begin, end - begin, 0, columns});
}

// ---- Either ----

// Statistics along the columns: a few positions share the loads of the numbers. The last step overlaps the one before
// it, which y, not being x, allows.
template <bool kStream, bool kCollide, typename T>
void LookAlongColumns(T tag, const QuickSpan& span) {
  constexpr int64_t kStep = kStepElements<T>;
  constexpr int64_t kPositions = std::is_same_v<T, F32> ? 16 : 8;
  const int64_t columns = span.careful.columns;
  const auto start = StartLook(tag, span);
  const auto sweep = [&](int64_t position, auto positions) HWY_ATTR {
    constexpr int64_t kHere = decltype(positions)::value;
    int64_t c = 0;
    for (; c + kStep <= columns; c += kStep) LookAtPositions<kStream, kHere, kCollide>(tag, span, start, position, c);
    if (c < columns) LookAtPositions<false, kHere, kCollide>(tag, span, start, position, columns - kStep);
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
  constexpr int64_t kAtOnce = (std::is_same_v<T, F32> ? 32 : 16) * kStepElements<T>;
  const int64_t columns = span.careful.columns;
  const auto start = StartLook(tag, span);
  if constexpr (!std::is_same_v<T, F32>) {
    const int64_t at_once = kAtOnce / columns;  // positions
    for (int64_t p = 0; at_once > 1 && p < span.careful.positions; p += at_once) {
      LookAtShortPositions<kStream>(tag, span, start, p, HWY_MIN(span.careful.positions, p + at_once));
    }
    if (at_once > 1) return;
  }
  for (int64_t p = 0; p < span.careful.positions; ++p) {
    const auto look = LookOf(tag, span, start, p);
    for (int64_t begin = 0; begin < columns; begin += kAtOnce) {
      LookAtPosition<kStream>(tag, span, look, p, begin, HWY_MIN(columns, begin + kAtOnce));
    }
  }
}

template <bool kStream, typename T>
void LookAt(T tag, const QuickSpan& span) {
  if (span.careful.statistics_along != Along::kColumns) return LookAlongPositions<kStream>(tag, span);
  Collides<T>(span) ? LookAlongColumns<kStream, true>(tag, span) : LookAlongColumns<kStream, false>(tag, span);
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

void ApplyNearestQuickly(const QuickSpan& span) { HWY_DYNAMIC_DISPATCH(ApplyNearestQuickly)(span); }
}  // namespace normd::cpu
#endif  // HWY_ONCE
