#include "server/session/durable/session_reader.h"

#include <map>
#include <string_view>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/session/record/record.h"
#include "server/session/session_changes.h"
#include "server/session/session_key.h"

namespace normd {

namespace {

// Limits one load, because what is read is not bounded by what the callers sent.
constexpr size_t kMaxLoads = 64;

}  // namespace

SessionReader::SessionReader(std::unique_ptr<SessionTable> table, StoreParts* parts)
    : parts_(*parts), table_(std::move(table)), thread_([this] { Run(); }) {}

SessionReader::~SessionReader() { Stop(); }

void SessionReader::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  ready_.SignalAll();
  thread_.join();
}

// ---- the callers' threads

void SessionReader::Get(std::string id, absl::Duration max_staleness, SessionStore::Cancelled cancelled,
                        SessionStore::Done<SessionPtr> done) {
  const absl::Time now = parts_.clock->Now();
  // What other servers cannot write is as new in memory as in the table.
  const absl::Duration max_age = parts_.shared_table ? max_staleness : absl::InfiniteDuration();
  if (SessionPtr session = parts_.cache.Find(id, max_age, now); session != nullptr) {
    if (IsExpired(*session, now)) return done(SessionNotFoundError(IdOf(id)));
    return done(std::move(session));
  }
  auto then = [this, done = std::move(done)](absl::StatusOr<StoredSession> stored) mutable {
    if (!stored.ok()) return done(stored.status());
    SessionPtr session = std::move(stored->published);
    if (IsExpired(*session, parts_.clock->Now())) return done(SessionNotFoundError(IdOf(session->id)));
    done(std::move(session));
  };
  Add({.id = std::move(id), .cancelled = std::move(cancelled), .reserve = nullptr, .done = std::move(then)});
}

void SessionReader::Export(std::string id, SessionStore::Reserve reserve, SessionStore::Done<std::string> done) {
  auto then = [this, done = std::move(done)](absl::StatusOr<StoredSession> stored) mutable {
    if (!stored.ok()) return done(stored.status());
    const Session& session = *stored->published;
    if (IsExpired(session, parts_.clock->Now())) return done(SessionNotFoundError(IdOf(session.id)));
    done(SerializeRecord(*stored));
  };
  Add({.id = std::move(id),
       .whole = true,
       .cancelled = nullptr,
       .reserve = std::move(reserve),
       .done = std::move(then)});
}

void SessionReader::Add(Read read) {
  const int64_t limit = parts_.options.max_queued_reads;
  int64_t queued = 0;
  {
    MutexLock lock(mu_);
    queued = static_cast<int64_t>(queued_.size());
    if (queued < limit) {
      queued_.push_back(std::move(read));
      ready_.Signal();
      return;
    }
  }
  read.done(LimitExceededError("queued reads", queued + 1, limit));
}

WaitStats SessionReader::waiting(absl::Time now) const {
  MutexLock lock(mu_);
  WaitStats stats = {.waiting = static_cast<int64_t>(queued_.size())};
  if (!queued_.empty()) stats.oldest = now - queued_.front().since;
  return stats;
}

// ---- the reader's thread

void SessionReader::Run() {
  while (AwaitReads()) {
    std::vector<Read> reads = TakeReads();
    while (!reads.empty()) reads = TryReads(std::move(reads));
  }
}

bool SessionReader::AwaitReads() {
  MutexLock lock(mu_);
  while (queued_.empty() && !stopping_) ready_.Wait(mu_);
  return !queued_.empty();
}

std::vector<SessionReader::Read> SessionReader::TakeReads() {
  std::vector<Read> taken;
  {
    MutexLock lock(mu_);
    while (!queued_.empty() && taken.size() < kMaxLoads) {
      taken.push_back(std::move(queued_.front()));
      queued_.pop_front();
    }
  }
  std::vector<Read> wanted;
  for (Read& read : taken) {
    if (read.cancelled != nullptr && read.cancelled()) {
      Answer(std::move(read), CallerGoneError());
    } else {
      wanted.push_back(std::move(read));
    }
  }
  return wanted;
}

std::vector<SessionReader::Read> SessionReader::TryReads(std::vector<Read> reads) {
  // Before memory is asked which versions it knows, because a new connection empties memory.
  const absl::Status connected = parts_.Reconnect(table_.get(), &connection_).status();
  const std::vector<RowRequest> requests = BeginLoads(reads);
  const absl::StatusOr<std::vector<SessionRow>> rows = connected.ok() ? LoadRows(requests) : connected;
  if (!rows.ok()) parts_.ReportError(rows.status());
  std::map<std::string_view, const SessionRow*> by_id;
  if (rows.ok()) {
    for (const SessionRow& row : *rows) by_id.emplace(row.id, &row);
  }
  std::map<std::string_view, Outcome> outcomes;
  for (const RowRequest& request : requests) {
    const auto row = by_id.find(request.id);
    Outcome outcome = FinishLoad(request.id, row == by_id.end() ? nullptr : row->second);
    if (!rows.ok()) outcome = rows.status();
    outcomes.emplace(request.id, std::move(outcome));
  }
  std::vector<Read> again;
  for (Read& read : reads) {
    const Outcome& outcome = outcomes.at(read.id);
    if (outcome.has_value()) {
      Answer(std::move(read), *outcome);
    } else {
      again.push_back(std::move(read));
    }
  }
  return again;
}

std::vector<RowRequest> SessionReader::BeginLoads(const std::vector<Read>& reads) {
  std::map<std::string, bool> wanted;  // true: one of the reads needs all of the row
  for (const Read& read : reads) wanted[read.id] |= read.whole;
  return parts_.cache.BeginLoads(wanted, parts_.clock->Now());
}

absl::StatusOr<std::vector<SessionRow>> SessionReader::LoadRows(const std::vector<RowRequest>& requests) {
  const absl::Time start = SteadyNow();
  absl::StatusOr<std::vector<SessionRow>> rows = table_->Load(requests, StoreParts::kMaxLoadBytes);
  if (parts_.options.observer.on_read != nullptr) parts_.options.observer.on_read(SteadyNow() - start);
  // The connection was lost: the versions that the rows were compared with may not hold any more.
  NORMD_ASSIGN_OR_RETURN(const bool reconnected, parts_.Reconnect(table_.get(), &connection_));
  if (!reconnected) return rows;
  std::vector<RowRequest> anew = requests;
  for (RowRequest& request : anew) request.known = {};
  return table_->Load(anew, StoreParts::kMaxLoadBytes);
}

SessionReader::Outcome SessionReader::FinishLoad(const std::string& id, const SessionRow* row) {
  const absl::Time now = parts_.clock->Now();
  if (row != nullptr && row->unchanged) return parts_.cache.FinishUnchanged(id, row->version, now);
  if (row != nullptr && row->left_out) {
    parts_.cache.AbandonLoad(id);
    return std::nullopt;
  }
  absl::StatusOr<StoredSession> stored = NoRowError(id);
  if (row != nullptr) stored = parts_.decoder.Decode(*row);
  if (!stored.ok()) {
    parts_.cache.AbandonLoad(id);
    return stored;
  }
  // The record is sealed and decides.
  if (!parts_.decoder.ColumnsFit(*row, *stored->published)) parts_.decoder.RepairLater(id);
  const bool came_back = parts_.cache.FinishLoad(id, *stored, row->version, now);
  if (came_back && parts_.options.observer.on_loaded != nullptr) parts_.options.observer.on_loaded(id);
  return stored;
}

absl::Status SessionReader::NoRowError(const std::string& id) const {
  const absl::Status missing = parts_.file.MissingRow();
  return missing.ok() ? SessionNotFoundError(IdOf(id)) : missing;
}

void SessionReader::Answer(Read read, absl::StatusOr<StoredSession> result) {
  // Here, and not when the callback runs, because the result takes memory while it waits for its callback.
  if (result.ok() && read.reserve != nullptr) {
    if (const absl::Status held = read.reserve(ExportBytes(*result)); !held.ok()) result = held;
  }
  const std::string id = read.id;
  parts_.Post(id, [done = std::move(read.done), result = std::move(result)]() mutable { done(std::move(result)); });
}

}  // namespace normd
