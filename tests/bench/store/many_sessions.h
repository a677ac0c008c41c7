// What very many sessions cost: time to create them, bytes in the file and in memory, time to open the store again.
#ifndef NORMD_TESTS_BENCH_STORE_MANY_SESSIONS_H_
#define NORMD_TESTS_BENCH_STORE_MANY_SESSIONS_H_

#include <cstdint>
#include <string>

#include "tests/bench/report.h"

namespace normd::bench {

struct ManySessionsOptions {
  int64_t sessions = 1'000'000;
  std::string folder;
};

// Sessions of C = 64 in SQLite, once all of them in memory and once at most 64 MiB of them. Each in a process of its
// own, so that neither finds memory that the other has left. REQUIRES: this process has one thread.
void MeasureManySessions(const ManySessionsOptions& options, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STORE_MANY_SESSIONS_H_
