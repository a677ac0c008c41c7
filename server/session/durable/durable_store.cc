#include "server/session/durable/durable_store.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/base/steady_time.h"
#include "server/session/record/record.h"
#include "server/session/running_state.h"
#include "server/session/session_changes.h"

namespace normd {

namespace {

int64_t BytesOf(const StateUpdate& update) {
  const int64_t exact = update.details.exact == nullptr ? 0 : update.details.exact->size_bytes();
  return static_cast<int64_t>(update.moments.size() * sizeof(Moment)) + exact;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DurableStore>> DurableStore::Open(DurableStoreOptions options, StoreTables tables,
                                                                 Clock* clock) {
  NORMD_ASSIGN_OR_RETURN(const TableTotals totals, tables.reader->Totals());
  return std::unique_ptr<DurableStore>(new DurableStore(std::move(options), std::move(tables), clock, totals));
}

DurableStore::DurableStore(DurableStoreOptions options, StoreTables tables, Clock* clock, const TableTotals& totals)
    : parts_(std::move(options), &tables, clock, totals),
      writer_(std::move(tables.writer), &parts_),
      reader_(std::move(tables.reader), &parts_),
      lister_(std::move(tables.lister), &parts_) {}

DurableStore::~DurableStore() {
  writer_.Stop();
  reader_.Stop();
  lister_.Stop();
  // The writer's connection must be the last to the file, because closing it moves the log into the file.
  parts_.file.Stop();
  // While the three still exist, because a callback may call the store.
  parts_.callbacks.Stop();
}

void DurableStore::SetLimits(const SessionLimits& limits, const ResidencyLimits& residency) {
  writer_.SetLimits(limits);
  parts_.cache.SetLimits(residency);
}

StoreStats DurableStore::stats() const {
  const absl::Time now = SteadyNow();
  StoreStats stats = writer_.stats(now);
  parts_.cache.AddStats(&stats);
  const SessionTotals totals = parts_.totals.all();
  stats.sessions = totals.sessions;
  stats.bytes = totals.bytes;
  stats.damaged = parts_.decoder.damaged();
  const WaitStats reads = reader_.waiting(now), lists = lister_.waiting(now);
  stats.reads = {.waiting = reads.waiting + lists.waiting, .oldest = std::max(reads.oldest, lists.oldest)};
  stats.file_damaged = parts_.file.damaged();
  return stats;
}

void DurableStore::Get(std::string id, absl::Duration max_staleness, Cancelled cancelled, Done<SessionPtr> done) {
  reader_.Get(std::move(id), max_staleness, std::move(cancelled), std::move(done));
}

void DurableStore::Export(std::string id, Reserve reserve, Done<std::string> done) {
  reader_.Export(std::move(id), std::move(reserve), std::move(done));
}

void DurableStore::List(ListQuery query, Done<ListPage> done) { lister_.List(std::move(query), std::move(done)); }

void DurableStore::Create(Session session, Done<SessionPtr> done) {
  absl::StatusOr<StoredSession> stored = NewSession(std::move(session), limits(), parts_.clock->Now());
  if (!stored.ok()) return done(stored.status());
  AddNew(*std::move(stored), std::move(done));
}

void DurableStore::Import(std::string id, std::string record, Done<SessionPtr> done) {
  absl::StatusOr<StoredSession> stored = ParseRecord(record);
  if (stored.ok()) stored = ImportedSession(std::move(id), *std::move(stored), limits(), parts_.clock->Now());
  if (!stored.ok()) return done(stored.status());
  AddNew(*std::move(stored), std::move(done));
}

void DurableStore::AddNew(StoredSession stored, Done<SessionPtr> done) {
  const int64_t bytes = QuotaBytes(*stored.published);
  std::string id = stored.published->id;
  writer_.Add({.id = std::move(id), .what = std::move(stored), .session_done = std::move(done)}, bytes);
}

void DurableStore::Update(std::string id, SessionPatch patch, Done<SessionPtr> done) {
  int64_t bytes = 0;
  for (const auto* tensor : {&patch.weight, &patch.bias}) {
    if (tensor->has_value() && (*tensor)->has_value()) bytes += static_cast<int64_t>((**tensor)->bytes.size());
  }
  writer_.Add({.id = std::move(id), .what = std::move(patch), .session_done = std::move(done)}, bytes);
}

void DurableStore::Reset(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) {
  writer_.Add({.id = std::move(id), .what = ResetChange{expected_version}, .session_done = std::move(done)}, 0);
}

void DurableStore::Delete(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) {
  writer_.Add({.id = std::move(id), .what = DeleteChange{expected_version}, .session_done = std::move(done)}, 0);
}

void DurableStore::Commit(StateUpdate update, Done<CommitResult> done) {
  // Here and not on the writer's thread, for which everybody waits.
  if (update.step.has_value()) update.moments_hash = HashMoments(update.moments, update.details);
  const int64_t bytes = BytesOf(update);
  std::string id = update.id;
  writer_.Add({.id = std::move(id), .what = std::move(update), .session_done = nullptr, .commit_done = std::move(done)},
              bytes);
}

}  // namespace normd
