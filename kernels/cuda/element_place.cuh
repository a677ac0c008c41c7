// From the index of an element in memory to its statistics group and its parameters, by division: for the kernels that
// take any geometry.
// In the path: apply.cu and nearest.cu, one element a thread. Pure functions.
#ifndef NORMD_KERNELS_CUDA_ELEMENT_PLACE_CUH_
#define NORMD_KERNELS_CUDA_ELEMENT_PLACE_CUH_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/kernels.h"

namespace normd::cuda {

// The place of one element in the plan's geometry.
struct ElementPlace {
  int64_t group = 0, r0 = 0, k1 = 0, r1 = 0;
};

// The place of element i in memory order.
template <typename Index>
__device__ __forceinline__ ElementPlace Decode(const GroupWork& work, Index i) {
  const auto reduce1 = static_cast<Index>(work.reduce1);
  const auto keep1 = static_cast<Index>(work.keep1);
  const auto reduce0 = static_cast<Index>(work.reduce0);
  const Index segment = i / reduce1;
  const Index row = segment / keep1;
  ElementPlace place;
  place.r1 = i % reduce1;
  place.k1 = segment % keep1;
  place.r0 = row % reduce0;
  place.group = static_cast<int64_t>(row / reduce0) * work.keep1 + place.k1;
  return place;
}
// A division of 64 bits costs several of 32.
__device__ __forceinline__ ElementPlace PlaceOf(const GroupWork& work, int64_t i, bool is_small) {
  return is_small ? Decode(work, static_cast<uint32_t>(i)) : Decode(work, static_cast<uint64_t>(i));
}

// The index of the parameters of an element.
__device__ __forceinline__ int64_t ParameterOf(const GroupWork& work, const ApplyWork& apply,
                                               const ElementPlace& place) {
  if (apply.parameters.absent()) return 0;
  if (apply.index.kind == AffineIndex::kElement) return place.r0 * work.reduce1 + place.r1;
  return place.k1 * apply.index.channels_per_keep1 + place.r1 / apply.index.channel_run;
}

inline int64_t ElementCount(const GroupWork& work) { return work.StatisticsGroups() * work.reduce0 * work.reduce1; }

}  // namespace normd::cuda

#endif  // NORMD_KERNELS_CUDA_ELEMENT_PLACE_CUH_
