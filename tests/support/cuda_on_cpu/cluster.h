// cooperative_groups, as far as kernels use it: the cluster of a block. Read by kernels through <cooperative_groups.h>.
// Threads: called by fibers of a launch. Ownership: map_shared_rank borrows another block's shared memory, which is
// junk (and poisoned for ASan) once that block has exited, as on a GPU.
#ifndef NORMD_TESTS_SUPPORT_CUDA_ON_CPU_CLUSTER_H_
#define NORMD_TESTS_SUPPORT_CUDA_ON_CPU_CLUSTER_H_

#include "tests/support/cuda_on_cpu/launch.h"

// The names are CUDA's.
// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier)

namespace cooperative_groups {

class cluster_group {
 public:
  static void sync() { cuda_on_cpu::MeetCluster(); }
  static unsigned block_rank() { return cuda_on_cpu::ClusterRank(); }
  static unsigned num_blocks() { return cuda_on_cpu::ClusterBlocks(); }

  // REQUIRES: `address` lies in this block's shared memory, rank < num_blocks().
  template <typename T>
  static T* map_shared_rank(T* address, int rank) {
    return static_cast<T*>(cuda_on_cpu::InSharedOf(address, static_cast<unsigned>(rank)));
  }
};

inline cluster_group this_cluster() { return {}; }

}  // namespace cooperative_groups

// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)

#endif  // NORMD_TESTS_SUPPORT_CUDA_ON_CPU_CLUSTER_H_
