// Requests/s and server CPU of normd against the echo, tensors inline in the messages; the generated services beside.
#ifndef NORMD_TESTS_BENCH_DATAPATH_INLINE_H_
#define NORMD_TESTS_BENCH_DATAPATH_INLINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/bench/report.h"

namespace normd::bench {

struct InlineOptions {
  int rounds = 7;
  absl::Duration round = absl::Milliseconds(400);  // of echo and normd; of the others half or a quarter of it
  absl::Duration warm_up = absl::Milliseconds(100);
  std::vector<std::string> transports = {"tcp", "unix"};
  std::vector<std::string> modes = {"unary", "stream"};
  std::vector<int64_t> payloads = {4 << 10, 64 << 10, 1 << 20, 16 << 20};
  std::vector<int> in_flight = {1, 4, 16};
  std::vector<std::string> kinds = {"echo", "normd", "bytes", "bytes_stock", "bytes_sync", "floats"};
};

// The rounds and warm-ups alone.
absl::Duration EstimateInline(const InlineOptions& options);

// Floors are checked when echo and normd are both among the kinds.
absl::Status MeasureInline(const InlineOptions& options, Report* report);

// "4 KiB", "16 MiB"
std::string BytesText(int64_t bytes);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_INLINE_H_
