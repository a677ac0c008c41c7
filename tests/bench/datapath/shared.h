// Tensors in shared memory, against the kernel in this process on the same buffers and the empty RPC.
#ifndef NORMD_TESTS_BENCH_DATAPATH_SHARED_H_
#define NORMD_TESTS_BENCH_DATAPATH_SHARED_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/bench/report.h"

namespace normd::bench {

struct SharedOptions {
  int rounds = 7;  // of kernel, normd and the empty RPC in turn
  absl::Duration round = absl::Milliseconds(150);
};

// The rounds alone.
absl::Duration EstimateShared(const SharedOptions& options);

// Over a Unix socket, prebuilt requests, x and y in shared memory, a pair for each call in flight. Floors: 16 MiB, one
// at a time, makes 0.85 of the kernel alone; 1 MiB takes at most the kernel and 1.3 empty RPCs, and 4 in flight make
// 0.85 of what the kernel makes in as many threads as there are cores; 4 KiB makes 0.85 of the empty RPC.
absl::Status MeasureShared(const SharedOptions& options, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_SHARED_H_
