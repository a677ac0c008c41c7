// Compares candidates on a workload: the buffers, the loop of tests/bench/comparison.h around batches of calls, and
// what the sections of this bench measure with them. Threads: one.
#ifndef NORMD_TESTS_BENCH_KERNELS_KERNEL_COMPARISON_H_
#define NORMD_TESTS_BENCH_KERNELS_KERNEL_COMPARISON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/kernels/candidate.h"
#include "tests/bench/report.h"
#include "tests/bench/suite.h"

namespace normd::bench {

// Of one candidate: medians over its batches. Absent: it does not have the operation.
using Timing = std::optional<Batch>;

class KernelComparison {
 public:
  // Room for x and y of `bytes` together.
  KernelComparison(const Flags& flags, int64_t bytes);

  // One each, in their order. Page faults of first calls do not count. Ends the program when results differ.
  std::vector<Timing> Run(const Workload& workload, int threads, const Candidates& candidates);
  // The same where each candidate does a workload of its own, all of the same bytes, on threads of its own number. The
  // results of the same workload must be the same.
  struct Entry {
    Candidate* candidate;
    Workload workload;
    int threads = 1;
  };
  std::vector<Timing> Run(const std::vector<Entry>& entries);

  const Buffers& buffers() const { return buffers_; }
  // "7 of 6ms or one call, ..."
  std::string RoundsText() const;

 private:
  // Runs the entry once; compares its result with `expected`, or sets it where it is empty.
  void RunAndCheck(const Entry& entry, std::vector<double>* expected) const;
  // A batch during which others had a core for a part of its time is repeated while there is patience.
  Batch RunBatch(const Entry& entry, int64_t calls, absl::Time patience_ends) const;

  const int rounds_;
  const absl::Duration batch_;     // the calls of a round, but at least one
  const absl::Duration patience_;  // of a comparison. Long calls get little by it: they see the others' average anyway.
  Buffers buffers_;
};

// All shapes, and the worst of each regime against its floor. `candidates` begin with those of kExact to kNonTemporal.
constexpr size_t kExact = 0, kFast = 1, kCopy = 2, kNonTemporal = 3, kFirstPeer = 4;
void MeasureShapes(const std::vector<Workload>& workloads, const Candidates& candidates, KernelComparison* comparison,
                   Report* report);

// Two threads against one where neither waits for DRAM.
void MeasureThreads(KernelComparison* comparison, Report* report);
// The time of one operation beside another's on the same bytes; one thread.
void MeasureOperations(KernelComparison* comparison, Report* report);
// A reciprocal square root beside a division, in L1.
void MeasureRoots(KernelComparison* comparison, Report* report);
// EXACT's elements that are hard to round, beside usual ones; one thread.
void MeasureHardElements(KernelComparison* comparison, Report* report);
// EXACT's elements of f64, beside a copy; one thread.
void MeasureWide(KernelComparison* comparison, Report* report);
// Exact sums beside plain ones, and what becomes of them.
void MeasureExactSums(const Flags& flags, Report* report);

// The bytes of x and y that those before it need.
inline constexpr int64_t kOperationBytes = 32 << 20;

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_KERNELS_KERNEL_COMPARISON_H_
