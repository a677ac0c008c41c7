// The groups of a FAST job that f32 does not serve, which are run to the nearest value as under EXACT: those whose sums
// leave the range of f32 or lose squares, whose mean is too far away, or whose statistics do not fit f32.
// In the path: the walkers ask when they have the sums of a group, before its y is written. A group's own elements
// decide, so that its bits do not depend on the groups beside it.
#ifndef NORMD_KERNELS_CPU_BEYOND_FAST_H_
#define NORMD_KERNELS_CPU_BEYOND_FAST_H_

#include <cstdint>
#include <memory>

#include "kernels/cpu/run.h"

namespace normd::cpu {

// True if the group with these statistics, of which the sums in f32 have had their second shift, has to be run to the
// nearest value. Never under EXACT.
bool IsBeyondFast(const Run& run, const FinishedStatistics& group);

// The Run that groups beyond FAST take. Where y is x they are copied out, and take twice their own bytes meanwhile.
//
//   const NearestRun nearest(run, k0, {k1, k1 + 1});
//   RowGroup group(nearest.run(), nearest.FirstGroup());
//   group.Apply(group.Reduce(split), split);
//   nearest.WriteY();
class NearestRun {
 public:
  // For the groups (k0, k1) with k1 in `groups`, whose y is not written yet. Borrows the run.
  NearestRun(const Run& run, int64_t k0, GroupRange groups);
  NearestRun(const NearestRun&) = delete;
  NearestRun& operator=(const NearestRun&) = delete;
  ~NearestRun();

  const Run& run() const { return run_; }
  // The groups as run() numbers them.
  int64_t k0() const { return k0_; }
  GroupRange groups() const { return groups_; }
  int64_t FirstGroup() const { return k0_ * run_.plan.keep1 + groups_.begin; }

  // Brings y of the groups, which the walker has calculated by now, to where the job wants it.
  void WriteY() const;

 private:
  struct Copy;

  const std::unique_ptr<const Copy> copy_;  // null unless y is x
  Run run_;
  const int64_t k0_;
  const GroupRange groups_;
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_BEYOND_FAST_H_
