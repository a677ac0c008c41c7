// Results of EXACT are the nearest values of their type: which jobs that holds for, the options that both backends take
// for it, and the host's part of a job that a device runs.
// In the path: kernels/cpu and kernels/cuda read the options; kernels/cuda asks NearestHost for what its kernels leave
// undecided, so that the slow road has one implementation.
#ifndef NORMD_KERNELS_NEAREST_H_
#define NORMD_KERNELS_NEAREST_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace normd {

namespace cpu {
class WorkerPool;
}  // namespace cpu

// Counts what the kernels left undecided and the slow road decided (kernels/slow_road/group.h). Thread-safe.
struct UndecidedCounts {
  std::atomic<int64_t> by_pairs = 0, by_integers = 0;  // elements of y, by what decided them
  std::atomic<int64_t> groups = 0;                     // whose MEAN, INV_STD or moments were undecided
};

// Of a backend. Tests and the bench alone set the first two; no option of a server does.
struct NearestOptions {
  // Multiplies every bound of an error. Infinity sends every element along the slow road.
  double bound_factor = 1;
  bool exact_first = false;  // the slow road asks exact integers at once
  // Null: nothing is counted. Elements of PowerNorm never are. Must outlive the backend.
  UndecidedCounts* counts = nullptr;
};

// Whether the outputs of `plan` are the nearest values: not under FAST, and not for LpNorm of an order that no integers
// of fixed size decide (kernels/slow_road/formula.h). `kept_wide`: the dtype of a residual under KEEP_WIDE.
bool GivesNearest(const NormPlan& plan, std::optional<DType> kept_wide);
// The same of the plan of `job`. REQUIRES: the job's plan, dtypes and residual.
bool GivesNearest(const Job& job);

// True if the kernels' w is the sum of weight and weight_offset, rounded, and that rounding is no part of a bound.
bool RoundsWeights(const Job& job);

// One statistics group of a job, in host memory: its elements [reduce0, reduce1] without gaps. `residual` is null where
// the job has none. Of `y` the elements that are decided are written.
struct GroupOnHost {
  int64_t group = 0;
  const void* x = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
};

// Single results of a group, the rest of which has been written.
struct UndecidedResults {
  absl::Span<const int64_t> elements;  // indices of GroupOnHost
  bool statistics = false;             // whether the group's `mean`, `inverse_std` and moments are wanted
};

// The host's part of jobs that a device runs to the nearest value. Thread-safe.
//
//   NearestHost host(options);
//   host.Decide(job, {.group = 3, .x = x, .y = y}, {.elements = {17, 4096}});  // y[17] and y[4096], from all of x
class NearestHost {
 public:
  explicit NearestHost(const NearestOptions& options);
  ~NearestHost();
  NearestHost(const NearestHost&) = delete;
  NearestHost& operator=(const NearestHost&) = delete;

  const NearestOptions& options() const { return options_; }

  // Runs `job` as the CPU backend does with these options. REQUIRES: job.on_host(), GivesNearest(job), and x is
  // contiguous.
  void Run(const Job& job);
  // Writes single results of one group: its elements in group.y, its statistics where the job has them. Elements that
  // are not finite are left alone: IEEE arithmetic has decided them. Takes memory in proportion to the group, and only
  // for a residual that is rounded first. REQUIRES: GivesNearest(job); group.x is not group.y; the group is finite
  // (BoundedGroup of kernels/bounded_group.h); no permutation, no PowerNorm. Of the job's tensors none is read.
  void Decide(const Job& job, const GroupOnHost& group, const UndecidedResults& undecided);

 private:
  const NearestOptions options_;
  const std::unique_ptr<cpu::WorkerPool> pool_;
};

}  // namespace normd

#endif  // NORMD_KERNELS_NEAREST_H_
