// The apply pass for narrow elements, in the four ways of kernels/group_statistics.h, in f64 (EXACT of f32) or f32
// (FAST, and 16-bit types): along a row with the statistics of one group, or down columns that each have statistics of
// their own.
// In the path: included by apply.cc and row_blocks.cc. Highway recompiles this file for each instruction set, hence the
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

// The values of a RowParameter for the elements from `i` on: a vector, or its first `count` lanes.
template <typename Real>
HWY_INLINE Vector<Real> ParametersAt(const Real* values, int64_t step, int64_t i) {
  return hn::LoadU(Tag<Real>(), values + i * step);
}
template <typename Real>
HWY_INLINE Vector<Real> ParametersAt(const Real* values, int64_t step, int64_t i, int64_t count) {
  return step == 0 ? hn::LoadU(Tag<Real>(), values) : LoadFirst(Tag<Real>(), values + i, count);
}

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

// How the elements of a row are calculated: see "Elements" in kernels/group_statistics.h.
enum class Form : uint8_t {
  kPlain,        // x * inverse * w + b
  kOnce,         // (x - shift) * inverse * w + b
  kTwice,        // ((x - shift) - delta) * inverse * w + b
  kScaledOnce,   // (x - shift) * factor + b
  kScaledTwice,  // ((x - shift) - delta) * factor + b
  kFolded,       // (x * inverse + centre) * w + b, in f64
  kPairs,        // x * (hi + lo) * w, in f32; `inverse` is the FloatPair then, see Prepare
};
template <Form kForm>
using FormTag = std::integral_constant<Form, kForm>;

// The form for a group in rows. It depends on the group and its parameters alone.
template <typename T>
HWY_INLINE Form FormOf(T /*tag*/, Centring centring, const GroupStatistics& s, bool in_f32,
                       const cpu::Parameters& parameters, bool per_element, bool may_be_nan) {
  if (centring == Centring::kNone) {
    const bool pairs = std::is_same_v<T, F32> && !in_f32 && !may_be_nan && parameters.equal_f32 &&
                       parameters.bias == nullptr && FitF32(s);
    return pairs ? Form::kPairs : Form::kPlain;
  }
  const bool once = centring == Centring::kOnce;
  if (!per_element && !parameters.absent()) return once ? Form::kScaledOnce : Form::kScaledTwice;
  if (!in_f32 && Folds(s)) return Form::kFolded;
  return once ? Form::kOnce : Form::kTwice;
}

// Makes `s` what its form needs. It is called for many rows before the first of them is applied, because it takes
// dozens of cycles that depend on one another.
HWY_INLINE void Prepare(Form form, GroupStatistics* s) {
  if (form != Form::kPairs) return;
  const FloatPair pair = FloatPairOf(s->inverse.hi);
  s->inverse = {pair.hi, pair.lo};
}

// FloatPairOf each lane, in f64. Without a branch: where hi is above `inverse`, the difference is negative, and the
// sign of it is the -1 that makes hi the float below.
struct FloatPairs {
  V hi, lo;

  HWY_INLINE explicit FloatPairs(V inverse) {
    const hn::RebindToSigned<DF> integers;
    const auto nearest = ToF32(inverse);
    const auto sign = hn::BroadcastSignBit(hn::BitCast(integers, ToF32(hn::Sub(inverse, Promote(nearest, double())))));
    hi = Promote(hn::BitCast(df, hn::Add(hn::BitCast(integers, nearest), sign)), double());
    lo = Promote(ToF32(hn::Sub(inverse, hi)), double());
  }
};

// The numbers of one group that kForm uses, in every lane.
template <typename Real, Form kForm>
struct GroupLanes {
  using Value = Vector<Real>;
  Value shift, delta, inverse;

  // `weight` is that of all elements; kScaledOnce and kScaledTwice only.
  HWY_INLINE GroupLanes(const GroupStatistics& s, double weight) {
    const auto set = [](double value) HWY_ATTR { return hn::Set(Tag<Real>(), static_cast<Real>(value)); };
    shift = set(s.shift);
    delta = set(s.delta.hi);
    inverse = set(s.inverse.hi);
    if constexpr (kForm == Form::kFolded) shift = set(FoldedCentre(s));
    if constexpr (kForm == Form::kScaledOnce || kForm == Form::kScaledTwice) {
      inverse = set(FactorOf(s.inverse.hi, weight));
    }
    if constexpr (kForm == Form::kPairs) delta = set(s.inverse.lo);
  }
  HWY_INLINE Value Element(Value x, Value w, Value b) const {
    if constexpr (kForm == Form::kPairs) {
      const Value product = hn::Mul(x, inverse);
      const Value error = NegatedFma(x, inverse, product);
      const Value rest = FmaLess(x, delta, error);
      return Fma(product, w, hn::Mul(rest, w));
    }
    if constexpr (kForm == Form::kFolded) return Fma(Fma(x, inverse, shift), w, b);
    if constexpr (kForm != Form::kPlain) x = hn::Sub(x, shift);
    if constexpr (kForm == Form::kTwice || kForm == Form::kScaledTwice) x = hn::Sub(x, delta);
    if constexpr (kForm == Form::kScaledOnce || kForm == Form::kScaledTwice) return Fma(x, inverse, b);
    return Fma(hn::Mul(x, inverse), w, b);
  }
};

// How a kernel uses the caches: see the fields of ApplySpan.
struct Caching {
  bool stream = false;
  int64_t prefetch = 0;
};

// Pieces of a row, or of a group, that have the same parameters, `stride` elements apart. Each of them is `runs` runs
// of elements, one after the other, which have one w and b each if there are several.
struct Pieces {
  int64_t count = 1;
  int64_t stride = 0;
  int64_t runs = 1;
};

// Calls vectors(i, store) for the whole vectors of n elements of y and part(i, count) for the elements around them.
// kStream allows `stream`: whole vectors are then written past the caches, from the first aligned address on.
template <typename Real, bool kStream, typename T, typename Vectors, typename Part>
HWY_INLINE void ForVectors(T /*tag*/, const typename T::Storage* y, int64_t n, bool stream, Vectors vectors,
                           Part part) {
  constexpr int64_t kStep = kLanesOf<Real>;
  const Raw<T, Floats<Real>> bits;
  int64_t i = 0;
  // Streaming stores need alignment and at least 16 bytes: Highway would write past shorter vectors.
  constexpr uintptr_t kBytes = kStep * sizeof(typename T::Storage);
  if (kStream && kBytes >= 16 && stream) {
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
}

// Applies a row of n elements, or pieces of one group. y may be x.
template <typename Real, Form kForm, bool kMayBeNan, typename T>
void ApplyRow(T tag, const typename T::Storage* x, typename T::Storage* y, int64_t n, Pieces pieces,
              const GroupStatistics& s, const cpu::Parameters& parameters, bool per_element, Caching caching) {
  const Raw<T, Floats<Real>> bits;
  constexpr int64_t kStep = kLanesOf<Real>;
  const GroupLanes<Real, kForm> lanes(s, 1);
  // An absent b is -0, which leaves every value as it is, zeros included.
  const RowParameter<Real> w(WeightOf<Real>(parameters), per_element, 1);
  const RowParameter<Real> b(BiasOf<Real>(parameters), per_element, static_cast<Real>(-0.0));
  // Copies, so that the compiler knows that a store to y does not change them.
  const Real* const weights = w.values;
  const Real* const biases = b.values;
  const int64_t weight_step = w.step;
  const int64_t bias_step = b.step;
  const auto result = [&](Vector<Real> value, Vector<Real> weight, Vector<Real> bias, int64_t i,
                          int64_t count) HWY_ATTR {
    auto floats = Demote<kMayBeNan>(lanes.Element(value, weight, bias));
    if constexpr (kMayBeNan && std::is_same_v<Real, float>) {
      floats = MendNonFinite(floats, count, [&](int64_t lane) HWY_ATTR {
        return ExactElement(ElementAt(tag, x + i + lane), s, At(parameters.weight, per_element, i + lane, 1),
                            At(parameters.bias, per_element, i + lane, -0.0));
      });
    }
    return Narrow(tag, Floats<Real>(), floats);
  };
  const auto vectors = [&](int64_t i, auto store) HWY_ATTR {
    const auto weight = ParametersAt(weights, weight_step, i);
    const auto bias = ParametersAt(biases, bias_step, i);
    if (caching.prefetch != 0) hwy::Prefetch(x + i + caching.prefetch);
    store(result(LoadAs<Real>(tag, x + i), weight, bias, i, kStep), y + i);
  };
  const auto part = [&](int64_t i, int64_t count) HWY_ATTR {
    const auto weight = ParametersAt(weights, weight_step, i, count);
    const auto bias = ParametersAt(biases, bias_step, i, count);
    StoreFirst(result(LoadFirstAs<Real>(tag, x + i, count), weight, bias, i, count), bits, y + i, count);
  };
  for (int64_t piece = 0; piece < pieces.count; ++piece) {
    ForVectors<Real, true>(tag, y, n, caching.stream, vectors, part);
    x += pieces.stride;
    y += pieces.stride;
  }
}

// The statistics of the rows of a block, prepared for one form. Not initialised: that would take as long as a short
// row.
struct RowStatistics {
  static constexpr int64_t kMaxRows = cpu::RowBlock::kMaxRows;
  static_assert(kMaxRows % kLanes == 0);
  HWY_ALIGN double shift[kMaxRows], delta[kMaxRows], inverse[kMaxRows], inverse_lo[kMaxRows];

  HWY_INLINE GroupStatistics At(int64_t row) const {
    return {1, shift[row], {delta[row], 0}, {inverse[row], inverse_lo[row]}};
  }
  void Set(int64_t row, const GroupStatistics& s) {
    shift[row] = s.shift;
    delta[row] = s.delta.hi;
    inverse[row] = s.inverse.hi;
    inverse_lo[row] = s.inverse.lo;
  }
};

// Applies an even number of adjacent rows of n elements. Two rows share the loads of the parameters. y may be x.
template <typename Real, Form kForm, bool kMayBeNan, typename T>
void ApplyRowPairs(T tag, const typename T::Storage* x, typename T::Storage* y, int64_t n, int64_t rows,
                   const RowStatistics& statistics, const cpu::Parameters& parameters, bool per_element,
                   int64_t prefetch) {
  const Raw<T, Floats<Real>> bits;
  constexpr int64_t kStep = kLanesOf<Real>;
  const RowParameter<Real> w(WeightOf<Real>(parameters), per_element, 1);
  const RowParameter<Real> b(BiasOf<Real>(parameters), per_element, static_cast<Real>(-0.0));
  const Real* const weights = w.values;
  const Real* const biases = b.values;
  const int64_t weight_step = w.step;
  const int64_t bias_step = b.step;
  for (int64_t row = 0; row < rows; row += 2) {
    const GroupLanes<Real, kForm> first(statistics.At(row), 1);
    const GroupLanes<Real, kForm> second(statistics.At(row + 1), 1);
    // `of_second`: the elements are some of the second row; `at` counts from the start of the first.
    const auto result = [&](auto of_second, int64_t at, int64_t count, Vector<Real> value, Vector<Real> weight,
                            Vector<Real> bias) HWY_ATTR {
      constexpr bool kSecond = decltype(of_second)::value;
      auto floats = Demote<kMayBeNan>((kSecond ? second : first).Element(value, weight, bias));
      if constexpr (kMayBeNan && std::is_same_v<Real, float>) {
        floats = MendNonFinite(floats, count, [&](int64_t lane) HWY_ATTR {
          const int64_t i = at + lane - (kSecond ? n : 0);
          return ExactElement(ElementAt(tag, x + at + lane), statistics.At(kSecond ? row + 1 : row),
                              At(parameters.weight, per_element, i, 1), At(parameters.bias, per_element, i, -0.0));
        });
      }
      return Narrow(tag, Floats<Real>(), floats);
    };
    const auto vectors = [&](int64_t i) HWY_ATTR {
      const auto weight = ParametersAt(weights, weight_step, i);
      const auto bias = ParametersAt(biases, bias_step, i);
      if (prefetch != 0) hwy::Prefetch(x + i + prefetch);
      hn::StoreU(result(std::false_type(), i, kStep, LoadAs<Real>(tag, x + i), weight, bias), bits, y + i);
      if (prefetch != 0) hwy::Prefetch(x + n + i + prefetch);
      hn::StoreU(result(std::true_type(), n + i, kStep, LoadAs<Real>(tag, x + n + i), weight, bias), bits, y + n + i);
    };
    int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (std::is_same_v<T, BF16> && std::is_same_v<Real, float>) {
      constexpr int64_t kBoth = 2 * kLanesOf<float>;
      const auto load = [&](const float* values, int64_t step) HWY_ATTR {
        return step == 0 ? EvenOdd{hn::LoadU(Tag<float>(), values), hn::LoadU(Tag<float>(), values)}
                         : LoadEvenOdd(values + i);
      };
      const auto both = [&](const auto& lanes, int64_t at, const EvenOdd& weight, const EvenOdd& bias) HWY_ATTR {
        if (prefetch != 0) hwy::Prefetch(x + at + prefetch);
        const EvenOdd value = LoadEvenOdd(tag, x + at);
        return EvenOdd{lanes.Element(value.even, weight.even, bias.even),
                       lanes.Element(value.odd, weight.odd, bias.odd)};
      };
      for (; i + kBoth <= n; i += kBoth) {
        const EvenOdd weight = load(weights, weight_step);
        const EvenOdd bias = load(biases, bias_step);
        const EvenOdd results[2] = {both(first, i, weight, bias), both(second, n + i, weight, bias)};
        if constexpr (kMayBeNan) {
          const Vector<float> all[4] = {results[0].even, results[0].odd, results[1].even, results[1].odd};
          if (HWY_UNLIKELY(!AllFinite<4>(all))) {
            vectors(i);
            vectors(i + kStep);
            continue;
          }
        }
        StoreEvenOdd(tag, results[0], y + i);
        StoreEvenOdd(tag, results[1], y + n + i);
      }
    }
#endif
    for (; i + kStep <= n; i += kStep) vectors(i);
    if (i < n) {
      const auto weight = ParametersAt(weights, weight_step, i, n - i);
      const auto bias = ParametersAt(biases, bias_step, i, n - i);
      const auto part = [&](auto of_second, int64_t at) HWY_ATTR {
        const auto value = LoadFirstAs<Real>(tag, x + at, n - i);
        StoreFirst(result(of_second, at, n - i, value, weight, bias), bits, y + at, n - i);
      };
      part(std::false_type(), i);
      part(std::true_type(), n + i);
    }
    x += 2 * n;
    y += 2 * n;
  }
}

// Applies pieces of one group whose parameters are one w and b for each run of n elements.
template <typename Real, Form kForm, bool kMayBeNan, typename T>
void ApplyScaledRuns(T tag, const typename T::Storage* x_of_group, typename T::Storage* y_of_group, int64_t n,
                     Pieces pieces, const GroupStatistics& s, const cpu::Parameters& parameters, Caching caching) {
  const Raw<T, Floats<Real>> bits;
  constexpr int64_t kStep = kLanesOf<Real>;
  for (int64_t run = 0; run < pieces.runs; ++run) {
    const double weight = At(parameters.weight, true, run, 1);
    const double b = At(parameters.bias, true, run, -0.0);
    const GroupLanes<Real, kForm> lanes(s, weight);
    const auto bias = hn::Set(Tag<Real>(), static_cast<Real>(b));
    for (int64_t piece = 0; piece < pieces.count; ++piece) {
      const auto* const x = x_of_group + piece * pieces.stride + run * n;
      auto* const y = y_of_group + piece * pieces.stride + run * n;
      const auto result = [&](Vector<Real> value, int64_t i, int64_t count) HWY_ATTR {
        auto floats = Demote<kMayBeNan>(lanes.Element(value, bias, bias));
        if constexpr (kMayBeNan && std::is_same_v<Real, float>) {
          floats = MendNonFinite(floats, count, [&](int64_t lane) HWY_ATTR {
            return ExactElement(ElementAt(tag, x + i + lane), s, weight, b);
          });
        }
        return Narrow(tag, Floats<Real>(), floats);
      };
      ForVectors<Real, true>(
          tag, y, n, caching.stream,
          [&](int64_t i, auto store) HWY_ATTR {
            if (caching.prefetch != 0) hwy::Prefetch(x + i + caching.prefetch);
            store(result(LoadAs<Real>(tag, x + i), i, kStep), y + i);
          },
          [&](int64_t i, int64_t count)
              HWY_ATTR { StoreFirst(result(LoadFirstAs<Real>(tag, x + i, count), i, count), bits, y + i, count); });
    }
  }
}

// Applies one row of n elements, or pieces of one group, whose statistics are prepared. Several runs are for the scaled
// forms only. Compiled by apply.cc alone, because its loops for each type and instruction set keep the compiler busy
// for seconds. Forms that are rare in f64 have no loop without checks for NaN.
template <typename T>
void ApplyElements(T tag, const typename T::Storage* x, typename T::Storage* y, int64_t n, Pieces pieces,
                   const GroupStatistics& s, bool in_f32, Form form, const cpu::Parameters& parameters,
                   bool per_element, bool may_be_nan, Caching caching) {
  const auto apply = [&](auto real, auto of_form, auto nan) HWY_ATTR {
    constexpr Form kForm = decltype(of_form)::value;
    if constexpr (kForm == Form::kScaledOnce || kForm == Form::kScaledTwice) {
      ApplyScaledRuns<decltype(real), kForm, decltype(nan)::value>(tag, x, y, n, pieces, s, parameters, caching);
    } else {
      ApplyRow<decltype(real), kForm, decltype(nan)::value>(tag, x, y, n, pieces, s, parameters, per_element, caching);
    }
  };
  const auto checked = [&](auto real, auto of_form) HWY_ATTR { apply(real, of_form, std::true_type()); };
  const auto either = [&](auto real, auto of_form) HWY_ATTR {
    return may_be_nan ? apply(real, of_form, std::true_type()) : apply(real, of_form, std::false_type());
  };
  constexpr bool kIsF32 = std::is_same_v<T, F32>;
  const auto in_f64 = [&](auto of_form) HWY_ATTR {
    if constexpr (kIsF32) {
      either(double(), of_form);
    } else {
      checked(double(), of_form);  // 16-bit elements out of the range of f32
    }
  };
  switch (form) {
    case Form::kPlain:
      return in_f32 ? either(float(), FormTag<Form::kPlain>()) : checked(double(), FormTag<Form::kPlain>());
    case Form::kOnce:
      return in_f32 ? either(float(), FormTag<Form::kOnce>()) : checked(double(), FormTag<Form::kOnce>());
    case Form::kTwice:
      return in_f32 ? either(float(), FormTag<Form::kTwice>()) : checked(double(), FormTag<Form::kTwice>());
    case Form::kScaledOnce:
      return in_f32 ? either(float(), FormTag<Form::kScaledOnce>()) : in_f64(FormTag<Form::kScaledOnce>());
    case Form::kScaledTwice:
      return in_f32 ? either(float(), FormTag<Form::kScaledTwice>()) : checked(double(), FormTag<Form::kScaledTwice>());
    case Form::kFolded:
      return in_f64(FormTag<Form::kFolded>());
    case Form::kPairs:
      if constexpr (kIsF32) apply(float(), FormTag<Form::kPairs>(), std::false_type());
      return;
  }
}
template <typename T>
using ApplyElementsFunction = void(T, const typename T::Storage*, typename T::Storage*, int64_t, Pieces,
                                   const GroupStatistics&, bool, Form, const cpu::Parameters&, bool, bool, Caching);
extern template ApplyElementsFunction<F32> ApplyElements<F32>;
extern template ApplyElementsFunction<F16> ApplyElements<F16>;
extern template ApplyElementsFunction<BF16> ApplyElements<BF16>;

template <typename Real>
HWY_INLINE const cpu::ColumnFactors<Real>& FactorsOf(const cpu::ApplySpan& span) {
  if constexpr (std::is_same_v<Real, float>) {
    return span.factors32;
  } else {
    return span.factors;
  }
}

// The numbers of one vector of columns.
template <typename Real, Centring kCentring>
struct ColumnLanes {
  Vector<Real> shift, delta, factor, bias;

  ColumnLanes() = default;
  // The numbers of `count` columns from `column` on.
  HWY_INLINE ColumnLanes(const cpu::ColumnFactors<Real>& factors, int64_t column, int64_t count) {
    const Tag<Real> real;
    const auto load = [&](const Real* from) HWY_ATTR {
      return count >= kLanesOf<Real> ? hn::LoadU(real, from + column) : LoadFirst(real, from + column, count);
    };
    shift = load(factors.shift);
    if constexpr (kCentring == Centring::kTwice) delta = load(factors.delta);
    factor = load(factors.factor);
    bias = load(factors.bias);
  }
  HWY_INLINE Vector<Real> Element(Vector<Real> x) const {
    x = hn::Sub(x, shift);
    if constexpr (kCentring == Centring::kTwice) x = hn::Sub(x, delta);
    return Fma(x, factor, bias);
  }
};

// One vector of y, `count` elements of it: rounded, mended if kMayBeNan, and stored. `column` is that of the first.
template <bool kMayBeNan, bool kStream, typename Real, typename T>
HWY_INLINE void StoreColumns(T tag, const cpu::ApplySpan& span, Vector<Real> value, const typename T::Storage* x,
                             typename T::Storage* y, int64_t column, int64_t count) {
  const Raw<T, Floats<Real>> bits;
  auto floats = Demote<kMayBeNan>(value);
  if constexpr (kMayBeNan && std::is_same_v<Real, float>) {
    floats = MendNonFinite(floats, count, [&](int64_t lane) HWY_ATTR {
      const ColumnStatistics& s = *span.column_statistics;
      const int64_t c = column + lane;
      const bool per_column = span.parameters_per_column;
      const double element = ElementAt(tag, x + lane);
      return ExactElement(element, {1, s.shift[c], {s.delta_hi[c], 0}, {s.inverse_hi[c], 0}},
                          At(span.parameters.weight, per_column, c, 1), At(span.parameters.bias, per_column, c, -0.0));
    });
  }
  const auto narrow = Narrow(tag, Floats<Real>(), floats);
  if constexpr (kStream) {
    hn::Stream(narrow, bits, y);
  } else if (count == kLanesOf<Real>) {
    hn::StoreU(narrow, bits, y);
  } else {
    StoreFirst(narrow, bits, y, count);
  }
}

// Applies kColumns vectors of adjacent columns at kPositions positions, from `position` and `column` on. `count` is the
// number of columns of each vector; that of a single one may be less than its lanes. The vectors that are calculated
// together are looked through for values that are not finite by one test. kStream: y is written past the caches, and is
// aligned to whole vectors.
template <typename Real, Centring kCentring, bool kMayBeNan, bool kStream, int64_t kColumns, int64_t kPositions,
          typename T>
HWY_INLINE void ApplyColumnBlock(T tag, const cpu::ApplySpan& span, const ColumnLanes<Real, kCentring>* lanes,
                                 int64_t position, int64_t column, int64_t count, int64_t prefetch) {
  // In f64 it is as cheap to make every NaN canonical as to look for one.
  constexpr bool kMend = kMayBeNan && std::is_same_v<Real, float>;
  constexpr int64_t kStep = kLanesOf<Real>;
  const int64_t offset = position * span.stride + column;
  const auto* x = static_cast<const typename T::Storage*>(span.x.data) + offset;
  auto* y = static_cast<typename T::Storage*>(span.y) + offset;
  const int64_t here = kColumns == 1 ? count : kStep;  // so that the compiler knows it
  Vector<Real> results[kPositions * kColumns];
  for (int64_t p = 0; p < kPositions; ++p) {
    for (int64_t k = 0; k < kColumns; ++k) {
      const auto* from = x + p * span.stride + k * kStep;
      if (prefetch != 0) hwy::Prefetch(from + prefetch);
      const Vector<Real> value = here == kStep ? LoadAs<Real>(tag, from) : LoadFirstAs<Real>(tag, from, here);
      results[p * kColumns + k] = lanes[k].Element(value);
    }
  }
  const auto store = [&](auto may_be_nan) HWY_ATTR {
    for (int64_t p = 0; p < kPositions; ++p) {
      for (int64_t k = 0; k < kColumns; ++k) {
        const int64_t at = p * span.stride + k * kStep;
        StoreColumns<decltype(may_be_nan)::value, kStream, Real>(tag, span, results[p * kColumns + k], x + at, y + at,
                                                                 column + k * kStep, here);
      }
    }
  };
  if constexpr (kMend) {
    if (HWY_LIKELY((AllFinite<kPositions * kColumns>(results)))) return store(std::false_type());
  }
  store(std::bool_constant<kMayBeNan>());
}

// Applies kVectors vectors of adjacent columns, whose numbers stay in registers while the positions go by. `count` is
// as in ApplyColumnBlock.
template <typename Real, Centring kCentring, bool kMayBeNan, bool kStream, int64_t kVectors, typename T>
HWY_INLINE void ApplyColumnTile(T tag, const cpu::ApplySpan& span, int64_t column, int64_t count) {
  constexpr int64_t kStep = kLanesOf<Real>;
  constexpr int64_t kAhead = 8;  // positions
  ColumnLanes<Real, kCentring> lanes[kVectors];
  for (int64_t k = 0; k < kVectors; ++k) lanes[k] = {FactorsOf<Real>(span), column + k * kStep, count};
  const int64_t prefetch = span.prefetch == 0 ? 0 : kAhead * span.stride;
  for (int64_t p = 0; p < span.positions; ++p) {
    ApplyColumnBlock<Real, kCentring, kMayBeNan, kStream, kVectors, 1>(tag, span, lanes, p, column, count, prefetch);
  }
}

// Applies the columns [0, columns), which are whole vectors, row by row; several positions share the loads of the
// numbers.
template <typename Real, Centring kCentring, bool kMayBeNan, bool kStream, typename T>
HWY_INLINE void ApplyColumnRows(T tag, const cpu::ApplySpan& span, int64_t columns) {
  constexpr int64_t kStep = kLanesOf<Real>;
  constexpr int64_t kPositions = 4;
  const int64_t prefetch = span.prefetch == 0 ? 0 : kPositions * span.stride;
  const auto sweep = [&](int64_t position, auto positions) HWY_ATTR {
    for (int64_t c = 0; c < columns; c += kStep) {
      const ColumnLanes<Real, kCentring> lanes(FactorsOf<Real>(span), c, kStep);
      ApplyColumnBlock<Real, kCentring, kMayBeNan, kStream, 1, decltype(positions)::value>(tag, span, &lanes, position,
                                                                                           c, kStep, prefetch);
    }
  };
  int64_t p = 0;
  for (; p + kPositions <= span.positions; p += kPositions) sweep(p, std::integral_constant<int64_t, kPositions>());
  for (; p < span.positions; ++p) sweep(p, std::integral_constant<int64_t, 1>());
}

template <typename Real, Centring kCentring, bool kMayBeNan, bool kStream, typename T>
void ApplyColumnsOf(T tag, const cpu::ApplySpan& span) {
  constexpr int64_t kStep = kLanesOf<Real>;
  constexpr int64_t kVectors = 4;  // whose numbers fit in registers
  int64_t done = 0;                // columns
  if (span.columns == kVectors * kStep) {
    ApplyColumnTile<Real, kCentring, kMayBeNan, kStream, kVectors>(tag, span, 0, kStep);
    done = span.columns;
  } else if (span.columns > kVectors * kStep) {
    done = span.columns / kStep * kStep;
    ApplyColumnRows<Real, kCentring, kMayBeNan, kStream>(tag, span, done);
  }
  for (; done < span.columns; done += kStep) {
    ApplyColumnTile<Real, kCentring, kMayBeNan, false, 1>(tag, span, done, HWY_MIN(kStep, span.columns - done));
  }
}

template <typename Real, Centring kCentring, bool kMayBeNan, typename T>
void ApplyColumns(T tag, const cpu::ApplySpan& span) {
  // Streaming stores need alignment and at least 16 bytes.
  constexpr int64_t kBytes = kLanesOf<Real> * static_cast<int64_t>(sizeof(typename T::Storage));
  if constexpr (kBytes >= 16) {
    const bool aligned = reinterpret_cast<uintptr_t>(span.y) % kBytes == 0 &&
                         span.stride * static_cast<int64_t>(sizeof(typename T::Storage)) % kBytes == 0;
    if (span.stream && aligned) return ApplyColumnsOf<Real, kCentring, kMayBeNan, true>(tag, span);
  }
  ApplyColumnsOf<Real, kCentring, kMayBeNan, false>(tag, span);
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
