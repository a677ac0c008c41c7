// What the bench of the data path measures. Each section takes from `flags` what of it was chosen, by name.
// Threads: one calls, which must outlive the servers that it starts.
#ifndef NORMD_TESTS_BENCH_DATAPATH_SECTIONS_H_
#define NORMD_TESTS_BENCH_DATAPATH_SECTIONS_H_

#include "absl/status/status.h"
#include "tests/bench/report.h"
#include "tests/bench/suite.h"

namespace normd::bench {

// Requests/s and server CPU of normd against the echo, with tensors in the messages; the generated services beside.
// Names: "inline tcp stream 4 KiB".
absl::Status MeasureInline(const Flags& flags, Report* report);

// Small calls of every form beside the echo of the same bytes and, where there is one, an earlier build of normd: all
// forms take the same road through the server. Names: "calls unary", "calls stream", "calls session", "calls batch".
absl::Status MeasureCalls(const Flags& flags, Report* report);

// 4 KiB requests, one at a time: the median time of those after a silence against that of those after a pause. Names:
// "idle tcp", "idle unix".
absl::Status MeasureIdle(const Flags& flags, Report* report);

// What many large requests at one time take of the server's memory. They go over TCP through normd::Client, which sends
// again what the server had no room for; all must be answered. Name: "memory".
absl::Status MeasureMemory(const Flags& flags, Report* report);

// What is left of the service when more is asked than it can do: the most that closed loops reach, then an open loop
// beyond it, of which what is answered OK must stay near the peak. Name: "overload".
absl::Status MeasureOverload(const Flags& flags, Report* report);

// Tensors in shared memory over a Unix socket, against the kernel in this process on the same buffers and the empty
// RPC. Names: "shared 16 MiB n=1".
absl::Status MeasureShared(const Flags& flags, Report* report);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_SECTIONS_H_
