// The sessions that a durable store keeps in memory, by id; the least recently used leave first. What is here is
// published: callers see it, and nothing that could still be lost.
// In the path: the reader answers from here before it asks its table. The writer takes sessions out of here to change
// them and publishes them here; the reader adds those that it has loaded, unless the writer was faster.
// Ownership: the cache owns its entries; callers may share their snapshots.
// Threads: safe from any thread; one mutex, and nothing else is locked under it. Snapshots that Publish and FinishLoad
// replace are freed outside it.
#ifndef NORMD_SERVER_SESSION_DURABLE_SESSION_CACHE_H_
#define NORMD_SERVER_SESSION_DURABLE_SESSION_CACHE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/lru.h"
#include "server/base/mutex.h"
#include "server/session/durable/change_group.h"
#include "server/session/session_store.h"
#include "server/session/session_table.h"
#include "server/session/stored_session.h"

namespace normd {

class SessionCache {
 public:
  explicit SessionCache(const ResidencyLimits& limits);

  // Sessions that are over a smaller limit leave when the next one comes.
  void SetLimits(const ResidencyLimits& limits);
  // Adds the resident sessions and bytes, loads and evictions to `stats`.
  void AddStats(StoreStats* stats) const;

  // The snapshot of a session, which was the newest at most `max_age` before `now`; null if there is none. Counts as a
  // use, as do the other methods that look for a session.
  SessionPtr Find(std::string_view id, absl::Duration max_age, absl::Time now);
  bool Has(std::string_view id, absl::Time now);
  // Forgets everything: a table has a new connection, which may know nothing of these rows.
  void Clear();
  // Forgets sessions that have not been used for ResidencyLimits::idle_timeout; returns their number.
  int64_t EvictIdle(absl::Time now);

  // ---- the writer's thread

  // Adds the sessions of `changes` that are here to `group`, unless it has them. Their snapshots stay here and their
  // step ids move, until Publish or Return. Returns requests for the other sessions.
  std::vector<RowRequest> MoveInto(absl::Span<const Change> changes, absl::Time now, ChangeGroup* group);
  // Lets callers see what a group has changed, and returns the rest. REQUIRES: its transaction has succeeded, and
  // new_row or conflict of each session that has a row is set.
  void Publish(absl::Time now, ChangeGroup* group);
  // Takes back what a failed group has not changed, step ids included; forgets the rest, so that it is read anew.
  void Return(absl::Time now, ChangeGroup* group);
  // Forgets the sessions of `changes`, so that they are read anew.
  void Forget(absl::Span<const Change> changes);

  // ---- the reader's thread: each load that has begun ends with one of the three methods below

  // Requests for the sessions of `wanted`; true: the row is wanted as a whole, even if memory has its version.
  std::vector<RowRequest> BeginLoads(const std::map<std::string, bool>& wanted, absl::Time now);
  // The load has brought nothing.
  void AbandonLoad(const std::string& id);
  // The load has found that the row still has `version`. Returns the snapshot; nothing if the session has left memory
  // meanwhile and must be read again.
  std::optional<StoredSession> FinishUnchanged(const std::string& id, RowVersion version, absl::Time now);
  // The load has brought a session, which is kept unless the writer has published the session meanwhile: memory then
  // has a newer snapshot or knows that the session is gone. True: the session has come back into memory.
  bool FinishLoad(const std::string& id, StoredSession stored, RowVersion version, absl::Time now);

 private:
  // A session as the table had it under `version`. While the writer works on the session, the writer has its step ids.
  struct Resident {
    StoredSession stored;
    RowVersion version;
    absl::Time newest_at;  // when the session was last known to be the newest
    absl::Time used = {};
  };
  struct Load {
    bool overtaken = false;  // by the writer, which has published the session or forgotten it
  };

  Resident* FindResident(std::string_view id, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Swaps `resident` into the entry of `id`; an old entry is left in `*resident`, so that the caller can destroy it
  // outside the lock. The new entry stays even if it alone is over the limit.
  void Put(const std::string& id, Resident* resident, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void PublishOne(const std::string& id, absl::Time now, WorkingSession* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes back an unchanged working copy.
  void ReturnOne(const std::string& id, absl::Time now, WorkingSession* session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has a load that is under way keep its result for its own callers.
  void OvertakeLoad(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets a session whose row is not known any more, so that it is read anew.
  void ForgetOne(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  Lru<std::string, Resident> residents_ ABSL_GUARDED_BY(mu_);  // by id
  absl::Duration idle_timeout_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<std::string, Load> loads_ ABSL_GUARDED_BY(mu_);  // under way, by id
  int64_t loaded_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t evicted_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_SESSION_CACHE_H_
