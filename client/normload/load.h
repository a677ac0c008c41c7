// One measurement: a mix of calls for a time, from a bounded number of workers that each have one call in flight.
// Closed loop: a worker sends its next call when the last one is answered. It finds capacity; its latencies say nothing
// about a server that is offered more than it can do. Open loop: calls are due at times that do not depend on the
// server, and latency counts from when a call was due, so that a call that had to wait for its turn says so (no
// coordinated omission); calls that were never sent are counted.
#ifndef NORMD_CLIENT_NORMLOAD_LOAD_H_
#define NORMD_CLIENT_NORMLOAD_LOAD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/normload/arrivals.h"
#include "client/normload/calls.h"
#include "client/normload/histogram.h"
#include "client/normload/mix.h"

namespace normd::client {

struct LoadOptions {
  std::string server;
  std::vector<MixEntry> entries;  // at least one
  std::optional<double> rate;     // calls a second of an open loop; absent: closed
  ArrivalKind arrivals = ArrivalKind::kPoisson;
  uint64_t seed = 20240607;  // of arrivals and of the mix
  int concurrency = 1;       // most calls in flight
  int connections = 1;       // clients; workers are spread over them
  absl::Duration warmup = absl::Seconds(1);
  absl::Duration duration = absl::Seconds(10);
  int64_t requests = 0;  // stop after so many calls, too, those of the warm-up not counted; 0: no limit
  absl::Duration deadline = absl::Seconds(30);
  absl::Duration slo = absl::Milliseconds(10);  // an answer within it is a good one
};

// What became of the calls of one entry.
struct EntryResult {
  Histogram latency;                      // of calls that succeeded
  int64_t good = 0;                       // of those, within the SLO
  std::map<std::string, int64_t> errors;  // failed calls by code
  std::string first_error;
  int64_t items = 0;                           // normalised tensors
  int64_t rows = 0;                            // of them
  int64_t bytes_sent = 0, bytes_received = 0;  // tensor bytes of calls that succeeded
  std::string kernel;                          // of one reply

  void Merge(const EntryResult& other);
  int64_t failed() const;
};

struct LoadResult {
  std::vector<EntryResult> entries;
  absl::Duration elapsed;
  // Open loop only:
  Histogram lateness;  // of every call that was sent: when it was due to when it was sent
  int64_t waited = 0;  // calls that were due before a worker was free
  int64_t unsent = 0;  // calls that were due and not sent when the time was over
};

// Refused unless `target` is on this machine: "unix:...", 127.*, localhost, ::1.
bool IsLocal(const std::string& target);

// A server that is connected to, and what is sent to it; for any number of measurements. Thread-safe: nothing changes.
class LoadTarget {
 public:
  // Makes the messages and the connections, and one call of each entry: no connection is made while time is taken, and
  // mistakes are told at once. An error when any of these calls fails.
  static absl::StatusOr<std::unique_ptr<LoadTarget>> Connect(const LoadOptions& options);

  absl::Span<const PreparedCall> calls() const { return calls_; }
  Client& client(int worker) const { return *clients_[static_cast<size_t>(worker) % clients_.size()]; }
  // Of training steps: one name for each worker of this process.
  std::string step_client(int worker) const;

 private:
  std::vector<PreparedCall> calls_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::string step_prefix_;
};

// Warms up, then measures. Ends within warm-up, duration, deadline and about two seconds, whatever the server does.
LoadResult RunLoad(const LoadOptions& options, const LoadTarget& target);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_LOAD_H_
