#include "server/session/durable/durable_store.h"

#include <algorithm>

#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/session/record/record.h"
#include "server/session/running_state.h"
#include "server/session/session_changes.h"
#include "server/session/session_key.h"

namespace normd {

namespace {

int64_t BytesOf(const Moments& moments) { return static_cast<int64_t>(moments.size() * sizeof(Moment)); }

}  // namespace

absl::StatusOr<std::unique_ptr<DurableStore>> DurableStore::Open(DurableStoreOptions options, StoreTables tables,
                                                                 Clock* clock) {
  NORMD_ASSIGN_OR_RETURN(const TableTotals totals, tables.reader->Totals());
  return std::unique_ptr<DurableStore>(new DurableStore(std::move(options), std::move(tables), clock, totals));
}

DurableStore::DurableStore(DurableStoreOptions options, StoreTables tables, Clock* clock, const TableTotals& totals)
    : options_(std::move(options)),
      clock_(clock),
      shared_(tables.writer->shared()),
      write_table_(std::move(tables.writer)),
      read_table_(std::move(tables.reader)),
      list_table_(std::move(tables.lister)),
      last_sweep_(std::chrono::steady_clock::now()),
      limits_(options_.limits),
      idle_timeout_(options_.residency.idle_timeout),
      cache_(options_.residency.max_bytes),
      totals_(totals),
      decoder_(options_.observer.on_damaged),
      file_check_(std::move(tables.checker), options_),
      callbacks_(std::make_unique<CallbackThreads>(options_.callback_threads)),
      write_thread_(std::make_unique<WriteThread>(write_table_.get(), [this] {
        // The lock, so that a writer that has found no end waits already when the signal comes.
        { MutexLock lock(mu_); }
        changes_ready_.Signal();
      })) {
  writer_ = std::thread([this] { RunWriter(); });
  reader_ = std::thread([this] { RunReader(); });
  lister_ = std::thread([this] { RunLists(); });
}

DurableStore::~DurableStore() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changes_ready_.SignalAll();
  reads_ready_.SignalAll();
  lists_ready_.SignalAll();
  writer_.join();
  reader_.join();
  lister_.join();
  callbacks_.reset();
}

SessionLimits DurableStore::limits() const {
  MutexLock lock(mu_);
  return limits_;
}

void DurableStore::SetLimits(const SessionLimits& limits, const ResidencyLimits& residency) {
  MutexLock lock(mu_);
  limits_ = limits;
  idle_timeout_ = residency.idle_timeout;
  cache_.SetMaxBytes(residency.max_bytes);
}

// ---- the callers' threads

WaitStats DurableStore::WaitingReads(absl::Time now) const {
  WaitStats stats = {.waiting = static_cast<int64_t>(reads_.size() + lists_.size())};
  if (!reads_.empty()) stats.oldest = now - reads_.front().since;
  if (!lists_.empty()) stats.oldest = std::max(stats.oldest, now - lists_.front().since);
  return stats;
}

StoreStats DurableStore::stats() const {
  const absl::Time now = SteadyNow();
  const int64_t log_bytes = write_table_->LogBytes();
  const SessionTotals totals = totals_.all();
  MutexLock lock(mu_);
  StoreStats stats = stats_;
  stats.sessions = totals.sessions;
  stats.bytes = totals.bytes;
  stats.damaged = decoder_.damaged();
  stats.resident_sessions = cache_.size();
  stats.resident_bytes = cache_.bytes();
  stats.evictions = cache_.evictions();
  stats.log_bytes = log_bytes;
  stats.changes.waiting = static_cast<int64_t>(changes_.size());
  // Changes that are tried again stand in front.
  if (!changes_.empty()) stats.changes.oldest = now - changes_.front().first.since;
  stats.reads = WaitingReads(now);
  stats.file_damaged = file_check_.damaged();
  return stats;
}

TotalsByTenant DurableStore::tenant_totals() const { return totals_.by_tenant(); }

void DurableStore::Get(std::string id, absl::Duration max_staleness, Cancelled cancelled, Done<SessionPtr> done) {
  const absl::Time now = clock_->Now();
  if (SessionPtr session = FindResident(id, max_staleness, now); session != nullptr) {
    if (IsExpired(*session, now)) return done(SessionNotFoundError(IdOf(id)));
    return done(std::move(session));
  }
  auto then = [this, done = std::move(done)](absl::StatusOr<StoredSession> stored) mutable {
    if (!stored.ok()) return done(stored.status());
    SessionPtr session = std::move(stored->published);
    if (IsExpired(*session, clock_->Now())) return done(SessionNotFoundError(IdOf(session->id)));
    done(std::move(session));
  };
  EnqueueRead({.id = std::move(id), .cancelled = std::move(cancelled), .reserve = nullptr, .done = std::move(then)});
}

void DurableStore::Export(std::string id, Reserve reserve, Done<std::string> done) {
  auto then = [this, done = std::move(done)](absl::StatusOr<StoredSession> stored) mutable {
    if (!stored.ok()) return done(stored.status());
    const Session& session = *stored->published;
    if (IsExpired(session, clock_->Now())) return done(SessionNotFoundError(IdOf(session.id)));
    done(SerializeRecord(*stored));
  };
  EnqueueRead({.id = std::move(id),
               .whole = true,
               .cancelled = nullptr,
               .reserve = std::move(reserve),
               .done = std::move(then)});
}

void DurableStore::List(ListQuery query, Done<ListPage> done) {
  absl::Status refused;
  {
    MutexLock lock(mu_);
    const auto queued = static_cast<int64_t>(lists_.size());
    if (queued >= options_.max_queued_reads) {
      refused = LimitExceededError("queued lists", queued + 1, options_.max_queued_reads);
    } else {
      lists_.push_back({std::move(query), std::move(done)});
      lists_ready_.Signal();
      return;
    }
  }
  done(refused);
}

void DurableStore::Create(Session session, Done<SessionPtr> done) {
  absl::StatusOr<StoredSession> stored = NewSession(std::move(session), limits(), clock_->Now());
  if (!stored.ok()) return done(stored.status());
  EnqueueNew(*std::move(stored), std::move(done));
}

void DurableStore::Import(std::string id, std::string record, Done<SessionPtr> done) {
  absl::StatusOr<StoredSession> stored = ParseRecord(record);
  if (stored.ok()) stored = ImportedSession(std::move(id), *std::move(stored), limits(), clock_->Now());
  if (!stored.ok()) return done(stored.status());
  EnqueueNew(*std::move(stored), std::move(done));
}

void DurableStore::EnqueueNew(StoredSession stored, Done<SessionPtr> done) {
  const int64_t bytes = QuotaBytes(*stored.published);
  std::string id = stored.published->id;
  Enqueue({.id = std::move(id), .what = std::move(stored), .session_done = std::move(done)}, bytes);
}

void DurableStore::Update(std::string id, SessionPatch patch, Done<SessionPtr> done) {
  int64_t bytes = 0;
  for (const auto* tensor : {&patch.weight, &patch.bias}) {
    if (tensor->has_value() && (*tensor)->has_value()) bytes += static_cast<int64_t>((**tensor)->bytes.size());
  }
  Enqueue({.id = std::move(id), .what = std::move(patch), .session_done = std::move(done)}, bytes);
}

void DurableStore::Reset(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) {
  Enqueue({.id = std::move(id), .what = ResetChange{expected_version}, .session_done = std::move(done)}, 0);
}

void DurableStore::Delete(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) {
  Enqueue({.id = std::move(id), .what = DeleteChange{expected_version}, .session_done = std::move(done)}, 0);
}

void DurableStore::Commit(StateUpdate update, Done<CommitResult> done) {
  // Here and not on the writer's thread, for which everybody waits.
  if (update.step.has_value()) update.moments_hash = HashMoments(update.moments);
  const int64_t bytes = BytesOf(update.moments);
  std::string id = update.id;
  Enqueue({.id = std::move(id), .what = std::move(update), .session_done = nullptr, .commit_done = std::move(done)},
          bytes);
}

void DurableStore::Enqueue(Change change, int64_t bytes) {
  {
    MutexLock lock(mu_);
    const auto queued = static_cast<int64_t>(changes_.size());
    if (failed_) {
      change.status = StoreFailedError();
    } else if (queued >= options_.max_queued) {
      change.status = NoRoomError("queued changes", queued + 1, options_.max_queued);
    } else if (queued > 0 && changes_bytes_ + bytes > options_.max_queued_bytes) {
      change.status = NoRoomError("bytes of queued changes", changes_bytes_ + bytes, options_.max_queued_bytes);
    } else {
      changes_bytes_ += bytes;
      changes_.emplace_back(std::move(change), bytes);
      if (changes_.size() == wake_at_) changes_ready_.Signal();
      return;
    }
  }
  change.Answer();
}

void DurableStore::EnqueueRead(GetRead read) {
  absl::Status refused;
  {
    MutexLock lock(mu_);
    const auto queued = static_cast<int64_t>(reads_.size());
    if (queued >= options_.max_queued_reads) {
      refused = LimitExceededError("queued reads", queued + 1, options_.max_queued_reads);
    } else {
      reads_.push_back(std::move(read));
      reads_ready_.Signal();
      return;
    }
  }
  read.done(refused);
}

SessionPtr DurableStore::FindResident(const std::string& id, absl::Duration max_staleness, absl::Time now) {
  MutexLock lock(mu_);
  const ResidentSession* const resident = cache_.Find(id, now);
  if (resident == nullptr) return nullptr;
  if (shared_ && (max_staleness <= absl::ZeroDuration() || now - resident->read_time > max_staleness)) return nullptr;
  return resident->stored.published;
}

void DurableStore::Post(std::string_view id, Answer answer) {
  callbacks_->Post(callbacks_->ThreadOf(id), std::move(answer));
}

}  // namespace normd
