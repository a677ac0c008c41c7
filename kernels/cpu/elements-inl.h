// The apply pass for narrow elements, y = ((x - shift) - delta) * inverse * w + b, in f64 (EXACT of f32) or f32 (FAST,
// and 16-bit types): along a row with the statistics of one group, or down columns that each have statistics of their
// own.
// In the path: included by apply.cc and rows.cc. Highway recompiles this file for each instruction set, hence the
// per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_ELEMENTS_INL_H_
#undef NORMD_KERNELS_CPU_ELEMENTS_INL_H_
#else
#define NORMD_KERNELS_CPU_ELEMENTS_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/group_statistics.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {

// One element as EXACT calculates it, before it is rounded to a 16-bit type.
HWY_INLINE float ExactElement(double x, const GroupStatistics& s, double w, double b) {
  const auto y = static_cast<float>(std::fma(((x - s.shift) - s.delta.hi) * s.inverse.hi, w, b));
  return std::isnan(y) ? std::numeric_limits<float>::quiet_NaN() : y;
}

// Replaces results in f32 that are not finite, because f32 may have overflowed on the way: `exact(lane)` is the right
// value.
template <typename Exact>
HWY_INLINE Vector<float> MendNonFinite(Vector<float> y, int64_t count, Exact exact) {
  const Tag<float> tag;
  const auto finite = hn::Eq(hn::Sub(y, y), hn::Zero(tag));
  if (HWY_LIKELY(hn::AllTrue(tag, finite))) return y;
  HWY_ALIGN float lanes[kLanesOf<float>];
  hn::Store(y, tag, lanes);
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(lanes[i])) lanes[i] = exact(i);
  }
  return hn::Load(tag, lanes);
}

// Whether all lanes of `values` are finite.
template <int64_t kVectors>
HWY_INLINE bool AllFinite(const Vector<float>* values) {
  const Tag<float> tag;
  const auto zero = hn::Zero(tag);
  // 0 times a value is 0, but NaN if the value is not finite.
  auto sum = hn::Mul(values[0], zero);
  for (int64_t k = 1; k < kVectors; ++k) sum = Fma(values[k], zero, sum);
  return hn::AllTrue(tag, hn::Eq(sum, zero));
}

// The parameters of a row: `values` moves by `step` for each element. The step is 1, or 0 where one value, held in
// every lane, serves all elements.
template <typename Real>
struct RowParameter {
  const Real* values;
  int64_t step;
  HWY_ALIGN Real lanes[kLanesOf<Real>];

  // If `given` is null, `absent` is the value of all elements.
  RowParameter(const Real* given, bool per_element, Real absent) : values(given), step(1) {
    if (given != nullptr && per_element) return;
    const Real value = given == nullptr ? absent : *given;
    for (Real& lane : lanes) lane = value;
    values = lanes;
    step = 0;
  }
};

inline double At(const double* values, bool per_element, int64_t i, double absent) {
  return values == nullptr ? absent : values[per_element ? i : 0];
}

template <typename Real>
HWY_INLINE const Real* WeightOf(const cpu::Parameters& parameters) {
  if constexpr (std::is_same_v<Real, float>) {
    return parameters.weight32;
  } else {
    return parameters.weight;
  }
}
template <typename Real>
HWY_INLINE const Real* BiasOf(const cpu::Parameters& parameters) {
  if constexpr (std::is_same_v<Real, float>) {
    return parameters.bias32;
  } else {
    return parameters.bias;
  }
}

// (x - shift) - delta, with as many of the subtractions as kCentring says.
template <Centring kCentring, class V1>
HWY_INLINE V1 Subtract(V1 x, V1 shift, V1 delta) {
  if constexpr (kCentring != Centring::kNone) x = hn::Sub(x, shift);
  if constexpr (kCentring == Centring::kTwice) x = hn::Sub(x, delta);
  return x;
}

// How a kernel uses the caches: see the fields of ApplySpan.
struct Caching {
  bool stream = false;
  int64_t prefetch = 0;
};

// Pieces of a row, or of a group, that have the same parameters, `stride` elements apart.
struct Pieces {
  int64_t count = 1;
  int64_t stride = 0;
};

// Applies kRows adjacent rows of n elements, each with statistics of its own. Rows that are applied together share the
// loads of the parameters. More than one piece is for one row only. y may be x.
template <typename Real, Centring kCentring, bool kMayBeNan, int kRows, typename T>
void ApplyRows(T tag, const typename T::Storage* x, typename T::Storage* y, int64_t n, Pieces pieces,
               const GroupStatistics* const* s, const cpu::Parameters& parameters, bool per_element, Caching caching) {
  using Bits = Raw<T, Floats<Real>>;
  const Tag<Real> real;
  const Bits bits;
  constexpr int64_t kStep = kLanesOf<Real>;
  Vector<Real> shift[kRows], delta[kRows], inverse[kRows];
  for (int r = 0; r < kRows; ++r) {
    shift[r] = hn::Set(real, static_cast<Real>(s[r]->shift));
    delta[r] = hn::Set(real, static_cast<Real>(s[r]->delta.hi));
    inverse[r] = hn::Set(real, static_cast<Real>(s[r]->inverse.hi));
  }
  // An absent b is -0, which leaves every value as it is, zeros included.
  const RowParameter<Real> w(WeightOf<Real>(parameters), per_element, 1);
  const RowParameter<Real> b(BiasOf<Real>(parameters), per_element, static_cast<Real>(-0.0));
  // Copies, so that the compiler knows that a store to y does not change them.
  const Real* const weights = w.values;
  const Real* const biases = b.values;
  const int64_t weight_step = w.step;
  const int64_t bias_step = b.step;
  const auto exact = [&](int r, int64_t i) HWY_ATTR {
    const double element = hn::GetLane(LoadFirstAs<double>(tag, x + r * n + i, 1));
    return ExactElement(element, *s[r], At(parameters.weight, per_element, i, 1),
                        At(parameters.bias, per_element, i, -0.0));
  };
  const auto result = [&](int r, Vector<Real> value, Vector<Real> weight, Vector<Real> bias, int64_t i,
                          int64_t count) HWY_ATTR {
    value = hn::Mul(Subtract<kCentring>(value, shift[r], delta[r]), inverse[r]);
    auto floats = Demote<kMayBeNan>(Fma(value, weight, bias));
    if constexpr (kMayBeNan && std::is_same_v<Real, float>) {
      floats = MendNonFinite(floats, count, [&](int64_t lane) HWY_ATTR { return exact(r, i + lane); });
    }
    return Narrow(tag, Floats<Real>(), floats);
  };
  const auto vectors = [&](int64_t i, auto store) HWY_ATTR {
    const auto weight = hn::LoadU(real, weights + i * weight_step);
    const auto bias = hn::LoadU(real, biases + i * bias_step);
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = r * n + i;
      if (caching.prefetch != 0) hwy::Prefetch(x + at + caching.prefetch);
      store(result(r, LoadAs<Real>(tag, x + at), weight, bias, i, kStep), y + at);
    }
  };
  const auto part = [&](int64_t i, int64_t count) HWY_ATTR {
    const auto weight = weight_step == 0 ? hn::LoadU(real, weights) : LoadFirst(real, weights + i, count);
    const auto bias = bias_step == 0 ? hn::LoadU(real, biases) : LoadFirst(real, biases + i, count);
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = r * n + i;
      StoreFirst(result(r, LoadFirstAs<Real>(tag, x + at, count), weight, bias, i, count), bits, y + at, count);
    }
  };
  for (int64_t piece = 0; piece < pieces.count; ++piece) {
    int64_t i = 0;
    // Streaming stores need alignment and at least 16 bytes: Highway would write past shorter vectors.
    constexpr uintptr_t kBytes = kStep * sizeof(typename T::Storage);
    if (kRows == 1 && kBytes >= 16 && caching.stream) {
      const auto misaligned = reinterpret_cast<uintptr_t>(y) % kBytes;
      if (misaligned % sizeof(typename T::Storage) == 0) {
        i = misaligned == 0 ? 0 : static_cast<int64_t>((kBytes - misaligned) / sizeof(typename T::Storage));
        i = HWY_MIN(i, n);
        if (i > 0) part(0, i);
        for (; i + kStep <= n; i += kStep) {
          vectors(i, [&](auto v, auto* to) HWY_ATTR { hn::Stream(v, bits, to); });
        }
      }
    }
    for (; i + kStep <= n; i += kStep) {
      vectors(i, [&](auto v, auto* to) HWY_ATTR { hn::StoreU(v, bits, to); });
    }
    if (i < n) part(i, n - i);
    x += pieces.stride;
    y += pieces.stride;
  }
}

// ApplyRows for one row.
template <typename Real, Centring kCentring, bool kMayBeNan, typename T>
void ApplyRow(T tag, const typename T::Storage* x, typename T::Storage* y, int64_t n, Pieces pieces,
              const GroupStatistics& s, const cpu::Parameters& parameters, bool per_element, Caching caching) {
  const GroupStatistics* const one = &s;
  ApplyRows<Real, kCentring, kMayBeNan, 1>(tag, x, y, n, pieces, &one, parameters, per_element, caching);
}

template <typename Real, typename T, typename... Arguments>
HWY_INLINE void ApplyRowAs(Centring centring, bool may_be_nan, T tag, const Arguments&... arguments) {
  switch (centring) {
    case Centring::kNone:
      return may_be_nan ? ApplyRow<Real, Centring::kNone, true>(tag, arguments...)
                        : ApplyRow<Real, Centring::kNone, false>(tag, arguments...);
    case Centring::kOnce:
      return may_be_nan ? ApplyRow<Real, Centring::kOnce, true>(tag, arguments...)
                        : ApplyRow<Real, Centring::kOnce, false>(tag, arguments...);
    case Centring::kTwice:
      return may_be_nan ? ApplyRow<Real, Centring::kTwice, true>(tag, arguments...)
                        : ApplyRow<Real, Centring::kTwice, false>(tag, arguments...);
  }
}

// Applies one row of n elements. Compiled by apply.cc alone, because its 12 loops for each type and instruction set
// keep the compiler busy for seconds.
template <typename T>
void ApplyElements(T tag, const typename T::Storage* x, typename T::Storage* y, int64_t n, Pieces pieces,
                   const GroupStatistics& s, bool in_f32, Centring centring, const cpu::Parameters& parameters,
                   bool per_element, bool may_be_nan, Caching caching) {
  if (in_f32) {
    ApplyRowAs<float>(centring, may_be_nan, tag, x, y, n, pieces, s, parameters, per_element, caching);
  } else {
    ApplyRowAs<double>(centring, may_be_nan, tag, x, y, n, pieces, s, parameters, per_element, caching);
  }
}
template <typename T>
using ApplyElementsFunction = void(T, const typename T::Storage*, typename T::Storage*, int64_t, Pieces,
                                   const GroupStatistics&, bool, Centring, const cpu::Parameters&, bool, bool, Caching);
extern template ApplyElementsFunction<F32> ApplyElements<F32>;
extern template ApplyElementsFunction<F16> ApplyElements<F16>;
extern template ApplyElementsFunction<BF16> ApplyElements<BF16>;

// Loads up to `count` f64 as lanes of the type that is calculated in.
HWY_INLINE V LoadReal(double /*type*/, const double* p, int64_t count) {
  return count >= kLanes ? hn::LoadU(d, p) : LoadFirst(d, p, count);
}
HWY_INLINE Vector<float> LoadReal(float /*type*/, const double* p, int64_t count) {
  HWY_ALIGN float lanes[kLanesOf<float>] = {};
  for (int64_t i = 0; i < HWY_MIN(kLanesOf<float>, count); ++i) lanes[i] = static_cast<float>(p[i]);
  return hn::Load(Tag<float>(), lanes);
}

// Applies `count` columns from `column` on, at the positions [from, to); each column has statistics of its own.
// kVectors vectors of adjacent columns keep their statistics and parameters in registers while the positions go by.
// kStream: y is written past the caches, and is aligned to whole vectors.
template <typename Real, Centring kCentring, bool kMayBeNan, bool kStream, int64_t kVectors, typename T>
HWY_INLINE void ApplyColumnTile(T tag, const cpu::ApplySpan& span, int64_t from, int64_t to, int64_t column,
                                int64_t count) {
  using Bits = Raw<T, Floats<Real>>;
  const Tag<Real> real;
  const Bits bits;
  constexpr int64_t kStep = kLanesOf<Real>;
  const ColumnStatistics& s = *span.column_statistics;
  const cpu::Parameters& parameters = span.parameters;
  const bool per_column = span.parameters_per_column;
  Vector<Real> shift[kVectors], delta[kVectors], inverse[kVectors], weight[kVectors], bias[kVectors];
  for (int64_t k = 0; k < kVectors; ++k) {
    const int64_t at = column + k * kStep;
    const int64_t left = count - k * kStep;
    shift[k] = LoadReal(Real(), s.shift + at, left);
    delta[k] = LoadReal(Real(), s.delta_hi + at, left);
    inverse[k] = LoadReal(Real(), s.inverse_hi + at, left);
    const auto parameter = [&](const double* values, double absent) HWY_ATTR {
      if (values != nullptr && per_column) return LoadReal(Real(), values + at, left);
      return hn::Set(real, static_cast<Real>(values == nullptr ? absent : *values));
    };
    weight[k] = parameter(parameters.weight, 1);
    bias[k] = parameter(parameters.bias, -0.0);
  }
  const auto exact = [&](const typename T::Storage* x, int64_t c) HWY_ATTR {
    const double element = hn::GetLane(LoadFirstAs<double>(tag, x, 1));
    return ExactElement(element, {1, s.shift[c], {s.delta_hi[c], 0}, {s.inverse_hi[c], 0}},
                        At(parameters.weight, per_column, c, 1), At(parameters.bias, per_column, c, -0.0));
  };
  for (int64_t p = from; p < to; ++p) {
    const auto* x = static_cast<const typename T::Storage*>(span.x.data) + p * span.stride + column;
    auto* y = static_cast<typename T::Storage*>(span.y) + p * span.stride + column;
    const auto store = [&](int64_t k, auto floats) HWY_ATTR {
      const int64_t left = HWY_MIN(kStep, count - k * kStep);
      const auto narrow = Narrow(tag, Floats<Real>(), floats);
      if constexpr (kStream) {
        hn::Stream(narrow, bits, y + k * kStep);
      } else if (left == kStep) {
        hn::StoreU(narrow, bits, y + k * kStep);
      } else {
        StoreFirst(narrow, bits, y + k * kStep, left);
      }
    };
    // In f64 it is as cheap to make every NaN canonical as to look for one.
    constexpr bool kMend = kMayBeNan && std::is_same_v<Real, float>;
    Vector<Real> results[kVectors];
    for (int64_t k = 0; k < kVectors; ++k) {
      const int64_t left = HWY_MIN(kStep, count - k * kStep);
      const auto* from_x = x + k * kStep;
      if (span.prefetch != 0) hwy::Prefetch(from_x + (to - from) * span.stride);
      Vector<Real> value = left == kStep ? LoadAs<Real>(tag, from_x) : LoadFirstAs<Real>(tag, from_x, left);
      value = Fma(hn::Mul(Subtract<kCentring>(value, shift[k], delta[k]), inverse[k]), weight[k], bias[k]);
      if constexpr (kMend) {
        results[k] = value;
      } else {
        store(k, Demote<kMayBeNan>(value));
      }
    }
    if constexpr (kMend) {
      const bool mend = HWY_UNLIKELY((!AllFinite<kVectors>(results)));
      for (int64_t k = 0; k < kVectors; ++k) {
        Vector<float> floats = results[k];
        if (mend) {
          const int64_t first = k * kStep;
          floats = MendNonFinite(CanonicalNaN(real, floats), HWY_MIN(kStep, count - first),
                                 [&](int64_t lane) HWY_ATTR { return exact(x + first + lane, column + first + lane); });
        }
        store(k, floats);
      }
    }
  }
}

template <typename Real, Centring kCentring, bool kMayBeNan, bool kStream, typename T>
void ApplyColumnTiles(T tag, const cpu::ApplySpan& span) {
  constexpr int64_t kVectors = 4;
  constexpr int64_t kTile = kVectors * kLanesOf<Real>;
  // A block of positions stays in a near cache while its tiles are swept. Even for 8 positions the parameters are worth
  // loading. Wider rows leave L1 in any case, and more positions then share the loads.
  constexpr int64_t kBlockElements = 4 << 10;
  constexpr int64_t kWideColumns = 1024;
  const int64_t least = span.columns > kWideColumns ? 16 : 8;
  const int64_t positions = HWY_MAX(least, kBlockElements / HWY_MAX(int64_t{1}, span.columns));
  for (int64_t from = 0; from < span.positions; from += positions) {
    const int64_t to = HWY_MIN(span.positions, from + positions);
    int64_t column = 0;
    for (; column + kTile <= span.columns; column += kTile) {
      ApplyColumnTile<Real, kCentring, kMayBeNan, kStream, kVectors>(tag, span, from, to, column, kTile);
    }
    for (; column < span.columns; column += kLanesOf<Real>) {
      ApplyColumnTile<Real, kCentring, kMayBeNan, false, 1>(tag, span, from, to, column,
                                                            HWY_MIN(kLanesOf<Real>, span.columns - column));
    }
  }
}

template <typename Real, Centring kCentring, bool kMayBeNan, typename T>
void ApplyColumns(T tag, const cpu::ApplySpan& span) {
  // Streaming stores need alignment and at least 16 bytes.
  constexpr int64_t kBytes = kLanesOf<Real> * static_cast<int64_t>(sizeof(typename T::Storage));
  if constexpr (kBytes >= 16) {
    const bool aligned = reinterpret_cast<uintptr_t>(span.y) % kBytes == 0 &&
                         span.stride * static_cast<int64_t>(sizeof(typename T::Storage)) % kBytes == 0;
    if (span.stream && aligned) return ApplyColumnTiles<Real, kCentring, kMayBeNan, true>(tag, span);
  }
  ApplyColumnTiles<Real, kCentring, kMayBeNan, false>(tag, span);
}

template <typename Real, typename T>
HWY_INLINE void ApplyColumnsAs(T tag, const cpu::ApplySpan& span) {
  if (span.centring == Centring::kTwice) {
    return span.may_be_nan ? ApplyColumns<Real, Centring::kTwice, true>(tag, span)
                           : ApplyColumns<Real, Centring::kTwice, false>(tag, span);
  }
  return span.may_be_nan ? ApplyColumns<Real, Centring::kOnce, true>(tag, span)
                         : ApplyColumns<Real, Centring::kOnce, false>(tag, span);
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_ELEMENTS_INL_H_
