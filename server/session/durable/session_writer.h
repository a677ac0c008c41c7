// Group commit: the one thread that changes the rows of a durable store. It takes all queued changes, applies them in
// order to working copies, writes each touched session as one row, all in one transaction, publishes the new snapshots
// and then has the callbacks run. While another thread writes the first rows of a large group, the writer makes the
// next ones, also of changes that have come meanwhile; and at level process, while that thread commits a group of
// steps, the writer makes the next group of steps of other sessions. So nothing is applied to a state that may still
// fail, and nothing is published that could still be lost. Between groups the writer deletes sessions whose ttl has
// ended.
// In the path: DurableStore adds changes; published sessions are in StoreParts::cache.
// Ownership: owns its table and its queue; borrows the parts.
// Threads: Add, limits, SetLimits and stats are safe from any thread. Two threads of its own: the writer, and one that
// writes rows for it (transaction_writer.h). Callers and the writer share the queue, which has a mutex of its own, and
// what mu_ guards.
#ifndef NORMD_SERVER_SESSION_DURABLE_SESSION_WRITER_H_
#define NORMD_SERVER_SESSION_DURABLE_SESSION_WRITER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/session/durable/change_group.h"
#include "server/session/durable/change_queue.h"
#include "server/session/durable/store_parts.h"
#include "server/session/durable/transaction_writer.h"
#include "server/session/session_store.h"
#include "server/session/session_table.h"

namespace normd {

class SessionWriter {
 public:
  // `parts` must outlive the writer.
  SessionWriter(std::unique_ptr<SessionTable> table, StoreParts* parts);
  ~SessionWriter();
  // Writes what is queued and posts its answers, then ends the threads. What is added afterwards is never answered.
  void Stop();

  // Queues a change whose moments or parameters take `bytes`, or answers it inline if it is refused.
  void Add(Change change, int64_t bytes) { queue_.Add(std::move(change), bytes); }

  SessionLimits limits() const;
  void SetLimits(const SessionLimits& limits);
  // What the writer knows of changes and transactions; the other values are 0. `now` is a SteadyNow.
  StoreStats stats(absl::Time now) const;

 private:
  void Run();

  // ---- taking changes

  // Waits for changes, or for the time to sweep. False: the writer must stop, and nothing is left to write.
  bool TakeChanges(std::vector<Change>* changes);
  // Adds changes that are queued now, up to what one group takes. Cancelled steps are answered and left out. While
  // another group commits, takes no change that must wait for its end, and none behind such a change.
  void TakeQueued(std::vector<Change>* changes);
  // Whether the change can be applied now. While another group commits: a step of a session in memory that is not in
  // that group.
  bool CanOverlap(const Change& change) const;
  // While another group commits: waits for its end or for changes that can be applied meanwhile. True: for these.
  bool AwaitChanges();
  // Puts changes that must be tried again in front of the queue, so that other changes proceed together with them;
  // refuses those that were tried too often.
  void TryAgainOrRefuse(std::vector<Change> changes);
  // Puts those changes from `begin` on whose sessions were not loaded in front of the queue: the next group begins with
  // them. True if there were any.
  bool Postpone(size_t begin, const ChangeGroup& group, std::vector<Change>* changes);

  // ---- one group

  void CommitChanges(std::vector<Change> changes);
  // Makes one attempt, in one transaction, which may still commit afterwards. Returns the changes that must be tried
  // again with rows read anew.
  std::vector<Change> TryChanges(std::vector<Change> changes, bool fresh);
  // Loads the sessions of the changes and applies these and, unless `fresh`, those that come meanwhile.
  absl::Status ApplyAll(bool fresh, Transaction* transaction);
  // Adds the sessions of `changes` to the group, from memory or, always if `fresh`, from the table. While another
  // thread has the table, only from memory.
  absl::Status Load(absl::Span<const Change> changes, bool fresh, ChangeGroup* group);
  absl::Status LoadRows(absl::Span<const RowRequest> requests, ChangeGroup* group);
  // Writes what is left, and finishes the transaction unless it commits while the writer goes on.
  std::vector<Change> Write(bool fresh, std::unique_ptr<Transaction> transaction);
  // Whether the writer goes on to the next group while this one commits.
  bool CommitsBehind(const Transaction& transaction) const;
  // Waits for the end of the transaction that commits, if there is one, and finishes it.
  void FinishCommitting();
  // Publishes and answers a transaction that has ended; returns the changes that must be tried again.
  std::vector<Change> Finish(const TransactionWriter::Result& result, std::unique_ptr<Transaction> transaction);
  void Publish(const TransactionWriter::Result& result, Transaction* transaction);
  // Ends a transaction that failed: the changes get its error.
  void Fail(const TransactionWriter::Result& result, Transaction* transaction);
  // From now on the store takes no changes, because a flush has failed. Reports it once.
  void RefuseChanges();
  void AnswerAll(std::vector<Change> changes);

  // ---- sweeps, between groups

  absl::Duration SinceSweep() const;
  void Sweep();
  // Deletes sessions whose ttl has ended, as many as one transaction takes, and sets more_expired_ if there are more.
  void DropExpired();
  // Before changes are tried again: deletes expired sessions if one of the changes has found the store full.
  void MakeRoom(std::vector<Change>* changes);
  int64_t expired() const;  // sessions deleted so far because their ttl ended

  StoreParts& parts_;
  ChangeQueue queue_;

  // Used by the writer's thread alone; the table by the thread of transactions_ while that is busy.
  const std::unique_ptr<SessionTable> table_;
  int64_t connection_ = 0;                   // the last number of Connect: a new one empties memory
  int64_t group_bytes_ = 0;                  // of the newest group's changes
  std::unique_ptr<Transaction> committing_;  // it was written, and its end was not seen
  TransactionWriter transactions_;
  std::chrono::steady_clock::time_point last_sweep_;  // steady, so that a wall clock set back does not stop sweeps
  bool more_expired_ = false;                         // than the newest sweep took: the next sweep comes at once
  std::minstd_rand random_{std::random_device()()};

  mutable Mutex mu_;
  SessionLimits limits_ ABSL_GUARDED_BY(mu_);
  StoreStats stats_ ABSL_GUARDED_BY(mu_);  // groups, rows, failed_groups, conflicts and expired

  std::thread thread_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_SESSION_WRITER_H_
