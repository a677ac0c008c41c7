// An open loop: requests are sent at the times that a rate gives, whether or not those before them were answered.
// Threads: runs on its caller's thread.
#ifndef NORMD_TESTS_BENCH_DATAPATH_OPEN_LOOP_H_
#define NORMD_TESTS_BENCH_DATAPATH_OPEN_LOOP_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/bench/datapath/driver.h"

namespace normd::bench {

struct OpenLoopOptions {
  double per_second = 0;
  absl::Duration duration;
  // So many at most are under way. What is due then is sent late; what is not sent by the end is not sent at all.
  int max_in_flight = 256;
};

struct OpenLoopResult {
  int64_t due = 0, sent = 0;
  int64_t answered = 0;          // OK within `duration`
  int64_t refused = 0;           // RESOURCE_EXHAUSTED
  std::vector<double> millis;    // of those answered OK, from sending
  std::vector<double> from_due;  // the same, from the time that they were to be sent
};

// Unary calls. An error other than RESOURCE_EXHAUSTED ends the loop, as does a silence of 10 seconds.
absl::StatusOr<OpenLoopResult> RunOpenLoop(const Target& target, const OpenLoopOptions& options);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_OPEN_LOOP_H_
