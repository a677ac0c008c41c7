// What many large requests at one time take of the server's memory.
#ifndef NORMD_TESTS_BENCH_DATAPATH_MEMORY_H_
#define NORMD_TESTS_BENCH_DATAPATH_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tests/bench/report.h"

namespace normd::bench {

struct MemoryOptions {
  int requests = 64;  // all at one time, each on a thread
  int64_t payload = 16 << 20;
  std::vector<int> connections = {1, 8};
};

// Requests over TCP through normd::Client, which sends again what the server had no room for; a fresh server for each
// number of connections. All must be answered, and the server's resident memory must stay within 512 MiB.
absl::Status MeasureMemory(const MemoryOptions& options, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_MEMORY_H_
