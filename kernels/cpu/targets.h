// The instruction sets that the CPU kernels were compiled for and that this machine has.
// Highway picks the best at the first call; a server may be limited to lesser ones, so that a fleet of mixed machines
// can be tried on one, and tests force each in turn. Results are the same bits on all of them.
#ifndef NORMD_KERNELS_CPU_TARGETS_H_
#define NORMD_KERNELS_CPU_TARGETS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace normd {

struct CpuTarget {
  int64_t id = 0;         // Highway's bit
  std::string_view name;  // "avx3", "avx2", "neon", "plain" (C++ with std::fma: any CPU)
};

// Best first. Ignores LimitCpuTargets and ForceCpuTargetForTest.
std::vector<CpuTarget> SupportedCpuTargets();

// What runs now.
std::string_view ActiveCpuTargetName();

// Makes every later kernel call of the process use the target `max_isa`, one of the names above; "auto" or "" lifts the
// limit. INVALID_ARGUMENT of the field "max_isa" where this machine has no target of that
// name: what was to be tried would not be. Not for use while kernels run.
absl::Status LimitCpuTargets(std::string_view max_isa);

// Makes every later kernel call of the process use `id`; 0 returns to the best that LimitCpuTargets allows. Not for use
// while kernels run.
void ForceCpuTargetForTest(int64_t id);

}  // namespace normd

#endif  // NORMD_KERNELS_CPU_TARGETS_H_
