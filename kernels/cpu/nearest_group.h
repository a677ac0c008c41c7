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
#include "kernels/bounded_group.h"
#include "kernels/certificate.h"
#include "kernels/cpu/run.h"
#include "kernels/slow_road/group.h"

namespace normd::cpu {

// The bound of the normalised elements of a group of a run. `sums` is ignored where the statistics are given.
struct GroupBound : BoundedGroup {
  GroupBound(const Run& run, const SumErrors& sums, const FinishedStatistics& group);
  GroupBound() = default;

  // For elements with this w and b, of which the kernel's bound has what the cast order leaves before it rounds: under
  // CAST_THEN_AFFINE neither. `weight` and `bias` may be the largest magnitudes of many. Negative where the group is
  // not finite: nothing is undecided.
  ElementBound Of(const Run& run, double weight, double bias) const;
};

// True if Run::StoreGroup writes the nearest values of a group's outputs, as `bound` shows.
bool HasNearestOutputs(const Run& run, const FinishedStatistics& group, const NormalisedBound& bound);

// An element of the groups of one k0.
struct NearestPlace {
  int64_t r0 = 0, k1 = 0, r1 = 0;
  double x = 0;
};

// Decides single elements of the groups (k0, k1) with k1 in [begin, begin + groups). Borrows the run. Thread-safe. The
// sums of one group are kept at a time, in each thread: they take 11 KB.
class NearestGroups {
 public:
  NearestGroups(const Run& run, int64_t k0, int64_t begin, int64_t groups)
      : run_(run), k0_(k0), begin_(begin), is_crowded_(static_cast<size_t>(groups)) {}

  // Writes y of element (k0, r0, k1, r1), whose value is `x`. REQUIRES: its group is finite, see GroupBound. Elements
  // that come group by group cost least.
  void Decide(int64_t r0, int64_t k1, int64_t r1, double x);
  // Run::StoreGroup of group (k0, k1), each output the nearest value. REQUIRES: as Decide.
  void StoreGroup(int64_t k1);
  // The same after Run::StoreGroup wrote `result`, where `bound` tells which of its numbers are the nearest already.
  void StoreGroup(int64_t k1, const FinishedStatistics& result, const GroupBound& bound);

  // Calls `take` with the elements of group (k0, k1) that count, at most 64 at once.
  void Read(int64_t k1, absl::FunctionRef<void(const slow_road::Element*, int64_t)> take) const {
    Reader{&run_, k0_, k1}(take);
  }

  // Decide() later, in DecideAdded(), group by group. Of the groups that have too many elements to remember all of them
  // none is remembered.
  void Add(const NearestPlace& element);
  // Reports the elements of a group that its kernel does not decide, once more.
  using Again = absl::FunctionRef<void(int64_t k1, absl::FunctionRef<void(const NearestPlace&)>)>;
  // The groups, as numbers from 0 on, that DecideAdded() decides elements of.
  std::vector<int64_t> GroupsAdded() const;
  // Decides what was added; `again` finds the elements of crowded groups. `split` shares the groups among the threads
  // of the pool. `sums` may have the sums of groups with added elements, one for each group of the run (SumWith of
  // kernels/slow_road/group.h); null: they are read.
  void DecideAdded(Again again, bool split, const slow_road::SumsAbout* sums = nullptr);

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
    ~Group();
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
  };

  std::unique_ptr<Group> MakeGroup(int64_t k1) const;
  slow_road::SlowGroup& At(int64_t k1);
  slow_road::Element ElementAt(int64_t index, double x) const;
  slow_road::Affine AffineOf(int64_t r0, int64_t k1, int64_t r1) const;
  // False if the group has statistics that are given and not finite: IEEE arithmetic says what they give.
  bool GivenAreFinite(int64_t k1) const;
  void DecideIn(slow_road::SlowGroup& group, const NearestPlace& element) const;

  const Run& run_;
  const int64_t k0_, begin_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::unique_ptr<Group> group_;  // the last one that Decide() or StoreGroup() asked
  std::vector<NearestPlace> added_;
  std::vector<bool> is_crowded_;  // one for each group
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_NEAREST_GROUP_H_
