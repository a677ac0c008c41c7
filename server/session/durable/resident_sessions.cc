#include "server/session/durable/resident_sessions.h"

#include <iterator>
#include <utility>

#include "server/session/session_changes.h"

namespace normd {

namespace {

// Counted for list and index and the snapshot's own fields.
constexpr int64_t kEntryOverheadBytes = 512;

int64_t MemoryBytes(const StoredSession& stored) {
  const auto phi_bytes = static_cast<int64_t>(stored.phi_before.phi.size() * sizeof(double));
  return kEntryOverheadBytes + QuotaBytes(*stored.published) + phi_bytes + stored.steps.bytes();
}

}  // namespace

ResidentSession* ResidentSessions::Find(std::string_view id, absl::Time now) {
  const auto found = index_.find(id);
  if (found == index_.end()) return nullptr;
  const Recent::iterator entry = found->second;
  recent_.splice(recent_.begin(), recent_, entry);
  entry->used = now;
  return &entry->session;
}

void ResidentSessions::Put(const std::string& id, ResidentSession* session, absl::Time now) {
  const int64_t bytes = MemoryBytes(session->stored);
  const auto found = index_.find(id);
  if (found != index_.end()) {
    Entry& entry = *found->second;
    bytes_ += bytes - entry.bytes;
    std::swap(entry.session, *session);
    entry.bytes = bytes;
    entry.used = now;
    recent_.splice(recent_.begin(), recent_, found->second);
  } else {
    recent_.push_front({id, std::move(*session), bytes, now});
    index_.emplace(recent_.front().id, recent_.begin());
    bytes_ += bytes;
  }
  while (bytes_ > max_bytes_ && recent_.size() > 1) {
    Drop(std::prev(recent_.end()));
    ++evictions_;
  }
}

void ResidentSessions::Erase(std::string_view id) {
  const auto found = index_.find(id);
  if (found != index_.end()) Drop(found->second);
}

void ResidentSessions::Clear() {
  index_.clear();
  recent_.clear();
  bytes_ = 0;
}

int64_t ResidentSessions::EvictIdle(absl::Time before) {
  int64_t evicted = 0;
  for (; !recent_.empty() && recent_.back().used < before; ++evicted) Drop(std::prev(recent_.end()));
  evictions_ += evicted;
  return evicted;
}

void ResidentSessions::Drop(Recent::iterator entry) {
  bytes_ -= entry->bytes;
  index_.erase(entry->id);
  recent_.erase(entry);
}

}  // namespace normd
