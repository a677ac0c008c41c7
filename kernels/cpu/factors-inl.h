// The apply pass for narrow elements where each column, or each position, has statistics of its own: y = ((x - shift) -
// delta) * factor + b in f32, as FAST is.
// In the path: included by apply.cc. Highway recompiles this file for each instruction set, hence the per-target
// include guard. No state.
#if defined(NORMD_KERNELS_CPU_FACTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_FACTORS_INL_H_
#undef NORMD_KERNELS_CPU_FACTORS_INL_H_
#else
#define NORMD_KERNELS_CPU_FACTORS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/group_statistics.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {

// The numbers of one vector of elements.
template <Centring kCentring>
struct FactorLanes {
  Vector<float> shift, delta, factor, bias;

  FactorLanes() = default;
  // Those of `count` columns from `column` on.
  HWY_INLINE FactorLanes(const cpu::ColumnFactors& factors, int64_t column, int64_t count) {
    const Tag<float> real;
    Fill(factors, [&](const float* from) HWY_ATTR {
      return count >= kLanesOf<float> ? hn::LoadU(real, from + column) : LoadFirst(real, from + column, count);
    });
  }
  // Those of one position, in every lane.
  HWY_INLINE FactorLanes(const cpu::ColumnFactors& factors, int64_t position) {
    Fill(factors, [&](const float* from) HWY_ATTR { return hn::Set(Tag<float>(), from[position]); });
  }
  // Loads the numbers of two vectors of columns from `column` on, in the order in which LoadTwo loads the columns.
  template <typename T>
  static HWY_INLINE void LoadTwoOf(T tag, const cpu::ColumnFactors& factors, int64_t column, FactorLanes* two) {
    two[0].Fill(factors, [&](const float* from) HWY_ATTR { return LoadTwoFor(tag, from + column).first; });
    two[1].Fill(factors, [&](const float* from) HWY_ATTR { return LoadTwoFor(tag, from + column).second; });
  }
  template <typename Load>
  HWY_INLINE void Fill(const cpu::ColumnFactors& factors, Load load) {
    shift = load(factors.shift);
    if constexpr (kCentring == Centring::kTwice) delta = load(factors.delta);
    factor = load(factors.factor);
    bias = load(factors.bias);
  }
  HWY_INLINE Vector<float> Element(Vector<float> x) const {
    x = hn::Sub(x, shift);
    if constexpr (kCentring == Centring::kTwice) x = hn::Sub(x, delta);
    return Fma(x, factor, bias);
  }
};

// The element `x` of column or position `at`, in f64. `one_each` says that each column or position has
// a w and b of its own.
HWY_INLINE float ElementInF64At(const cpu::ApplySpan& span, int64_t at, bool one_each, double x) {
  const ColumnStatistics& s = *span.column_statistics;
  return ElementInF64(x, {1, s.shift[at], {s.delta_hi[at], 0}, {s.inverse_hi[at], 0}},
                      At(span.parameters.weight, one_each, at, 1), At(span.parameters.bias, one_each, at, -0.0));
}

// Rounds and stores the first `count` elements of a vector of y, of which the first belongs to `column`. If kMayBeNan,
// elements that are not finite are recalculated.
template <bool kMayBeNan, bool kStream, typename T>
HWY_INLINE void StoreColumns(T tag, const cpu::ApplySpan& span, Vector<float> value, const typename T::Storage* x,
                             typename T::Storage* y, int64_t column, int64_t count) {
  const Raw<T, Floats<float>> bits;
  auto floats = Demote<kMayBeNan>(value);
  if constexpr (kMayBeNan) {
    floats = RecalculateNonFinite(floats, count, [&](int64_t lane) HWY_ATTR {
      return ElementInF64At(span, column + lane, span.parameters_per_column, ElementAt(tag, x + lane));
    });
  }
  const auto narrow = Narrow(tag, Floats<float>(), floats);
  if constexpr (kStream) {
    hn::Stream(narrow, bits, y);
  } else if (count == kLanesOf<float>) {
    hn::StoreU(narrow, bits, y);
  } else {
    StoreFirst(narrow, bits, y, count);
  }
}

// The place where a block of columns begins. It is passed by value, because the store of a vector may alias anything
// behind a reference: the compiler would load the members of an ApplySpan again after each store.
template <typename Storage>
struct ColumnPlace {
  const Storage* x;
  Storage* y;
  int64_t stride;
  int64_t prefetch;  // as in ApplySpan

  HWY_INLINE explicit ColumnPlace(const cpu::ApplySpan& span)
      : x(static_cast<const Storage*>(span.x.data)),
        y(static_cast<Storage*>(span.y)),
        stride(span.stride),
        prefetch(span.prefetch) {}
  HWY_INLINE ColumnPlace At(int64_t position, int64_t column) const {
    ColumnPlace place = *this;
    place.x += position * stride + column;
    place.y += position * stride + column;
    return place;
  }
};

// Applies kColumns vectors of adjacent columns at kPositions positions. `count` is the number of columns in each
// vector; it may be less than the lanes where kColumns is 1. One test finds values that are not finite in all vectors
// that are calculated together. kStream: y is written past the caches, and is aligned to whole vectors.
template <Centring kCentring, bool kMayBeNan, bool kStream, int64_t kColumns, int64_t kPositions, typename T,
          typename Storage>
HWY_INLINE void ApplyColumnBlock(T tag, const cpu::ApplySpan& span, const FactorLanes<kCentring>* lanes,
                                 ColumnPlace<Storage> at, int64_t column, int64_t count) {
  constexpr int64_t kStep = kLanesOf<float>;
  const int64_t here = kColumns == 1 ? count : kStep;  // so that the compiler knows it
  const auto result = [&](int64_t p, int64_t k) HWY_ATTR {
    const auto* from = at.x + p * at.stride + k * kStep;
    return lanes[k].Element(here == kStep ? LoadAs<float>(tag, from) : LoadFirstAs<float>(tag, from, here));
  };
  const auto store = [&](auto may_be_nan, Vector<float> value, int64_t p, int64_t k) HWY_ATTR {
    const int64_t offset = p * at.stride + k * kStep;
    StoreColumns<decltype(may_be_nan)::value, kStream>(tag, span, value, at.x + offset, at.y + offset,
                                                       column + k * kStep, here);
  };
  if constexpr (kMayBeNan) {
    Vector<float> results[kPositions * kColumns];
    for (int64_t p = 0; p < kPositions; ++p) {
      for (int64_t k = 0; k < kColumns; ++k) results[p * kColumns + k] = result(p, k);
    }
    const auto store_all = [&](auto may_be_nan) HWY_ATTR {
      for (int64_t p = 0; p < kPositions; ++p) {
        for (int64_t k = 0; k < kColumns; ++k) store(may_be_nan, results[p * kColumns + k], p, k);
      }
    };
    if (HWY_LIKELY((AllFinite<kPositions * kColumns>(results)))) return store_all(std::false_type());
    store_all(std::true_type());
  } else {
    for (int64_t p = 0; p < kPositions; ++p) {
      for (int64_t k = 0; k < kColumns; ++k) store(std::bool_constant<kMayBeNan>(), result(p, k), p, k);
    }
  }
}

// Applies kVectors vectors of adjacent columns, whose numbers stay in registers while the positions go by. `count` is
// as in ApplyColumnBlock.
template <Centring kCentring, bool kMayBeNan, bool kStream, int64_t kVectors, typename T>
HWY_INLINE void ApplyColumnTile(T tag, const cpu::ApplySpan& span, int64_t column, int64_t count) {
  constexpr int64_t kStep = kLanesOf<float>;
  constexpr int64_t kAhead = 8;  // positions
  FactorLanes<kCentring> lanes[kVectors];
  for (int64_t k = 0; k < kVectors; ++k) lanes[k] = {span.factors, column + k * kStep, count};
  const ColumnPlace<typename T::Storage> first(span);
  const int64_t prefetch = first.prefetch == 0 ? 0 : kAhead * first.stride;
  const int64_t positions = span.positions;
  for (int64_t p = 0; p < positions; ++p) {
    const auto at = first.At(p, column);
    for (int64_t k = 0; prefetch != 0 && k < kVectors; ++k) hwy::Prefetch(at.x + k * kStep + prefetch);
    ApplyColumnBlock<kCentring, kMayBeNan, kStream, kVectors, 1>(tag, span, lanes, at, column, count);
  }
}

// Applies two vectors of columns at kPositions positions, in f32 and without streaming.
template <Centring kCentring, bool kMayBeNan, int64_t kPositions, typename T, typename Storage>
HWY_INLINE void ApplyTwoColumns(T tag, const cpu::ApplySpan& span, const FactorLanes<kCentring>* two,
                                ColumnPlace<Storage> at, int64_t column) {
  constexpr int64_t kStep = kLanesOf<float>;
  Vector<float> results[2 * kPositions];
  for (int64_t p = 0; p < kPositions; ++p) {
    const TwoVectors value = LoadTwo(tag, at.x + p * at.stride);
    results[2 * p] = two[0].Element(value.first);
    results[2 * p + 1] = two[1].Element(value.second);
  }
  if constexpr (kMayBeNan) {
    if (HWY_UNLIKELY(!AllFinite<2 * kPositions>(results))) {
      for (const int64_t k : {int64_t{0}, kStep}) {
        const FactorLanes<kCentring> lanes(span.factors, column + k, kStep);
        ApplyColumnBlock<kCentring, true, false, 1, kPositions>(tag, span, &lanes, at.At(0, k), column + k, kStep);
      }
      return;
    }
  }
  for (int64_t p = 0; p < kPositions; ++p) {
    StoreTwo(tag, {results[2 * p], results[2 * p + 1]}, at.y + p * at.stride);
  }
}

// Applies the columns [column, end), which are whole vectors, at kPositions positions. `row` is the place of column 0.
template <Centring kCentring, bool kMayBeNan, bool kStream, int64_t kPositions, typename T, typename Storage>
HWY_INLINE void ApplyVectors(T tag, const cpu::ApplySpan& span, const cpu::ColumnFactors& factors,
                             ColumnPlace<Storage> row, int64_t column, int64_t end) {
  constexpr int64_t kStep = kLanesOf<float>;
  if constexpr (std::is_same_v<T, BF16> && !kStream) {
    for (; column + 2 * kStep <= end; column += 2 * kStep) {
      FactorLanes<kCentring> two[2];
      FactorLanes<kCentring>::LoadTwoOf(tag, factors, column, two);
      ApplyTwoColumns<kCentring, kMayBeNan, kPositions>(tag, span, two, row.At(0, column), column);
    }
  }
  for (; column < end; column += kStep) {
    const FactorLanes<kCentring> lanes(factors, column, kStep);
    ApplyColumnBlock<kCentring, kMayBeNan, kStream, 1, kPositions>(tag, span, &lanes, row.At(0, column), column, kStep);
  }
}

// Applies the columns [0, columns), which are whole vectors, row by row; several positions share the loads of the
// numbers.
template <Centring kCentring, bool kMayBeNan, bool kStream, typename T>
HWY_INLINE void ApplyColumnRows(T tag, const cpu::ApplySpan& span, int64_t columns) {
  constexpr int64_t kPositions = 4;
  constexpr int64_t kLine = kLineElements<typename T::Storage>;
  const ColumnPlace<typename T::Storage> first(span);
  const cpu::ColumnFactors factors = span.factors;
  const int64_t prefetch = first.prefetch == 0 ? 0 : kPositions * first.stride;
  const auto sweep = [&](int64_t position, auto positions) HWY_ATTR {
    constexpr int64_t kHere = decltype(positions)::value;
    const auto row = first.At(position, 0);
    int64_t c = 0;
    for (; c + kLine <= columns; c += kLine) {
      for (int64_t p = 0; prefetch != 0 && p < kHere; ++p) hwy::Prefetch(row.x + p * row.stride + c + prefetch);
      ApplyVectors<kCentring, kMayBeNan, kStream, kHere>(tag, span, factors, row, c, c + kLine);
    }
    ApplyVectors<kCentring, kMayBeNan, kStream, kHere>(tag, span, factors, row, c, columns);
  };
  const int64_t all = span.positions;
  int64_t p = 0;
  for (; p + kPositions <= all; p += kPositions) sweep(p, std::integral_constant<int64_t, kPositions>());
  for (; p < all; ++p) sweep(p, std::integral_constant<int64_t, 1>());
}

template <Centring kCentring, bool kMayBeNan, bool kStream, typename T>
void ApplyColumnsOf(T tag, const cpu::ApplySpan& span) {
  constexpr int64_t kStep = kLanesOf<float>;
  constexpr int64_t kVectors = 4;  // whose numbers fit in registers
  int64_t done = 0;                // columns
  if (span.columns == kVectors * kStep) {
    ApplyColumnTile<kCentring, kMayBeNan, kStream, kVectors>(tag, span, 0, kStep);
    done = span.columns;
  } else if (span.columns > kVectors * kStep) {
    done = span.columns / kStep * kStep;
    ApplyColumnRows<kCentring, kMayBeNan, kStream>(tag, span, done);
  }
  for (; done < span.columns; done += kStep) {
    ApplyColumnTile<kCentring, kMayBeNan, false, 1>(tag, span, done, HWY_MIN(kStep, span.columns - done));
  }
}

template <Centring kCentring, bool kMayBeNan, typename T>
void ApplyColumns(T tag, const cpu::ApplySpan& span) {
  // Streaming stores need alignment and at least 16 bytes.
  constexpr int64_t kBytes = kLanesOf<float> * static_cast<int64_t>(sizeof(typename T::Storage));
  if constexpr (kBytes >= 16) {
    const bool aligned = reinterpret_cast<uintptr_t>(span.y) % kBytes == 0 &&
                         span.stride * static_cast<int64_t>(sizeof(typename T::Storage)) % kBytes == 0;
    if (span.stream && aligned) return ApplyColumnsOf<kCentring, kMayBeNan, true>(tag, span);
  }
  ApplyColumnsOf<kCentring, kMayBeNan, false>(tag, span);
}

template <typename T>
HWY_INLINE void ApplyAllColumns(T tag, const cpu::ApplySpan& span) {
  if (span.centring == Centring::kTwice) {
    return span.may_be_nan ? ApplyColumns<Centring::kTwice, true>(tag, span)
                           : ApplyColumns<Centring::kTwice, false>(tag, span);
  }
  return span.may_be_nan ? ApplyColumns<Centring::kOnce, true>(tag, span)
                         : ApplyColumns<Centring::kOnce, false>(tag, span);
}

// Applies positions whose elements all have the same numbers. To store a part of a vector takes as long as to calculate
// several whole ones, so the last vector of a position overlaps the vector before it. It is loaded before that one is
// stored, because y may be x.
template <Centring kCentring, bool kMayBeNan, typename T>
void ApplyPositions(T tag, const cpu::ApplySpan& span) {
  const Raw<T, Floats<float>> bits;
  constexpr int64_t kStep = kLanesOf<float>;
  const int64_t n = span.columns;
  for (int64_t p = 0; p < span.positions; ++p) {
    const auto* const x = static_cast<const typename T::Storage*>(span.x.data) + p * span.stride;
    auto* const y = static_cast<typename T::Storage*>(span.y) + p * span.stride;
    const FactorLanes<kCentring> lanes(span.factors, p);
    const auto careful = [&](Vector<float> value) HWY_ATTR {
      auto floats = Demote<kMayBeNan>(lanes.Element(value));
      if constexpr (kMayBeNan) {
        floats = RecalculateNonFinite(floats, kStep, [&](int64_t lane) HWY_ATTR {
          HWY_ALIGN float elements[kStep];
          hn::Store(value, Tag<float>(), elements);
          return ElementInF64At(span, p, true, elements[lane]);
        });
      }
      return Narrow(tag, Floats<float>(), floats);
    };
    if (n < kStep) {
      StoreFirst(careful(LoadFirstAs<float>(tag, x, n)), bits, y, n);
      continue;
    }
    const Vector<float> last = LoadAs<float>(tag, x + n - kStep);
    int64_t i = 0;
    // One test finds values that are not finite in two vectors.
    for (; i + 2 * kStep <= n; i += 2 * kStep) {
      const TwoVectors value = LoadTwo(tag, x + i);
      const Vector<float> results[2] = {lanes.Element(value.first), lanes.Element(value.second)};
      if (!kMayBeNan || HWY_LIKELY((AllFinite<2>(results)))) {
        StoreTwo(tag, {results[0], results[1]}, y + i);
      } else {
        hn::StoreU(careful(LoadAs<float>(tag, x + i)), bits, y + i);
        hn::StoreU(careful(LoadAs<float>(tag, x + i + kStep)), bits, y + i + kStep);
      }
    }
    for (; i + kStep < n; i += kStep) hn::StoreU(careful(LoadAs<float>(tag, x + i)), bits, y + i);
    if (i < n) hn::StoreU(careful(last), bits, y + n - kStep);
  }
}

template <typename T>
HWY_INLINE void ApplyAllPositions(T tag, const cpu::ApplySpan& span) {
  if (span.centring == Centring::kTwice) {
    return span.may_be_nan ? ApplyPositions<Centring::kTwice, true>(tag, span)
                           : ApplyPositions<Centring::kTwice, false>(tag, span);
  }
  return span.may_be_nan ? ApplyPositions<Centring::kOnce, true>(tag, span)
                         : ApplyPositions<Centring::kOnce, false>(tag, span);
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_FACTORS_INL_H_
