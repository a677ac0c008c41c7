// Sessions that outlive the process: one group-commit writer over a SessionTable, and a cache of the sessions in use.
// In the path: the engine's SessionStore. The writer takes all queued changes, applies them in order, writes each
// touched session as one row, all in one transaction, publishes the new snapshots and then runs the callbacks. While
// another thread writes the first rows of a large group, the writer makes the next ones, also of changes that have come
// meanwhile; and at level process, while that thread commits a group of steps, the writer makes the next group of steps
// of other sessions. Readers see only what is published, and so nothing that could still be lost, and nothing is
// applied to a state that may still fail.
// Files: durable_store.cc has the callers' side, durable_writes.cc the writer, durable_reads.cc the reader,
// durable_lists.cc the lists.
// Threads: every method is safe from any thread. Threads of its own: the writer, one that writes rows for it, a reader
// for sessions that are not in memory, one for lists, one that checks a large file, and those that run the callbacks,
// so that the next group need not wait for callbacks.
#ifndef NORMD_SERVER_SESSION_DURABLE_DURABLE_STORE_H_
#define NORMD_SERVER_SESSION_DURABLE_DURABLE_STORE_H_

#include <atomic>
#include <chrono>
#include <deque>
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
#include "server/base/steady_time.h"
#include "server/session/durable/callback_threads.h"
#include "server/session/durable/change_group.h"
#include "server/session/durable/durable_options.h"
#include "server/session/durable/file_check.h"
#include "server/session/durable/row_decoder.h"
#include "server/session/durable/session_cache.h"
#include "server/session/durable/store_totals.h"
#include "server/session/durable/write_thread.h"
#include "server/session/session_store.h"
#include "server/session/session_table.h"

namespace normd {

class DurableStore : public SessionStore {
 public:
  // Borrows `clock`, which must outlive the store. Errors are those of reading the totals.
  static absl::StatusOr<std::unique_ptr<DurableStore>> Open(DurableStoreOptions options, StoreTables tables,
                                                            Clock* clock);

  // Writes what is queued and runs its callbacks first.
  ~DurableStore() override;

  Durability durability() const override { return options_.durability; }
  SessionLimits limits() const override;
  void SetLimits(const SessionLimits& limits, const ResidencyLimits& residency) override;
  StoreStats stats() const override;
  TotalsByTenant tenant_totals() const override;

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
  // Bytes of rows that one Load() of the table may bring; sessions beyond it wait for the next one.
  static constexpr int64_t kMaxLoadBytes = int64_t{64} << 20;

  using Answer = CallbackThreads::Answer;
  struct GetRead {
    std::string id;
    bool whole = false;  // with step ids, and always from the table
    Cancelled cancelled;
    Reserve reserve;  // of an export: asked for what making the record takes
    Done<StoredSession> done;
    absl::Time since = SteadyNow();
  };
  struct ListRead {
    ListQuery query;
    Done<ListPage> done;
    absl::Time since = SteadyNow();
  };

  DurableStore(DurableStoreOptions options, StoreTables tables, Clock* clock, const TableTotals& totals);

  // ---- the callers' threads
  void Enqueue(Change change, int64_t bytes);
  void EnqueueNew(StoredSession stored, Done<SessionPtr> done);
  void EnqueueRead(GetRead read);
  WaitStats WaitingReads(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The snapshot in memory; null if the call must not be answered from memory.
  SessionPtr FindResident(const std::string& id, absl::Duration max_staleness, absl::Time now);

  // ---- the writer's and the reader's threads
  // Connects if there is no connection. True if the connection is a new one; memory was then emptied.
  absl::StatusOr<bool> Reconnect(SessionTable* table, int64_t* connection);

  // One transaction: its changes, the working copies that they were applied to, and its rows.
  struct Group {
    Group(const SessionLimits& limits, ChangeGroup::TotalsBefore totals_before, absl::Time now)
        : copies(limits, std::move(totals_before), now) {}

    std::vector<Change> changes;
    ChangeGroup copies;
    std::vector<std::vector<RowChange>> parts;        // of its rows, in the order in which they are written
    absl::Time write_begun = absl::InfiniteFuture();  // before the first row comes: nothing is written
  };

  // ---- the writer's thread
  void RunWriter();
  // Waits for changes, or for the time to sweep. False: the writer must stop, and nothing is left to write.
  bool TakeChanges(std::vector<Change>* changes);
  // Adds changes that are queued now, up to what one group takes. Cancelled steps are answered and left out. While
  // another group commits, takes no change that must wait for its end, and none behind such a change.
  void TakeQueued(std::vector<Change>* changes);
  // Whether the change can be applied now. While another group commits: a step of a session in memory that is not in
  // that group.
  bool CanOverlap(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // While another group commits: waits for its end or for changes that can be applied meanwhile. True: for these.
  bool AwaitChanges();
  absl::Duration SinceSweep() const;
  void Sweep();
  // Deletes sessions whose ttl has ended, as many as one transaction takes, and sets more_expired_ if there are more.
  void DropExpired();
  // Before changes are tried again: deletes expired sessions if one of the changes has found the store full.
  void MakeRoom(std::vector<Change>* changes);
  void CommitChanges(std::vector<Change> changes);
  // Tries changes again, or refuses those that were tried too often.
  void TryAgainOrRefuse(std::vector<Change> changes);
  // Puts changes that must be tried again in front of the queue, so that other changes proceed together with them.
  void TryAgain(std::vector<Change> changes);
  // Makes one attempt, in one transaction, which may still commit afterwards. Returns the changes that must be tried
  // again with rows read anew.
  std::vector<Change> TryChanges(std::vector<Change> changes, bool fresh);
  // Loads the sessions of `changes` and applies these and, unless `fresh`, those that come meanwhile.
  absl::Status ApplyAll(bool fresh, Group* group);
  // Has the first rows of the group written while `left` more changes wait to be applied, where that is worth it.
  void WriteEarly(size_t left, Group* group);
  void AddEarly(Group* group);
  // Adds a list of rows to the group.
  std::vector<RowChange>* NewPart(Group* group);
  void BeginWrite(Group* group);
  // Whether the writer goes on to the next group while this one commits.
  bool CommitsBehind(const Group& group) const;
  // Waits for the end of the group's transaction and finishes the group.
  std::vector<Change> TakeResult(std::unique_ptr<Group> group);
  // The same for the group that commits, if there is one.
  void FinishUnderWay();
  // Publishes and answers a group whose transaction has ended; returns the changes that must be tried again.
  std::vector<Change> Finish(const absl::StatusOr<SessionTable::Versions>& versions, bool table_failed,
                             std::unique_ptr<Group> group);
  // Adds the sessions of `changes` to the group, from memory or, always if `fresh`, from the table. While the other
  // thread has the table, only from memory.
  absl::Status LoadInto(absl::Span<const Change> changes, bool fresh, ChangeGroup* group);
  // Puts those changes from `begin` on whose sessions were not loaded in front of the queue: the next group begins with
  // them. True if there were any.
  bool Postpone(size_t begin, const ChangeGroup& group, std::vector<Change>* changes);
  // Moves sessions from memory into the group; returns requests for the other ones.
  std::vector<RowRequest> TakeResidents(absl::Span<const Change> changes, bool fresh, ChangeGroup* group);
  // What a group that was written adds to the totals. REQUIRES: not yet published.
  static std::vector<StoreTotals::Growth> GrowthsOf(ChangeGroup* group);
  // Takes in which rows were written, and publishes the group.
  void Publish(const SessionTable::Versions& versions, Group* group);
  // Lets readers see a working copy.
  void PublishOne(const std::string& id, WorkingSession* session, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns an unchanged working copy to where it was taken from.
  void PutBack(const std::string& id, WorkingSession* session, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets a session whose row is not known any more, so that it is read anew.
  void Forget(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends a group that failed: what was not changed goes back into memory, step ids included; the rest is read anew.
  void GiveBack(ChangeGroup* group);
  // Reports a failed flush, once.
  void NoteFailure();
  void FailGroup(const absl::Status& status, bool table_failed, Group* group);
  void AnswerAll(std::vector<Change> changes);

  // ---- the reader's thread
  void RunReader();
  // Takes the oldest reads, up to what one load takes; those whose callers have gone are answered.
  std::vector<GetRead> TakeReads();
  // Makes and answers `reads`; returns those that must be made again.
  std::vector<GetRead> TryReads(std::vector<GetRead> reads);
  absl::StatusOr<std::vector<SessionRow>> LoadRows(const std::vector<RowRequest>& requests);
  std::vector<RowRequest> BeginLoading(const std::vector<GetRead>& reads);
  // The result for `id`, whose row was read (null: there is none, or the reading failed); nothing if the row must be
  // read again. Memory has the session afterwards, unless the writer has published it meanwhile.
  std::optional<absl::StatusOr<StoredSession>> FinishLoading(const std::string& id, const SessionRow* row);
  void AnswerRead(GetRead read, absl::StatusOr<StoredSession> result);

  // ---- the lists' thread
  void RunLists();
  // Waits for the next list; nothing: stop. Refreshes the totals of a shared table meanwhile.
  std::optional<ListRead> TakeList();
  void RefreshTotals();
  absl::StatusOr<ListPage> ReadPage(ListQuery query);
  // The session without parameters and statistics; null if it is gone.
  absl::StatusOr<SessionPtr> ReadSummary(const SessionRow& row);
  // Adds the sessions of `rows` with parameters and statistics to `page`, up to query.max_bytes.
  absl::Status AddWhole(const ListQuery& query, absl::Span<const SessionRow> rows, ListPage* page);

  // Runs `answer` on the callback thread of session `id`.
  void Post(std::string_view id, Answer answer);

  // Constant after construction.
  const DurableStoreOptions options_;
  Clock* const clock_;
  const bool shared_;

  // Each of these members is used by one thread alone.
  const std::unique_ptr<SessionTable> write_table_;
  const std::unique_ptr<SessionTable> read_table_;
  const std::unique_ptr<SessionTable> list_table_;
  std::chrono::steady_clock::time_point last_sweep_;  // steady, so that a wall clock set back does not stop sweeps
  bool more_expired_ = false;                         // than the newest sweep took: the next sweep comes at once
  int64_t write_connection_ = 0;                      // the last number of Connect: a new one empties memory
  int64_t read_connection_ = 0;                       // the same for read_table_
  int64_t group_bytes_ = 0;                           // of the newest group's changes
  std::unique_ptr<Group> under_way_;                  // its transaction was closed, and its end was not seen
  std::minstd_rand random_{std::random_device()()};
  std::vector<std::vector<RowChange>> spare_parts_;  // of earlier groups, to reuse their allocations
  bool folds_ = false;  // whether the newest large group had at least five changes for four rows

  mutable Mutex mu_;
  CondVar changes_ready_, reads_ready_, lists_ready_;
  std::deque<std::pair<Change, int64_t>> changes_ ABSL_GUARDED_BY(mu_);  // with their bytes
  int64_t changes_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t wake_at_ ABSL_GUARDED_BY(mu_) = 1;  // the writer wakes up when the queue has this many changes
  std::deque<GetRead> reads_ ABSL_GUARDED_BY(mu_);
  std::deque<ListRead> lists_ ABSL_GUARDED_BY(mu_);
  SessionLimits limits_ ABSL_GUARDED_BY(mu_);
  absl::Duration idle_timeout_ ABSL_GUARDED_BY(mu_);
  SessionCache cache_ ABSL_GUARDED_BY(mu_);
  // The sessions that the reader reads now; true: the writer has published the session meanwhile.
  std::unordered_map<std::string, bool> loading_ ABSL_GUARDED_BY(mu_);
  StoreStats stats_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;

  // Each has a mutex of its own.
  StoreTotals totals_;
  RowDecoder decoder_;
  FileCheck file_check_;
  std::unique_ptr<CallbackThreads> callbacks_;
  std::unique_ptr<WriteThread> write_thread_;
  std::thread writer_, reader_, lister_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_DURABLE_STORE_H_
