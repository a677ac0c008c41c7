// The CPU backend: Highway kernels, chosen at run time for the instruction set of the machine, and a pool of threads
// for large work.
// In the path: the engine and server/schedule submit jobs to it (see kernels/backend.h). It is the reference that every
// other backend is judged by, bit for bit under EXACT, and the fallback when a device is lost. Thread-safe.
#ifndef NORMD_KERNELS_CPU_BACKEND_H_
#define NORMD_KERNELS_CPU_BACKEND_H_

#include <cstdint>
#include <memory>

#include "kernels/backend.h"

namespace normd {

// exact-4 in the making: y of EXACT rounded to the nearest value, where the kernels can already do that. Tests and the
// bench alone ask for it; no option of a server does.
struct NearestOptions {
  bool on = false;
  // Multiplies every bound of an error. Infinity sends every element along the slow road.
  double bound_factor = 1;
  bool exact_first = false;  // the slow road asks exact integers at once
};

// Whether y of `job` is the nearest value where NearestOptions are on: not under FAST, and not for LpNorm of an order
// that no integers of fixed size decide (kernels/slow_road/formula.h). REQUIRES: the job's plan, dtypes and residual.
bool GivesNearest(const Job& job);

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
