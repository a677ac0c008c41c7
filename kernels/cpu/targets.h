// The instruction sets (Highway targets) that the CPU kernels were compiled for and that this machine has. Highway
// picks the best one at the first call. A server may be limited to a lesser one (--max_isa), so that a fleet of mixed
// machines can be tried out on one machine, and tests force each target in turn. Results are the same bits on all of
// them.
// In the path: the start of the server limits the target; kernels only read it. Threads: SupportedCpuTargets and
// ActiveCpuTargetName are safe from any thread, the other two while no kernel runs.
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

// All targets, best first, whatever LimitCpuTargets and ForceCpuTargetForTest have chosen.
std::vector<CpuTarget> SupportedCpuTargets();

// The name of the target that kernels run now.
std::string_view ActiveCpuTargetName();

// Makes every later kernel call of the process use the target named `max_isa`; "auto" or "" lifts the limit.
// INVALID_ARGUMENT naming "max_isa" if this machine has no target of that name, because a trial on another target would
// show nothing. Not for use while kernels run.
absl::Status LimitCpuTargets(std::string_view max_isa);

// Makes every later kernel call of the process use `id`; 0 returns to the best that LimitCpuTargets allows. Not for use
// while kernels run.
void ForceCpuTargetForTest(int64_t id);

}  // namespace normd

#endif  // NORMD_KERNELS_CPU_TARGETS_H_
