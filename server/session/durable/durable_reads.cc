// The reads of DurableStore: sessions that are not in memory, and sessions that other replicas may have changed.
#include <iterator>
#include <map>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/session/durable/durable_store.h"
#include "server/session/record/record.h"
#include "server/session/session_key.h"

namespace normd {

namespace {

// Limits of one load, because what is read is not bounded by what the callers sent.
constexpr size_t kMaxLoads = 64;

}  // namespace

void DurableStore::RunReader() {
  while (true) {
    {
      MutexLock lock(mu_);
      while (reads_.empty() && !stopping_) reads_ready_.Wait(mu_);
      if (reads_.empty()) return;
    }
    std::vector<GetRead> reads = TakeReads();
    while (!reads.empty()) reads = TryReads(std::move(reads));
  }
}

std::vector<DurableStore::GetRead> DurableStore::TakeReads() {
  std::vector<GetRead> taken;
  {
    MutexLock lock(mu_);
    while (!reads_.empty() && taken.size() < kMaxLoads) {
      taken.push_back(std::move(reads_.front()));
      reads_.pop_front();
    }
  }
  std::vector<GetRead> wanted;
  for (GetRead& read : taken) {
    if (read.cancelled != nullptr && read.cancelled()) {
      AnswerRead(std::move(read), CallerGoneError());
    } else {
      wanted.push_back(std::move(read));
    }
  }
  return wanted;
}

void DurableStore::AnswerRead(GetRead read, absl::StatusOr<StoredSession> result) {
  // Here, and not when the callback runs, because the result takes memory while it waits for its callback.
  if (result.ok() && read.reserve != nullptr) {
    if (const absl::Status held = read.reserve(ExportBytes(*result)); !held.ok()) result = held;
  }
  const std::string id = read.id;
  Post(id, [done = std::move(read.done), result = std::move(result)]() mutable { done(std::move(result)); });
}

std::vector<DurableStore::GetRead> DurableStore::TryReads(std::vector<GetRead> reads) {
  // Before memory is asked which versions it knows, because a new connection empties memory.
  const absl::Status connected = Reconnect(read_table_.get(), &read_connection_).status();
  const std::vector<RowRequest> requests = BeginLoading(reads);
  const absl::StatusOr<std::vector<SessionRow>> rows = connected.ok() ? LoadRows(requests) : connected;
  if (!rows.ok() && options_.observer.on_error != nullptr) options_.observer.on_error(rows.status());
  std::map<std::string_view, const SessionRow*> by_id;
  if (rows.ok()) {
    for (const SessionRow& row : *rows) by_id.emplace(row.id, &row);
  }
  std::map<std::string_view, std::optional<absl::StatusOr<StoredSession>>> results;
  for (const RowRequest& request : requests) {
    const auto row = by_id.find(request.id);
    auto result = FinishLoading(request.id, row == by_id.end() ? nullptr : row->second);
    if (!rows.ok()) result = rows.status();
    results[request.id] = std::move(result);
  }
  std::vector<GetRead> again;
  for (GetRead& read : reads) {
    const auto& result = results.at(read.id);
    if (!result.has_value()) {
      again.push_back(std::move(read));
      continue;
    }
    AnswerRead(std::move(read), *result);
  }
  return again;
}

absl::StatusOr<std::vector<SessionRow>> DurableStore::LoadRows(const std::vector<RowRequest>& requests) {
  const absl::Time start = SteadyNow();
  absl::StatusOr<std::vector<SessionRow>> rows = read_table_->Load(requests, kMaxLoadBytes);
  if (options_.observer.on_read != nullptr) options_.observer.on_read(SteadyNow() - start);
  // The connection was lost: the versions that the rows were compared with may not hold any more.
  NORMD_ASSIGN_OR_RETURN(const bool reconnected, Reconnect(read_table_.get(), &read_connection_));
  if (!reconnected) return rows;
  std::vector<RowRequest> anew = requests;
  for (RowRequest& request : anew) request.known = {};
  return read_table_->Load(anew, kMaxLoadBytes);
}

std::vector<RowRequest> DurableStore::BeginLoading(const std::vector<GetRead>& reads) {
  const absl::Time now = clock_->Now();
  std::map<std::string, RowVersion> known;
  MutexLock lock(mu_);
  for (const GetRead& read : reads) {
    const ResidentSession* const resident = read.whole ? nullptr : cache_.Find(read.id, now);
    const RowVersion version = resident == nullptr ? RowVersion() : resident->version;
    const auto [found, is_new] = known.emplace(read.id, version);
    // One of the reads needs all of the row.
    if (!is_new && version.key == 0) found->second = {};
  }
  std::vector<RowRequest> requests;
  for (const auto& [id, version] : known) {
    requests.push_back({id, version});
    loading_[id] = false;
  }
  return requests;
}

std::optional<absl::StatusOr<StoredSession>> DurableStore::FinishLoading(const std::string& id, const SessionRow* row) {
  const absl::Time now = clock_->Now();
  const absl::Status missing = file_check_.MissingRow();
  absl::StatusOr<StoredSession> parsed = missing.ok() ? SessionNotFoundError(IdOf(id)) : missing;
  if (row != nullptr && !row->unchanged && !row->left_out) parsed = decoder_.Decode(*row);
  // The record is sealed and decides; lists, which read the columns, find the session again after the next sweep.
  const bool misfit =
      row != nullptr && !row->unchanged && parsed.ok() && !decoder_.ColumnsFit(*row, *parsed->published);
  if (misfit) decoder_.RepairLater(id);
  bool came_back = false;
  {
    MutexLock lock(mu_);
    const auto loading = loading_.find(id);
    // If so, memory has a newer snapshot or knows that the session is gone; the row was the newest when it was read.
    const bool published_meanwhile = loading->second;
    loading_.erase(loading);
    if (row != nullptr && row->left_out) return std::nullopt;
    ResidentSession* const resident = cache_.Find(id, now);
    if (row != nullptr && row->unchanged) {
      const bool as_new = resident != nullptr && resident->version.key == row->version.key &&
                          resident->version.revision >= row->version.revision;
      if (!as_new) return std::nullopt;
      if (resident->version == row->version) resident->read_time = now;
      return StoredSession{.published = resident->stored.published, .steps = {}, .phi_before = {}};
    }
    if (!parsed.ok() || published_meanwhile) return parsed;
    came_back = resident == nullptr;
    if (came_back || resident->version != row->version) {
      ResidentSession loaded = {*parsed, row->version, now};
      cache_.Put(id, &loaded, now);
      ++stats_.loads;
    }
  }
  if (came_back && options_.observer.on_loaded != nullptr) options_.observer.on_loaded(id);
  return parsed;
}

}  // namespace normd
