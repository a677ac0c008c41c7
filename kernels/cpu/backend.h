// The CPU backend: Highway kernels, chosen at run time for the instruction set of the machine, and a pool of threads
// for large work.
// In the path: the engine and server/schedule submit jobs to it (see kernels/backend.h). It is the reference that every
// other backend is judged by, bit for bit under EXACT, and the fallback when a device is lost. Thread-safe.
#ifndef NORMD_KERNELS_CPU_BACKEND_H_
#define NORMD_KERNELS_CPU_BACKEND_H_

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "kernels/nearest.h"

namespace normd {

struct CpuBackendOptions {
  int threads = 0;  // 0: one for each hardware thread
  // Job lists of up to this many elements (NormPlan::Work) run inline on the caller's thread: about 50 us of kernel
  // time. Longer work is worth the 20 to 27 us of handing it over. (1 MiB tensors from the wire cost 15 % less CPU
  // inline on two cores, but those in shared memory then have one core instead of two.)
  int64_t inline_elements = 64 * 1024;
  // Elements of one task. Tests force a small number, so that every case splits. Bits never depend on it.
  int64_t grain_elements = 32 * 1024;
  // Outputs of this size and more are written past the caches, because they would evict data that is reused sooner.
  // Bits never depend on it.
  int64_t stream_bytes = int64_t{64} << 20;
  NearestOptions nearest = {};
};

// Never fails. The destructor of the backend waits for submitted work.
std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace normd

#endif  // NORMD_KERNELS_CPU_BACKEND_H_
