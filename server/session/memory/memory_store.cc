#include "server/session/memory/memory_store.h"

#include <algorithm>

#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/session/record/record.h"
#include "server/session/running_state.h"
#include "server/session/session_checks.h"
#include "server/session/session_key.h"

namespace normd {

namespace {

bool Matches(const Session& session, const std::map<std::string, std::string>& labels) {
  return std::all_of(labels.begin(), labels.end(), [&session](const auto& wanted) {
    const auto label = session.labels.find(wanted.first);
    return label != session.labels.end() && label->second == wanted.second;
  });
}

}  // namespace

MemoryStore::MemoryStore(const SessionLimits& limits, Clock* clock) : clock_(clock), limits_(limits) {}
MemoryStore::~MemoryStore() = default;

SessionLimits MemoryStore::limits() const {
  MutexLock lock(mu_);
  return limits_;
}

void MemoryStore::SetLimits(const SessionLimits& limits, const ResidencyLimits& /*residency*/) {
  MutexLock lock(mu_);
  limits_ = limits;
}

StoreStats MemoryStore::stats() const {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  const auto alive = std::find_if(expiries_.begin(), expiries_.end(), [now](const Expiry& e) { return e.first > now; });
  StoreStats stats;
  stats.sessions = static_cast<int64_t>(sessions_.size()) - std::distance(expiries_.begin(), alive);
  stats.bytes = bytes_;
  stats.resident_sessions = static_cast<int64_t>(sessions_.size());
  stats.resident_bytes = bytes_;
  stats.expired = expired_;
  return stats;
}

TotalsByTenant MemoryStore::tenant_totals() const {
  MutexLock lock(mu_);
  return tenants_;
}

void MemoryStore::Get(std::string id, absl::Duration /*max_staleness*/, Cancelled /*cancelled*/,
                      Done<SessionPtr> done) {
  done(Published(id));
}

void MemoryStore::List(ListQuery query, Done<ListPage> done) {
  const absl::Time now = clock_->Now();
  const KeyRange range = RangeOf(query);
  ListPage page;
  int64_t bytes = 0;
  {
    MutexLock lock(mu_);
    DropExpired(now);
    const auto end = sessions_.lower_bound(range.end);
    for (auto it = sessions_.upper_bound(std::min(range.after, range.end)); it != end; ++it) {
      const SessionPtr& session = it->second.published;
      if (!Matches(*session, query.labels)) continue;
      const bool full =
          static_cast<int64_t>(page.sessions.size()) >= query.page_size || (query.whole && bytes >= query.max_bytes);
      if (full && !page.sessions.empty()) {
        page.next_after = page.sessions.back()->id;
        break;
      }
      page.sessions.push_back(session);  // shared with the store, so parts that were not asked for cost nothing
      bytes += QuotaBytes(*session);
    }
  }
  done(std::move(page));
}

void MemoryStore::Create(Session session, Done<SessionPtr> done) {
  done(Insert(NewSession(std::move(session), limits(), clock_->Now())));
}

void MemoryStore::Import(std::string id, std::string record, Done<SessionPtr> done) {
  absl::StatusOr<StoredSession> stored = ParseRecord(record);
  if (stored.ok()) stored = ImportedSession(std::move(id), *std::move(stored), limits(), clock_->Now());
  done(Insert(std::move(stored)));
}

void MemoryStore::Update(std::string id, SessionPatch patch, Done<SessionPtr> done) {
  const SessionLimits limits = this->limits();
  done(Apply<SessionPtr>(
      id, [&](StoredSession* stored, absl::Time now, const Totals& totals) -> absl::StatusOr<SessionPtr> {
        NORMD_RETURN_IF_ERROR(PatchSession(std::move(patch), limits, totals, now, stored));
        return stored->published;
      }));
}

void MemoryStore::Reset(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) {
  done(Apply<SessionPtr>(
      id, [&](StoredSession* stored, absl::Time now, const Totals& /*totals*/) -> absl::StatusOr<SessionPtr> {
        NORMD_RETURN_IF_ERROR(CheckVersion(*stored->published, expected_version));
        NORMD_RETURN_IF_ERROR(CheckNotFrozen(*stored->published));
        ResetState(now, stored);
        return stored->published;
      }));
}

void MemoryStore::Delete(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) {
  done(Apply<SessionPtr>(
      id, [&](StoredSession* stored, absl::Time /*now*/, const Totals& /*totals*/) -> absl::StatusOr<SessionPtr> {
        NORMD_RETURN_IF_ERROR(CheckVersion(*stored->published, expected_version));
        return std::move(stored->published);
      }));
}

void MemoryStore::Commit(StateUpdate update, Done<CommitResult> done) {
  if (update.cancelled != nullptr && update.cancelled()) return done(CallerGoneError());
  // Computed before the lock is taken, because everybody waits for the lock.
  if (update.step.has_value()) update.moments_hash = HashMoments(update.moments, update.details);
  const SessionLimits limits = this->limits();
  absl::StatusOr<CommitResult> result = Apply<CommitResult>(
      update.id, [&](StoredSession* stored, absl::Time now, const Totals& /*totals*/) -> absl::StatusOr<CommitResult> {
        return CommitStep(update, limits, now, stored);
      });
  if (result.ok()) result->durability = durability();
  done(std::move(result));
}

void MemoryStore::Export(std::string id, Reserve reserve, Done<std::string> done) {
  absl::StatusOr<StoredSession> stored = Copy(id);
  if (!stored.ok()) return done(stored.status());
  const absl::Status held = reserve == nullptr ? absl::OkStatus() : reserve(ExportBytes(*stored));
  if (!held.ok()) return done(held);
  done(SerializeRecord(*stored));
}

absl::StatusOr<StoredSession*> MemoryStore::Find(std::string_view id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return SessionNotFoundError(IdOf(id));
  return &found->second;
}

void MemoryStore::DropExpired(absl::Time now) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const auto found = sessions_.find(expiries_.begin()->second);
    Account(found->second.published.get(), nullptr);
    sessions_.erase(found);
    ++expired_;
  }
}

void MemoryStore::Account(const Session* before, const Session* after) {
  const SessionTotals growth = {
      .sessions = (after != nullptr ? 1 : 0) - (before != nullptr ? 1 : 0),
      .bytes = (after != nullptr ? QuotaBytes(*after) : 0) - (before != nullptr ? QuotaBytes(*before) : 0)};
  bytes_ += growth.bytes;
  AddTo(&tenants_, TenantOf((after != nullptr ? after : before)->id), growth);
  if (before != nullptr) {
    if (before->ttl.has_value()) expiries_.erase({*ExpireTime(*before), before->id});
  }
  if (after != nullptr) {
    if (after->ttl.has_value()) expiries_.insert({*ExpireTime(*after), after->id});
  }
}

Totals MemoryStore::TotalsFor(std::string_view id) const {
  Totals totals = {.all = {.sessions = static_cast<int64_t>(sessions_.size()), .bytes = bytes_}, .tenant = {}};
  totals.tenant = TotalsOf(tenants_, TenantOf(id));
  return totals;
}

absl::StatusOr<SessionPtr> MemoryStore::Published(std::string_view id) {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  DropExpired(now);
  NORMD_ASSIGN_OR_RETURN(const StoredSession* stored, Find(id));
  return stored->published;
}

absl::StatusOr<StoredSession> MemoryStore::Copy(std::string_view id) {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  DropExpired(now);
  NORMD_ASSIGN_OR_RETURN(const StoredSession* stored, Find(id));
  return *stored;
}

absl::StatusOr<SessionPtr> MemoryStore::Insert(absl::StatusOr<StoredSession> stored) {
  NORMD_RETURN_IF_ERROR(stored.status());
  const SessionPtr published = stored->published;
  MutexLock lock(mu_);
  DropExpired(published->create_time);
  if (sessions_.find(published->id) != sessions_.end()) return SessionExistsError(IdOf(published->id));
  const SessionTotals more = {.sessions = 1, .bytes = QuotaBytes(*published)};
  NORMD_RETURN_IF_ERROR(CheckTotals(published->id, TotalsFor(published->id), more, limits_));
  sessions_.emplace(published->id, *std::move(stored));
  Account(nullptr, published.get());
  return published;
}

template <typename Result, typename Change>
absl::StatusOr<Result> MemoryStore::Apply(std::string_view id, Change change) {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  DropExpired(now);
  NORMD_ASSIGN_OR_RETURN(StoredSession * stored, Find(id));
  const SessionPtr before = stored->published;
  absl::StatusOr<Result> result = change(stored, now, TotalsFor(id));
  stored->draft = nullptr;
  stored->steps.ForgetChanges();  // only stores with rows use them
  // A change that takes the snapshot away deletes the session.
  Account(before.get(), stored->published.get());
  if (stored->published == nullptr) sessions_.erase(sessions_.find(id));
  return result;
}

}  // namespace normd
