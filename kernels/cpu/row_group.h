// One statistics group of Pattern::kRows: its sums, its outputs and its apply pass.
// In the path: run_rows.cc, for groups that no kernel takes together with others. Borrows the run. Threads: one task
// uses a group, and may share the work of either pass among the threads of the pool.
#ifndef NORMD_KERNELS_CPU_ROW_GROUP_H_
#define NORMD_KERNELS_CPU_ROW_GROUP_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "kernels/cpu/nearest_group.h"
#include "kernels/cpu/pair_sums.h"
#include "kernels/cpu/run.h"

namespace normd::cpu {

// The group (k0, k1), which is plan.reduce0 contiguous segments of plan.reduce1 elements. Call Reduce, then Apply.
class RowGroup {
 public:
  RowGroup(const Run& run, int64_t group);

  // Returns the statistics of the group, given or summed, and stores the group's outputs. `split` cuts the sums into
  // tasks.
  FinishedStatistics Reduce(bool split);
  // Runs the apply pass of the group; `split` cuts it into tasks.
  void Apply(const FinishedStatistics& group, bool split) const;

 private:
  using ChunkSums = absl::InlinedVector<PairSums, RowBlock::kMaxChunks>;
  // The chunks of the group, and where their sums go.
  struct Chunks {
    RowChunks rows;
    int64_t count = 0;
    PairSums* sums = nullptr;
    bool split = false;
  };

  // The index of the first element of segment r0.
  int64_t Segment(int64_t r0) const { return run_.IndexOf(k0_, r0, k1_, 0); }
  // What the sums have gone through, after Sum().
  SumErrors SumErrorsOf() const;
  bool SumsShallowly() const;
  // Sums the group in pairs, which decide undecided elements, too. False if plain sums have to serve.
  bool SumLargeInPairs(bool split);
  // The statistics of the group, summed.
  FinishedStatistics Sum(bool split);
  FinishedStatistics SumWide(const Chunks& all);
  // Calls `body` for ranges of chunks, on this thread or on the threads of the pool.
  void ShareOut(const Chunks& all, absl::FunctionRef<void(int64_t, int64_t)> body) const;
  PairSums SumsAbout(const Chunks& all, Precision precision, double shift, double scale);
  double FirstShiftOf(Precision precision) const;
  // Writes the sums of kPowerSum's terms, chunk by chunk. Methods with this statistic take no mask.
  void SumPowers(const Chunks& all, double scale, double largest) const;
  // The magnitude of a group of f64 elements.
  Magnitude Measure(const Chunks& all) const;
  void ApplyPieces(const FinishedStatistics& group, bool split) const;
  // Applies elements [begin, end) of the segments [r0, r0_end). They have whole channels, a part of one channel, or one
  // parameter for each element.
  void ApplyPiece(int64_t r0, int64_t r0_end, int64_t begin, int64_t end, const FinishedStatistics& group) const;
  // The same, each element rounded to the nearest value.
  void ApplyToNearest(int64_t r0, int64_t r0_end, int64_t begin, int64_t end, const FinishedStatistics& group) const;

  const Run& run_;
  const NormPlan& plan_;
  const int64_t group_, k0_, k1_;
  double summed_about_ = 0;                    // the shift of the sums
  bool sums_to_zero_ = false;                  // see SumErrors::is_zero
  std::unique_ptr<NearestGroups> nearest_;     // if y is rounded to the nearest value
  std::optional<slow_road::SumsAbout> pairs_;  // the sums, if they are in pairs
};

}  // namespace normd::cpu

#endif  // NORMD_KERNELS_CPU_ROW_GROUP_H_
