// The magnitude of the f64 elements that one thread has seen, and how it joins that of other threads: by atomic
// operations, whose order does not matter. See Magnitude in kernels/group_statistics.h.
// In the path: the MeasureRows and MeasureColumns kernels gather magnitudes, statistics.cu reads them. Device
// functions.
#ifndef NORMD_KERNELS_CUDA_MAGNITUDE_CUH_
#define NORMD_KERNELS_CUDA_MAGNITUDE_CUH_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cuda/kernels.h"
#include "kernels/group_statistics.h"

namespace normd::cuda {

// The Magnitude of one thread. The bits of `non_finite` are those of GroupMagnitude.
struct LaneMagnitude {
  uint64_t largest_bits = 0;
  unsigned non_finite = 0;

  __device__ __forceinline__ void Take(double x) {
    const uint64_t bits = std::bit_cast<uint64_t>(std::fabs(x));
    if (bits > largest_bits) largest_bits = bits;
    if (!std::isfinite(x)) non_finite |= x > 0 ? 1u : x < 0 ? 2u : 4u;
  }
  __device__ __forceinline__ void Include(const LaneMagnitude& other) {
    if (other.largest_bits > largest_bits) largest_bits = other.largest_bits;
    non_finite |= other.non_finite;
  }
  __device__ __forceinline__ void AddTo(GroupMagnitude* group) const {
    if (largest_bits != 0) atomicMax(&group->largest_bits, static_cast<unsigned long long>(largest_bits));
    if (non_finite != 0) atomicOr(&group->non_finite, non_finite);
  }
};

// The magnitude of a group, once all threads have added theirs.
__device__ __forceinline__ Magnitude AsMagnitude(const GroupMagnitude& group) {
  Magnitude magnitude = {group.largest_bits, 0};
  const double infinity = std::numeric_limits<double>::infinity();
  if (group.non_finite == 1) magnitude.non_finite_sum = infinity;
  if (group.non_finite == 2) magnitude.non_finite_sum = -infinity;
  if (group.non_finite > 2) magnitude.non_finite_sum = std::numeric_limits<double>::quiet_NaN();
  return magnitude;
}

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_MAGNITUDE_CUH_
