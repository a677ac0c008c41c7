// One measurement: sends a mix of calls for some time, from a bounded number of workers with one call in flight each.
// Closed loop: a worker sends its next call when its last one is answered. A closed loop finds capacity; its latencies
// say nothing about a server that is offered more than it can do.
// Open loop: calls are due at times that do not depend on the server. Latency counts from the time when a call was due,
// so that waiting for a free worker is part of the latency (no coordinated omission). Calls that were never sent are
// counted.
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
  SecurityOptions security;       // with which the server is called
  bool balance = false;           // over the addresses of `server`, by their health
  bool retry = false;             // failed calls are sent again as the library does; otherwise they count at once
  std::vector<MixEntry> entries;  // at least one
  std::optional<double> rate;     // calls a second of an open loop; absent: closed loop
  ArrivalKind arrivals = ArrivalKind::kPoisson;
  uint64_t seed = 20240607;  // for arrivals and for the mix
  int concurrency = 1;       // the most calls in flight
  int connections = 0;       // clients; workers are spread over them. 0: not chosen yet (SetConnections), one
  int max_streams = 8;       // calls that the server takes on one connection at a time; further ones wait in the client
  absl::Duration warmup = absl::Seconds(1);
  absl::Duration duration = absl::Seconds(10);
  // Also stop after this number of calls, not counting the warm-up; 0: no limit.
  int64_t requests = 0;
  absl::Duration deadline = absl::Seconds(30);
  // An answer within this time is a good one.
  absl::Duration slo = absl::Milliseconds(10);
};

// The results of the calls of one entry.
struct EntryResult {
  Histogram latency;                      // of successful calls
  int64_t good = 0;                       // successful calls within the SLO
  std::map<std::string, int64_t> errors;  // number of failed calls by code
  std::string first_error;
  int64_t items = 0;                           // normalised tensors
  int64_t rows = 0;                            // of the normalised tensors
  int64_t bytes_sent = 0, bytes_received = 0;  // tensor bytes of successful calls
  std::string kernel;                          // as one reply named it

  void Merge(const EntryResult& other);
  int64_t failed() const;
};

struct LoadResult {
  std::vector<EntryResult> entries;
  absl::Duration elapsed;
  // Open loop only:
  // From the time when a call was due to the time when it was sent, for every call that was sent.
  Histogram lateness;
  int64_t waited = 0;  // calls that were due before a worker was free
  int64_t unsent = 0;  // calls that were due but not sent by the end
  // Calls in flight when a signal ended the measurement, and not answered soon after: neither answered nor failed.
  int64_t cut_off = 0;
  bool interrupted = false;  // a signal ended the measurement
};

// A connected server and the messages for it, for any number of measurements. Thread-safe, because nothing changes.
class LoadTarget {
 public:
  // Makes the messages and the connections, and sends each entry once, so that no connection is made during a
  // measurement and mistakes are reported at once. An error if any of these calls fails.
  static absl::StatusOr<std::unique_ptr<LoadTarget>> Connect(const LoadOptions& options);

  absl::Span<const PreparedCall> calls() const { return calls_; }
  Client& client(int worker) const { return *clients_[static_cast<size_t>(worker) % clients_.size()]; }
  // The client id of training steps, different for each worker of this process.
  std::string step_client(int worker) const;

 private:
  std::vector<PreparedCall> calls_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::string step_prefix_;
};

// Warms up, then measures. Ends within warm-up, duration, deadline and about two seconds, whatever the server does, and
// within about two seconds of a signal that an InterruptGuard catches: the result is then of the time until it.
LoadResult RunLoad(const LoadOptions& options, const LoadTarget& target);

}  // namespace normd::client

#endif  // NORMD_CLIENT_NORMLOAD_LOAD_H_
