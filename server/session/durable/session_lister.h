// Lists sessions for callers, a page at a time. The values that a list shows stand at the beginning of a record;
// parameters and statistics are read only if the query wants them, and then few bytes at a time. While no list waits,
// the totals of a table that other servers write, too, are counted anew.
// In the path: DurableStore asks here for List. A list reads the table and nothing that is in memory.
// Ownership: owns its table and its queue; borrows the parts.
// Threads: every method is safe from any thread. One thread of its own, which has the table, so that nothing else waits
// for a long list; callers share the queue with it, under mu_, and nothing else is locked under that.
#ifndef NORMD_SERVER_SESSION_DURABLE_SESSION_LISTER_H_
#define NORMD_SERVER_SESSION_DURABLE_SESSION_LISTER_H_

#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/base/steady_time.h"
#include "server/base/wait_stats.h"
#include "server/session/durable/store_parts.h"
#include "server/session/session_store.h"
#include "server/session/session_table.h"

namespace normd {

class SessionLister {
 public:
  // `parts` must outlive the lister.
  SessionLister(std::unique_ptr<SessionTable> table, StoreParts* parts);
  ~SessionLister();
  // Makes the lists that wait and posts their answers, then ends the thread. Later lists are never answered.
  void Stop();

  // As SessionStore says.
  void List(ListQuery query, SessionStore::Done<ListPage> done);

  WaitStats waiting(absl::Time now) const;

 private:
  struct QueuedList {
    ListQuery query;
    SessionStore::Done<ListPage> done;
    absl::Time since = SteadyNow();
  };

  // ---- the lister's thread
  void Run();
  // Waits for the next list; nothing: stop. Counts the totals of a shared table meanwhile.
  std::optional<QueuedList> TakeList();
  void CountTotals();
  absl::StatusOr<ListPage> ReadPage(ListQuery query);
  // The session without parameters and statistics; null if it is gone.
  absl::StatusOr<SessionPtr> ReadSummary(const SessionRow& row);
  // Adds the sessions of `rows` with parameters and statistics to `page`, up to query.max_bytes.
  absl::Status AddWhole(const ListQuery& query, absl::Span<const SessionRow> rows, ListPage* page);

  StoreParts& parts_;
  const std::unique_ptr<SessionTable> table_;  // used by the lister's thread alone

  mutable Mutex mu_;
  CondVar ready_;
  std::deque<QueuedList> queued_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_SESSION_LISTER_H_
