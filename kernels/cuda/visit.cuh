// Turns run-time choices into the template arguments of a kernel. `visit` is a lambda with template parameters; it is
// called once, and instantiated for every possible choice.
//   VisitDType(x.dtype, [&]<typename T>() { return Launch(shape, stream, SomeKernel<T>, x); });
// In the path: the functions of kernels.h start their kernels through it. Pure functions.
#ifndef NORMD_KERNELS_CUDA_VISIT_CUH_
#define NORMD_KERNELS_CUDA_VISIT_CUH_

#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/types.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"

namespace normd::cuda {

// Calls visit<T>() for the element type T of `dtype`. This is the one place that pairs dtypes and element types.
template <typename Visit>
NORMD_HOST_DEVICE auto VisitDType(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kF16:
      return visit.template operator()<F16>();
    case DType::kBF16:
      return visit.template operator()<BF16>();
    case DType::kF32:
      return visit.template operator()<F32>();
    case DType::kF64:
      break;
  }
  return visit.template operator()<F64>();
}

// The same for kernels that do not exist for f64: cudaErrorInvalidValue for that dtype.
template <typename Visit>
cudaError_t VisitNarrowDType(DType dtype, const Visit& visit) {
  return VisitDType(dtype, [&]<typename T>() {
    if constexpr (kIsWide<T>) {
      return cudaErrorInvalidValue;
    } else {
      return visit.template operator()<T>();
    }
  });
}

// Calls visit<kCentred>(), where kCentred is true if the sums are those of a mean and a variance.
template <typename Visit>
cudaError_t VisitCentred(Statistic statistic, const Visit& visit) {
  return statistic == Statistic::kMeanVariance ? visit.template operator()<true>() : visit.template operator()<false>();
}

// Calls visit<Real>(), where Real is the type that narrow elements are summed in.
template <typename Visit>
cudaError_t VisitReal(Precision precision, const Visit& visit) {
  return precision == Precision::kFast ? visit.template operator()<float>() : visit.template operator()<double>();
}

// The same for kernels that make both passes in one launch: under FAST alone. EXACT goes the ways of nearest.h; the
// kernels have its sums and elements in f64, but no test of each element yet, so that no instance of them would run.
template <typename Visit>
cudaError_t VisitFused(Precision precision, const Visit& visit) {
  return precision == Precision::kFast ? visit.template operator()<float>() : cudaErrorInvalidValue;
}

// The number of threads that share a chunk of `segments` segments, each of n elements or more: 8, 16 or a warp. Of
// several segments, each keeps a warp busy unless it is shorter than the warp.
inline int ChunkLanes(int64_t segments, int64_t n) {
  if (segments == 1) return n <= 64 ? 8 : n <= 128 ? 16 : kWarp;
  return n <= 8 ? 8 : n <= 16 ? 16 : kWarp;
}

// Calls visit<T, kCentred, kLanes>() for kernels that sum narrow rows chunk by chunk. `lanes` is that of ChunkLanes().
template <typename Visit>
cudaError_t VisitNarrowRows(DType dtype, Statistic statistic, int lanes, const Visit& visit) {
  return VisitNarrowDType(dtype, [&]<typename T>() {
    return VisitCentred(statistic, [&]<bool kCentred>() {
      switch (lanes) {
        case 8:
          return visit.template operator()<T, kCentred, 8>();
        case 16:
          return visit.template operator()<T, kCentred, 16>();
        default:
          return visit.template operator()<T, kCentred, kWarp>();
      }
    });
  });
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_VISIT_CUH_
