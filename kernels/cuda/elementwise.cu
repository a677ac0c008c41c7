// The residual stream, copies in f64, and copies in another order of the axes: one element per thread at a time.
#include "kernels/cuda/device.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/parameters.cuh"
#include "kernels/cuda/partial_sums.h"
#include "kernels/cuda/visit.cuh"

namespace normd::cuda {
namespace {

constexpr int kThreads = 256;

LaunchShape ElementsShape(const DeviceLimits& limits, int64_t n) {
  return {.blocks = EnoughBlocks(limits, n, kThreads), .threads = kThreads};
}

template <typename Body>
__device__ __forceinline__ void ForElements(int64_t n, Body body) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    body(i);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) AddRoundedKernel(Elements x, Elements r, double scale, int64_t n, void* h) {
  WaitForLaunchBefore();
  ForElements(n, [&](int64_t i) {
    const double sum = RoundedSum(T(), ElementAt(x, i), ElementAt(r, i), scale);
    static_cast<typename T::Storage*>(h)[i] = Store(T(), sum);
  });
}

__global__ void __launch_bounds__(kThreads)
    AddWideKernel(Elements x, Elements r, double scale, int64_t n, double* hi, double* lo) {
  WaitForLaunchBefore();
  ForElements(n, [&](int64_t i) {
    const DoublePair sum = WideSum(ElementAt(x, i), ElementAt(r, i), scale, lo != nullptr);
    hi[i] = sum.hi;
    if (lo != nullptr) lo[i] = sum.lo;
  });
}

__global__ void __launch_bounds__(kThreads) WidenKernel(Elements x, int64_t n, double* wide) {
  WaitForLaunchBefore();
  ForElements(n, [&](int64_t i) { wide[i] = ElementAt(x, i); });
}

__global__ void __launch_bounds__(kThreads)
    WidenRowsKernel(Elements x, int64_t n, const int64_t* rows, int64_t count, double* wide) {
  WaitForLaunchBefore();
  ForElements(count * n, [&](int64_t i) { wide[i] = ElementAt(x, rows[i / n] * n + i % n); });
}

template <typename Word>
__global__ void __launch_bounds__(kThreads)
    PermuteKernel(const __grid_constant__ PermuteWork work, const Word* from, Word* to) {
  WaitForLaunchBefore();
  ForElements(work.elements, [&](int64_t i) {
    int64_t natural = 0;
    int64_t rest = i;
    for (int axis = work.rank - 1; axis >= 0; --axis) {
      natural += rest % work.extents[axis] * work.strides[axis];
      rest /= work.extents[axis];
    }
    if (work.back) {
      to[natural] = from[i];
    } else {
      to[i] = from[natural];
    }
  });
}

}  // namespace

#if defined(__CUDACC__)
int CodeVersion() {
  cudaFuncAttributes attributes = {};
  return cudaFuncGetAttributes(&attributes, WidenKernel) == cudaSuccess ? attributes.ptxVersion : 0;
}
#endif

cudaError_t AddResidualRounded(const DeviceLimits& limits, const Elements& x, const Elements& r, double scale,
                               int64_t n, void* h, cudaStream_t stream) {
  return VisitDType(x.dtype, [&]<typename T>() {
    return Launch(ElementsShape(limits, n), stream, AddRoundedKernel<T>, x, r, scale, n, h);
  });
}

cudaError_t AddResidualWide(const DeviceLimits& limits, const Elements& x, const Elements& r, double scale, int64_t n,
                            double* hi, double* lo, cudaStream_t stream) {
  return Launch(ElementsShape(limits, n), stream, AddWideKernel, x, r, scale, n, hi, lo);
}

cudaError_t Widen(const DeviceLimits& limits, const Elements& x, int64_t n, double* wide, cudaStream_t stream) {
  return Launch(ElementsShape(limits, n), stream, WidenKernel, x, n, wide);
}

cudaError_t WidenRows(const DeviceLimits& limits, const Elements& x, int64_t n, const int64_t* rows, int64_t count,
                      double* wide, cudaStream_t stream) {
  return Launch(ElementsShape(limits, count * n), stream, WidenRowsKernel, x, n, rows, count, wide);
}

cudaError_t Permute(const DeviceLimits& limits, const PermuteWork& work, const void* from, void* to,
                    cudaStream_t stream) {
  const LaunchShape shape = ElementsShape(limits, work.elements);
  switch (work.element_bytes) {
    case 2:
      return Launch(shape, stream, PermuteKernel<uint16_t>, work, static_cast<const uint16_t*>(from),
                    static_cast<uint16_t*>(to));
    case 4:
      return Launch(shape, stream, PermuteKernel<uint32_t>, work, static_cast<const uint32_t*>(from),
                    static_cast<uint32_t*>(to));
    case 8:
      return Launch(shape, stream, PermuteKernel<uint64_t>, work, static_cast<const uint64_t*>(from),
                    static_cast<uint64_t*>(to));
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace normd::cuda
