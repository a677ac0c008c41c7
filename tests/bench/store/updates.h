// Updates/s of the stores against bare loops, and what a commit waits for.
#ifndef NORMD_TESTS_BENCH_STORE_UPDATES_H_
#define NORMD_TESTS_BENCH_STORE_UPDATES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/bench/report.h"

namespace normd::bench {

struct UpdateOptions {
  int rounds = 5;
  absl::Duration round = absl::Seconds(1);
  absl::Duration warm_up = absl::Milliseconds(300);
  int64_t sessions = 1000;
  std::vector<int64_t> channels = {256, 2048};
  std::string only;          // a regular expression: rows whose names have it
  std::string folder;        // for files
  std::string postgres_url;  // empty: none
};

void MeasureUpdates(const UpdateOptions& options, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STORE_UPDATES_H_
