#include "server/session/durable/session_cache.h"

#include <unordered_set>
#include <utility>

#include "server/session/session_changes.h"

namespace normd {

namespace {

// Estimated bytes of the list, the index and the snapshot's own fields.
constexpr int64_t kEntryOverheadBytes = 512;

int64_t MemoryBytes(const StoredSession& stored) {
  const auto phi_bytes = static_cast<int64_t>(stored.phi_before.phi.size() * sizeof(double));
  const Session& session = *stored.published;
  const int64_t low_bytes = LowValuesOf(session.state) * SizeOf(DType::kF64);
  return kEntryOverheadBytes + QuotaBytes(session) + low_bytes + phi_bytes + stored.steps.bytes();
}

}  // namespace

SessionCache::SessionCache(const ResidencyLimits& limits)
    : residents_(limits.max_bytes), idle_timeout_(limits.idle_timeout) {}

void SessionCache::SetLimits(const ResidencyLimits& limits) {
  MutexLock lock(mu_);
  residents_.set_max_cost(limits.max_bytes);
  idle_timeout_ = limits.idle_timeout;
}

void SessionCache::AddStats(StoreStats* stats) const {
  MutexLock lock(mu_);
  stats->resident_sessions = residents_.size();
  stats->resident_bytes = residents_.cost();
  stats->loads = loaded_;
  stats->evictions = evicted_;
}

SessionPtr SessionCache::Find(std::string_view id, absl::Duration max_age, absl::Time now) {
  MutexLock lock(mu_);
  const Resident* const resident = FindResident(id, now);
  if (resident == nullptr) return nullptr;
  if (max_age <= absl::ZeroDuration() || now - resident->newest_at > max_age) return nullptr;
  return resident->stored.published;
}

bool SessionCache::Has(std::string_view id, absl::Time now) {
  MutexLock lock(mu_);
  return FindResident(id, now) != nullptr;
}

void SessionCache::Clear() {
  MutexLock lock(mu_);
  residents_.Clear();
}

int64_t SessionCache::EvictIdle(absl::Time now) {
  MutexLock lock(mu_);
  const absl::Time before = now - idle_timeout_;
  int64_t idle = 0;
  while (residents_.size() > 0 && residents_.Oldest()->value.used < before) {
    residents_.Erase(residents_.Oldest()->key);
    ++idle;
  }
  evicted_ += idle;
  return idle;
}

// ---- the writer's thread

std::vector<RowRequest> SessionCache::MoveInto(absl::Span<const Change> changes, absl::Time now, ChangeGroup* group) {
  std::vector<RowRequest> missing;
  group->Reserve(changes.size());
  std::unordered_set<std::string_view> requested;
  MutexLock lock(mu_);
  for (const Change& change : changes) {
    if (group->Has(change.id) || requested.count(change.id) > 0) continue;
    Resident* const resident = FindResident(change.id, now);
    if (resident == nullptr) {
      requested.insert(change.id);
      missing.push_back({change.id, {}});
      continue;
    }
    WorkingSession session = {.row = resident->version, .cached = true};
    session.stored.published = resident->stored.published;
    session.stored.steps = std::move(resident->stored.steps);
    session.stored.phi_before = std::move(resident->stored.phi_before);
    group->Add(change.id, std::move(session));
  }
  return missing;
}

void SessionCache::Publish(absl::Time now, ChangeGroup* group) {
  MutexLock lock(mu_);
  for (auto& [id, session] : group->sessions()) PublishOne(id, now, &session);
}

void SessionCache::PublishOne(const std::string& id, absl::Time now, WorkingSession* session) {
  if (!session->Dirty()) return ReturnOne(id, now, session);
  if (session->conflict) return ForgetOne(id);
  OvertakeLoad(id);
  session->stored.draft = nullptr;
  if (session->stored.published == nullptr) {
    residents_.Erase(id);
    return;
  }
  // Another server may have written a newer version already, and the reader seen it.
  const Resident* const there = FindResident(id, now);
  if (there != nullptr && there->version.key == session->new_row.key &&
      there->version.revision > session->new_row.revision) {
    return;
  }
  Resident resident = {std::move(session->stored), session->new_row, now};
  Put(id, &resident, now);
  session->stored = std::move(resident.stored);  // freed with the group
}

void SessionCache::Return(absl::Time now, ChangeGroup* group) {
  MutexLock lock(mu_);
  for (auto& [id, session] : group->sessions()) {
    if (session.Dirty()) {
      ForgetOne(id);
    } else {
      ReturnOne(id, now, &session);
    }
  }
}

void SessionCache::ReturnOne(const std::string& id, absl::Time now, WorkingSession* session) {
  // Does not replace what the reader has put there since.
  Resident* const resident = session->cached ? FindResident(id, now) : nullptr;
  if (resident != nullptr && resident->version == session->row) resident->stored = std::move(session->stored);
}

void SessionCache::Forget(absl::Span<const Change> changes) {
  MutexLock lock(mu_);
  for (const Change& change : changes) residents_.Erase(change.id);
}

void SessionCache::ForgetOne(const std::string& id) {
  OvertakeLoad(id);
  residents_.Erase(id);
}

void SessionCache::OvertakeLoad(const std::string& id) {
  if (const auto load = loads_.find(id); load != loads_.end()) load->second.overtaken = true;
}

// ---- the reader's thread

std::vector<RowRequest> SessionCache::BeginLoads(const std::map<std::string, bool>& wanted, absl::Time now) {
  std::vector<RowRequest> requests;
  requests.reserve(wanted.size());
  MutexLock lock(mu_);
  for (const auto& [id, whole] : wanted) {
    const Resident* const resident = whole ? nullptr : FindResident(id, now);
    requests.push_back({id, resident == nullptr ? RowVersion() : resident->version});
    loads_[id] = {};
  }
  return requests;
}

void SessionCache::AbandonLoad(const std::string& id) {
  MutexLock lock(mu_);
  loads_.erase(id);
}

std::optional<StoredSession> SessionCache::FinishUnchanged(const std::string& id, RowVersion version, absl::Time now) {
  MutexLock lock(mu_);
  loads_.erase(id);
  Resident* const resident = FindResident(id, now);
  const bool as_new =
      resident != nullptr && resident->version.key == version.key && resident->version.revision >= version.revision;
  if (!as_new) return std::nullopt;
  if (resident->version == version) resident->newest_at = now;
  return StoredSession{.published = resident->stored.published, .steps = {}, .phi_before = {}};
}

bool SessionCache::FinishLoad(const std::string& id, StoredSession stored, RowVersion version, absl::Time now) {
  Resident loaded = {std::move(stored), version, now};  // an older entry is freed with it, after the lock
  MutexLock lock(mu_);
  const auto load = loads_.find(id);
  const bool overtaken = load->second.overtaken;
  loads_.erase(load);
  if (overtaken) return false;
  const Resident* const there = FindResident(id, now);
  const bool came_back = there == nullptr;
  if (came_back || there->version != version) {
    Put(id, &loaded, now);
    ++loaded_;
  }
  return came_back;
}

SessionCache::Resident* SessionCache::FindResident(std::string_view id, absl::Time now) {
  Resident* const found = residents_.Find(id);
  if (found != nullptr) found->used = now;
  return found;
}

void SessionCache::Put(const std::string& id, Resident* resident, absl::Time now) {
  resident->used = now;
  const int64_t bytes = MemoryBytes(resident->stored);
  evicted_ += static_cast<int64_t>(residents_.Insert(id, resident, bytes).size());
}

}  // namespace normd
