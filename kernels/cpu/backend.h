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
  // Elements under which a job list runs inline on the caller's thread: about 50 us of kernel time.
  int64_t inline_elements = 64 * 1024;
  // Elements a task takes; tests force a small one so that every case splits. Bits never depend on it.
  int64_t grain_elements = 32 * 1024;
};

// Never fails. Destroying it waits for submitted work.
std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace normd

#endif  // NORMD_KERNELS_CPU_BACKEND_H_
