// Makes sessions of a table's rows, counts and reports the damaged ones, and remembers rows that must be repaired.
// In the path: the writer, the reader and the lister decode every row that they have read.
// Threads: safe from any thread; one mutex, and nothing else is locked under it. No I/O.
#ifndef NORMD_SERVER_SESSION_DURABLE_ROW_DECODER_H_
#define NORMD_SERVER_SESSION_DURABLE_ROW_DECODER_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/session/session_table.h"
#include "server/session/stored_session.h"

namespace normd {

class RowDecoder {
 public:
  using OnDamaged = std::function<void(const std::string& id, const absl::Status& damage)>;

  // Calls `on_damaged`, unless it is null, for every row that is damaged.
  explicit RowDecoder(OnDamaged on_damaged) : on_damaged_(std::move(on_damaged)) {}

  // The session of a row that was read as a whole. DATA_LOSS if the row is damaged, which is counted and reported.
  absl::StatusOr<StoredSession> Decode(const SessionRow& row);
  // The session of a row of SessionTable::Page, without parameters and statistics; null if the row must be read as a
  // whole, because an older server has written it. Errors as for Decode.
  absl::StatusOr<SessionPtr> DecodeSummary(const SessionRow& row);

  // Whether the columns beside the record match it. If not, counts and reports the damage. The record is sealed and
  // decides; lists, which search by the columns, may miss the session until the columns are written anew.
  bool ColumnsFit(const SessionRow& row, const Session& session);
  // Remembers a session whose columns do not fit, for TakeMisfits. Too many are forgotten, and found again when they
  // are read again.
  void RepairLater(const std::string& id);
  // The sessions to repair, which are then forgotten.
  std::set<std::string> TakeMisfits();

  // Damaged rows, counted each time that they were decoded.
  int64_t damaged() const;

 private:
  // Counts and reports an error of a record as damage; INVALID_ARGUMENT becomes DATA_LOSS. OK stays OK.
  absl::Status ReportDamage(const std::string& id, absl::Status status);

  // Constant after construction.
  const OnDamaged on_damaged_;

  mutable Mutex mu_;
  int64_t damaged_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<std::string> misfits_ ABSL_GUARDED_BY(mu_);  // sessions whose columns do not fit their records
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_ROW_DECODER_H_
