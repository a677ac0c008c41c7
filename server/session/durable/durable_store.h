// Sessions that outlive the process: one group-commit writer over a SessionTable, and a cache of what is in use.
// In the path: the engine's SessionStore. The writer takes everything that is queued, applies it in order, writes each
// touched session as one row, all in one transaction, publishes, then answers. Readers see what is published and
// nothing else, so nothing that could still be lost. Threads: every method is safe from any thread. Threads of its own:
// the writer, a reader for what is not in memory, one for lists, and those that run the callbacks, so that the next
// group need not wait for them.
#ifndef NORMD_SERVER_SESSION_DURABLE_DURABLE_STORE_H_
#define NORMD_SERVER_SESSION_DURABLE_DURABLE_STORE_H_

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/session/durable/callback_threads.h"
#include "server/session/durable/change_group.h"
#include "server/session/durable/session_cache.h"
#include "server/session/session_store.h"
#include "server/session/session_table.h"

namespace normd {

// What a store tells as it happens. Called on its threads, which wait; null: not told.
struct StoreObserver {
  std::function<void(int64_t changes, absl::Duration duration)> on_group;  // one transaction, durable
  std::function<void(int64_t sessions)> on_evicted;                        // idle sessions that left memory
  std::function<void(const std::string& id)> on_loaded;                    // a session that came back into memory
  std::function<void(const std::string& id, const absl::Status& damage)> on_damaged;
  // What holds the records is not whole. Once at most.
  std::function<void(const absl::Status& damage)> on_file_damaged;
  std::function<void(const absl::Status& status)> on_error;  // a transaction or a read that failed
  std::function<void(std::string_view text)> on_warning;     // what an operator should know
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
  int64_t max_queued_reads = 16384;                   // beyond it RESOURCE_EXHAUSTED
  int callback_threads = 4;                           // they run the callbacks
  // A store of more bytes is checked while it serves, a smaller one before.
  int64_t max_bytes_checked_first = int64_t{256} << 20;
  std::shared_ptr<Clock> own_clock;  // kept for the store's life where `clock` is it; see database_clock.h
  StoreObserver observer;
};

class DurableStore : public SessionStore {
 public:
  // Borrows `clock`, which must outlive the store.
  static absl::StatusOr<std::unique_ptr<DurableStore>> Open(DurableStoreOptions options, StoreTables tables,
                                                            Clock* clock);

  // What is queued is written and answered first.
  ~DurableStore() override;

  Durability durability() const override { return options_.durability; }
  const SessionLimits& limits() const override { return options_.limits; }
  StoreStats stats() const override;

  using SessionStore::Get;
  void Get(std::string id, absl::Duration max_staleness, Cancelled cancelled, Done<SessionPtr> done) override;
  void List(ListQuery query, Done<ListPage> done) override;
  void Create(Session session, Done<SessionPtr> done) override;
  void Update(std::string id, SessionPatch patch, Done<SessionPtr> done) override;
  void Reset(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) override;
  void Delete(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) override;
  void Commit(StateUpdate update, Done<CommitResult> done) override;
  void Export(std::string id, Reserve reserve, Done<std::string> done) override;
  void Import(std::string id, std::string record, Done<SessionPtr> done) override;

 private:
  // Rows that one Load() of the table may bring; sessions beyond it wait for the next one.
  static constexpr int64_t kMaxLoadBytes = int64_t{64} << 20;

  using Answer = CallbackThreads::Answer;
  struct GetRead {
    std::string id;
    bool whole = false;  // with step ids, as the table has it
    Cancelled cancelled;
    Reserve reserve;  // whole: asked for what an export takes
    Done<StoredSession> done;
  };
  struct ListRead {
    ListQuery query;
    Done<ListPage> done;
  };

  DurableStore(DurableStoreOptions options, StoreTables tables, Clock* clock, const TableTotals& totals);

  // ---- the thread that checks the file, which ends with it
  void CheckFile();
  bool file_checked() const;

  // ---- the callers' threads
  void Enqueue(Change change, int64_t bytes);
  void EnqueueNew(StoredSession stored, Done<SessionPtr> done);
  void EnqueueRead(GetRead read);
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
  absl::Duration SinceSweep() const;
  void Sweep();
  // Deletes sessions whose ttl has ended, as many as one transaction takes, and notes whether there are more.
  void DropExpired();
  // Before changes are tried again: deletes what has expired if one of them found the store full.
  void MakeRoom(std::vector<Change>* changes);
  void CommitChanges(std::vector<Change> changes);
  // Puts changes that have to be tried again before everything that is queued, so that others go on beside them.
  void TryAgain(std::vector<Change> changes);
  // One attempt, one transaction; the changes to be tried again, with rows read anew, come back.
  std::vector<Change> TryChanges(std::vector<Change> changes, bool fresh);
  absl::Status LoadInto(absl::Span<const Change> changes, bool fresh, ChangeGroup* group);
  // Changes from `begin` on whose sessions were too many bytes to read along: the next group begins with them. True:
  // there were some.
  bool Postpone(size_t begin, const ChangeGroup& group, std::vector<Change>* changes);
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
  TableTotals Totals() const;
  // What is said of a session that has no row: OK, it is not found; or that it may be a lost one.
  absl::Status MissingRow() const;

  // ---- the reader's thread
  void RunReader();
  // The reads to make now, the oldest; those whose callers have gone are answered.
  std::vector<GetRead> TakeReads();
  // Those that have to be read again.
  std::vector<GetRead> TryReads(std::vector<GetRead> reads);
  absl::StatusOr<std::vector<SessionRow>> LoadRows(const std::vector<RowRequest>& requests);
  std::vector<RowRequest> BeginLoading(const std::vector<GetRead>& reads);
  // What callers get for `id`, whose row was read (null: there is none, or the reading failed); nothing: it is to be
  // read again. Memory has it afterwards, unless the writer has published it meanwhile.
  std::optional<absl::StatusOr<StoredSession>> FinishLoading(const std::string& id, const SessionRow* row);
  absl::StatusOr<StoredSession> Parse(const SessionRow& row);
  // Whether the columns beside the record say what it says; told if not, for they are written anew.
  bool ColumnsFit(const SessionRow& row, const Session& session);
  // What is wrong with a record is damage, counted and told; OK stays OK.
  absl::Status NoteDamage(const std::string& id, absl::Status status);
  void AnswerRead(GetRead read, absl::StatusOr<StoredSession> result);

  // ---- the lists' thread
  void RunLists();
  // What is to be done next; nothing: stop. A shared table's totals are brought up to date meanwhile.
  std::optional<ListRead> TakeList();
  void RefreshTotals();
  absl::StatusOr<ListPage> ReadPage(ListQuery query);
  // Without parameters and statistics; null: it is gone.
  absl::StatusOr<SessionPtr> ReadSummary(const SessionRow& row);
  absl::Status AddWhole(const ListQuery& query, absl::Span<const SessionRow> rows, ListPage* page);

  // On the thread that answers for `id`.
  void Post(std::string_view id, Answer answer);

  // Constant after construction.
  const DurableStoreOptions options_;
  Clock* const clock_;
  const bool shared_;

  // Each is one thread's own.
  const std::unique_ptr<SessionTable> write_table_;
  const std::unique_ptr<SessionTable> read_table_;
  const std::unique_ptr<SessionTable> list_table_;
  const std::unique_ptr<SessionTable> check_table_;   // null: nothing to check
  std::chrono::steady_clock::time_point last_sweep_;  // a wall clock that is set back must not stop sweeps
  bool more_expired_ = false;                         // than the newest sweep took: the next one comes at once
  int64_t write_connection_ = 0;                      // of Connect: what memory holds was read by it
  int64_t read_connection_ = 0;
  int64_t group_bytes_ = 0;  // of the newest group's changes
  std::minstd_rand random_{std::random_device()()};
  std::vector<RowChange> rows_;  // of the newest group: memory to use again

  mutable Mutex mu_;
  CondVar changes_ready_, reads_ready_, lists_ready_;
  std::deque<std::pair<Change, int64_t>> changes_ ABSL_GUARDED_BY(mu_);  // with their bytes
  int64_t changes_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<GetRead> reads_ ABSL_GUARDED_BY(mu_);
  std::deque<ListRead> lists_ ABSL_GUARDED_BY(mu_);
  SessionCache residents_ ABSL_GUARDED_BY(mu_);
  // What the reader is reading now; true: the writer has published it meanwhile.
  std::unordered_map<std::string, bool> loading_ ABSL_GUARDED_BY(mu_);
  StoreStats stats_ ABSL_GUARDED_BY(mu_);
  // Transactions that were begun, and that stats_ knows the end of: while they differ, what a count of the table
  // finds may be in stats_ or not.
  int64_t writes_begun_ ABSL_GUARDED_BY(mu_) = 0, writes_ended_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status file_damage_ ABSL_GUARDED_BY(mu_);
  bool file_checked_ ABSL_GUARDED_BY(mu_) = false;

  std::unique_ptr<CallbackThreads> answers_;
  std::thread writer_, reader_, lister_, checker_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_DURABLE_STORE_H_
