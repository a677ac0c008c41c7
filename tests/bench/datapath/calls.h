// Small calls of every form - unary, on a stream, to a session, in a batch - beside the echo of the same bytes and,
// where there is one, an earlier build of normd. All forms take the same road through the server: this shows what that
// is worth.
#ifndef NORMD_TESTS_BENCH_DATAPATH_CALLS_H_
#define NORMD_TESTS_BENCH_DATAPATH_CALLS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/bench/report.h"

namespace normd::bench {

struct CallsOptions {
  int rounds = 7;
  absl::Duration round = absl::Milliseconds(400);
  std::vector<int> in_flight = {1, 4, 16};
  std::string before;  // bench_datapath of the earlier build; empty: none
};

absl::Duration EstimateCalls(const CallsOptions& options);

absl::Status MeasureCalls(const CallsOptions& options, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_CALLS_H_
