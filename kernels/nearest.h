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

// Counts the elements of y that the kernels left undecided, by what decided them (kernels/slow_road/group.h).
// Thread-safe.
struct UndecidedCounts {
  std::atomic<int64_t> by_pairs = 0, by_integers = 0;
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

// Single results of a job, the rest of which has been written.
struct UndecidedResults {
  absl::Span<const int64_t> elements;  // of y, as indices in the order of memory
  absl::Span<const int64_t> groups;    // whose `mean` and `inverse_std` are wanted
};

// The host's part of jobs that a device runs to the nearest value. Thread-safe.
//
//   NearestHost host(options);
//   host.Decide(job, {.elements = {17, 4096}});  // y[17] and y[4096], from the elements of their groups in job.x
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
  // Writes single results. Elements that are not finite are left alone: IEEE arithmetic has decided them. REQUIRES: as
  // Run; job.x is not job.y; the groups are finite (GroupBound in kernels/cpu/nearest_group.h); no permutation, no
  // PowerNorm.
  void Decide(const Job& job, const UndecidedResults& undecided);

 private:
  const NearestOptions options_;
  const std::unique_ptr<cpu::WorkerPool> pool_;
};

}  // namespace normd

#endif  // NORMD_KERNELS_NEAREST_H_
