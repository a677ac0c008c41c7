// What a DurableStore is given when it is opened: its limits, and what it reports.
// In the path: wiring fills this in from the options of the server; the parts of the store read it. Plain values.
#ifndef NORMD_SERVER_SESSION_DURABLE_DURABLE_OPTIONS_H_
#define NORMD_SERVER_SESSION_DURABLE_DURABLE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/session/session_store.h"

namespace normd {

// What a store reports as it happens. The functions run on the store's threads, which wait for them; null functions are
// not called.
struct StoreObserver {
  std::function<void(int64_t changes, absl::Duration duration)> on_group;  // one transaction, durable
  std::function<void(absl::Duration duration)> on_read;                    // one load of sessions, found or not
  // Part of SQLite's log was moved into the database file.
  std::function<void(absl::Duration duration)> on_checkpoint;
  std::function<void(int64_t sessions)> on_evicted;      // idle sessions that left memory
  std::function<void(const std::string& id)> on_loaded;  // a session that came back into memory
  std::function<void(const std::string& id, const absl::Status& damage)> on_damaged;
  // The file that holds the records is damaged. Called once at most.
  std::function<void(const absl::Status& damage)> on_file_damaged;
  std::function<void(const absl::Status& status)> on_error;  // a transaction or a read that failed
  std::function<void(std::string_view text)> on_warning;     // for operators
  std::function<void(std::string_view text)> on_message;     // messages of a database, for its operators
  // A flush failed, or another server has the store: it takes no more changes. Called once, with the reason; the server
  // drains and ends.
  std::function<void(std::string_view why)> on_failed;
};

struct DurableStoreOptions {
  Durability durability = Durability::kPower;
  SessionLimits limits;  // those of the start, as is `residency`
  ResidencyLimits residency;
  absl::Duration sweep_interval = absl::Seconds(10);  // between searches for idle and expired sessions
  int64_t max_queued = 16384;                         // changes; more get RESOURCE_EXHAUSTED
  int64_t max_queued_bytes = int64_t{256} << 20;      // of the changes' moments and parameters
  int64_t max_queued_reads = 16384;                   // more get RESOURCE_EXHAUSTED
  int callback_threads = 4;
  // A larger file is checked while the store serves, a smaller one before.
  int64_t max_bytes_checked_first = int64_t{256} << 20;
  std::shared_ptr<Clock> own_clock;  // keeps `clock` alive if nobody else does; see database_clock.h
  StoreObserver observer;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_DURABLE_OPTIONS_H_
