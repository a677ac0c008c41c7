// Elements, parameters and results in memory: how they are loaded, and how a vector of y is made. Used by every kernel
// that writes y.
#ifndef NORMD_KERNELS_CUDA_PARAMETERS_CUH_
#define NORMD_KERNELS_CUDA_PARAMETERS_CUH_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.cuh"

namespace normd::cuda {

// Element `i` in f64, of a dtype that is known when the kernel runs.
__device__ inline double ElementAt(const Elements& x, int64_t i) {
  switch (x.dtype) {
    case DType::kF16:
      return LoadAs<double>(F16(), static_cast<const uint16_t*>(x.data) + i);
    case DType::kBF16:
      return LoadAs<double>(BF16(), static_cast<const uint16_t*>(x.data) + i);
    case DType::kF32:
      return static_cast<const float*>(x.data)[i];
    case DType::kF64:
      break;
  }
  return static_cast<const double*>(x.data)[i];
}

// Elements of a 16-byte vector.
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

__device__ __forceinline__ double At(const double* values, int64_t i, double absent) {
  return values == nullptr ? absent : __ldg(values + i);
}
__device__ __forceinline__ float At(const float* values, int64_t i, float absent) {
  return values == nullptr ? absent : __ldg(values + i);
}
template <typename Real>
__device__ __forceinline__ Affine<Real> AffineAt(const Parameters& parameters, int64_t i) {
  return {At(WeightOf<Real>(parameters), i, Real{1}), At(BiasOf<Real>(parameters), i, static_cast<Real>(-0.0))};
}

// kCount values one after the other, by vectors where they are aligned.
template <int kCount, typename Real>
__device__ __forceinline__ void LoadParameters(const Real* from, Real absent, Real (&to)[kCount]) {
  using Vector = std::conditional_t<std::is_same_v<Real, float>, float4, double2>;
  constexpr int kWidth = static_cast<int>(sizeof(Vector) / sizeof(Real));
  if (from == nullptr) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = absent;
    return;
  }
  if constexpr (kCount % kWidth == 0) {
    if (reinterpret_cast<uintptr_t>(from) % sizeof(Vector) == 0) {
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
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = __ldg(from + i);
}

// Storage of 16 bytes, as elements and as one vector.
template <typename S>
struct alignas(kVectorBytes) VectorOf {
  S lanes[kVectorBytes / sizeof(S)];
};
template <typename S>
__device__ __forceinline__ VectorOf<S> LoadVector(const S* p) {
  const uint4 words = *reinterpret_cast<const uint4*>(p);
  VectorOf<S> v;
  std::memcpy(&v, &words, sizeof(v));
  return v;
}
template <typename S>
__device__ __forceinline__ void StoreVector(S* p, const VectorOf<S>& v) {
  uint4 words;
  std::memcpy(&words, &v, sizeof(v));
  *reinterpret_cast<uint4*>(p) = words;
}

// Narrow elements of one set, y = ((x - shift) - delta) * inverse * w + b. kInF64: never calculated in f32; else the
// set says, and f64 is the exception.
template <typename T, bool kInF64>
class NarrowElements {
 public:
  using S = typename T::Storage;
  using Real = std::conditional_t<kInF64, double, float>;

  __device__ __forceinline__ NarrowElements(const SetResult& set, const Parameters& parameters)
      : set_(set), set32_(ToF32(set.statistics)), parameters_(parameters) {}

  // Element x with the parameters at `at`.
  __device__ __forceinline__ S One(S x, int64_t at) const {
    if (kInF64 || !set_.in_f32) return T::Narrow(Exact(x, AffineAt<double>(parameters_, at)));
    const Affine<float> affine = AffineAt<float>(parameters_, at);
    const float y = FastElement(T::Widen(x), set32_, affine.weight, affine.bias);
    // f32 may have overflowed on the way.
    const bool mend = set_.may_be_nan && !std::isfinite(y);
    return T::Narrow(mend ? Exact(x, AffineAt<double>(parameters_, at)) : y);
  }

  // kCount elements in place; their parameters lie at `at` and on, or all at `at`. False, rarely: they are to be taken
  // one by one.
  template <int kCount>
  __device__ __forceinline__ bool Some(S (&x)[kCount], int64_t at, bool per_element) const {
    if (!kInF64 && !set_.in_f32) return false;
    Real weight[kCount], bias[kCount];
    if (per_element) {
      const Real* const w = WeightOf<Real>(parameters_);
      const Real* const b = BiasOf<Real>(parameters_);
      LoadParameters(w == nullptr ? nullptr : w + at, Real{1}, weight);
      LoadParameters(b == nullptr ? nullptr : b + at, static_cast<Real>(-0.0), bias);
    } else {
      const Affine<Real> one = AffineAt<Real>(parameters_, at);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        weight[i] = one.weight;
        bias[i] = one.bias;
      }
    }
    if constexpr (kInF64) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = T::Narrow(Exact(x[i], {weight[i], bias[i]}));
    } else {
      float y[kCount];
      bool mend = false;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        y[i] = FastElement(T::Widen(x[i]), set32_, weight[i], bias[i]);
        mend = mend || !std::isfinite(y[i]);
      }
      if (mend && set_.may_be_nan) return false;
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] = T::Narrow(y[i]);
    }
    return true;
  }

 private:
  __device__ __forceinline__ float Exact(S x, Affine<double> affine) const {
    return ExactElement(T::Widen(x), set_.statistics, affine.weight, affine.bias);
  }

  const SetResult& set_;
  const Statistics32 set32_;
  const Parameters& parameters_;
};

// PowerNorm's scale of the elements of `k1` at position r0.
__device__ __forceinline__ PositionScale PreOf(const SetWork& work, int64_t r0, int64_t k1) {
  const SetStatistics& s = work.pre[r0 * work.groups + k1 / (work.keep1 / work.groups)].statistics;
  return {s.scale, s.inverse.hi, s.inverse.lo};
}

// Writes mean, inverse_std and moments of a set, those that are wanted.
__device__ inline void StoreOutputs(const SetOutputs& outputs, int64_t set, double counted, const FinishedSet& result) {
  if (outputs.in_f64) {
    if (outputs.mean != nullptr) static_cast<double*>(outputs.mean)[set] = CanonicalNaN(result.mean);
    if (outputs.inverse_std != nullptr)
      static_cast<double*>(outputs.inverse_std)[set] = CanonicalNaN(result.inverse_std);
  } else {
    if (outputs.mean != nullptr) static_cast<float*>(outputs.mean)[set] = Store(F32(), result.mean);
    if (outputs.inverse_std != nullptr)
      static_cast<float*>(outputs.inverse_std)[set] = Store(F32(), result.inverse_std);
  }
  if (outputs.moments == nullptr) return;
  double* const moment = outputs.moments + 3 * set;
  moment[0] = counted;
  moment[1] = counted == 0 ? 0 : CanonicalNaN(result.mean);
  moment[2] = counted == 0 ? 0 : CanonicalNaN(result.m2);
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_PARAMETERS_CUH_
