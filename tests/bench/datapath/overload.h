// What is left of the service when more is asked than it can do.
#ifndef NORMD_TESTS_BENCH_DATAPATH_OVERLOAD_H_
#define NORMD_TESTS_BENCH_DATAPATH_OVERLOAD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/bench/report.h"

namespace normd::bench {

struct OverloadOptions {
  int64_t payload = 64 << 10;
  // Several, each with as many streams as a server lets a connection have: what waits, waits in the server.
  int connections = 16;
  int in_flight = 256;
  absl::Duration closed = absl::Seconds(1);
  absl::Duration open = absl::Seconds(2);
  double excess = 1.5;  // what the open loop asks, as a share of the peak
};

// Unary requests over TCP: the most that closed loops reach, then an open loop beyond it. What is answered OK must stay
// near the peak.
absl::Status MeasureOverload(const OverloadOptions& options, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_OVERLOAD_H_
