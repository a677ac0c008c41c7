// Writes the rows of one group after another, each group in one transaction, on the thread that saves most: the rows of
// a small group on the writer's own; the first rows of a large one on another while the writer still applies the rest,
// and so the rows of a group that follows one which still commits.
// In the path: SessionWriter hands over the rows, WriteThread and the table take them.
// Ownership: owns the thread that writes; borrows the table and the totals.
// Threads: used by the writer's thread alone.
#ifndef NORMD_SERVER_SESSION_DURABLE_TRANSACTION_WRITER_H_
#define NORMD_SERVER_SESSION_DURABLE_TRANSACTION_WRITER_H_

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/session/durable/change_group.h"
#include "server/session/durable/store_totals.h"
#include "server/session/durable/write_thread.h"
#include "server/session/session_table.h"

namespace normd {

// One transaction: its changes, the working copies that they were applied to, and its rows.
struct Transaction {
  Transaction(const SessionLimits& limits, ChangeGroup::TotalsBefore totals_before, absl::Time now)
      : group(limits, std::move(totals_before), now) {}

  std::vector<Change> changes;
  ChangeGroup group;
  RowParts parts;
};

class TransactionWriter {
 public:
  using Result = WriteThread::Result;

  // The fewest rows that are written early, and the fewest changes that must still wait: waking a thread for fewer
  // takes longer than they do.
  static constexpr size_t kMinEarlyRows = 4;

  // Calls `on_end` on another thread whenever a transaction has ended there.
  TransactionWriter(SessionTable* table, StoreTotals* totals, std::function<void()> on_end);

  // Whether the other thread has the table.
  bool busy() const { return thread_.busy(); }
  // Whether the oldest transaction of the other thread has ended, so that Take does not wait.
  bool ended() const { return thread_.ended(); }
  // Whether several steps usually share a row: the newest large group had at least five changes for four rows.
  bool steps_share_rows() const { return steps_share_rows_; }

  // Has the first rows written while `left` more changes wait to be applied, where that is worth it.
  void WriteEarly(size_t left, Transaction* transaction);
  // Has the rows that can be written early written now, if they are worth a thread.
  void AddEarlyRows(Transaction* transaction);
  // Writes what is left. Returns the result if the transaction was written on this thread or has no rows; nothing if
  // the other thread writes it, and Take will return its result. REQUIRES: all changes were applied.
  std::optional<Result> WriteRest(Transaction* transaction);
  // Waits for the end of the oldest transaction of the other thread; returns its result.
  Result Take() { return thread_.Take(); }
  // Learns from a transaction that has succeeded with `changes` changes and `rows` rows, and reuses the memory of its
  // parts.
  void Reuse(size_t changes, size_t rows, Transaction* transaction);

 private:
  // Adds a list of rows to the transaction.
  std::vector<RowChange>* NewPart(Transaction* transaction);

  SessionTable& table_;
  StoreTotals& totals_;
  const bool shared_table_;
  bool steps_share_rows_ = false;
  RowParts used_parts_;  // of earlier transactions, whose memory the next ones reuse
  WriteThread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_TRANSACTION_WRITER_H_
