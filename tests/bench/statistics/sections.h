// What the bench of shared statistics measures: sessions that count samples, at power level, with many contributors or
// many watchers. The server is a process of its own. Threads: one calls, which must outlive the servers that it starts.
#ifndef NORMD_TESTS_BENCH_STATISTICS_SECTIONS_H_
#define NORMD_TESTS_BENCH_STATISTICS_SECTIONS_H_

#include "absl/status/status.h"
#include "tests/bench/report.h"
#include "tests/bench/suite.h"

namespace normd::bench {

// A thousand contributors to one session of 376 channels, each flush with its StepId and answered with the state: at a
// flush a second each, and as fast as 64 at a time are answered. Names: "contributors 1/s", "contributors 64".
absl::Status MeasureContributors(const Flags& flags, Report* report);

// Ten thousand watchers of one session that moves ten times a second, on few connections and on one each. Names:
// "watchers 8 a connection C=8".
absl::Status MeasureWatchers(const Flags& flags, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STATISTICS_SECTIONS_H_
