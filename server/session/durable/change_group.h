// What a durable store's writer does with the changes that it took from the queue: applies them in order to working
// copies, so that several changes of one session become one row, and says which rows to write.
// In the path: DurableStore's writer thread makes one group for each transaction. No I/O, no locks.
// Threads: thread-compatible; a group belongs to the writer.
#ifndef NORMD_SERVER_SESSION_DURABLE_CHANGE_GROUP_H_
#define NORMD_SERVER_SESSION_DURABLE_CHANGE_GROUP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/session/session_store.h"
#include "server/session/session_table.h"
#include "server/session/stored_session.h"

namespace normd {

struct ResetChange {
  std::optional<uint64_t> expected_version;
};
struct DeleteChange {
  std::optional<uint64_t> expected_version;
};
struct ExpireChange {};  // delete it if its ttl has ended

// One change of one session, from the queue to its answer.
// NOLINTNEXTLINE(bugprone-exception-escape): moving a deque may allocate; being out of memory ends the process.
struct Change {
  std::string id;
  // A StoredSession is a session to create; a StateUpdate a step.
  std::variant<StoredSession, SessionPatch, ResetChange, DeleteChange, ExpireChange, StateUpdate> what;
  // Called once, the one that the kind of change has; an ExpireChange has none.
  SessionStore::Done<SessionPtr> session_done;
  SessionStore::Done<CommitResult> commit_done;

  int attempts = 0;        // that came to nothing because another replica was first
  bool room_made = false;  // expired sessions were deleted because it found the store full

  // What the newest application came to.
  absl::Status status;
  SessionPtr session;
  CommitResult result;

  // Hands status, or else session or result, to its done.
  void Answer();
};

// A session while a group works on it.
struct WorkingSession {
  // The row it was read from; key 0: there was none.
  RowVersion row;
  bool cached = false;      // read from memory: in a shared table it may be old
  absl::Status damage;      // not OK: the row is there and cannot be read, or may have been lost
  bool columns_fit = true;  // not: they are written anew
  StoredSession stored;     // published null: there is no session
  int64_t bytes_before = 0;

  bool expired = false;  // its ttl had ended when the group took it: removed
  bool removed = false;  // the row's session is gone; `stored` may be another one
  bool head_changed = false;
  bool state_changed = false;

  // After writing: the row that it is now, or that somebody else was first.
  RowVersion new_row;
  bool conflict = false;

  bool Dirty() const { return removed || head_changed || state_changed; }
};

class ChangeGroup {
 public:
  // `totals` are those of the table before the group.
  ChangeGroup(const SessionLimits& limits, const TableTotals& totals, absl::Time now)
      : limits_(limits), totals_(totals), now_(now) {}

  // For so many changes.
  void Reserve(size_t changes) { sessions_.reserve(changes); }

  // REQUIRES for Apply: the change's session was added, even where there is none.
  void Add(const std::string& id, WorkingSession session);
  bool Has(const std::string& id) const { return sessions_.count(id) > 0; }
  WorkingSession& Find(const std::string& id) { return sessions_.at(id); }
  std::unordered_map<std::string, WorkingSession>& sessions() { return sessions_; }

  void Apply(Change* change);

  // Replaces `rows` by those that make the table equal to the working copies; the memory of their states is used again.
  // Once, when all is applied: step ids count as written.
  void Rows(std::vector<RowChange>* rows);

 private:
  absl::StatusOr<SessionPtr> ApplyTo(WorkingSession* session, StoredSession& created);
  absl::StatusOr<SessionPtr> ApplyTo(WorkingSession* session, SessionPatch& patch);
  absl::StatusOr<SessionPtr> ApplyTo(WorkingSession* session, ResetChange& reset);
  absl::StatusOr<SessionPtr> ApplyTo(WorkingSession* session, DeleteChange& remove);
  absl::StatusOr<SessionPtr> ApplyTo(WorkingSession* session, ExpireChange& expire);
  absl::Status Step(WorkingSession* session, const StateUpdate& update, CommitResult* result);
  void Remove(WorkingSession* session);

  const SessionLimits& limits_;
  TableTotals totals_;
  const absl::Time now_;
  std::unordered_map<std::string, WorkingSession> sessions_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_CHANGE_GROUP_H_
