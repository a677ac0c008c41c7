// What a request costs that comes after a silence.
#ifndef NORMD_TESTS_BENCH_DATAPATH_IDLE_H_
#define NORMD_TESTS_BENCH_DATAPATH_IDLE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/bench/report.h"

namespace normd::bench {

struct IdleOptions {
  int silences = 5;
  absl::Duration silence = absl::Seconds(5);
  int pauses = 4;  // before each silence
  absl::Duration pause = absl::Milliseconds(50);
  std::vector<std::string> transports = {"tcp", "unix"};
};

absl::Duration EstimateIdle(const IdleOptions& options);

// 4 KiB requests, one at a time: the median time of those after a silence against that of those after a pause.
absl::Status MeasureIdle(const IdleOptions& options, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_IDLE_H_
