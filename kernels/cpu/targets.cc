#include "kernels/cpu/targets.h"

#include <atomic>
#include <string>

#include "hwy/highway.h"
#include "kernels/base/errors.h"

namespace normd {
namespace {

// The active target, or 0 until ActiveCpuTargetName is called. It is kept because every reply names its kernel, and
// Highway executes CPUID whenever it is asked, which traps in a virtual machine and takes 25 us.
std::atomic<int64_t> active_target{0};

// The target that LimitCpuTargets chose; 0: no limit.
std::atomic<int64_t> limit{0};

std::string_view NameOf(int64_t target) {
  switch (target) {
    case HWY_AVX3:
      return "avx3";
    case HWY_AVX2:
      return "avx2";
    case HWY_NEON:
      return "neon";
    case HWY_EMU128:  // Highway compiles one of the two
    case HWY_SCALAR:
      return "plain";
    default:
      return hwy::TargetName(target);
  }
}

// Makes `id` the target; 0: the best one. Highway's function for tests is the only one that can also lift a limit.
void Use(int64_t id) {
  hwy::SetSupportedTargetsForTest(id);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  active_target.store(0, std::memory_order_relaxed);
}

}  // namespace

std::vector<CpuTarget> SupportedCpuTargets() {
  // Highway's baseline counts as supported even while another target is forced, so the forced target is lifted while
  // the question is asked.
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

absl::Status LimitCpuTargets(std::string_view max_isa) {
  std::string names = "auto";
  int64_t id = 0;
  for (const CpuTarget& target : SupportedCpuTargets()) {
    if (target.name == max_isa) id = target.id;
    names += ", ";
    names += target.name;
  }
  if (id == 0 && !max_isa.empty() && max_isa != "auto") {
    return OutOfRangeError("max_isa", max_isa, names + ": what this machine has", KernelReason("UNKNOWN_ISA"));
  }
  limit.store(id, std::memory_order_relaxed);
  Use(id);
  return absl::OkStatus();
}

void ForceCpuTargetForTest(int64_t id) { Use(id != 0 ? id : limit.load(std::memory_order_relaxed)); }

}  // namespace normd
