// The instruction sets that the CPU kernels were compiled for and that this machine has.
// Highway picks the best at the first call; tests force each in turn. Results are the same bits on all of them.
#ifndef NORMD_KERNELS_CPU_TARGETS_H_
#define NORMD_KERNELS_CPU_TARGETS_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace normd {

struct CpuTarget {
  int64_t id = 0;         // Highway's bit
  std::string_view name;  // "avx3", "avx2", "neon", "emu128" (plain C++ with std::fma: any other CPU)
};

// Best first. Ignores ForceCpuTargetForTest.
std::vector<CpuTarget> SupportedCpuTargets();

// What runs now.
std::string_view ActiveCpuTargetName();

// Makes every later kernel call of the process use `id`; 0 returns to the best. Not for use while kernels run.
void ForceCpuTargetForTest(int64_t id);

}  // namespace normd

#endif  // NORMD_KERNELS_CPU_TARGETS_H_
