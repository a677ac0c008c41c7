// The sessions that a durable store keeps in memory, by id; the least recently used leave first.
// In the path: DurableStore looks here before it asks its table. Ownership: the cache owns its entries; callers may
// share their snapshots.
// Threads: thread-compatible; the store guards it.
#ifndef NORMD_SERVER_SESSION_DURABLE_SESSION_CACHE_H_
#define NORMD_SERVER_SESSION_DURABLE_SESSION_CACHE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/base/lru.h"
#include "server/session/session_table.h"
#include "server/session/stored_session.h"

namespace normd {

// A session as the table had it under `version`. While the writer works on the session, the writer has its step ids.
struct ResidentSession {
  StoredSession stored;
  RowVersion version;
  absl::Time read_time;  // when the session was last known to be the newest
  absl::Time used = {};  // when the session was last used; set by SessionCache
};

class SessionCache {
 public:
  explicit SessionCache(int64_t max_bytes) : recent_(max_bytes) {}

  // Sessions that are over a smaller limit leave when the next one comes.
  void SetMaxBytes(int64_t max_bytes) { recent_.set_max_cost(max_bytes); }

  // Null if the session is not here. The pointer is valid until the next call. Counts as a use at `now`.
  ResidentSession* Find(std::string_view id, absl::Time now);

  // Swaps `session` into the entry for `id`; an old entry is left in `*session`, so that the caller can destroy it
  // outside the lock. Drops other entries, the least recently used first, until the rest fits; the new entry stays even
  // if it alone does not fit.
  void Put(const std::string& id, ResidentSession* session, absl::Time now);
  void Erase(std::string_view id);
  void Clear();

  // Drops the sessions that were not used since `before`; returns their number.
  int64_t EvictIdle(absl::Time before);

  int64_t size() const { return recent_.size(); }
  int64_t bytes() const { return recent_.cost(); }
  int64_t evictions() const { return evictions_; }

 private:
  Lru<std::string, ResidentSession> recent_;  // by id
  int64_t evictions_ = 0;
};

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_DURABLE_SESSION_CACHE_H_
