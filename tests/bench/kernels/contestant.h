// Somebody who can do a workload: normd at one precision, a copy, oneDNN, PyTorch. All work on the same Buffers.
// Threads: each is used by one thread at a time and may have threads of its own.
#ifndef NORMD_TESTS_BENCH_KERNELS_CONTESTANT_H_
#define NORMD_TESTS_BENCH_KERNELS_CONTESTANT_H_

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "tests/bench/kernels/buffers.h"
#include "tests/bench/kernels/workload.h"
#include "tests/bench/machine.h"

namespace normd::bench {

// Of a batch of calls.
struct Batch {
  double seconds = 0;      // of one call, on average
  double page_faults = 0;  // of all calls, in the process that did them
  double stolen = 0;       // share of the time that threads of that process waited for a core that others had
};

class Contestant {
 public:
  virtual ~Contestant() = default;

  // "oneDNN"
  virtual std::string_view name() const = 0;
  // Makes ready to do `workload` on `threads` threads; false: does not have it. Both must live until the next Prepare.
  virtual bool Prepare(const Workload& workload, const Buffers& buffers, int threads) = 0;
  // REQUIRES: Prepare was true, iterations >= 1.
  virtual Batch Run(int64_t iterations) = 0;
  // Whether y is the result after Prepare and Run, which is then compared with those of others.
  virtual bool WritesResult() const { return false; }
  // Whether its threads spin for a while after Run, which others should not pay for.
  virtual bool Spins() const { return false; }
};

// Of this process so far.
int64_t PageFaults();

// How long threads of process `pid` were ready to run and had no core, so far.
double WaitedForCoreSeconds(int pid);

// Times `iterations` calls in this process, page faults counted.
template <typename Call>
Batch TimeCalls(int64_t iterations, Call call) {
  const int pid = getpid();
  const double waited = WaitedForCoreSeconds(pid);
  const int64_t faults = PageFaults();
  const absl::Time begin = SteadyNow();
  for (int64_t i = 0; i < iterations; ++i) call();
  const absl::Time end = SteadyNow();
  const double seconds = absl::ToDoubleSeconds(end - begin);
  return {.seconds = seconds / static_cast<double>(iterations),
          .page_faults = static_cast<double>(PageFaults() - faults),
          .stolen = (WaitedForCoreSeconds(pid) - waited) / seconds};
}

// Submits one job to a CPU backend, as the engine would, and waits.
std::unique_ptr<Contestant> MakeNormd(Precision precision);
// Copies x to y with vector stores, or with stores that go past the caches.
std::unique_ptr<Contestant> MakeCopy(bool non_temporal);
// Null where this was built without oneDNN.
std::unique_ptr<Contestant> MakeOneDnn();
// "oneDNN 2.6.3, ..." or why there is none.
std::string OneDnnText();

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_KERNELS_CONTESTANT_H_
