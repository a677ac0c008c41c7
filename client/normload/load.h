// One closed-loop measurement: every worker sends its next call when the last one is answered. A closed loop finds
// capacity; its latencies say nothing about a server that is offered more than it can do.
#ifndef NORMD_CLIENT_NORMLOAD_LOAD_H_
#define NORMD_CLIENT_NORMLOAD_LOAD_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/normload/histogram.h"

namespace normd::client {

enum class Transport { kUnary, kBatch, kStream };

struct LoadOptions {
  std::string server;
  v1::NormalizeRequest request;  // what every call sends, x included
  Transport transport = Transport::kUnary;
  int batch_items = 16;  // of a BatchNormalize call
  int concurrency = 1;   // calls in flight
  int connections = 1;   // clients; calls are spread over them
  absl::Duration warmup = absl::Seconds(1);
  absl::Duration duration = absl::Seconds(10);
  int64_t requests = 0;  // stop after so many calls, too; 0: no limit
  absl::Duration deadline = absl::Seconds(30);
};

struct LoadResult {
  Histogram latency;                      // of calls that succeeded
  std::map<std::string, int64_t> errors;  // failed calls (or items) by code
  std::string first_error;
  int64_t items = 0;                           // normalised tensors
  int64_t bytes_sent = 0, bytes_received = 0;  // tensor bytes of calls that succeeded
  absl::Duration elapsed;
  v1::Applied applied;  // of one reply
};

// Refused unless `target` is on this machine: "unix:...", 127.*, localhost, ::1.
bool IsLocal(const std::string& target);

// Connects, warms up, measures. An error when nothing could be measured: no server, or every call failed in warm-up.
absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_LOAD_H_
