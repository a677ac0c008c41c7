// Reads sessions for callers: from memory where that may answer, else from the table, as many at once as wait. What was
// loaded stays in memory, unless the writer has published the session meanwhile.
// In the path: DurableStore asks here for Get and Export; published sessions are in StoreParts::cache.
// Ownership: owns its table and its queue; borrows the parts.
// Threads: every method is safe from any thread. One thread of its own, which has the table; callers share the queue
// with it, under mu_, and nothing else is locked under that.
#ifndef NORMD_SERVER_SESSION_DURABLE_SESSION_READER_H_
#define NORMD_SERVER_SESSION_DURABLE_SESSION_READER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/base/steady_time.h"
#include "server/base/wait_stats.h"
#include "server/session/durable/store_parts.h"
#include "server/session/session_store.h"
#include "server/session/session_table.h"
#include "server/session/stored_session.h"

namespace normd {

class SessionReader {
 public:
  // `parts` must outlive the reader.
  SessionReader(std::unique_ptr<SessionTable> table, StoreParts* parts);
  ~SessionReader();
  // Makes the reads that wait and posts their answers, then ends the thread. Later reads are answered from memory or
  // never.
  void Stop();

  // As SessionStore says.
  void Get(std::string id, absl::Duration max_staleness, SessionStore::Cancelled cancelled,
           SessionStore::Done<SessionPtr> done);
  void Export(std::string id, SessionStore::Reserve reserve, SessionStore::Done<std::string> done);

  WaitStats waiting(absl::Time now) const;

 private:
  struct Read {
    std::string id;
    bool whole = false;  // with step ids, and always from the table
    SessionStore::Cancelled cancelled;
    SessionStore::Reserve reserve;  // of an export: asked for what making the record takes
    SessionStore::Done<StoredSession> done;
    absl::Time since = SteadyNow();
  };
  // A session that was read, or why it cannot be; nothing if its row must be read again.
  using Outcome = std::optional<absl::StatusOr<StoredSession>>;

  void Add(Read read);

  // ---- the reader's thread
  void Run();
  // Waits for reads. False: the reader must stop, and none is left.
  bool AwaitReads();
  // Takes the oldest reads, up to what one load takes; those whose callers have gone are answered.
  std::vector<Read> TakeReads();
  // Makes and answers `reads`; returns those that must be made again.
  std::vector<Read> TryReads(std::vector<Read> reads);
  std::vector<RowRequest> BeginLoads(const std::vector<Read>& reads);
  absl::StatusOr<std::vector<SessionRow>> LoadRows(const std::vector<RowRequest>& requests);
  // The outcome for `id`, whose row was read; null: there is none.
  Outcome FinishLoad(const std::string& id, const SessionRow* row);
  // Of a session that has no row: NOT_FOUND, or DATA_LOSS if it may be a lost one.
  absl::Status NoRowError(const std::string& id) const;
  void Answer(Read read, absl::StatusOr<StoredSession> result);

  StoreParts& parts_;

  // Used by the reader's thread alone.
  const std::unique_ptr<SessionTable> table_;
  int64_t connection_ = 0;  // the last number of Connect: a new one empties memory

  mutable Mutex mu_;
  CondVar ready_;
  std::deque<Read> queued_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_SESSION_READER_H_
