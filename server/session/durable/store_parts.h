// What the writer, the reader and the lister of one DurableStore share. Nothing else passes between their threads.
// In the path: DurableStore owns the parts and lends them to the three, which they outlive.
// Threads: the constants do not change, and each of the other members is safe from any thread, with a mutex of its own
// under which no other is locked.
#ifndef NORMD_SERVER_SESSION_DURABLE_STORE_PARTS_H_
#define NORMD_SERVER_SESSION_DURABLE_STORE_PARTS_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/session/durable/callback_threads.h"
#include "server/session/durable/durable_options.h"
#include "server/session/durable/file_check.h"
#include "server/session/durable/row_decoder.h"
#include "server/session/durable/session_cache.h"
#include "server/session/durable/store_totals.h"
#include "server/session/session_table.h"

namespace normd {

struct StoreParts {
  // Bytes of rows that one Load() of the table may bring; sessions beyond it wait for the next one.
  static constexpr int64_t kMaxLoadBytes = int64_t{64} << 20;

  // Takes tables->checker; `totals` are those of the table. Borrows `clock`, which must outlive the parts.
  StoreParts(DurableStoreOptions store_options, StoreTables* tables, Clock* store_clock, const TableTotals& counted);

  // Connects `table` if it has no connection. `*connection` is the number of the last one that its owner has seen. True
  // if the connection is a new one; memory was then emptied.
  absl::StatusOr<bool> Reconnect(SessionTable* table, int64_t* connection);
  // Runs `answer` on the callback thread of session `id`.
  void Post(std::string_view id, CallbackThreads::Answer answer);
  // Reports a transaction or a read that failed.
  void ReportError(const absl::Status& status) const;

  const DurableStoreOptions options;
  Clock* const clock;
  const bool shared_table;  // whether other servers may write the rows, too

  SessionCache cache;
  StoreTotals totals;
  RowDecoder decoder;
  CallbackThreads callbacks;
  FileCheck file;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_STORE_PARTS_H_
