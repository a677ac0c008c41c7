// What the walkers need for the apply pass to the nearest value: the bound of a group's elements, and the slow road for
// the elements that a kernel reports.
// In the path: run_rows.cc and run_columns.cc, between their reduce pass and ApplyNearest.
#ifndef NORMD_KERNELS_CPU_NEAREST_GROUP_H_
#define NORMD_KERNELS_CPU_NEAREST_GROUP_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/certificate.h"
#include "kernels/cpu/run.h"
#include "kernels/slow_road/group.h"

namespace normd::cpu {

// The bound of the normalised elements of a group. `sums` is ignored where the statistics are given. Groups whose sums
// or whose 1 / D are not finite have the value of IEEE arithmetic, and a bound of which nothing is undecided.
struct GroupBound {
  NormalisedBound bound;
  bool is_finite = false;
  bool normalises_to_zero = false;  // every element, exactly

  GroupBound(const Run& run, const SumErrors& sums, const FinishedStatistics& group);
  GroupBound() = default;

  // For elements with this w and b; `weight` and `bias` may be the largest magnitudes of many.
  ElementBound Of(const Run& run, double weight, double bias) const;
};

// Decides single elements of the groups (k0, k1) with k1 in [begin, begin + groups). Borrows the run. Thread-safe: the
// tasks that share a group share its sums.
class NearestGroups {
 public:
  NearestGroups(const Run& run, int64_t k0, int64_t begin, int64_t groups)
      : run_(run), k0_(k0), begin_(begin), groups_(static_cast<size_t>(groups)) {}

  // Writes y of element (k0, r0, k1, r1), whose value is `x`. REQUIRES: its group is finite, see GroupBound.
  void Decide(int64_t r0, int64_t k1, int64_t r1, double x);
  // Run::StoreGroup of group (k0, k1), each output the nearest value. REQUIRES: as Decide.
  void StoreGroup(int64_t k1);

 private:
  // Reads the elements of a group that count.
  struct Reader {
    const Run* run = nullptr;
    int64_t k0 = 0, k1 = 0;

    void operator()(absl::FunctionRef<void(const slow_road::Element*, int64_t)> take) const;
  };

  struct Group {
    Reader reader;
    slow_road::SlowGroup slow;

    Group(const slow_road::Formula& formula, const Reader& from, slow_road::SlowGroup::FirstRung first)
        : reader(from), slow(formula, reader, first) {}
  };

  slow_road::SlowGroup& At(int64_t k1);
  slow_road::Element ElementAt(int64_t index, double x) const;
  slow_road::Affine AffineOf(int64_t r0, int64_t k1, int64_t r1) const;

  const Run& run_;
  const int64_t k0_, begin_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Group>> groups_;  // made when they are first asked; guarded by mutex_
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_NEAREST_GROUP_H_
