// Races contestants on a workload: each in turn, in rounds, so that what else the machine does hits all of them.
#ifndef NORMD_TESTS_BENCH_KERNELS_RACE_H_
#define NORMD_TESTS_BENCH_KERNELS_RACE_H_

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "tests/bench/kernels/contestant.h"

namespace normd::bench {

inline constexpr double kDisturbed = 0.05;

struct RaceOptions {
  int rounds = 7;
  absl::Duration batch = absl::Milliseconds(6);  // at least one call, however long
  // A batch during which others had a core for more than kDisturbed of its time is repeated for so long in a race. Long
  // calls get no more rounds by it: they see others' average anyway.
  absl::Duration patience = absl::Seconds(1);
};

// Of one contestant in one race.
struct Time {
  bool took_part = false;
  double min_seconds = 0, median_seconds = 0;  // of a call
  double page_faults = 0;                      // a call, of the median batch
  bool disturbed = false;                      // fewer quiet batches than rounds: the quietest were taken

  // `bytes` a call; "-" if it took no part.
  std::string GbText(int64_t bytes) const;  // "43.1/44.0": median and best
};

// One each, in their order. The page faults of first calls do not count. Ends the program when results differ.
std::vector<Time> Race(const Workload& workload, const Buffers& buffers, int threads, const RaceOptions& options,
                       const std::vector<std::unique_ptr<Contestant>>& contestants);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_KERNELS_RACE_H_
