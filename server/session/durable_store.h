// Sessions that outlive the process: one group-commit writer over a SessionTable, and a cache of what is in use.
// In the path: the engine's SessionStore. The writer takes everything that is queued, applies it in order, writes each
// touched session as one row, all in one transaction, publishes, then answers. Readers see what is published and
// nothing else, so nothing that could still be lost. Threads: every method is safe from any thread. Three threads of
// its own: the writer, a reader for what is not in memory, and one that runs the callbacks, so that the next group need
// not wait for them.
#ifndef NORMD_SERVER_SESSION_DURABLE_STORE_H_
#define NORMD_SERVER_SESSION_DURABLE_STORE_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/session/change_group.h"
#include "server/session/resident_sessions.h"
#include "server/session/session_store.h"
#include "server/session/session_table.h"

namespace normd {

// What a store tells as it happens. Called on its threads, which wait; null: not told.
struct StoreObserver {
  std::function<void(int64_t changes, absl::Duration duration)> on_group;  // one transaction, durable
  std::function<void(int64_t sessions)> on_evicted;                        // idle sessions that left memory
  std::function<void(const std::string& id)> on_loaded;                    // a session that came back into memory
  std::function<void(const std::string& id, const absl::Status& damage)> on_damaged;
  std::function<void(const absl::Status& status)> on_error;  // a transaction or a read that failed
  std::function<void(std::string_view text)> on_message;     // what a database says, for its operator
  // A flush failed: the store takes no more changes. Called once; the server drains and ends.
  std::function<void()> on_failed;
};

struct DurableStoreOptions {
  Durability durability = Durability::kPower;
  SessionLimits limits;
  int64_t max_resident_bytes = int64_t{1} << 30;
  absl::Duration idle_timeout = absl::Minutes(10);    // not used for this long: leaves memory
  absl::Duration sweep_interval = absl::Seconds(10);  // how often idle and expired sessions are looked for
  int64_t max_queued = 16384;                         // changes; beyond it RESOURCE_EXHAUSTED
  int64_t max_queued_bytes = int64_t{256} << 20;      // of their moments and parameters
  StoreObserver observer;
};

class DurableStore : public SessionStore {
 public:
  // Two connections to the same table: one to write, one to read. Borrows `clock`, which must outlive the store.
  static absl::StatusOr<std::unique_ptr<DurableStore>> Open(DurableStoreOptions options,
                                                            std::unique_ptr<SessionTable> writer,
                                                            std::unique_ptr<SessionTable> reader, Clock* clock);

  // What is queued is written and answered first.
  ~DurableStore() override;

  Durability durability() const override { return options_.durability; }
  const SessionLimits& limits() const override { return options_.limits; }
  StoreFigures figures() const override;

  void Get(std::string id, absl::Duration max_staleness, Done<SessionPtr> done) override;
  void List(ListQuery query, Done<std::vector<SessionPtr>> done) override;
  void Create(Session session, Done<SessionPtr> done) override;
  void Update(std::string id, SessionPatch patch, Done<SessionPtr> done) override;
  void Reset(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) override;
  void Delete(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) override;
  void Commit(StateUpdate update, Done<CommitResult> done) override;
  void Export(std::string id, Done<std::string> done) override;
  void Import(std::string id, std::string record, Done<SessionPtr> done) override;

 private:
  using Answer = absl::AnyInvocable<void()>;
  struct GetRead {
    std::string id;
    bool whole = false;  // with step ids, as the table has it
    Done<StoredSession> done;
  };
  struct ListRead {
    ListQuery query;
    Done<std::vector<SessionPtr>> done;
  };
  using Read = std::variant<GetRead, ListRead>;

  DurableStore(DurableStoreOptions options, std::unique_ptr<SessionTable> writer, std::unique_ptr<SessionTable> reader,
               Clock* clock, const TableTotals& totals);

  // ---- the callers' threads
  void Enqueue(Change change, int64_t bytes);
  void EnqueueNew(StoredSession stored, Done<SessionPtr> done);
  void EnqueueRead(Read read);
  // From memory, if it may be answered from there; else null.
  SessionPtr FindResident(const std::string& id, absl::Duration max_staleness, absl::Time now);

  // ---- the writer's and the reader's threads
  // Connects if need be. True: it is another connection than `*connection`, and memory was emptied.
  absl::StatusOr<bool> Reconnect(SessionTable* table, int64_t* connection);

  // ---- the writer's thread
  void RunWriter();
  // Waits for changes, or for the time to sweep. False: stop, and nothing is left.
  bool TakeChanges(std::vector<Change>* changes);
  // Adds what is queued now, up to what one group takes; what was cancelled is answered and left out.
  void TakeQueued(std::vector<Change>* changes);
  void Sweep();
  void CommitChanges(std::vector<Change> changes, bool fresh);
  // One attempt, one transaction; the changes to be tried again, with rows read anew, come back.
  std::vector<Change> TryChanges(std::vector<Change> changes, bool fresh);
  absl::Status LoadInto(absl::Span<const Change> changes, bool fresh, ChangeGroup* group);
  std::vector<RowRequest> TakeResidents(absl::Span<const Change> changes, bool fresh, ChangeGroup* group);
  void Publish(const std::vector<RowChange>& rows, const std::vector<std::optional<RowVersion>>& versions,
               ChangeGroup* group);
  // Makes a working copy what readers see.
  void PublishOne(const std::string& id, WorkingSession* session, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One that was not changed goes where it was taken from.
  void PutBack(const std::string& id, WorkingSession* session, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // One whose row is not known any more: the next reading says what it is.
  void Forget(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of a group that comes to nothing: what was not changed goes back into memory, step ids and all; what the table has
  // of the rest is for the next reading to say.
  void GiveBack(ChangeGroup* group);
  // Says so, once, when a flush has failed.
  void NoteFailure();
  void FailGroup(const absl::Status& status, ChangeGroup* group, std::vector<Change>* changes);
  void AnswerAll(std::vector<Change> changes);
  void RefreshTotals();
  TableTotals Totals() const;

  // ---- the reader's thread
  void RunReader();
  // Those that have to be read again.
  std::vector<GetRead> TryReads(std::vector<GetRead> reads);
  absl::StatusOr<std::vector<SessionRow>> LoadRows(const std::vector<RowRequest>& requests);
  void ReadPage(ListRead read);
  std::vector<RowRequest> BeginLoading(const std::vector<GetRead>& reads);
  // What callers get for `id`, whose row was read (null: there is none, or the reading failed); nothing: it is to be
  // read again. Memory has it afterwards, unless the writer has published it meanwhile.
  std::optional<absl::StatusOr<StoredSession>> FinishLoading(const std::string& id, const SessionRow* row);
  absl::StatusOr<StoredSession> Parse(const SessionRow& row);

  // ---- the answering thread
  void RunAnswers();
  void Post(Answer answer);

  // Constant after construction.
  const DurableStoreOptions options_;
  Clock* const clock_;
  const bool shared_;

  // The writer's and the reader's own.
  const std::unique_ptr<SessionTable> write_table_;
  const std::unique_ptr<SessionTable> read_table_;
  absl::Time last_sweep_;
  int64_t write_connection_ = 0;  // of Connect: what memory holds was read by it
  int64_t read_connection_ = 0;
  int64_t group_bytes_ = 0;      // of the newest group's changes
  std::vector<RowChange> rows_;  // of the newest group: memory to use again

  mutable Mutex mu_;
  CondVar changes_ready_, reads_ready_, answers_ready_;
  std::deque<std::pair<Change, int64_t>> changes_ ABSL_GUARDED_BY(mu_);  // with their bytes
  int64_t changes_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Read> reads_ ABSL_GUARDED_BY(mu_);
  std::deque<Answer> answers_ ABSL_GUARDED_BY(mu_);
  ResidentSessions residents_ ABSL_GUARDED_BY(mu_);
  // What the reader is reading now; true: the writer has published it meanwhile.
  std::unordered_map<std::string, bool> loading_ ABSL_GUARDED_BY(mu_);
  StoreFigures figures_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool readers_and_writers_stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;

  std::thread writer_, reader_, answerer_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_STORE_H_
