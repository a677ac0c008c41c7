#include "kernels/cpu/targets.h"

#include <atomic>

#include "hwy/highway.h"

namespace normd {
namespace {

// What runs, once somebody asked. Highway executes CPUID each time, which traps in a virtual machine: 25 us for every
// reply, which names its kernel.
std::atomic<int64_t> active_target{0};

std::string_view NameOf(int64_t target) {
  switch (target) {
    case HWY_AVX3:
      return "avx3";
    case HWY_AVX2:
      return "avx2";
    case HWY_NEON:
      return "neon";
    case HWY_EMU128:
      return "emu128";
    default:
      return hwy::TargetName(target);
  }
}

}  // namespace

std::vector<CpuTarget> SupportedCpuTargets() {
  // Highway's baseline counts as supported even while another target is forced: undo the mock for the question.
  const int64_t active = hwy::SupportedTargets();
  hwy::SetSupportedTargetsForTest(0);
  std::vector<CpuTarget> targets;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) targets.push_back({target, NameOf(target)});
  const int64_t automatic = hwy::SupportedTargets();
  hwy::SetSupportedTargetsForTest(active == automatic ? 0 : active);
  return targets;
}

std::string_view ActiveCpuTargetName() {
  int64_t active = active_target.load(std::memory_order_relaxed);
  if (active == 0) {
    const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
    active = usable & -usable;  // Highway numbers better targets lower
    active_target.store(active, std::memory_order_relaxed);
  }
  return NameOf(active);
}

void ForceCpuTargetForTest(int64_t id) {
  hwy::SetSupportedTargetsForTest(id);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  active_target.store(0, std::memory_order_relaxed);
}

}  // namespace normd
