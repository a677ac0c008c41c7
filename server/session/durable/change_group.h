// Applies the changes that a durable store's writer took from the queue to working copies, in order, so that several
// changes of one session become one row, and says which rows to write. Of the rules of a step this file holds how the
// steps of one transaction become rows; stored_session.h lists the other rules.
// In the path: SessionWriter makes one group for each transaction. No I/O, no locks.
// Threads: thread-compatible; a group belongs to the writer.
#ifndef NORMD_SERVER_SESSION_DURABLE_CHANGE_GROUP_H_
#define NORMD_SERVER_SESSION_DURABLE_CHANGE_GROUP_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/steady_time.h"
#include "server/session/session_changes.h"
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
struct ExpireChange {};  // deletes the session if its ttl has ended

// The rows of one transaction, in the order in which they are written.
using RowParts = std::vector<std::vector<RowChange>>;

// One change of one session, from the queue to its callback.
// NOLINTNEXTLINE(bugprone-exception-escape): moving a deque may allocate; being out of memory ends the process.
struct Change {
  std::string id;
  // The operation. A StoredSession is a session to create, a StateUpdate is a step.
  std::variant<StoredSession, SessionPatch, ResetChange, DeleteChange, ExpireChange, StateUpdate> what;
  // The callback is called once. A step has commit_done, an ExpireChange has none, the others have session_done.
  SessionStore::Done<SessionPtr> session_done;
  SessionStore::Done<CommitResult> commit_done;

  absl::Time since = SteadyNow();
  int attempts = 0;        // attempts that failed because another replica wrote first
  bool room_made = false;  // expired sessions were deleted after the change had found the store full

  // Result of the last Apply().
  absl::Status status;
  SessionPtr session;
  CommitResult result;

  bool IsStep() const { return std::holds_alternative<StateUpdate>(what); }
  // Whether the limits have refused this creation without anybody having looked for expired sessions yet.
  bool WantsRoom() const;
  // Whether nobody waits for this step any more.
  bool Cancelled() const;

  // Passes `status` or, if it is OK, `session` or `result` to the callback.
  void Answer();
};

// A session while a group works on it.
struct WorkingSession {
  // The row that the session was read from; key 0: there was no row.
  RowVersion row;
  bool cached = false;      // taken from memory: in a shared table the row may be newer
  absl::Status damage;      // not OK: the row exists but cannot be read, or may have been lost
  bool columns_fit = true;  // false: the columns beside the record do not match it and must be written anew
  StoredSession stored;     // published null: there is no session
  int64_t bytes_before = 0;

  bool expired = false;  // its ttl had ended when the group took it, so it was removed
  bool removed = false;  // the session of `row` is gone; `stored` may be another one
  bool head_changed = false;
  bool state_changed = false;
  bool early_row = false;  // EarlyRows has had its row, which has `row` as its version when the transaction ends

  // Set after writing: the row's new version, or that somebody else wrote first.
  RowVersion new_row;
  bool conflict = false;

  bool Dirty() const { return removed || head_changed || state_changed || early_row; }
  // What the session adds to the totals by having been written. Nothing if it has only stepped.
  SessionTotals Growth() const;
  // Whether nothing but the state of the row has changed since the row was read.
  bool OnlyStateChanged() const { return state_changed && row.key != 0 && !removed && !head_changed && columns_fit; }
};

class ChangeGroup {
 public:
  // The totals of the table before the group, in all and of the tenant whose name is given; asked for the tenants
  // whose sessions the group creates, changes or deletes.
  using TotalsBefore = std::function<Totals(std::string_view tenant)>;

  ChangeGroup(const SessionLimits& limits, TotalsBefore totals_before, absl::Time now)
      : limits_(limits), totals_before_(std::move(totals_before)), now_(now) {}

  // Makes room for the sessions of this many changes.
  void Reserve(size_t changes) { sessions_.reserve(changes); }

  // Adds the session that `id` names, even if there is none. Removes it if its ttl has ended.
  void Add(const std::string& id, WorkingSession session);
  bool Has(const std::string& id) const { return sessions_.count(id) > 0; }
  WorkingSession& Find(const std::string& id) { return sessions_.at(id); }
  std::unordered_map<std::string, WorkingSession>& sessions() { return sessions_; }

  // Applies one change and sets its status, session and result. REQUIRES: the session was added.
  void Apply(Change* change);

  // The number of rows that EarlyRows would return.
  size_t early_row_count() const { return stepped_.size(); }
  // Replaces `rows` by those of sessions that have only stepped, and reuses the memory of their states. The rows are
  // written in the group's transaction before everything that is returned later. A session's row comes early once; if
  // the session changes again, Rows has it.
  void EarlyRows(std::vector<RowChange>* rows);
  // The same for everything that is left: these rows make the table equal to the working copies. REQUIRES: called once,
  // after all changes were applied, because step ids count as written afterwards.
  void Rows(std::vector<RowChange>* rows);
  // Takes in what became of the rows, `versions` of all of `parts`: sets new_row or conflict of their sessions.
  void SetVersions(const RowParts& parts, const SessionTable::Versions& versions);

 private:
  using Entry = std::pair<const std::string, WorkingSession>;

  absl::StatusOr<SessionPtr> ApplyTo(WorkingSession* session, StoredSession& created);
  absl::StatusOr<SessionPtr> ApplyTo(WorkingSession* session, SessionPatch& patch);
  absl::StatusOr<SessionPtr> ApplyTo(WorkingSession* session, ResetChange& reset);
  absl::StatusOr<SessionPtr> ApplyTo(WorkingSession* session, DeleteChange& remove);
  absl::StatusOr<SessionPtr> ApplyTo(WorkingSession* session, ExpireChange& expire);
  absl::Status Step(WorkingSession* session, const StateUpdate& update, CommitResult* result);
  void Remove(WorkingSession* session);
  // The totals that a change of the session `id` is judged by, the group's earlier changes included.
  Totals TotalsFor(std::string_view id) const;
  void Grow(std::string_view id, const SessionTotals& growth);

  const SessionLimits limits_;
  const TotalsBefore totals_before_;
  SessionTotals growth_;  // by the group, in all and of each tenant
  TotalsByTenant growth_by_tenant_;
  const absl::Time now_;
  std::unordered_map<std::string, WorkingSession> sessions_;
  std::vector<Entry*> stepped_;  // entries of sessions_ for EarlyRows, unless they change in another way, too
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_CHANGE_GROUP_H_
