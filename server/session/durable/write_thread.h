// The thread that writes transactions while the writer checks, applies and serialises changes: the first rows of a
// large group while the writer makes its later ones, and the rest and the commit while the writer makes the next group.
// In the path: between SessionWriter and the table that it writes. Transactions are written one after another.
// Threads: the writer calls. While `busy`, the table belongs to the thread, otherwise to the writer.
#ifndef NORMD_SERVER_SESSION_DURABLE_WRITE_THREAD_H_
#define NORMD_SERVER_SESSION_DURABLE_WRITE_THREAD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/session/session_table.h"

namespace normd {

class WriteThread {
 public:
  using Part = absl::Span<const RowChange>;
  struct Result {
    absl::StatusOr<SessionTable::Versions> versions;
    bool table_failed = false;  // what the table's failed() said at the end
    absl::Time begun;
  };

  // Borrows `table`. Calls `on_end` on the thread whenever a transaction has ended.
  WriteThread(SessionTable* table, std::function<void()> on_end);
  // REQUIRES: not busy.
  ~WriteThread();

  // Whether the newest transaction has begun and was not closed.
  bool open() const { return open_; }
  // Whether a transaction has begun whose result was not taken.
  bool busy() const { return begun_ > taken_; }
  // Whether the thread has taken everything that was added, so that it will soon have nothing to do.
  bool wants_rows() const;
  // Adds rows to the newest transaction; the first ones begin it. It is written when those before it have ended.
  // Borrows the rows until its result was taken.
  void Add(Part part);
  // Adds the last rows, which may be none, if the transaction has rows already.
  void Close(Part rest);
  // Whether the oldest transaction has ended, so that Take does not wait.
  bool ended() const;
  // Waits for the end of the oldest transaction; returns its result. REQUIRES: it was closed.
  Result Take();

 private:
  struct Transaction {
    std::deque<Part> parts;
    bool closed = false;
    std::optional<Result> result;  // set at the end, which an error may bring early
  };

  void Run();
  Part NextPart(Transaction* transaction);

  SessionTable* const table_;
  const std::function<void()> on_end_;
  // Used by the writer alone; the numbers count transactions.
  bool open_ = false;
  int64_t begun_ = 0, taken_ = 0;

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Transaction> transactions_ ABSL_GUARDED_BY(mu_);  // those whose results were not taken, in order
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_WRITE_THREAD_H_
