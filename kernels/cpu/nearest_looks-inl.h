// The quick looks of nearest_rows.cc: ways of calculating and rounding the elements of a piece of a row that also tell
// whether any of them may lie near a middle between two values of its type. Each way is a struct of the same members:
// T and Real (the types of elements and of the calculation), kStep and kLook (the elements of a step and of a look),
// Affine (w and b of a step), Row (the numbers of a row in every lane), Seen (what a look has seen so far), Step,
// which returns a step's y and sees it, Write, which stores it, and AreFar: true in all lanes unless an element may lie
// near a middle; where kAsksForZeros, AreFarOrZero is asked next. Where kTestsSteps, Seen::near has the lanes of the
// last step in which one does, and AreFar knows the rest. In the path: nearest_rows.cc. Highway recompiles this file
// for each instruction set, hence the per-target include guard. No state.
#if defined(NORMD_KERNELS_CPU_NEAREST_LOOKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMD_KERNELS_CPU_NEAREST_LOOKS_INL_H_
#undef NORMD_KERNELS_CPU_NEAREST_LOOKS_INL_H_
#else
#define NORMD_KERNELS_CPU_NEAREST_LOOKS_INL_H_
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/certificate.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace normd {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR  // vectors of one lane have no halves

// The statistics of the rows of a block and the bounds of their elements.
struct RowBounds {
  static constexpr int64_t kMaxRows = cpu::RowBlock::kMaxRows;
  HWY_ALIGN double mean[kMaxRows], shift[kMaxRows], inverse[kMaxRows];
  HWY_ALIGN double decides[kMaxRows];  // not 0 if the bounds of the row decide anything
  HWY_ALIGN double careful_fixed[kMaxRows], careful_relative[kMaxRows];  // of ApplyNearest
  HWY_ALIGN double fixed[kMaxRows], relative[kMaxRows];                  // of the quick look
  double largest_weight = 1;
  double pair_widening = 0;  // c of kPairWidening
  uint32_t in_runs = 0;      // a bit for each row whose `inverse` comes from SumSquaresInRuns
};

using FloatTag = Tag<float>;
using FloatLanes = Vector<float>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using FloatMask = hn::Mask<FloatTag>;
using Words = hn::Vec<WordTag>;
using HalfTag = hn::Repartition<uint16_t, FloatTag>;

// The smaller of `least`, which is not negative, and |value|.
HWY_INLINE FloatLanes LeastMagnitude(FloatLanes least, FloatLanes value) {
#if HWY_TARGET == HWY_AVX3
  return FloatLanes{_mm512_range_ps(least.raw, value.raw, (2 << 2) | 2)};
#else
  return hn::Min(least, hn::Abs(value));
#endif
}

HWY_INLINE FloatLanes Infinity() { return hn::Set(FloatTag(), std::numeric_limits<float>::infinity()); }

// The power of two in each lane that is at most |value|; 0 where it is subnormal.
HWY_INLINE FloatLanes PowerBelow(Words value) {
  return hn::BitCast(FloatTag(), hn::And(value, hn::Set(WordTag(), 0x7F800000u)));
}

// What a look has seen of elements that are compared with the middles of their own binade: the bits that are cut off,
// as distances above a middle, which wrap around, and the least |y|. Lane by lane these belong to the same elements.
struct MiddlesSeen {
  Words lowest, highest;
  FloatLanes least;

  HWY_INLINE MiddlesSeen() : lowest(hn::Set(WordTag(), 0xFFFFFFFFu)), highest(hn::Zero(WordTag())), least(Infinity()) {}
};

// The bound of a row for MiddlesSeen: no element is near a middle where (d - relative) * PowerBelow(least) > fixed in
// every lane, with the distance d from the middle in units of 2^e / units_of_one for a y in the binade of 2^e. |y| is
// under twice 2^e.
struct MiddlesBound {
  FloatLanes relative, fixed;

  MiddlesBound() = default;
  MiddlesBound(const RowBounds& rows, int64_t row, double units_of_one) {
    const auto set = [](double value)
                         HWY_ATTR { return hn::Set(FloatTag(), static_cast<float>(value * (1 + 0x1p-20))); };
    relative = set(rows.relative[row] * 2 * units_of_one);
    fixed = set(rows.fixed[row] * units_of_one);
  }
  HWY_INLINE FloatMask AreFar(Words distance, Words least) const {
    const hn::RebindToSigned<FloatTag> integers;
    const auto units = hn::ConvertTo(FloatTag(), hn::BitCast(integers, distance));
    return hn::Gt(hn::Mul(hn::Sub(units, relative), PowerBelow(least)), fixed);
  }
};

// The elements that a look covered, and their weights: those about zero without a bias may be 0.
template <typename Way>
struct Looked {
  const typename Way::T::Storage* x;
  int64_t count;
  const typename Way::Real* weights;
  int64_t weight_step;
};

// ---- f32 in f64 ----

// The words of two vectors that hold the lower halves of their elements, in the order of the elements once they have
// gone through InOrder.
HWY_INLINE Words LowerWords(V low, V high) {
#if HWY_TARGET == HWY_AVX3
  return Words{_mm512_castps_si512(_mm512_shuffle_ps(_mm512_castpd_ps(low.raw), _mm512_castpd_ps(high.raw), 0x88))};
#elif HWY_TARGET == HWY_AVX2
  return Words{_mm256_castps_si256(_mm256_shuffle_ps(_mm256_castpd_ps(low.raw), _mm256_castpd_ps(high.raw), 0x88))};
#else
  return hn::ConcatEven(WordTag(), hn::BitCast(WordTag(), high), hn::BitCast(WordTag(), low));
#endif
}
HWY_INLINE Words InOrder(Words words) {
#if HWY_TARGET == HWY_AVX3
  const __m512i order = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
  return Words{_mm512_permutexvar_epi64(order, words.raw)};
#elif HWY_TARGET == HWY_AVX2
  return Words{_mm256_permute4x64_epi64(words.raw, _MM_SHUFFLE(3, 1, 2, 0))};
#else
  return words;
#endif
}

// Two vectors of f64 as one of f32.
HWY_INLINE FloatLanes Join(V low, V high) {
#if HWY_TARGET == HWY_AVX3
  // Combine would clear the upper half first.
  const __m512 lower = _mm512_castps256_ps512(_mm512_cvtpd_ps(low.raw));
  return FloatLanes{_mm512_insertf32x8(lower, _mm512_cvtpd_ps(high.raw), 1)};
#else
  return hn::Combine(FloatTag(), ToF32(high), ToF32(low));
#endif
}

template <bool kCentred>
struct InF64 {
  using T = F32;
  using Real = double;
  static constexpr int64_t kStep = 2 * kLanes;
  static constexpr int64_t kLook = 16 * kStep;
  static constexpr bool kAsksForZeros = false, kTestsSteps = false;

  struct Affine {
    V w[2], b[2];

    HWY_INLINE Affine(const double* weights, const double* biases) {
      w[0] = hn::LoadU(d, weights);
      w[1] = hn::LoadU(d, weights + kLanes);
      b[0] = hn::LoadU(d, biases);
      b[1] = hn::LoadU(d, biases + kLanes);
    }
  };
  struct Row {
    V inverse, centre;
    MiddlesBound bound;

    Row() = default;
    // The bits that are cut off count in 2^(e - 52) for a y in the binade of 2^e.
    Row(const RowBounds& rows, int64_t row) : bound(rows, row, 0x1p+52) {
      inverse = Set(rows.inverse[row]);
      centre = Set(-(rows.mean[row] * rows.inverse[row]));
    }
    HWY_INLINE V Element(V x, V w, V b) const {
      return Fma(kCentred ? Fma(x, inverse, centre) : hn::Mul(x, inverse), w, b);
    }
  };
  using Seen = MiddlesSeen;

  static HWY_INLINE FloatLanes Step(const Row& row, const float* x, const Affine& affine, Seen* seen) {
    const V low = row.Element(LoadAs<double>(F32(), x), affine.w[0], affine.b[0]);
    const V high = row.Element(LoadAs<double>(F32(), x + kLanes), affine.w[1], affine.b[1]);
    const FloatLanes rounded = Join(low, high);
    // Every operation that an adder does not do is welcome here: the conversions keep the adders busy.
    const Words above = AboveMiddle(LowerWords(low, high));
    seen->lowest = hn::Min(seen->lowest, above);
    seen->highest = hn::Max(seen->highest, above);
    seen->least = LeastMagnitude(seen->least, rounded);
    return rounded;
  }
  template <typename Store>
  static HWY_INLINE void Write(FloatLanes rounded, float* y, Store store) {
    store(rounded, FloatTag(), y);
  }
  // The 29 bits that are cut off, less those of a middle.
  static constexpr uint32_t kCut = 0x1FFFFFFF;
  static HWY_INLINE Words AboveMiddle(Words bits) {
    const auto middle = hn::Set(WordTag(), (kCut + 1) / 2);
#if HWY_TARGET == HWY_AVX3
    return Words{_mm512_ternarylogic_epi32(bits.raw, middle.raw, _mm512_set1_epi32(kCut), 0x28)};
#else
    return hn::And(hn::Xor(bits, middle), hn::Set(WordTag(), kCut));
#endif
  }
  static HWY_INLINE FloatMask AreFar(const Row& row, const Seen& seen) {
    const Words distance = InOrder(hn::Min(seen.lowest, hn::Sub(hn::Set(WordTag(), kCut), seen.highest)));
    // Rounding may have reached the next power of two. A 0 is far from nothing.
    const Words least = hn::Sub(hn::BitCast(WordTag(), seen.least), hn::Set(WordTag(), 1));
    return hn::And(row.bound.AreFar(distance, least), hn::Gt(seen.least, hn::Zero(FloatTag())));
  }
};

// ---- f32 about zero without a bias, in pairs of floats: see kPairWidening ----

// differ | (a ^ b)
HWY_INLINE Words OrDifference(Words differ, Words a, Words b) {
#if HWY_TARGET == HWY_AVX3
  return Words{_mm512_ternarylogic_epi32(differ.raw, a.raw, b.raw, 0xF6)};
#else
  return hn::Or(differ, hn::Xor(a, b));
#endif
}

struct InPairs {
  using T = F32;
  using Real = float;
  static constexpr int64_t kStep = kLanesOf<float>;
  static constexpr int64_t kLook = 8 * kStep;
  static constexpr bool kAsksForZeros = true, kTestsSteps = false;

  struct Affine {
    FloatLanes w;

    HWY_INLINE Affine(const float* weights, const float* /*biases*/) { w = hn::LoadU(FloatTag(), weights); }
  };
  struct Row {
    FloatLanes hi, up, less;

    Row() = default;
    Row(const RowBounds& rows, int64_t row) {
      const double inverse = rows.inverse[row];
      const double widening = rows.pair_widening;
      auto below = static_cast<float>(inverse);
      if (below > inverse) below = std::bit_cast<float>(std::bit_cast<uint32_t>(below) - 1);
      hi = hn::Set(FloatTag(), below);
      up = hn::Set(FloatTag(), static_cast<float>(inverse * (1 + widening) - below));
      less = hn::Set(FloatTag(), static_cast<float>(-2 * widening));
    }
  };
  struct Seen {
    Words differ;
    FloatLanes least;

    HWY_INLINE Seen() : differ(hn::Zero(WordTag())), least(Infinity()) {}
  };

  static HWY_INLINE FloatLanes Step(const Row& row, const float* x, const Affine& affine, Seen* seen) {
    const FloatLanes value = hn::LoadU(FloatTag(), x);
    const FloatLanes product = hn::Mul(value, row.hi);
    const FloatLanes error = NegatedFma(value, row.hi, product);
    const FloatLanes rest = hn::Mul(FmaLess(value, row.up, error), affine.w);
    const FloatLanes above = Fma(product, affine.w, rest);
    const FloatLanes below = Fma(product, affine.w, Fma(product, hn::Mul(affine.w, row.less), rest));
    seen->differ = OrDifference(seen->differ, hn::BitCast(WordTag(), above), hn::BitCast(WordTag(), below));
    seen->least = LeastMagnitude(seen->least, above);
    return above;
  }
  template <typename Store>
  static HWY_INLINE void Write(FloatLanes above, float* y, Store store) {
    store(above, FloatTag(), y);
  }
  static HWY_INLINE FloatMask AreFar(const Row& /*row*/, const Seen& seen) {
    const auto agree = hn::RebindMask(FloatTag(), hn::Eq(seen.differ, hn::Zero(WordTag())));
    return hn::And(agree, hn::Gt(seen.least, hn::Set(FloatTag(), static_cast<float>(kLeastInPairs))));
  }
  // The same where a y was too small, if its x is 0. A y of 0 from a weight of 0 might have the wrong sign.
  static HWY_NOINLINE bool AreFarOrZero(const Row& row, const Seen& seen, const Looked<InPairs>& elements) {
    auto are_sure = hn::RebindMask(FloatTag(), hn::Eq(seen.differ, hn::Zero(WordTag())));
    for (int64_t i = 0; i < elements.count; i += kStep) {
      const FloatLanes x = hn::LoadU(FloatTag(), elements.x + i);
      const FloatLanes w = hn::LoadU(FloatTag(), elements.weights + i * elements.weight_step);
      const auto y = hn::Abs(hn::Mul(hn::Mul(x, row.hi), w));
      const auto is_large = hn::Gt(y, hn::Set(FloatTag(), static_cast<float>(2 * kLeastInPairs)));
      are_sure = hn::And(are_sure, hn::Or(is_large, hn::Eq(x, hn::Zero(FloatTag()))));
    }
    return hn::AllTrue(FloatTag(), are_sure);
  }
};

// ---- 16-bit types in f32 ----

// The vectors rounded to T; those that are a middle may go either way.
template <typename Store>
HWY_INLINE void StoreQuick(F16 tag, TwoVectors v, uint16_t* y, Store store) {
  const Raw<F16, FloatTag> raw;
  store(Narrow(tag, FloatTag(), v.first), raw, y);
  store(Narrow(tag, FloatTag(), v.second), raw, y + kLanesOf<float>);
}
template <typename Store>
HWY_INLINE void StoreQuick(BF16, TwoVectors v, uint16_t* y, Store store) {
  const auto half = hn::Set(WordTag(), 0x8000u);
  const auto even = hn::ShiftRight<16>(hn::Add(hn::BitCast(WordTag(), v.first), half));
  const auto odd = hn::And(hn::Add(hn::BitCast(WordTag(), v.second), half), hn::Set(WordTag(), 0xFFFF0000u));
  store(hn::BitCast(HalfTag(), hn::Or(even, odd)), HalfTag(), y);
}

inline constexpr float kLeastOfF16 = 0x1p-14f;  // the middles of smaller values lie elsewhere

// The middle between the two values of a 16-bit type that y lies between.
template <typename T>
HWY_INLINE FloatLanes MiddleOf(T /*tag*/, FloatLanes y) {
  constexpr uint32_t kHalf = std::is_same_v<T, F16> ? 0x1000 : 0x8000;
#if HWY_TARGET == HWY_AVX3
  return FloatLanes{_mm512_castsi512_ps(_mm512_ternarylogic_epi32(
      _mm512_castps_si512(y.raw), _mm512_set1_epi32(2 * kHalf - 1), _mm512_set1_epi32(kHalf), 0xBA))};
#else
  const auto below = hn::AndNot(hn::Set(WordTag(), 2 * kHalf - 1), hn::BitCast(WordTag(), y));
  return hn::BitCast(FloatTag(), hn::Or(below, hn::Set(WordTag(), kHalf)));
#endif
}

// What a look has seen where each step is tested: the lanes in which an element of the last step is near a middle, and
// the least |y| of f16.
struct NearSeen {
  FloatMask near;
  FloatLanes least;

  HWY_INLINE NearSeen() : near(hn::Lt(Infinity(), Infinity())), least(Infinity()) {}
  HWY_INLINE FloatMask AreNormal() const { return hn::Ge(least, hn::Set(FloatTag(), kLeastOfF16)); }
};

// The bound of a row for NearSeen: fixed + relative * |y|.
struct NearBound {
  FloatLanes relative, fixed;

  NearBound() = default;
  NearBound(const RowBounds& rows, int64_t row, double /*units_of_one*/) {
    const auto set = [](double value)
                         HWY_ATTR { return hn::Set(FloatTag(), static_cast<float>(value * (1 + 0x1p-20))); };
    relative = set(rows.relative[row]);
    fixed = set(rows.fixed[row]);
  }
};

// Of bf16 without a bias few looks are followed by another, and all lanes are tested at the end of a look. Where more
// elements are near a middle, of f16 one step of 32 in ten has one, kByStep tests each step.
template <bool kCentred, bool kByStep, typename ElementType>
struct InF32 {
  using T = ElementType;
  using Real = float;
  static constexpr bool kIsF16 = std::is_same_v<T, F16>;
  static constexpr int64_t kStep = 2 * kLanesOf<float>;
  static constexpr int64_t kLook = (kByStep ? 8 : 4) * kStep;
  static constexpr bool kAsksForZeros = false, kTestsSteps = kByStep;

  struct Affine {
    TwoVectors w, b;

    HWY_INLINE Affine(const float* weights, const float* biases)
        : w(LoadTwoFor(T(), weights)), b(LoadTwoFor(T(), biases)) {}
  };
  struct Row {
    FloatLanes inverse, centre;
    std::conditional_t<kByStep, NearBound, MiddlesBound> bound;

    Row() = default;
    // The bits that are cut off count in 2^(e - 23) for a y in the binade of 2^e.
    Row(const RowBounds& rows, int64_t row) : bound(rows, row, 0x1p+23) {
      const auto f = static_cast<float>(rows.inverse[row]);
      inverse = hn::Set(FloatTag(), f);
      centre = hn::Set(FloatTag(), static_cast<float>(-(rows.mean[row] * f)));
    }
    HWY_INLINE FloatLanes Element(FloatLanes x, FloatLanes w, FloatLanes b) const {
      return Fma(kCentred ? Fma(x, inverse, centre) : hn::Mul(x, inverse), w, b);
    }
  };
  using Seen = std::conditional_t<kByStep, NearSeen, MiddlesSeen>;

  static HWY_INLINE TwoVectors Step(const Row& row, const uint16_t* x, const Affine& affine, Seen* seen) {
    const TwoVectors of = LoadTwo(T(), x);
    const TwoVectors results = {row.Element(of.first, affine.w.first, affine.b.first),
                                row.Element(of.second, affine.w.second, affine.b.second)};
    See(row, results, seen);
    return results;
  }
  template <typename Store>
  static HWY_INLINE void Write(TwoVectors results, uint16_t* y, Store store) {
    StoreQuick(T(), results, y, store);
  }
  static HWY_INLINE void See(const Row& row, const TwoVectors& y, NearSeen* seen) {
    seen->near = hn::Or(IsNear(row, y.first), IsNear(row, y.second));
    // Of bf16 the bound exceeds all numbers that are subnormal.
    if constexpr (kIsF16) seen->least = LeastMagnitude(LeastMagnitude(seen->least, y.first), y.second);
  }
  static HWY_INLINE FloatMask IsNear(const Row& row, FloatLanes y) {
    const FloatLanes distance = hn::Abs(hn::Sub(y, MiddleOf(T(), y)));
    const FloatLanes bound = Fma(hn::Abs(y), row.bound.relative, row.bound.fixed);
    // Also where y is NaN.
#if HWY_TARGET == HWY_AVX3
    return FloatMask{_mm512_cmp_ps_mask(distance.raw, bound.raw, _CMP_NGT_UQ)};
#else
    return hn::Not(hn::Gt(distance, bound));
#endif
  }
  static HWY_INLINE void See(const Row& row, const TwoVectors& y, MiddlesSeen* seen) {
    See(row, y.first, seen);
    See(row, y.second, seen);
  }
  // The 16 bits that are cut off, less those of a middle; the upper half words mean nothing.
  static constexpr uint32_t kCut = 0xFFFF;
  static HWY_INLINE void See(const Row& /*row*/, FloatLanes y, MiddlesSeen* seen) {
    const auto middle = hn::Set(WordTag(), (kCut + 1) / 2);
    const Words bits = hn::BitCast(WordTag(), y);
#if HWY_TARGET == HWY_AVX3
    // The upper half words mean nothing, with or without a mask.
    const Words above = {_mm512_ternarylogic_epi32(bits.raw, middle.raw, _mm512_set1_epi32(kCut), 0x28)};
#else
    const Words above = hn::And(hn::Xor(bits, middle), hn::Set(WordTag(), kCut));
#endif
    const auto halves = [](Words words) HWY_ATTR { return hn::BitCast(HalfTag(), words); };
    seen->lowest = hn::BitCast(WordTag(), hn::Min(halves(seen->lowest), halves(above)));
    seen->highest = hn::BitCast(WordTag(), hn::Max(halves(seen->highest), halves(above)));
    seen->least = LeastMagnitude(seen->least, y);
  }
  static HWY_INLINE FloatMask AreFar(const Row& /*row*/, const NearSeen& seen) { return seen.AreNormal(); }
  static HWY_INLINE FloatMask AreFar(const Row& row, const MiddlesSeen& seen) {
    const Words cut = hn::Set(WordTag(), kCut);
    const Words lowest = hn::And(seen.lowest, cut);
    const Words distance = hn::Min(lowest, hn::Sub(cut, hn::And(seen.highest, cut)));
    return row.bound.AreFar(distance, hn::BitCast(WordTag(), seen.least));
  }
};

// ---- 16-bit types about zero without a bias ----

// The bound of a row, a whole number of ulps of f32.
struct RelativeBound {
  static constexpr uint32_t kMostUlps = 32;

  static uint32_t Ulps(const RowBounds& rows, int64_t row) {
    const double ulps = UlpsInF32(rows.relative[row], rows.largest_weight);
    return static_cast<uint32_t>(std::ceil(HWY_MIN(ulps, 2.0 * kMostUlps)));
  }
};

// Half an ulp of T and the bound are added to y, and no element is near a middle unless the bits that T does not have
// are then less than twice the bound, which is a power of two for f16.
template <typename ElementType>
struct Relative {
  using T = ElementType;
  using Real = float;
  static constexpr bool kIsF16 = std::is_same_v<T, F16>;
  static constexpr int64_t kStep = 2 * kLanesOf<float>;
  static constexpr int64_t kLook = (kIsF16 ? 8 : 4) * kStep;
  static constexpr bool kAsksForZeros = kIsF16, kTestsSteps = kIsF16;

  struct Affine {
    TwoVectors w;

    HWY_INLINE Affine(const float* weights, const float* /*biases*/) : w(LoadTwoFor(T(), weights)) {}
  };
  struct Row {
    FloatLanes inverse;
    Words addend, limit;  // limit: of f16 the bits that are 0 near a middle

    Row() = default;
    Row(const RowBounds& rows, int64_t row) {
      const uint32_t ulps = RelativeBound::Ulps(rows, row);
      const uint32_t reach = kIsF16 ? std::bit_ceil(ulps + 1) : ulps;
      inverse = hn::Set(FloatTag(), static_cast<float>(rows.inverse[row]));
      addend = hn::Set(WordTag(), (kIsF16 ? 0x1000u : 0x8000u) + reach);
      limit = hn::Set(WordTag(), kIsF16 ? 0x1FFFu & ~(2 * reach - 1) : (2 * reach + 1) << 16);
    }
    HWY_INLINE FloatLanes Element(FloatLanes x, FloatLanes w) const { return hn::Mul(hn::Mul(x, inverse), w); }
    HWY_INLINE hn::Mask<WordTag> AreNear(FloatLanes y) const requires kIsF16 {
      const Words sum = hn::Add(hn::BitCast(WordTag(), y), addend);
#if HWY_TARGET == HWY_AVX3
      // One instruction, of which the compiler makes two.
      return hn::Mask<WordTag>{_mm512_testn_epi32_mask(sum.raw, limit.raw)};
#else
      return hn::Eq(hn::And(sum, limit), hn::Zero(WordTag()));
#endif
    }
  };
  struct LowerSeen {
    Words lower;  // the least bits that bf16 does not have; the bits above them mean nothing

    HWY_INLINE LowerSeen() : lower(hn::Set(WordTag(), 0xFFFFFFFFu)) {}
  };
  using Seen = std::conditional_t<kIsF16, NearSeen, LowerSeen>;

  static HWY_INLINE TwoVectors Step(const Row& row, const uint16_t* x, const Affine& affine, NearSeen* seen) {
    const TwoVectors of = LoadTwo(T(), x);
    const TwoVectors y = {row.Element(of.first, affine.w.first), row.Element(of.second, affine.w.second)};
    const auto near = hn::Or(row.AreNear(y.first), row.AreNear(y.second));
    seen->near = hn::RebindMask(FloatTag(), near);
    seen->least = LeastMagnitude(LeastMagnitude(seen->least, y.first), y.second);
    return y;
  }
  static HWY_INLINE Words Step(const Row& row, const uint16_t* x, const Affine& affine, LowerSeen* seen) {
    const TwoVectors of = LoadTwo(T(), x);
    const TwoVectors y = {row.Element(of.first, affine.w.first), row.Element(of.second, affine.w.second)};
    const Words first = hn::Add(hn::BitCast(WordTag(), y.first), row.addend);
    const Words second = hn::Add(hn::BitCast(WordTag(), y.second), row.addend);
    // The upper halves of the sums are the elements.
    const Words upper = hn::And(second, hn::Set(WordTag(), 0xFFFF0000u));
    const auto rounded = hn::BitCast(HalfTag(), hn::Or(hn::ShiftRight<16>(first), upper));
    const auto lower = hn::Min(hn::BitCast(HalfTag(), first), hn::BitCast(HalfTag(), second));
    seen->lower = hn::BitCast(WordTag(), hn::Min(hn::BitCast(HalfTag(), seen->lower), lower));
    return hn::BitCast(WordTag(), rounded);
  }
  template <typename Store>
  static HWY_INLINE void Write(Words rounded, uint16_t* y, Store store) {
    store(hn::BitCast(HalfTag(), rounded), HalfTag(), y);
  }
  template <typename Store>
  static HWY_INLINE void Write(TwoVectors results, uint16_t* y, Store store) {
    StoreQuick(T(), results, y, store);
  }
  static HWY_INLINE FloatMask AreFar(const Row& /*row*/, const NearSeen& seen) { return seen.AreNormal(); }
  static HWY_INLINE FloatMask AreFar(const Row& row, const LowerSeen& seen) {
    const Words shifted = hn::ShiftLeft<16>(seen.lower);
    return hn::RebindMask(FloatTag(), hn::Eq(hn::Max(shifted, row.limit), shifted));
  }
  // The same where a y was too small, if its x or its w is 0.
  static HWY_NOINLINE bool AreFarOrZero(const Row& row, const NearSeen& /*seen*/,
                                        const Looked<Relative>& elements) requires kIsF16 {
    auto are_sure = hn::Eq(row.inverse, row.inverse);
    const auto include = [&](FloatLanes x, FloatLanes w) HWY_ATTR {
      const auto zero = hn::Zero(FloatTag());
      const auto is_zero = hn::Or(hn::Eq(x, zero), hn::Eq(w, zero));
      const auto is_large = hn::Gt(hn::Abs(row.Element(x, w)), hn::Set(FloatTag(), 2 * kLeastOfF16));
      are_sure = hn::And(are_sure, hn::Or(is_zero, is_large));
    };
    for (int64_t i = 0; i < elements.count; i += kStep) {
      const TwoVectors x = LoadTwo(T(), elements.x + i);
      const TwoVectors w = LoadTwoFor(T(), elements.weights + i * elements.weight_step);
      include(x.first, w.first);
      include(x.second, w.second);
    }
    return hn::AllTrue(FloatTag(), are_sure);
  }
};

#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace normd
HWY_AFTER_NAMESPACE();

#endif  // NORMD_KERNELS_CPU_NEAREST_LOOKS_INL_H_
