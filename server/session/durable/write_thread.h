// The thread that writes the first rows of a transaction while the writer checks, applies and serialises more changes.
// In the path: between DurableStore's writer and the table that it writes. Why rows of one transaction and not a second
// transaction: callers that wait for their answers would fall into two halves that take turns, each with a flush of its
// own; and nothing is ever applied to a state that may still fail.
// Threads: the writer calls. From the first Add to Finish the table belongs to the thread, otherwise to the writer.
#ifndef NORMD_SERVER_SESSION_DURABLE_WRITE_THREAD_H_
#define NORMD_SERVER_SESSION_DURABLE_WRITE_THREAD_H_

#include <deque>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/session/session_table.h"

namespace normd {

class WriteThread {
 public:
  using Part = absl::Span<const RowChange>;
  using Result = absl::StatusOr<SessionTable::Versions>;

  // Borrows `table`.
  explicit WriteThread(SessionTable* table);
  // REQUIRES: no transaction is open.
  ~WriteThread();

  // Whether a transaction has begun and Finish was not called.
  bool open() const { return open_; }
  // Whether the thread has taken everything that was added, so that it will soon have nothing to do.
  bool wants_rows() const;
  // Adds rows to the transaction; the first ones begin it. Borrows them until Finish returns.
  void Add(Part part);
  // Adds the last rows, which may be none, and waits for the end of the transaction; returns what Write did.
  Result Finish(Part rest);

 private:
  void Run();
  Part NextPart();

  SessionTable* const table_;
  bool open_ = false;  // used by the writer alone

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Part> parts_ ABSL_GUARDED_BY(mu_);
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Result> result_
      ABSL_GUARDED_BY(mu_);  // set at the end of a transaction, which an error may bring early

  std::thread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_WRITE_THREAD_H_
