#include "server/session/durable/session_writer.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/session/session_key.h"

namespace normd {

namespace {

// Limits of one transaction: enough changes to share a flush, but not so many bytes that an answer waits for megabytes.
constexpr int64_t kMaxGroupChanges = 1024;
constexpr int64_t kMaxGroupBytes = int64_t{16} << 20;
// The fewest changes for which a writer wakes up that waits for the end of a group.
constexpr size_t kMinOverlapChanges = 8;
// Attempts at a change that loses against other replicas; each time somebody else's change went through.
constexpr int kMaxAttempts = 50;

// Removes and returns, in order, those of `changes` from `begin` on for which `is_out` is true. Usually there are none,
// and then nothing is moved.
template <typename Predicate>
std::vector<Change> TakeOut(std::vector<Change>* changes, size_t begin, Predicate is_out) {
  std::vector<Change> out;
  const auto first = std::find_if(changes->begin() + static_cast<std::ptrdiff_t>(begin), changes->end(), is_out);
  if (first == changes->end()) return out;
  auto kept = first;
  for (auto change = first; change != changes->end(); ++change) {
    if (change == first || is_out(*change)) {
      out.push_back(std::move(*change));
    } else {
      *kept++ = std::move(*change);
    }
  }
  changes->erase(kept, changes->end());
  return out;
}

// Requests for the sessions of `changes`, whatever memory has.
std::vector<RowRequest> RequestsFor(absl::Span<const Change> changes) {
  std::set<std::string_view> ids;
  for (const Change& change : changes) ids.insert(change.id);
  std::vector<RowRequest> requests;
  requests.reserve(ids.size());
  for (const std::string_view id : ids) requests.push_back({std::string(id), {}});
  return requests;
}

}  // namespace

SessionWriter::SessionWriter(std::unique_ptr<SessionTable> table, StoreParts* parts)
    : parts_(*parts),
      queue_(parts_.options.max_queued, parts_.options.max_queued_bytes),
      table_(std::move(table)),
      transactions_(table_.get(), &parts_.totals, [this] { queue_.Wake(); }),
      last_sweep_(std::chrono::steady_clock::now()),
      limits_(parts_.options.limits),
      thread_([this] { Run(); }) {}

SessionWriter::~SessionWriter() { Stop(); }

void SessionWriter::Stop() {
  if (!thread_.joinable()) return;
  queue_.Stop();
  thread_.join();
}

SessionLimits SessionWriter::limits() const {
  MutexLock lock(mu_);
  return limits_;
}

void SessionWriter::SetLimits(const SessionLimits& limits) {
  MutexLock lock(mu_);
  limits_ = limits;
}

StoreStats SessionWriter::stats(absl::Time now) const {
  StoreStats stats;
  {
    MutexLock lock(mu_);
    stats = stats_;
  }
  stats.changes = queue_.waiting(now);
  stats.log_bytes = table_->LogBytes();
  return stats;
}

int64_t SessionWriter::expired() const {
  MutexLock lock(mu_);
  return stats_.expired;
}

void SessionWriter::Run() {
  std::vector<Change> changes;
  while (true) {
    const Transaction* const before = committing_.get();
    if (!TakeChanges(&changes)) break;
    if (!changes.empty()) CommitChanges(std::move(changes));
    changes.clear();
    // The answers of a group that has ended wait for changes that are written after it, but not for those that write
    // nothing: replays may come without end.
    if (before != nullptr && committing_.get() == before && transactions_.ended()) FinishCommitting();
    if (more_expired_ || SinceSweep() >= parts_.options.sweep_interval) {
      FinishCommitting();
      Sweep();
    }
  }
}

// ---- taking changes

bool SessionWriter::TakeChanges(std::vector<Change>* changes) {
  if (committing_ != nullptr) {
    if (!AwaitChanges()) {
      FinishCommitting();
      return true;
    }
  } else if (!queue_.AwaitFirst(more_expired_ ? absl::ZeroDuration() : parts_.options.sweep_interval)) {
    return false;
  }
  group_bytes_ = 0;
  TakeQueued(changes);
  return true;
}

void SessionWriter::TakeQueued(std::vector<Change>* changes) {
  const size_t before = changes->size();
  const ChangeQueue::Room room = {.changes = kMaxGroupChanges - static_cast<int64_t>(before),
                                  .bytes = kMaxGroupBytes - group_bytes_};
  group_bytes_ += queue_.Take(
      room, [this](const Change& next) { return CanOverlap(next); }, changes);
  // This is the last moment to find out that nobody waits for a step.
  std::vector<Change> dropped = TakeOut(changes, before, std::mem_fn(&Change::Cancelled));
  for (Change& change : dropped) change.status = CallerGoneError();
  AnswerAll(std::move(dropped));
}

bool SessionWriter::CanOverlap(const Change& change) const {
  if (committing_ == nullptr) return true;
  return change.IsStep() && !committing_->group.Has(change.id) && parts_.cache.Has(change.id, parts_.clock->Now());
}

bool SessionWriter::AwaitChanges() {
  bool enough = false;
  queue_.AwaitMany(kMinOverlapChanges, [this, &enough](const Change* first, size_t queued) {
    const bool ended = transactions_.ended();
    enough = queued >= (ended ? TransactionWriter::kMinEarlyRows : kMinOverlapChanges) && CanOverlap(*first);
    return enough || ended;
  });
  return enough;
}

void SessionWriter::TryAgainOrRefuse(std::vector<Change> changes) {
  std::vector<Change> lost = TakeOut(&changes, 0, [](Change& change) { return ++change.attempts >= kMaxAttempts; });
  for (Change& change : lost) change.status = StoreUnavailableError("other servers change this session all the time");
  AnswerAll(std::move(lost));
  if (changes.empty()) return;
  int attempts = 0;
  for (const Change& change : changes) attempts = std::max(attempts, change.attempts);
  parts_.cache.Forget(changes);  // the sessions are read anew
  const bool alone = queue_.PutBack(std::move(changes));
  // A random pause, because replicas that lose against each other at the same pace would do so again.
  if (alone && parts_.shared_table && attempts > 1) {
    const int64_t most_micros = int64_t{200} << std::min(attempts, 6);
    queue_.Pause(absl::Microseconds(std::uniform_int_distribution<int64_t>(0, most_micros)(random_)));
  }
}

bool SessionWriter::Postpone(size_t begin, const ChangeGroup& group, std::vector<Change>* changes) {
  std::vector<Change> later = TakeOut(changes, begin, [&group](const Change& change) { return !group.Has(change.id); });
  if (later.empty()) return false;
  queue_.PutBack(std::move(later));
  return true;
}

// ---- one group

void SessionWriter::CommitChanges(std::vector<Change> changes) {
  if (queue_.failed()) {
    for (Change& change : changes) change.status = StoreFailedError();
    return AnswerAll(std::move(changes));
  }
  changes = TryChanges(std::move(changes), /*fresh=*/false);
  if (changes.empty()) return;
  MakeRoom(&changes);
  TryAgainOrRefuse(std::move(changes));
}

std::vector<Change> SessionWriter::TryChanges(std::vector<Change> changes, bool fresh) {
  auto transaction = std::make_unique<Transaction>(
      limits(), [this](std::string_view tenant) { return parts_.totals.For(tenant); }, parts_.clock->Now());
  transaction->changes = std::move(changes);
  if (const absl::Status status = ApplyAll(fresh, transaction.get()); !status.ok()) {
    parts_.cache.Return(parts_.clock->Now(), &transaction->group);
    parts_.ReportError(status);
    for (Change& change : transaction->changes) change.status = status;
    AnswerAll(std::move(transaction->changes));
    return {};
  }
  return Write(fresh, std::move(transaction));
}

absl::Status SessionWriter::ApplyAll(bool fresh, Transaction* transaction) {
  std::vector<Change>& changes = transaction->changes;
  ChangeGroup& group = transaction->group;
  size_t applied = 0;
  while (applied < changes.size()) {
    NORMD_RETURN_IF_ERROR(Load(absl::MakeConstSpan(changes).subspan(applied), fresh, &group));
    const bool postponed = Postpone(applied, group, &changes);
    while (applied < changes.size()) {
      group.Apply(&changes[applied++]);
      transactions_.WriteEarly(changes.size() - applied, transaction);
    }
    // When the group before has ended, this one is what the thread that writes has to do next.
    if (fresh || postponed || (committing_ != nullptr && transactions_.ended())) break;
    // Callers that the last group has answered come back while this group is worked on, and share its flush. Without
    // this, two groups of callers would take turns for ever, each with a flush of its own.
    TakeQueued(&changes);
    if (applied < changes.size() || committing_ == nullptr) continue;
    transactions_.AddEarlyRows(transaction);  // there is nothing else to do
    if (AwaitChanges()) TakeQueued(&changes);
  }
  return absl::OkStatus();
}

absl::Status SessionWriter::Load(absl::Span<const Change> changes, bool fresh, ChangeGroup* group) {
  if (transactions_.busy()) {  // never if `fresh`, because nothing is being written then
    parts_.cache.MoveInto(changes, parts_.clock->Now(), group);
    return absl::OkStatus();
  }
  NORMD_ASSIGN_OR_RETURN(const bool reconnected, parts_.Reconnect(table_.get(), &connection_));
  // The connection that is gone has read what the group holds.
  if (reconnected && !group->sessions().empty()) return StoreUnavailableError("the connection was lost");
  return LoadRows(fresh ? RequestsFor(changes) : parts_.cache.MoveInto(changes, parts_.clock->Now(), group), group);
}

absl::Status SessionWriter::LoadRows(absl::Span<const RowRequest> requests, ChangeGroup* group) {
  if (requests.empty()) return absl::OkStatus();
  NORMD_ASSIGN_OR_RETURN(const std::vector<SessionRow> rows, table_->Load(requests, StoreParts::kMaxLoadBytes));
  std::unordered_set<std::string_view> left_out;
  for (const SessionRow& row : rows) {
    if (row.left_out) left_out.insert(row.id);
  }
  const absl::Status missing = parts_.file.MissingRow();
  for (const RowRequest& request : requests) {
    if (left_out.count(request.id) == 0) group->Add(request.id, {.damage = missing});
  }
  for (const SessionRow& row : rows) {
    if (row.left_out) continue;
    WorkingSession session = {.row = row.version};
    absl::StatusOr<StoredSession> stored = parts_.decoder.Decode(row);
    session.damage = stored.status();
    if (stored.ok()) {
      session.columns_fit = parts_.decoder.ColumnsFit(row, *stored->published);
      session.stored = *std::move(stored);
    }
    group->Add(row.id, std::move(session));
  }
  return absl::OkStatus();
}

std::vector<Change> SessionWriter::Write(bool fresh, std::unique_ptr<Transaction> transaction) {
  const std::optional<TransactionWriter::Result> result = transactions_.WriteRest(transaction.get());
  if (result.has_value()) return Finish(*result, std::move(transaction));
  FinishCommitting();  // only now, so that this group is written while callers of the one before are answered
  if (!fresh && CommitsBehind(*transaction)) {
    committing_ = std::move(transaction);
    return {};
  }
  return Finish(transactions_.Take(), std::move(transaction));
}

// Where a commit is flushed, callers who wait for their answers would fall into two halves that take turns, each with a
// flush of its own. Where steps share rows, the next group has the same sessions and would have to wait in any case.
bool SessionWriter::CommitsBehind(const Transaction& transaction) const {
  return parts_.options.durability != Durability::kPower && !transactions_.steps_share_rows() &&
         std::all_of(transaction.changes.begin(), transaction.changes.end(), std::mem_fn(&Change::IsStep));
}

// ---- the end of a group

void SessionWriter::FinishCommitting() {
  if (committing_ != nullptr) TryAgainOrRefuse(Finish(transactions_.Take(), std::move(committing_)));
}

std::vector<Change> SessionWriter::Finish(const TransactionWriter::Result& result,
                                          std::unique_ptr<Transaction> transaction) {
  std::vector<Change>& changes = transaction->changes;
  ChangeGroup& group = transaction->group;
  if (!result.versions.ok()) {
    Fail(result, transaction.get());
    return {};
  }
  Publish(result, transaction.get());
  if (!result.versions->empty() && parts_.options.observer.on_group != nullptr) {
    parts_.options.observer.on_group(static_cast<int64_t>(changes.size()), absl::Now() - result.begun);
  }
  transactions_.Reuse(changes.size(), result.versions->size(), transaction.get());
  // A change that an old row refused may succeed with the current one.
  std::vector<Change> again = TakeOut(&changes, 0, [&group, shared = parts_.shared_table](const Change& change) {
    const WorkingSession& session = group.Find(change.id);
    return session.conflict || (shared && session.cached && !change.status.ok()) || change.WantsRoom();
  });
  // Replaced snapshots are freed on a callback thread that is awake for this group anyway, and not on this thread, for
  // which everybody waits.
  const size_t awake = changes.empty() ? 0 : parts_.callbacks.ThreadOf(changes.front().id);
  AnswerAll(std::move(changes));
  parts_.callbacks.Post(awake, [replaced = std::move(group.sessions())] {});
  return again;
}

void SessionWriter::Publish(const TransactionWriter::Result& result, Transaction* transaction) {
  ChangeGroup& group = transaction->group;
  group.SetVersions(transaction->parts, *result.versions);
  int64_t conflicts = 0, expired = 0;
  std::vector<StoreTotals::Growth> growths;
  for (const auto& [id, session] : group.sessions()) {
    if (!session.Dirty()) continue;
    if (session.conflict) {
      ++conflicts;
      continue;
    }
    if (session.expired) ++expired;
    const SessionTotals growth = session.Growth();
    if (growth.sessions != 0 || growth.bytes != 0) growths.push_back({std::string(TenantOf(id)), growth});
  }
  parts_.cache.Publish(parts_.clock->Now(), &group);
  if (result.begun != absl::InfiniteFuture()) parts_.totals.EndWrite(growths);
  MutexLock lock(mu_);
  if (!result.versions->empty()) ++stats_.groups;
  stats_.rows += static_cast<int64_t>(result.versions->size());
  stats_.conflicts += conflicts;
  stats_.expired += expired;
}

void SessionWriter::Fail(const TransactionWriter::Result& result, Transaction* transaction) {
  const absl::Status& status = result.versions.status();
  for (Change& change : transaction->changes) {
    if (transaction->group.Find(change.id).Dirty()) change.status = status;
  }
  parts_.cache.Return(parts_.clock->Now(), &transaction->group);
  parts_.totals.EndWrite({});
  {
    MutexLock lock(mu_);
    ++stats_.failed_groups;
  }
  parts_.ReportError(status);
  if (result.table_failed) RefuseChanges();
  AnswerAll(std::move(transaction->changes));
}

void SessionWriter::RefuseChanges() {
  if (queue_.Fail() && parts_.options.observer.on_failed != nullptr) {
    parts_.options.observer.on_failed(table_->failure());
  }
}

void SessionWriter::AnswerAll(std::vector<Change> changes) {
  if (changes.empty()) return;
  CallbackThreads& callbacks = parts_.callbacks;
  for (Change& change : changes) change.result.durability = parts_.options.durability;
  std::vector<std::vector<Change>> by_thread(callbacks.size());
  if (changes.size() == 1) {
    by_thread[callbacks.ThreadOf(changes.front().id)] = std::move(changes);
  } else {
    for (Change& change : changes) by_thread[callbacks.ThreadOf(change.id)].push_back(std::move(change));
  }
  for (size_t thread = 0; thread < by_thread.size(); ++thread) {
    if (by_thread[thread].empty()) continue;
    callbacks.Post(thread, [changes = std::move(by_thread[thread])]() mutable {
      for (Change& change : changes) change.Answer();
    });
  }
}

// ---- sweeps

absl::Duration SessionWriter::SinceSweep() const {
  return absl::FromChrono(std::chrono::steady_clock::now() - last_sweep_);
}

void SessionWriter::Sweep() {
  last_sweep_ = std::chrono::steady_clock::now();
  if (table_->failed()) RefuseChanges();  // a checkpoint's flush can also fail while nobody writes
  const int64_t evicted = parts_.cache.EvictIdle(parts_.clock->Now());
  if (evicted > 0 && parts_.options.observer.on_evicted != nullptr) parts_.options.observer.on_evicted(evicted);
  DropExpired();
}

// Reads rows anew, whatever memory has, because a session is deleted by what its row says. The deletions have a
// transaction of their own, so that a creation which waits for the room does not end up in it.
void SessionWriter::DropExpired() {
  more_expired_ = false;
  const absl::StatusOr<std::vector<std::string>> found = table_->Expired(parts_.clock->Now(), kMaxGroupChanges);
  if (!found.ok()) return parts_.ReportError(found.status());
  std::set<std::string> ids(found->begin(), found->end());
  ids.merge(parts_.decoder.TakeMisfits());
  if (ids.empty() || table_->failed()) return;
  std::vector<Change> changes;
  changes.reserve(ids.size());
  for (const std::string& id : ids) changes.push_back({.id = id, .what = ExpireChange{}});
  const int64_t before = expired();
  TryChanges(std::move(changes), /*fresh=*/true);
  // If nothing was deleted, damaged rows are in the way: they wait for the next sweep like everything behind them.
  more_expired_ = found->size() == kMaxGroupChanges && expired() > before;
}

void SessionWriter::MakeRoom(std::vector<Change>* changes) {
  if (std::none_of(changes->begin(), changes->end(), std::mem_fn(&Change::WantsRoom))) return;
  DropExpired();
  for (Change& change : *changes) change.room_made = true;
}

}  // namespace normd
