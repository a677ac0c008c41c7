// The sessions that a durable store keeps in memory: a cache by id, the least recently used first to go.
// In the path: DurableStore looks here before it asks its table. Ownership: copies of snapshots that callers may share.
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

// A session as the table had it under `version`. While the writer works on it, its step ids are with the writer.
struct ResidentSession {
  StoredSession stored;
  RowVersion version;
  absl::Time read_time;  // when it was last known to be the newest
  absl::Time used = {};  // when it was last asked for; SessionCache says
};

class SessionCache {
 public:
  explicit SessionCache(int64_t max_bytes) : recent_(max_bytes) {}

  // Null: not here. Valid until the next call. Counts as a use at `now`.
  ResidentSession* Find(std::string_view id, absl::Time now);

  // Puts `session` in the place of what was there, which takes its: the caller destroys it when nobody waits. Drops
  // others, the least recently used first, until the rest fits; the newest stays even if it alone does not.
  void Put(const std::string& id, ResidentSession* session, absl::Time now);
  void Erase(std::string_view id);
  void Clear();

  // Drops what was not used since `before`; returns how many.
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
