#include "server/session/durable/session_cache.h"

#include "server/session/session_changes.h"

namespace normd {

namespace {

// Estimated bytes of the list, the index and the snapshot's own fields.
constexpr int64_t kEntryOverheadBytes = 512;

int64_t MemoryBytes(const StoredSession& stored) {
  const auto phi_bytes = static_cast<int64_t>(stored.phi_before.phi.size() * sizeof(double));
  return kEntryOverheadBytes + QuotaBytes(*stored.published) + phi_bytes + stored.steps.bytes();
}

}  // namespace

ResidentSession* SessionCache::Find(std::string_view id, absl::Time now) {
  ResidentSession* const found = recent_.Find(id);
  if (found != nullptr) found->used = now;
  return found;
}

void SessionCache::Put(const std::string& id, ResidentSession* session, absl::Time now) {
  session->used = now;
  const int64_t bytes = MemoryBytes(session->stored);
  evictions_ += static_cast<int64_t>(recent_.Insert(id, session, bytes).size());
}

void SessionCache::Erase(std::string_view id) { recent_.Erase(id); }

void SessionCache::Clear() { recent_.Clear(); }

int64_t SessionCache::EvictIdle(absl::Time before) {
  int64_t evicted = 0;
  for (; recent_.size() > 0 && recent_.Oldest()->value.used < before; ++evicted) recent_.Erase(recent_.Oldest()->key);
  evictions_ += evicted;
  return evicted;
}

}  // namespace normd
