// How many sessions a durable store has, and how many bytes they count, in all and of each tenant. Counted once, when
// the store is opened, and then kept up with every transaction; a table that other servers write, too, is counted anew
// from time to time.
// In the path: the writer judges creations by these totals and keeps them up; the lister brings new counts.
// Threads: safe from any thread; one mutex, and nothing else is locked under it.
#ifndef NORMD_SERVER_SESSION_DURABLE_STORE_TOTALS_H_
#define NORMD_SERVER_SESSION_DURABLE_STORE_TOTALS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/session/session_changes.h"
#include "server/session/session_store.h"
#include "server/session/session_table.h"

namespace normd {

class StoreTotals {
 public:
  // What one session adds to the totals of its tenant; may be negative.
  struct Growth {
    std::string tenant;
    SessionTotals more;
  };

  explicit StoreTotals(const TableTotals& counted);

  SessionTotals all() const;
  TotalsByTenant by_tenant() const;
  // Those of all sessions and of the sessions of `tenant`, at one moment.
  Totals For(std::string_view tenant) const;

  // ---- the writer: around each transaction

  // REQUIRES: before the first row is written.
  void BeginWrite();
  // The transaction has ended and its effect is known. A failed one has no growth.
  void EndWrite(absl::Span<const Growth> growth);

  // ---- the lister: around each count of the table

  // The number of this count, for EndCount. Nothing while a transaction is being written: nobody would know whether
  // the count includes it.
  std::optional<int64_t> BeginCount() const;
  // Replaces the totals by those of the count, unless a transaction has begun since BeginCount. That is no loss: the
  // next count will do.
  void EndCount(int64_t count, const TableTotals& counted);

 private:
  void Replace(const TableTotals& counted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  SessionTotals all_ ABSL_GUARDED_BY(mu_);
  TotalsByTenant tenants_ ABSL_GUARDED_BY(mu_);  // add up to all_
  // Transactions begun, and those whose effect the totals include.
  int64_t writes_begun_ ABSL_GUARDED_BY(mu_) = 0, writes_ended_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_STORE_TOTALS_H_
