#include "server/session/durable_store.h"

#include "absl/time/clock.h"
#include "kernels/errors.h"
#include "server/base/errors.h"
#include "server/base/status_macros.h"
#include "server/session/record.h"
#include "server/session/running_state.h"
#include "server/session/session_changes.h"

namespace normd {

namespace {

int64_t BytesOf(const Moments& moments) { return static_cast<int64_t>(moments.size() * sizeof(Moment)); }

}  // namespace

absl::StatusOr<std::unique_ptr<DurableStore>> DurableStore::Open(DurableStoreOptions options,
                                                                 std::unique_ptr<SessionTable> writer,
                                                                 std::unique_ptr<SessionTable> reader, Clock* clock) {
  NORMD_ASSIGN_OR_RETURN(const TableTotals totals, reader->Totals());
  return std::unique_ptr<DurableStore>(
      new DurableStore(std::move(options), std::move(writer), std::move(reader), clock, totals));
}

DurableStore::DurableStore(DurableStoreOptions options, std::unique_ptr<SessionTable> writer,
                           std::unique_ptr<SessionTable> reader, Clock* clock, const TableTotals& totals)
    : options_(std::move(options)),
      clock_(clock),
      shared_(writer->shared()),
      write_table_(std::move(writer)),
      read_table_(std::move(reader)),
      last_sweep_(absl::Now()),
      residents_(options_.max_resident_bytes) {
  figures_.sessions = totals.sessions;
  figures_.bytes = totals.bytes;
  writer_ = std::thread([this] { RunWriter(); });
  reader_ = std::thread([this] { RunReader(); });
  answerer_ = std::thread([this] { RunAnswers(); });
}

DurableStore::~DurableStore() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  changes_ready_.SignalAll();
  reads_ready_.SignalAll();
  writer_.join();
  reader_.join();
  {
    MutexLock lock(mu_);
    readers_and_writers_stopped_ = true;
  }
  answers_ready_.SignalAll();
  answerer_.join();
}

// ---- the callers' threads

StoreFigures DurableStore::figures() const {
  MutexLock lock(mu_);
  StoreFigures figures = figures_;
  figures.resident_sessions = residents_.size();
  figures.resident_bytes = residents_.bytes();
  figures.evictions = residents_.evictions();
  figures.queued = static_cast<int64_t>(changes_.size());
  return figures;
}

void DurableStore::Get(std::string id, absl::Duration max_staleness, Done<SessionPtr> done) {
  const absl::Time now = clock_->Now();
  if (SessionPtr session = FindResident(id, max_staleness, now); session != nullptr) {
    if (IsExpired(*session, now)) return done(SessionNotFoundError(id));
    return done(std::move(session));
  }
  EnqueueRead(
      GetRead{std::move(id), false, [this, done = std::move(done)](absl::StatusOr<StoredSession> stored) mutable {
                if (!stored.ok()) return done(stored.status());
                SessionPtr session = std::move(stored->published);
                if (IsExpired(*session, clock_->Now())) return done(SessionNotFoundError(session->id));
                done(std::move(session));
              }});
}

void DurableStore::Export(std::string id, Done<std::string> done) {
  EnqueueRead(
      GetRead{std::move(id), true, [this, done = std::move(done)](absl::StatusOr<StoredSession> stored) mutable {
                if (!stored.ok()) return done(stored.status());
                const Session& session = *stored->published;
                if (IsExpired(session, clock_->Now())) return done(SessionNotFoundError(session.id));
                done(SerializeRecord(*stored));
              }});
}

void DurableStore::List(ListQuery query, Done<std::vector<SessionPtr>> done) {
  EnqueueRead(ListRead{std::move(query), std::move(done)});
}

void DurableStore::Create(Session session, Done<SessionPtr> done) {
  absl::StatusOr<StoredSession> stored = NewSession(std::move(session), options_.limits, clock_->Now());
  if (!stored.ok()) return done(stored.status());
  EnqueueNew(*std::move(stored), std::move(done));
}

void DurableStore::Import(std::string id, std::string record, Done<SessionPtr> done) {
  absl::StatusOr<StoredSession> stored = ImportedSession(std::move(id), record, options_.limits, clock_->Now());
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
  // Here, and not on the writer's thread, for which everybody waits.
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
      change.status = TooManyError("queued changes", queued + 1, options_.max_queued);
    } else if (queued > 0 && changes_bytes_ + bytes > options_.max_queued_bytes) {
      change.status = TooManyError("bytes of queued changes", changes_bytes_ + bytes, options_.max_queued_bytes);
    } else {
      changes_bytes_ += bytes;
      changes_.emplace_back(std::move(change), bytes);
      if (queued == 0) changes_ready_.Signal();
      return;
    }
  }
  change.Answer();
}

void DurableStore::EnqueueRead(Read read) {
  MutexLock lock(mu_);
  reads_.push_back(std::move(read));
  reads_ready_.Signal();
}

SessionPtr DurableStore::FindResident(const std::string& id, absl::Duration max_staleness, absl::Time now) {
  MutexLock lock(mu_);
  const ResidentSession* const resident = residents_.Find(id, now);
  if (resident == nullptr) return nullptr;
  if (shared_ && (max_staleness <= absl::ZeroDuration() || now - resident->read_time > max_staleness)) return nullptr;
  return resident->stored.published;
}

// ---- the answering thread

void DurableStore::Post(Answer answer) {
  bool first = false;
  {
    MutexLock lock(mu_);
    first = answers_.empty();
    answers_.push_back(std::move(answer));
  }
  if (first) answers_ready_.Signal();  // who wakes finds the mutex free
}

void DurableStore::RunAnswers() {
  while (true) {
    std::deque<Answer> answers;
    {
      MutexLock lock(mu_);
      while (answers_.empty() && !readers_and_writers_stopped_) answers_ready_.Wait(mu_);
      if (answers_.empty()) return;
      answers.swap(answers_);
    }
    for (Answer& answer : answers) answer();
  }
}

}  // namespace normd
