#include "kernels/cpu/beyond_fast.h"

#include <cstring>

namespace normd::cpu {

bool IsBeyondFast(const Run& run, const FinishedStatistics& group) {
  if (run.precision() != Precision::kFast) return false;
  return group.shift_too_far || group.out_of_fast_range || !group.elements_in_f32;
}

NearestRun::NearestRun(const Run& run, int64_t k0, GroupRange groups) : run_(run) {
  run_.to_nearest = true;
  run_.given.reset();  // prepared for f32
  if (run.x.data == run.y && run.plan.elements > 0) CopyX(k0, groups);
  run_.given_x = run_.x;
}

// The copy has the strides of x. What lies between the groups is neither written nor read, and takes no memory where
// it is as long as a page.
void NearestRun::CopyX(int64_t k0, GroupRange groups) {
  const NormPlan& plan = run_.plan;
  const int64_t size = SizeOf(plan.dtype);
  const int64_t of_segment = (groups.end - groups.begin) * plan.reduce1;
  const int64_t first = run_.IndexOf(k0, 0, groups.begin, 0);
  const int64_t last = run_.IndexOf(k0, plan.reduce0 - 1, groups.begin, 0) + of_segment;
  x_ = std::make_unique_for_overwrite<char[]>(static_cast<size_t>((last - first) * size));
  for (int64_t r0 = 0; r0 < plan.reduce0; ++r0) {
    const int64_t at = run_.IndexOf(k0, r0, groups.begin, 0);
    std::memcpy(x_.get() + (at - first) * size, run_.X(at).data, static_cast<size_t>(of_segment * size));
  }
  run_.x.data = x_.get();
  run_.x_begin = first;
}

}  // namespace normd::cpu
