// The changes that wait for a durable store's writer, in order, bounded by their number and their bytes.
// In the path: callers add changes; the writer takes as many from the front as one group has room for, and puts back in
// front what must be tried again.
// Threads: Add, Wake, Stop and waiting are safe from any thread, the other methods belong to the writer. One mutex.
// The functions that the writer passes run under it and may lock SessionCache or WriteThread, which never lock this
// queue.
#ifndef NORMD_SERVER_SESSION_DURABLE_CHANGE_QUEUE_H_
#define NORMD_SERVER_SESSION_DURABLE_CHANGE_QUEUE_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/base/wait_stats.h"
#include "server/session/durable/change_group.h"

namespace normd {

class ChangeQueue {
 public:
  // What is left of one group's limits.
  struct Room {
    int64_t changes = 0;
    int64_t bytes = 0;
  };

  ChangeQueue(int64_t max_changes, int64_t max_bytes) : max_changes_(max_changes), max_bytes_(max_bytes) {}

  // Adds a change whose moments or parameters take `bytes`. A change that is refused is answered inline:
  // RESOURCE_EXHAUSTED if the queue is full, UNAVAILABLE after Fail.
  void Add(Change change, int64_t bytes);
  WaitStats waiting(absl::Time now) const;
  // Lets the writer look again at what it waits for.
  void Wake();
  // From now on the writer does not wait any more.
  void Stop();

  // ---- the writer's thread

  // Waits for a change, at most `timeout`. False: the writer must stop, and nothing is queued.
  bool AwaitFirst(absl::Duration timeout);
  // Waits until `enough(first change or null, number of changes)`, which is asked at every Wake and when `wake_at`
  // changes are queued: waking up for each of them would take the core that callers need.
  void AwaitMany(size_t wake_at, absl::FunctionRef<bool(const Change* first, size_t queued)> enough);
  // Waits for `pause`, unless the writer must stop.
  void Pause(absl::Duration pause);
  // Appends changes from the front to `changes` while there is room and `may_join` is true of the next one. Bytes may
  // exceed the room by one change. Returns the bytes that were taken.
  int64_t Take(Room room, absl::FunctionRef<bool(const Change& next)> may_join, std::vector<Change>* changes);
  // Puts changes in front, in their order; they do not count against the bytes. True: nothing else is queued.
  bool PutBack(std::vector<Change> changes);

  // Refuses changes from now on. True: for the first time.
  bool Fail();
  bool failed() const;

 private:
  struct Queued {
    Change change;
    int64_t bytes = 0;
  };

  // OK if a change of `bytes` may be added.
  absl::Status CheckRoom(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Constant after construction.
  const int64_t max_changes_;
  const int64_t max_bytes_;

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Queued> queued_ ABSL_GUARDED_BY(mu_);
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  size_t wake_at_ ABSL_GUARDED_BY(mu_) = 1;  // the writer wakes up when this many changes are queued
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_CHANGE_QUEUE_H_
