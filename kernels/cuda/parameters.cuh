// How elements and parameters are loaded, how a vector of y is made, and how results are stored.
// In the path: included by every kernel that reads parameters or writes y. Device functions.
#ifndef NORMD_KERNELS_CUDA_PARAMETERS_CUH_
#define NORMD_KERNELS_CUDA_PARAMETERS_CUH_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/visit.cuh"

namespace normd::cuda {

// Element i as f64, for a dtype that is known only when the kernel runs.
__device__ inline double ElementAt(const Elements& x, int64_t i) {
  return VisitDType(
      x.dtype, [&]<typename T>() { return LoadAs<double>(T(), static_cast<const typename T::Storage*>(x.data) + i); });
}

__host__ __device__ __forceinline__ bool IsVectorAligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % kVectorBytes == 0;
}

// The number of elements in a 16-byte vector.
template <typename T>
inline constexpr int kVector = kVectorBytes / static_cast<int>(sizeof(typename T::Storage));

template <typename Real>
__device__ __forceinline__ const Real* WeightOf(const Parameters& parameters) {
  if constexpr (std::is_same_v<Real, float>) {
    return parameters.weight32;
  } else {
    return parameters.weight;
  }
}
template <typename Real>
__device__ __forceinline__ const Real* BiasOf(const Parameters& parameters) {
  if constexpr (std::is_same_v<Real, float>) {
    return parameters.bias32;
  } else {
    return parameters.bias;
  }
}

// Value i, or `absent` if there are no values.
__device__ __forceinline__ double At(const double* values, int64_t i, double absent) {
  return values == nullptr ? absent : __ldg(values + i);
}
__device__ __forceinline__ float At(const float* values, int64_t i, float absent) {
  return values == nullptr ? absent : __ldg(values + i);
}
// The parameters at index i.
template <typename Real>
__device__ __forceinline__ Affine<Real> AffineAt(const Parameters& parameters, int64_t i) {
  if (std::is_same_v<Real, double> && parameters.equal_f32) {
    const Affine<float> narrow = AffineAt<float>(parameters, i);
    return {static_cast<Real>(narrow.weight), static_cast<Real>(narrow.bias)};
  }
  return {At(WeightOf<Real>(parameters), i, Real{1}), At(BiasOf<Real>(parameters), i, static_cast<Real>(-0.0))};
}

// True if the elements of rows are multiplied by one factor a channel: way 2 of kernels/group_statistics.h. Those of
// columns always are.
__host__ __device__ __forceinline__ bool ScalesChannels(Statistic statistic, const Parameters& parameters,
                                                        const ParameterIndex& index) {
  return statistic == Statistic::kMeanVariance && !parameters.absent() && index.kind != AffineIndex::kElement;
}
// `affine` for such elements, with FactorOf(inverse, w) in place of w.
template <typename Real>
__device__ __forceinline__ Affine<Real> ScaledAffine(const Affine<double>& affine, double inverse) {
  if constexpr (std::is_same_v<Real, float>) {
    // What fits f32 is far from overflow.
    return {static_cast<float>(inverse * affine.weight), static_cast<float>(affine.bias)};
  } else {
    return {FactorOf(inverse, affine.weight), affine.bias};
  }
}
// The same for the parameters at index i.
template <typename Real>
__device__ __forceinline__ Affine<Real> ScaledAffineAt(const Parameters& parameters, int64_t i, double inverse) {
  if constexpr (std::is_same_v<Real, float>) {
    const double weight = parameters.equal_f32 ? At(parameters.weight32, i, 1.0f) : At(parameters.weight, i, 1.0);
    return {static_cast<float>(inverse * weight), At(parameters.bias32, i, -0.0f)};
  } else {
    return ScaledAffine<double>(AffineAt<double>(parameters, i), inverse);
  }
}
// True if these parameters allow elements in pairs of floats: see GroupResult::in_pairs.
__device__ __forceinline__ bool AllowPairs(const Parameters& parameters) {
  return parameters.bias == nullptr && (parameters.weight == nullptr || parameters.equal_f32);
}

// Loads kCount adjacent values. REQUIRES: `from` is aligned to 16 bytes.
template <int kCount, typename Real>
__device__ __forceinline__ void LoadAligned(const Real* from, Real (&to)[kCount]) {
  using Vector = std::conditional_t<std::is_same_v<Real, float>, float4, double2>;
  constexpr int kWidth = static_cast<int>(sizeof(Vector) / sizeof(Real));
#pragma unroll
  for (int i = 0; i < kCount; i += kWidth) {
    const Vector v = __ldg(reinterpret_cast<const Vector*>(from + i));
    to[i] = v.x;
    to[i + 1] = v.y;
    if constexpr (kWidth == 4) {
      to[i + 2] = v.z;
      to[i + 3] = v.w;
    }
  }
}

// Loads kCount adjacent values from any address, by vectors where it is aligned. If `from` is null, all are `absent`.
template <int kCount, typename Real>
__device__ __forceinline__ void LoadParameters(const Real* from, Real absent, Real (&to)[kCount]) {
  if (from == nullptr) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = absent;
    return;
  }
  if (kCount * sizeof(Real) % kVectorBytes == 0 && IsVectorAligned(from)) return LoadAligned(from, to);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = __ldg(from + i);
}

// 16 bytes of elements, and their conversions from and to a vector of words.
template <typename S>
struct alignas(kVectorBytes) VectorOf {
  S lanes[kVectorBytes / sizeof(S)];
};
template <typename S>
__device__ __forceinline__ VectorOf<S> AsVector(const uint4& words) {
  VectorOf<S> v;
  std::memcpy(&v, &words, sizeof(v));
  return v;
}
template <typename S>
__device__ __forceinline__ uint4 AsWords(const VectorOf<S>& v) {
  uint4 words;
  std::memcpy(&words, &v, sizeof(v));
  return words;
}
template <typename S>
__device__ __forceinline__ VectorOf<S> LoadVector(const S* p) {
  return AsVector<S>(*reinterpret_cast<const uint4*>(p));
}
template <typename S>
__device__ __forceinline__ void StoreVector(S* p, const VectorOf<S>& v) {
  *reinterpret_cast<uint4*>(p) = AsWords(v);
}

template <typename S>
__device__ __forceinline__ uint4 LoadStreaming(const S* p) {
  return __ldcs(reinterpret_cast<const uint4*>(p));
}

template <typename S>
__device__ __forceinline__ void StoreStreaming(S* p, const uint4& words) {
  __stcs(reinterpret_cast<uint4*>(p), words);
}

// The elements of a vector of T as f32.
template <typename T>
__device__ __forceinline__ void UnpackVector(const uint4& words, float (&x)[kVector<T>]) {
  const unsigned all[] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, F32>) {
      x[i] = __uint_as_float(all[i]);
    } else {
      T::Split(all[i], x[2 * i], x[2 * i + 1]);
    }
  }
}
// The reverse of UnpackVector. REQUIRES: no element is NaN.
template <typename T>
__device__ __forceinline__ uint4 PackVector(const float (&x)[kVector<T>]) {
  unsigned all[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, F32>) {
      all[i] = __float_as_uint(x[i]);
    } else {
      all[i] = T::Join(x[2 * i], x[2 * i + 1]);
    }
  }
  return make_uint4(all[0], all[1], all[2], all[3]);
}

// x + scale * r, rounded to T once.
template <typename T>
__device__ __forceinline__ typename T::Storage AddElement(double scale, typename T::Storage x, typename T::Storage r) {
  // A sum of two 16-bit values in f32, rounded again, is rounded once: f32 has more than twice their digits.
  if (scale == 1) return T::Narrow(CanonicalNaN(T::Widen(x) + T::Widen(r)));
  return Store(T(), RoundedSum(T(), T::Widen(x), T::Widen(r), scale));
}
// AddElement for the elements of a vector.
template <typename T>
__device__ __forceinline__ VectorOf<typename T::Storage> AddVectors(double scale, VectorOf<typename T::Storage> x,
                                                                    const VectorOf<typename T::Storage>& r) {
#pragma unroll
  for (int k = 0; k < kVector<T>; ++k) x.lanes[k] = AddElement<T>(scale, x.lanes[k], r.lanes[k]);
  return x;
}
// AddVectors for a scale of 1.
template <typename T>
__device__ __forceinline__ uint4 AddVectors(const uint4& x, const uint4& r) {
  float sum[kVector<T>], added[kVector<T>];
  UnpackVector<T>(x, sum);
  UnpackVector<T>(r, added);
  bool has_nan = false;
#pragma unroll
  for (int k = 0; k < kVector<T>; ++k) {
    sum[k] += added[k];
    has_nan = has_nan || sum[k] != sum[k];
  }
  if (!has_nan) return PackVector<T>(sum);
  return AsWords(AddVectors<T>(1, AsVector<typename T::Storage>(x), AsVector<typename T::Storage>(r)));
}

// Loads those parameters of a vector of T as Real that memory holds as f32. REQUIRES: `from` is aligned to 16 bytes.
template <int kCount, typename Real>
__device__ __forceinline__ void LoadAlignedAs(const float* from, Real (&to)[kCount]) {
  float kept[kCount];
  LoadAligned(from, kept);
#pragma unroll
  for (int k = 0; k < kCount; ++k) to[k] = kept[k];
}
template <int kCount, typename Real>
__device__ __forceinline__ void FillWith(Real value, Real (&to)[kCount]) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) to[k] = value;
}

// Calls body(affine), where affine(i, weight, bias) loads the f32 parameters of the vector of T that begins at element
// i, as Real, in the fastest way that these parameters allow. `channel_of(i)` is the index of the parameters of element
// i, unless each element has its own. If kScaled, the weight of a channel is its factor, see ScaledAffineAt. REQUIRES:
// a vector has one channel; or, if each element has its own parameters, weight32, bias32 and i are aligned as vectors
// are. For f64, the parameters equal f32.
template <typename T, typename Real, bool kScaled, typename ChannelOf, typename Body>
__device__ __forceinline__ void WithAffine(const Parameters& parameters, bool per_element, double inverse,
                                           ChannelOf channel_of, Body body) {
  constexpr int kCount = kVector<T>;
  using Values = Real(&)[kCount];
  constexpr auto kNoBias = static_cast<Real>(-0.0);
  const float* const w = parameters.weight32;
  const float* const b = parameters.bias32;
  if (parameters.absent()) {
    body([&](int /*i*/, Values weight, Values bias) {
      FillWith(Real{1}, weight);
      FillWith(kNoBias, bias);
    });
  } else if (!per_element) {
    body([&](int i, Values weight, Values bias) {
      const int64_t channel = channel_of(i);
      const Affine<Real> affine =
          kScaled ? ScaledAffineAt<Real>(parameters, channel, inverse) : AffineAt<Real>(parameters, channel);
      FillWith(affine.weight, weight);
      FillWith(affine.bias, bias);
    });
  } else if (b == nullptr) {
    body([&](int i, Values weight, Values bias) {
      LoadAlignedAs(w + i, weight);
      FillWith(kNoBias, bias);
    });
  } else if (w == nullptr) {
    body([&](int i, Values weight, Values bias) {
      FillWith(Real{1}, weight);
      LoadAlignedAs(b + i, bias);
    });
  } else {
    body([&](int i, Values weight, Values bias) {
      LoadAlignedAs(w + i, weight);
      LoadAlignedAs(b + i, bias);
    });
  }
}
// The same for weights alone: body(weights), where weights(i, weight) loads those of a vector.
template <typename T, typename ChannelOf, typename Body>
__device__ __forceinline__ void WithWeights(const Parameters& parameters, bool per_element, ChannelOf channel_of,
                                            Body body) {
  constexpr int kCount = kVector<T>;
  using Values = float(&)[kCount];
  if (parameters.weight32 == nullptr) {
    body([&](int /*i*/, Values weight) { FillWith(1.0f, weight); });
  } else if (!per_element) {
    body([&](int i, Values weight) { FillWith(__ldg(parameters.weight32 + channel_of(i)), weight); });
  } else {
    body([&](int i, Values weight) { LoadAligned(parameters.weight32 + i, weight); });
  }
}

// Narrow elements of one group. kInF64: never calculated in f32. Otherwise in f32 if the group says so, and single
// elements in f64 where f32 does not suffice. `scaled`: in way 2 of kernels/group_statistics.h.
template <typename T, bool kInF64>
class NarrowElements {
 public:
  using S = typename T::Storage;

  __device__ __forceinline__ NarrowElements(const GroupResult& group, const Parameters& parameters, bool scaled)
      : group_(group), group32_(ToF32(group.statistics)), parameters_(parameters), scaled_(scaled) {
    // The weight is the factor then, and a product with 1 is exact.
    if (scaled) group32_.inverse = 1;
  }

  // y of element x, with the parameters at index `at`.
  __device__ __forceinline__ S One(S x, int64_t at) const {
    if (kInF64 || !group_.in_f32) return T::Narrow(InF64(T::Widen(x), at));
    const Affine<float> affine = Affine32(at);
    const float y = FastElement(T::Widen(x), group32_, affine.weight, affine.bias);
    // f32 may have overflowed on the way.
    if (!group_.may_be_nan || std::isfinite(y)) return T::Narrow(y);
    const Affine<double> exact = AffineAt<double>(parameters_, at);
    return T::Narrow(ExactElement(T::Widen(x), group_.statistics, exact.weight, exact.bias));
  }

  // y of a vector of elements, whose parameters are at index `at` and the following, or all at `at`. Returns false,
  // rarely, if the elements must be calculated one by one.
  __device__ __forceinline__ bool Some(const uint4& x, int64_t at, bool per_element, uint4* y) const {
    if (!kInF64 && !group_.in_f32) return false;
    float value[kCount];
    UnpackVector<T>(x, value);
    if constexpr (kInF64) {
      SomeInF64(at, per_element, value);
    } else {
      float weight[kCount], bias[kCount];
      if (per_element) {
        LoadBoth<float>(at, weight, bias);
      } else {
        Fill(Affine32(at), weight, bias);
      }
      float zero = 0;  // NaN if an element is not finite
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        value[i] = FastElement(value[i], group32_, weight[i], bias[i]);
        zero = std::fma(value[i], 0.0f, zero);
      }
      if (!(zero == 0)) return false;
    }
    *y = PackVector<T>(value);
    return true;
  }

 private:
  static constexpr int kCount = kVector<T>;

  __device__ __forceinline__ Affine<float> Affine32(int64_t at) const {
    return scaled_ ? ScaledAffineAt<float>(parameters_, at, group_.statistics.inverse.hi)
                   : AffineAt<float>(parameters_, at);
  }
  __device__ __forceinline__ bool InPairs() const {
    return std::is_same_v<T, F32> && group_.in_pairs && AllowPairs(parameters_);
  }
  __device__ __forceinline__ float InF64(float x, int64_t at) const {
    const GroupStatistics& s = group_.statistics;
    if (scaled_) {
      const Affine<double> scaled = ScaledAffineAt<double>(parameters_, at, s.inverse.hi);
      return ScaledElement(x, s, scaled.weight, scaled.bias);
    }
    if (InPairs()) return TimesPair(x, FloatPairOf(s.inverse.hi), At(parameters_.weight32, at, 1.0f));
    const Affine<double> affine = AffineAt<double>(parameters_, at);
    return group_.folds ? FoldedElement(x, s, FoldedCentre(s), affine.weight, affine.bias)
                        : ExactElement(x, s, affine.weight, affine.bias);
  }
  // InF64 for a vector of elements.
  __device__ __forceinline__ void SomeInF64(int64_t at, bool per_element, float (&value)[kCount]) const {
    const GroupStatistics& s = group_.statistics;
    if (InPairs()) {
      float weight[kCount], bias[kCount];
      if (per_element) {
        LoadBoth<float>(at, weight, bias);
      } else {
        Fill(AffineAt<float>(parameters_, at), weight, bias);
      }
      const FloatPair pair = FloatPairOf(s.inverse.hi);
#pragma unroll
      for (int i = 0; i < kCount; ++i) value[i] = TimesPair(value[i], pair, weight[i]);
      return;
    }
    double weight[kCount], bias[kCount];
    if (!per_element) {
      Fill(scaled_ ? ScaledAffineAt<double>(parameters_, at, s.inverse.hi) : AffineAt<double>(parameters_, at), weight,
           bias);
    } else if (parameters_.equal_f32) {
      LoadBoth<float>(at, weight, bias);
    } else {
      LoadBoth<double>(at, weight, bias);
    }
    const double centre = FoldedCentre(s);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      value[i] = scaled_        ? ScaledElement(value[i], s, weight[i], bias[i])
                 : group_.folds ? FoldedElement(value[i], s, centre, weight[i], bias[i])
                                : ExactElement(value[i], s, weight[i], bias[i]);
    }
  }
  template <typename Real>
  static __device__ __forceinline__ void Fill(const Affine<Real>& affine, Real (&weight)[kCount],
                                              Real (&bias)[kCount]) {
    FillWith(affine.weight, weight);
    FillWith(affine.bias, bias);
  }
  // Loads the parameters of kCount elements, which memory holds as Kept.
  template <typename Kept, typename Real>
  __device__ __forceinline__ void LoadBoth(int64_t at, Real (&weight)[kCount], Real (&bias)[kCount]) const {
    const Kept* const w = WeightOf<Kept>(parameters_);
    const Kept* const b = BiasOf<Kept>(parameters_);
    Kept kept[kCount];
    LoadParameters(w == nullptr ? nullptr : w + at, Kept{1}, kept);
#pragma unroll
    for (int i = 0; i < kCount; ++i) weight[i] = kept[i];
    LoadParameters(b == nullptr ? nullptr : b + at, static_cast<Kept>(-0.0), kept);
#pragma unroll
    for (int i = 0; i < kCount; ++i) bias[i] = kept[i];
  }

  const GroupResult& group_;
  Statistics32 group32_;
  const Parameters& parameters_;
  const bool scaled_;
};

// Writes those of mean, inverse_std and moments of a group that are wanted.
__device__ inline void StoreOutputs(const GroupOutputs& outputs, int64_t group, double counted,
                                    const FinishedStatistics& result) {
  if (outputs.in_f64) {
    if (outputs.mean != nullptr) static_cast<double*>(outputs.mean)[group] = CanonicalNaN(result.mean);
    if (outputs.inverse_std != nullptr)
      static_cast<double*>(outputs.inverse_std)[group] = CanonicalNaN(result.inverse_std);
  } else {
    if (outputs.mean != nullptr) static_cast<float*>(outputs.mean)[group] = Store(F32(), result.mean);
    if (outputs.inverse_std != nullptr)
      static_cast<float*>(outputs.inverse_std)[group] = Store(F32(), result.inverse_std);
  }
  if (outputs.moments == nullptr) return;
  double* const moment = outputs.moments + 3 * group;
  moment[0] = counted;
  moment[1] = counted == 0 ? 0 : CanonicalNaN(result.mean);
  moment[2] = counted == 0 ? 0 : CanonicalNaN(result.m2);
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_PARAMETERS_CUH_
