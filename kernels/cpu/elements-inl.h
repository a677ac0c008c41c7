// The apply pass for narrow elements along a row with the statistics of one group, in the four ways of
// kernels/group_statistics.h, in f64 (EXACT of f32) or f32 (FAST, and 16-bit types).
// In the path: included by apply.cc, row_blocks.cc and factors-inl.h. Highway recompiles this file for each instruction
// set, hence the per-target include guard. No state.
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

// Replaces the results in f32 that are not finite by `exact(lane)`, because an intermediate value may have overflowed
// f32.
template <typename Exact>
HWY_INLINE Vector<float> RecalculateNonFinite(Vector<float> y, int64_t count, Exact exact) {
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

// The sum of the vectors, added pairwise: a chain of additions would delay the instructions that follow it.
template <int64_t kVectors>
HWY_INLINE Vector<float> SumOf(const Vector<float>* values) {
  if constexpr (kVectors == 1) {
    return *values;
  } else {
    constexpr int64_t kHalf = kVectors / 2;
    return hn::Add(SumOf<kHalf>(values), SumOf<kVectors - kHalf>(values + kHalf));
  }
}

// True if all lanes of `values` are finite; may be false where they are huge. It adds the values, because the
// multipliers are busy with the elements.
template <int64_t kVectors>
HWY_INLINE bool AllFinite(const Vector<float>* values) {
  const Tag<float> tag;
  const auto sum = SumOf<kVectors>(values);
  return hn::AllTrue(tag, hn::Eq(hn::Sub(sum, sum), hn::Zero(tag)));
}

// The weights or the biases of a row: element i uses values[i * step]. The step is 1, or 0 where all elements have the
// same value, which then fills kVectors vectors.
template <typename Real, int64_t kVectors = 1>
struct RowParameter {
  const Real* values;
  int64_t step;
  HWY_ALIGN Real lanes[kVectors * kLanesOf<Real>];

  // If `given` is null, all elements have the value `absent`.
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

// How the elements of a group are calculated.
struct Way {
  Form form = Form::kPlain;
  bool in_f32 = false;  // else in f64
  bool may_be_nan = true;

  bool operator==(const Way&) const = default;
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

// The elements of a row, or of pieces of one group, with their parameters. Borrows.
template <typename T>
struct RowTask {
  const typename T::Storage* x = nullptr;
  typename T::Storage* y = nullptr;  // may be x
  int64_t n = 0;                     // the elements of a row, or of a run of a piece
  const cpu::Parameters* parameters = nullptr;
  bool per_element = true;  // one w and b for each element; false: one for all, or for each run
  Caching caching;
  Pieces pieces;

  // The same for the row that begins at element `index`.
  HWY_INLINE RowTask At(int64_t index) const {
    RowTask task = *this;
    task.x += index;
    task.y += index;
    return task;
  }
};

// The form for a group in rows. It depends on the group and its parameters alone.
template <typename T>
HWY_INLINE Form FormOf(const RowTask<T>& task, Centring centring, const GroupStatistics& s, bool in_f32,
                       bool may_be_nan) {
  const cpu::Parameters& parameters = *task.parameters;
  if (centring == Centring::kNone) {
    const bool pairs = std::is_same_v<T, F32> && !in_f32 && !may_be_nan && parameters.equal_f32 &&
                       parameters.bias == nullptr && FitF32(s);
    return pairs ? Form::kPairs : Form::kPlain;
  }
  const bool once = centring == Centring::kOnce;
  if (!task.per_element && !parameters.absent()) return once ? Form::kScaledOnce : Form::kScaledTwice;
  if (!in_f32 && Folds(s)) return Form::kFolded;
  return once ? Form::kOnce : Form::kTwice;
}

// Prepares `s` for its form. This is called for many rows before the first of them is applied, because it is a chain of
// dependent operations that takes dozens of cycles.
HWY_INLINE void Prepare(Form form, GroupStatistics* s) {
  if (form != Form::kPairs) return;
  const FloatPair pair = FloatPairOf(s->inverse.hi);
  s->inverse = {pair.hi, pair.lo};
}

// FloatPairOf() of each lane, in f64 and without a branch: where hi is above `inverse`, the difference is negative, and
// its sign, as an integer, is the -1 that turns hi into the next float below.
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

// The numbers of one group that kForm uses, each in every lane of a vector.
template <typename Real, Form kForm>
struct GroupLanes {
  using Value = Vector<Real>;
  Value shift, delta, inverse;

  // All elements have this `weight`; it is used by kScaledOnce and kScaledTwice only.
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

// The elements of a cache line.
template <typename Storage>
inline constexpr int64_t kLineElements = 64 / sizeof(Storage);

// Fetches the cache line of x that is `prefetch` elements ahead of a loop that has reached x and y, and, unless y is
// streamed, a line of y ahead of the loop, because a store that misses the caches delays the stores that follow it. A
// prefetch of 0 does nothing. Called once for each line.
template <typename Storage>
HWY_INLINE void FetchAhead(const Storage* x, const Storage* y, int64_t prefetch, bool stream) {
  constexpr int64_t kStoresAhead = 16 * kLineElements<Storage>;
  if (prefetch == 0) return;
  hwy::Prefetch(x + prefetch);
  if (!stream) hwy::Prefetch(y + kStoresAhead);
}

// Calls vectors(i, store) for the whole vectors of n elements of y, and part(i, count) for the elements before and
// after them. If `caching.stream`, whole vectors are written past the caches, from the first aligned address on.
template <typename Real, typename T, typename Vectors, typename Part>
HWY_INLINE void ForVectors(T /*tag*/, const typename T::Storage* x, const typename T::Storage* y, int64_t n,
                           Caching caching, Vectors vectors, Part part) {
  constexpr int64_t kStep = kLanesOf<Real>;
  constexpr int64_t kLine = kLineElements<typename T::Storage>;
  const Raw<T, Floats<Real>> bits;
  int64_t i = 0;
  const auto sweep = [&](auto store) HWY_ATTR {
    for (; i + kLine <= n; i += kLine) {
      FetchAhead(x + i, y + i, caching.prefetch, caching.stream);
      for (int64_t k = 0; k < kLine; k += kStep) vectors(i + k, store);
    }
    if (i < n) FetchAhead(x + i, y + i, caching.prefetch, caching.stream);
    for (; i + kStep <= n; i += kStep) vectors(i, store);
  };
  // Streaming stores need alignment and at least 16 bytes: Highway would write past shorter vectors.
  constexpr uintptr_t kBytes = kStep * sizeof(typename T::Storage);
  if (kBytes >= 16 && caching.stream) {
    const auto misaligned = reinterpret_cast<uintptr_t>(y) % kBytes;
    if (misaligned % sizeof(typename T::Storage) == 0) {
      i = misaligned == 0 ? 0 : static_cast<int64_t>((kBytes - misaligned) / sizeof(typename T::Storage));
      i = HWY_MIN(i, n);
      if (i > 0) part(0, i);
      sweep([&](auto v, auto* to) HWY_ATTR { hn::Stream(v, bits, to); });
    }
  }
  sweep([&](auto v, auto* to) HWY_ATTR { hn::StoreU(v, bits, to); });
  if (i < n) part(i, n - i);
}

// Applies a row, or pieces of one group.
template <typename Real, Form kForm, bool kMayBeNan, typename T>
void ApplyRow(T tag, const RowTask<T>& task, const GroupStatistics& s) {
  // Copies, so that the compiler knows that a store to y does not change them.
  const cpu::Parameters& parameters = *task.parameters;
  const bool per_element = task.per_element;
  const Pieces pieces = task.pieces;
  const Caching caching = task.caching;
  const int64_t n = task.n;
  const auto* x = task.x;
  auto* y = task.y;
  const Raw<T, Floats<Real>> bits;
  constexpr int64_t kStep = kLanesOf<Real>;
  const GroupLanes<Real, kForm> lanes(s, 1);
  // An absent b is -0, which leaves every value as it is, zeros included.
  const RowParameter<Real> w(WeightOf<Real>(parameters), per_element, 1);
  const RowParameter<Real> b(BiasOf<Real>(parameters), per_element, static_cast<Real>(-0.0));
  const Real* const weights = w.values;
  const Real* const biases = b.values;
  const int64_t weight_step = w.step;
  const int64_t bias_step = b.step;
  const auto result = [&](Vector<Real> value, Vector<Real> weight, Vector<Real> bias, int64_t i,
                          int64_t count) HWY_ATTR {
    auto floats = Demote<kMayBeNan>(lanes.Element(value, weight, bias));
    if constexpr (kMayBeNan && std::is_same_v<Real, float>) {
      floats = RecalculateNonFinite(floats, count, [&](int64_t lane) HWY_ATTR {
        return ExactElement(ElementAt(tag, x + i + lane), s, At(parameters.weight, per_element, i + lane, 1),
                            At(parameters.bias, per_element, i + lane, -0.0));
      });
    }
    return Narrow(tag, Floats<Real>(), floats);
  };
  const auto vectors = [&](int64_t i, auto store) HWY_ATTR {
    const auto weight = ParametersAt(weights, weight_step, i);
    const auto bias = ParametersAt(biases, bias_step, i);
    store(result(LoadAs<Real>(tag, x + i), weight, bias, i, kStep), y + i);
  };
  const auto part = [&](int64_t i, int64_t count) HWY_ATTR {
    const auto weight = ParametersAt(weights, weight_step, i, count);
    const auto bias = ParametersAt(biases, bias_step, i, count);
    StoreFirst(result(LoadFirstAs<Real>(tag, x + i, count), weight, bias, i, count), bits, y + i, count);
  };
  for (int64_t piece = 0; piece < pieces.count; ++piece) {
    ForVectors<Real>(tag, x, y, n, caching, vectors, part);
    x += pieces.stride;
    y += pieces.stride;
  }
}

// Applies pieces of one group whose parameters are one w and b for each run of n elements.
template <typename Real, Form kForm, bool kMayBeNan, typename T>
void ApplyScaledRuns(T tag, const RowTask<T>& task, const GroupStatistics& s) {
  const cpu::Parameters& parameters = *task.parameters;
  const Pieces pieces = task.pieces;
  const Caching caching = task.caching;
  const int64_t n = task.n;
  const auto* const x_of_group = task.x;
  auto* const y_of_group = task.y;
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
          floats = RecalculateNonFinite(floats, count, [&](int64_t lane) HWY_ATTR {
            return ExactElement(ElementAt(tag, x + i + lane), s, weight, b);
          });
        }
        return Narrow(tag, Floats<Real>(), floats);
      };
      ForVectors<Real>(
          tag, x, y, n, caching,
          [&](int64_t i, auto store) HWY_ATTR { store(result(LoadAs<Real>(tag, x + i), i, kStep), y + i); },
          [&](int64_t i, int64_t count)
              HWY_ATTR { StoreFirst(result(LoadFirstAs<Real>(tag, x + i, count), i, count), bits, y + i, count); });
    }
  }
}

// Applies a row, or pieces of one group, whose statistics are prepared for the form. Several runs are for the scaled
// forms only. Compiled by apply.cc alone, because its loops for each type and instruction set keep the compiler busy
// for seconds. Forms that are rare in f64 have no loop without checks for NaN.
template <typename T>
void ApplyElements(T tag, const RowTask<T>& task, const GroupStatistics& s, Way way) {
  const bool in_f32 = way.in_f32;
  const bool may_be_nan = way.may_be_nan;
  const auto apply = [&](auto real, auto of_form, auto nan) HWY_ATTR {
    constexpr Form kForm = decltype(of_form)::value;
    if constexpr (kForm == Form::kScaledOnce || kForm == Form::kScaledTwice) {
      ApplyScaledRuns<decltype(real), kForm, decltype(nan)::value>(tag, task, s);
    } else {
      ApplyRow<decltype(real), kForm, decltype(nan)::value>(tag, task, s);
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
  switch (way.form) {
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
using ApplyElementsFunction = void(T, const RowTask<T>&, const GroupStatistics&, Way);
extern template ApplyElementsFunction<F32> ApplyElements<F32>;
extern template ApplyElementsFunction<F16> ApplyElements<F16>;
extern template ApplyElementsFunction<BF16> ApplyElements<BF16>;

// The statistics of the rows of a block, prepared for one form. They are not initialised, because that would take as
// long as a short row.
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

// Does what ApplyRowPairs says. kAhead says whether anything is fetched ahead: a test in each turn of the loop would
// cost registers.
template <typename Real, Form kForm, bool kMayBeNan, bool kAhead, typename T>
void ApplyRowPairsOf(T tag, const RowTask<T>& task, int64_t rows, const RowStatistics& statistics) {
  const cpu::Parameters& parameters = *task.parameters;
  const bool per_element = task.per_element;
  const int64_t prefetch = kAhead ? task.caching.prefetch : 0;
  const int64_t n = task.n;
  const auto* x = task.x;
  auto* y = task.y;
  const Raw<T, Floats<Real>> bits;
  constexpr int64_t kStep = kLanesOf<Real>;
  constexpr int64_t kLine = kLineElements<typename T::Storage>;
  const RowParameter<Real> w(WeightOf<Real>(parameters), per_element, 1);
  const RowParameter<Real> b(BiasOf<Real>(parameters), per_element, static_cast<Real>(-0.0));
  const Real* const weights = w.values;
  const Real* const biases = b.values;
  const int64_t weight_step = w.step;
  const int64_t bias_step = b.step;
  const int64_t whole = n / kStep * kStep;  // elements in whole vectors
  for (int64_t row = 0; row < rows; row += 2) {
    const GroupLanes<Real, kForm> first(statistics.At(row), 1);
    const GroupLanes<Real, kForm> second(statistics.At(row + 1), 1);
    // `of_second` says that the elements belong to the second row; `at` counts from the start of the first row.
    const auto result = [&](auto of_second, int64_t at, int64_t count, Vector<Real> value, Vector<Real> weight,
                            Vector<Real> bias) HWY_ATTR {
      constexpr bool kSecond = decltype(of_second)::value;
      auto floats = Demote<kMayBeNan>((kSecond ? second : first).Element(value, weight, bias));
      if constexpr (kMayBeNan && std::is_same_v<Real, float>) {
        floats = RecalculateNonFinite(floats, count, [&](int64_t lane) HWY_ATTR {
          const int64_t i = at + lane - (kSecond ? n : 0);
          return ExactElement(ElementAt(tag, x + at + lane), statistics.At(kSecond ? row + 1 : row),
                              At(parameters.weight, per_element, i, 1), At(parameters.bias, per_element, i, -0.0));
        });
      }
      return Narrow(tag, Floats<Real>(), floats);
    };
    int64_t i = 0;
    // f64 has half as many elements in a vector and gains nothing from two vectors at once.
    if constexpr (std::is_same_v<Real, float>) {
      for (; i + kStep < whole; i += 2 * kStep) {
        const auto load = [&](const float* values, int64_t step) HWY_ATTR {
          return step == 0 ? TwoVectors{hn::LoadU(Tag<float>(), values), hn::LoadU(Tag<float>(), values)}
                           : LoadTwoFor(tag, values + i);
        };
        const TwoVectors weight = load(weights, weight_step);
        const TwoVectors bias = load(biases, bias_step);
        if (kAhead && i % kLine < 2 * kStep) {
          for (int64_t k = i; k < i + 2 * kStep; k += kLine) {
            FetchAhead(x + k, y + k, prefetch, false);
            FetchAhead(x + n + k, y + n + k, prefetch, false);
          }
        }
        const TwoVectors upper = LoadTwo(tag, x + i);
        const TwoVectors lower = LoadTwo(tag, x + n + i);
        const Vector<float> results[4] = {first.Element(upper.first, weight.first, bias.first),
                                          first.Element(upper.second, weight.second, bias.second),
                                          second.Element(lower.first, weight.first, bias.first),
                                          second.Element(lower.second, weight.second, bias.second)};
        if constexpr (kMayBeNan) {
          if (HWY_UNLIKELY((!AllFinite<4>(results)))) {
            // By calls, because loops that recalculate would take registers from this one.
            const cpu::Parameters here = per_element ? parameters.At(i) : parameters;
            const auto careful = [&](int64_t of_row, int64_t at) HWY_ATTR {
              const RowTask<T> part = {x + at, y + at, 2 * kStep, &here, per_element};
              ApplyElements(tag, part, statistics.At(of_row), {kForm, true, true});
            };
            careful(row, i);
            careful(row + 1, n + i);
            continue;
          }
        }
        StoreTwo(tag, {results[0], results[1]}, y + i);
        StoreTwo(tag, {results[2], results[3]}, y + n + i);
      }
    }
    for (; i < whole; i += kStep) {
      const auto weight = ParametersAt(weights, weight_step, i);
      const auto bias = ParametersAt(biases, bias_step, i);
      if (kAhead && i % kLine < kStep) {
        FetchAhead(x + i, y + i, prefetch, false);
        FetchAhead(x + n + i, y + n + i, prefetch, false);
      }
      hn::StoreU(result(std::false_type(), i, kStep, LoadAs<Real>(tag, x + i), weight, bias), bits, y + i);
      hn::StoreU(result(std::true_type(), n + i, kStep, LoadAs<Real>(tag, x + n + i), weight, bias), bits, y + n + i);
    }
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

// Applies `rows` adjacent rows, an even number, of which `task` is the first. Two rows share the loads of the
// parameters.
template <typename Real, Form kForm, bool kMayBeNan, typename T>
HWY_INLINE void ApplyRowPairs(T tag, const RowTask<T>& task, int64_t rows, const RowStatistics& statistics) {
  // Measured: elements in f64 that may be NaN (pRMSNorm's) take 4 % longer in a loop of their own.
  constexpr bool kOneLoop = kMayBeNan && std::is_same_v<Real, double>;
  if constexpr (!kOneLoop) {
    if (task.caching.prefetch == 0) {
      return ApplyRowPairsOf<Real, kForm, kMayBeNan, false>(tag, task, rows, statistics);
    }
  }
  ApplyRowPairsOf<Real, kForm, kMayBeNan, true>(tag, task, rows, statistics);
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_ELEMENTS_INL_H_
