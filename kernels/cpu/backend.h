// The CPU backend: Highway kernels chosen at run time for the instruction set found, oneTBB for large work.
// It is the reference that every other backend is judged by, bit for bit under EXACT.
#ifndef NORMD_KERNELS_CPU_BACKEND_H_
#define NORMD_KERNELS_CPU_BACKEND_H_

#include <cstdint>
#include <memory>

#include "kernels/backend.h"

namespace normd {

struct CpuBackendOptions {
  int threads = 0;  // 0: as many as the machine has
  // Elements up to which a job list runs inline on the caller's thread: about 50 us of kernel time. More is worth the
  // 20 to 27 us of handing it over. (1 MiB tensors from the wire cost 15 % less CPU inline on two cores, but those in
  // shared memory then have one core instead of two.)
  int64_t inline_elements = 64 * 1024;
  // Elements a task takes; tests force a small one so that every case splits. Bits never depend on it.
  int64_t grain_elements = 32 * 1024;
  // Outputs from this size on are written past the caches: what they would push out is worth more than what is left of
  // them when somebody reads them. Bits never depend on it.
  int64_t stream_bytes = int64_t{64} << 20;
};

// Never fails. Destroying it waits for submitted work.
std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace normd

#endif  // NORMD_KERNELS_CPU_BACKEND_H_
