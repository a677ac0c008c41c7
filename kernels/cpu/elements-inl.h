// The apply pass for narrow elements along a row with the statistics of one group, in f32, as FAST is.
// In the path: included by apply.cc, row_blocks.cc, nearest_rows.cc and factors-inl.h. Highway recompiles this file for
// each instruction set, hence the per-target include guard. No state.
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

// One element in f64, before it is rounded to a 16-bit type.
HWY_INLINE float ElementInF64(double x, const GroupStatistics& s, double w, double b) {
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

// How the elements of a row are calculated.
enum class Form : uint8_t {
  kPlain,        // x * inverse * w + b
  kOnce,         // (x - shift) * inverse * w + b
  kTwice,        // ((x - shift) - delta) * inverse * w + b
  kScaledOnce,   // (x - shift) * factor + b
  kScaledTwice,  // ((x - shift) - delta) * factor + b
};
template <Form kForm>
using FormTag = std::integral_constant<Form, kForm>;

// How the elements of a group are calculated.
struct Way {
  Form form = Form::kPlain;
  bool may_be_nan = true;
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

// The form for a group in rows.
template <typename T>
HWY_INLINE Form FormOf(const RowTask<T>& task, Centring centring) {
  if (centring == Centring::kNone) return Form::kPlain;
  const bool once = centring == Centring::kOnce;
  if (!task.per_element && !task.parameters->absent()) return once ? Form::kScaledOnce : Form::kScaledTwice;
  return once ? Form::kOnce : Form::kTwice;
}

// The numbers of one group that kForm uses, each in every lane of a vector.
template <Form kForm>
struct GroupLanes {
  using Value = Vector<float>;
  Value shift, delta, inverse;

  // All elements have this `weight`; it is used by kScaledOnce and kScaledTwice only.
  HWY_INLINE GroupLanes(const GroupStatistics& s, double weight) {
    const auto set = [](double value) HWY_ATTR { return hn::Set(Tag<float>(), static_cast<float>(value)); };
    shift = set(s.shift);
    delta = set(s.delta.hi);
    inverse = set(s.inverse.hi);
    if constexpr (kForm == Form::kScaledOnce || kForm == Form::kScaledTwice) {
      inverse = set(FactorOf(s.inverse.hi, weight));
    }
  }
  HWY_INLINE Value Element(Value x, Value w, Value b) const {
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
template <typename T, typename Vectors, typename Part>
HWY_INLINE void ForVectors(T /*tag*/, const typename T::Storage* x, const typename T::Storage* y, int64_t n,
                           Caching caching, Vectors vectors, Part part) {
  constexpr int64_t kStep = kLanesOf<float>;
  constexpr int64_t kLine = kLineElements<typename T::Storage>;
  const Raw<T, Floats<float>> bits;
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
template <Form kForm, bool kMayBeNan, typename T>
void ApplyRow(T tag, const RowTask<T>& task, const GroupStatistics& s) {
  // Copies, so that the compiler knows that a store to y does not change them.
  const cpu::Parameters& parameters = *task.parameters;
  const bool per_element = task.per_element;
  const Pieces pieces = task.pieces;
  const Caching caching = task.caching;
  const int64_t n = task.n;
  const auto* x = task.x;
  auto* y = task.y;
  const Raw<T, Floats<float>> bits;
  constexpr int64_t kStep = kLanesOf<float>;
  const GroupLanes<kForm> lanes(s, 1);
  // An absent b is -0, which leaves every value as it is, zeros included.
  const RowParameter<float> w(WeightOf<float>(parameters), per_element, 1);
  const RowParameter<float> b(BiasOf<float>(parameters), per_element, -0.0f);
  const float* const weights = w.values;
  const float* const biases = b.values;
  const int64_t weight_step = w.step;
  const int64_t bias_step = b.step;
  const auto result = [&](Vector<float> value, Vector<float> weight, Vector<float> bias, int64_t i,
                          int64_t count) HWY_ATTR {
    auto floats = Demote<kMayBeNan>(lanes.Element(value, weight, bias));
    if constexpr (kMayBeNan) {
      floats = RecalculateNonFinite(floats, count, [&](int64_t lane) HWY_ATTR {
        return ElementInF64(ElementAt(tag, x + i + lane), s, At(parameters.weight, per_element, i + lane, 1),
                            At(parameters.bias, per_element, i + lane, -0.0));
      });
    }
    return Narrow(tag, Floats<float>(), floats);
  };
  const auto vectors = [&](int64_t i, auto store) HWY_ATTR {
    const auto weight = ParametersAt(weights, weight_step, i);
    const auto bias = ParametersAt(biases, bias_step, i);
    store(result(LoadAs<float>(tag, x + i), weight, bias, i, kStep), y + i);
  };
  const auto part = [&](int64_t i, int64_t count) HWY_ATTR {
    const auto weight = ParametersAt(weights, weight_step, i, count);
    const auto bias = ParametersAt(biases, bias_step, i, count);
    StoreFirst(result(LoadFirstAs<float>(tag, x + i, count), weight, bias, i, count), bits, y + i, count);
  };
  for (int64_t piece = 0; piece < pieces.count; ++piece) {
    ForVectors(tag, x, y, n, caching, vectors, part);
    x += pieces.stride;
    y += pieces.stride;
  }
}

// Applies pieces of one group whose parameters are one w and b for each run of n elements.
template <Form kForm, bool kMayBeNan, typename T>
void ApplyScaledRuns(T tag, const RowTask<T>& task, const GroupStatistics& s) {
  const cpu::Parameters& parameters = *task.parameters;
  const Pieces pieces = task.pieces;
  const Caching caching = task.caching;
  const int64_t n = task.n;
  const auto* const x_of_group = task.x;
  auto* const y_of_group = task.y;
  const Raw<T, Floats<float>> bits;
  constexpr int64_t kStep = kLanesOf<float>;
  for (int64_t run = 0; run < pieces.runs; ++run) {
    const double weight = At(parameters.weight, true, run, 1);
    const double b = At(parameters.bias, true, run, -0.0);
    const GroupLanes<kForm> lanes(s, weight);
    const auto bias = hn::Set(Tag<float>(), static_cast<float>(b));
    for (int64_t piece = 0; piece < pieces.count; ++piece) {
      const auto* const x = x_of_group + piece * pieces.stride + run * n;
      auto* const y = y_of_group + piece * pieces.stride + run * n;
      const auto result = [&](Vector<float> value, int64_t i, int64_t count) HWY_ATTR {
        auto floats = Demote<kMayBeNan>(lanes.Element(value, bias, bias));
        if constexpr (kMayBeNan) {
          floats = RecalculateNonFinite(floats, count, [&](int64_t lane) HWY_ATTR {
            return ElementInF64(ElementAt(tag, x + i + lane), s, weight, b);
          });
        }
        return Narrow(tag, Floats<float>(), floats);
      };
      ForVectors(
          tag, x, y, n, caching,
          [&](int64_t i, auto store) HWY_ATTR { store(result(LoadAs<float>(tag, x + i), i, kStep), y + i); },
          [&](int64_t i, int64_t count)
              HWY_ATTR { StoreFirst(result(LoadFirstAs<float>(tag, x + i, count), i, count), bits, y + i, count); });
    }
  }
}

// Applies a row, or pieces of one group. Several runs are for the scaled forms only. Compiled by apply.cc alone,
// because its loops for each type and instruction set keep the compiler busy for seconds.
template <typename T>
void ApplyElements(T tag, const RowTask<T>& task, const GroupStatistics& s, Way way) {
  const auto apply = [&](auto of_form, auto nan) HWY_ATTR {
    constexpr Form kForm = decltype(of_form)::value;
    if constexpr (kForm == Form::kScaledOnce || kForm == Form::kScaledTwice) {
      ApplyScaledRuns<kForm, decltype(nan)::value>(tag, task, s);
    } else {
      ApplyRow<kForm, decltype(nan)::value>(tag, task, s);
    }
  };
  const auto either = [&](auto of_form) HWY_ATTR {
    return way.may_be_nan ? apply(of_form, std::true_type()) : apply(of_form, std::false_type());
  };
  switch (way.form) {
    case Form::kPlain:
      return either(FormTag<Form::kPlain>());
    case Form::kOnce:
      return either(FormTag<Form::kOnce>());
    case Form::kTwice:
      return either(FormTag<Form::kTwice>());
    case Form::kScaledOnce:
      return either(FormTag<Form::kScaledOnce>());
    case Form::kScaledTwice:
      return either(FormTag<Form::kScaledTwice>());
  }
}
template <typename T>
using ApplyElementsFunction = void(T, const RowTask<T>&, const GroupStatistics&, Way);
extern template ApplyElementsFunction<F32> ApplyElements<F32>;
extern template ApplyElementsFunction<F16> ApplyElements<F16>;
extern template ApplyElementsFunction<BF16> ApplyElements<BF16>;

// The statistics of the rows of a block. They are not initialised, because that would take as long as a short row.
struct RowStatistics {
  static constexpr int64_t kMaxRows = cpu::RowBlock::kMaxRows;
  static_assert(kMaxRows % kLanes == 0);
  HWY_ALIGN double shift[kMaxRows], delta[kMaxRows], inverse[kMaxRows];

  HWY_INLINE GroupStatistics At(int64_t row) const { return {1, shift[row], {delta[row], 0}, {inverse[row], 0}}; }
  void Set(int64_t row, const GroupStatistics& s) {
    shift[row] = s.shift;
    delta[row] = s.delta.hi;
    inverse[row] = s.inverse.hi;
  }
};

// Does what ApplyRowPairs says. kAhead says whether anything is fetched ahead: a test in each turn of the loop would
// cost registers.
template <Form kForm, bool kMayBeNan, bool kAhead, typename T>
void ApplyRowPairsOf(T tag, const RowTask<T>& task, int64_t rows, const RowStatistics& statistics) {
  const cpu::Parameters& parameters = *task.parameters;
  const bool per_element = task.per_element;
  const int64_t prefetch = kAhead ? task.caching.prefetch : 0;
  const int64_t n = task.n;
  const auto* x = task.x;
  auto* y = task.y;
  const Raw<T, Floats<float>> bits;
  constexpr int64_t kStep = kLanesOf<float>;
  constexpr int64_t kLine = kLineElements<typename T::Storage>;
  const RowParameter<float> w(WeightOf<float>(parameters), per_element, 1);
  const RowParameter<float> b(BiasOf<float>(parameters), per_element, -0.0f);
  const float* const weights = w.values;
  const float* const biases = b.values;
  const int64_t weight_step = w.step;
  const int64_t bias_step = b.step;
  const int64_t whole = n / kStep * kStep;  // elements in whole vectors
  for (int64_t row = 0; row < rows; row += 2) {
    const GroupLanes<kForm> first(statistics.At(row), 1);
    const GroupLanes<kForm> second(statistics.At(row + 1), 1);
    // `of_second` says that the elements belong to the second row; `at` counts from the start of the first row.
    const auto result = [&](auto of_second, int64_t at, int64_t count, Vector<float> value, Vector<float> weight,
                            Vector<float> bias) HWY_ATTR {
      constexpr bool kSecond = decltype(of_second)::value;
      auto floats = Demote<kMayBeNan>((kSecond ? second : first).Element(value, weight, bias));
      if constexpr (kMayBeNan) {
        floats = RecalculateNonFinite(floats, count, [&](int64_t lane) HWY_ATTR {
          const int64_t i = at + lane - (kSecond ? n : 0);
          return ElementInF64(ElementAt(tag, x + at + lane), statistics.At(kSecond ? row + 1 : row),
                              At(parameters.weight, per_element, i, 1), At(parameters.bias, per_element, i, -0.0));
        });
      }
      return Narrow(tag, Floats<float>(), floats);
    };
    int64_t i = 0;
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
            ApplyElements(tag, part, statistics.At(of_row), {kForm, true});
          };
          careful(row, i);
          careful(row + 1, n + i);
          continue;
        }
      }
      StoreTwo(tag, {results[0], results[1]}, y + i);
      StoreTwo(tag, {results[2], results[3]}, y + n + i);
    }
    for (; i < whole; i += kStep) {
      const auto weight = ParametersAt(weights, weight_step, i);
      const auto bias = ParametersAt(biases, bias_step, i);
      if (kAhead && i % kLine < kStep) {
        FetchAhead(x + i, y + i, prefetch, false);
        FetchAhead(x + n + i, y + n + i, prefetch, false);
      }
      hn::StoreU(result(std::false_type(), i, kStep, LoadAs<float>(tag, x + i), weight, bias), bits, y + i);
      hn::StoreU(result(std::true_type(), n + i, kStep, LoadAs<float>(tag, x + n + i), weight, bias), bits, y + n + i);
    }
    if (i < n) {
      const auto weight = ParametersAt(weights, weight_step, i, n - i);
      const auto bias = ParametersAt(biases, bias_step, i, n - i);
      const auto part = [&](auto of_second, int64_t at) HWY_ATTR {
        const auto value = LoadFirstAs<float>(tag, x + at, n - i);
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
template <Form kForm, bool kMayBeNan, typename T>
HWY_INLINE void ApplyRowPairs(T tag, const RowTask<T>& task, int64_t rows, const RowStatistics& statistics) {
  if (task.caching.prefetch == 0) return ApplyRowPairsOf<kForm, kMayBeNan, false>(tag, task, rows, statistics);
  ApplyRowPairsOf<kForm, kMayBeNan, true>(tag, task, rows, statistics);
}

}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_ELEMENTS_INL_H_
