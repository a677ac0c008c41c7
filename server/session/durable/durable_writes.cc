// The writes of DurableStore: group commit.
#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <unordered_set>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/session/durable/durable_store.h"
#include "server/session/session_changes.h"
#include "server/session/session_key.h"

namespace normd {

namespace {

// Limits of one transaction: enough changes to share a flush, but not so many bytes that an answer waits for megabytes.
constexpr size_t kMaxGroupChanges = 1024;
constexpr int64_t kMaxGroupBytes = int64_t{16} << 20;
// The fewest rows that are written early, and the fewest changes that must still wait: waking a thread for fewer takes
// longer than they do.
constexpr size_t kMinEarlyRows = 4;
// The fewest changes for which a writer wakes up that waits for the end of a group: waking up for each of them would
// take the core that callers need.
constexpr size_t kMinOverlapChanges = 8;
// The smallest group that tells whether steps fold. Steps of few sessions may all differ in a smaller one.
constexpr size_t kMinTellingChanges = 24;
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

bool IsStep(const Change& change) { return std::holds_alternative<StateUpdate>(change.what); }

// Whether the limits have refused this creation without anybody having looked for expired sessions yet.
bool WantsRoom(const Change& change) {
  return std::holds_alternative<StoredSession>(change.what) && absl::IsResourceExhausted(change.status) &&
         !change.room_made;
}

}  // namespace

void DurableStore::RunWriter() {
  std::vector<Change> changes;
  while (true) {
    const Group* const before = under_way_.get();
    if (!TakeChanges(&changes)) break;
    if (!changes.empty()) CommitChanges(std::move(changes));
    changes.clear();
    // The answers of a group that has ended wait for changes that are written after it, but not for those that write
    // nothing: replays may come without end.
    if (before != nullptr && under_way_.get() == before && write_thread_->ended()) FinishUnderWay();
    if (more_expired_ || SinceSweep() >= options_.sweep_interval) {
      FinishUnderWay();
      Sweep();
    }
  }
}

absl::Duration DurableStore::SinceSweep() const {
  return absl::FromChrono(std::chrono::steady_clock::now() - last_sweep_);
}

bool DurableStore::TakeChanges(std::vector<Change>* changes) {
  if (under_way_ != nullptr) {
    if (!AwaitChanges()) {
      FinishUnderWay();
      return true;
    }
  } else {
    MutexLock lock(mu_);
    if (changes_.empty() && !stopping_ && !more_expired_) changes_ready_.WaitFor(mu_, options_.sweep_interval);
    if (changes_.empty()) return !stopping_;
  }
  group_bytes_ = 0;
  TakeQueued(changes);
  return true;
}

void DurableStore::TakeQueued(std::vector<Change>* changes) {
  const size_t before = changes->size();
  {
    MutexLock lock(mu_);
    while (!changes_.empty() && changes->size() < kMaxGroupChanges && group_bytes_ < kMaxGroupBytes &&
           CanOverlap(changes_.front().first)) {
      group_bytes_ += changes_.front().second;
      changes_bytes_ -= changes_.front().second;
      changes->push_back(std::move(changes_.front().first));
      changes_.pop_front();
    }
  }
  // This is the last moment to find out that nobody waits for a step.
  std::vector<Change> dropped = TakeOut(changes, before, [](const Change& change) {
    const auto* update = std::get_if<StateUpdate>(&change.what);
    return update != nullptr && update->cancelled != nullptr && update->cancelled();
  });
  for (Change& change : dropped) change.status = CallerGoneError();
  AnswerAll(std::move(dropped));
}

bool DurableStore::CanOverlap(const Change& change) {
  if (under_way_ == nullptr) return true;
  return IsStep(change) && !under_way_->copies.Has(change.id) && cache_.Find(change.id, clock_->Now()) != nullptr;
}

bool DurableStore::AwaitChanges() {
  MutexLock lock(mu_);
  wake_at_ = kMinOverlapChanges;
  bool enough = false;
  while (true) {
    const bool ended = write_thread_->ended();
    enough = changes_.size() >= (ended ? kMinEarlyRows : kMinOverlapChanges) && CanOverlap(changes_.front().first);
    if (enough || ended) break;
    changes_ready_.Wait(mu_);
  }
  wake_at_ = 1;
  return enough;
}

void DurableStore::CommitChanges(std::vector<Change> changes) {
  bool failed = false;
  {
    MutexLock lock(mu_);
    failed = failed_;
  }
  if (failed) {
    for (Change& change : changes) change.status = StoreFailedError();
    return AnswerAll(std::move(changes));
  }
  changes = TryChanges(std::move(changes), /*fresh=*/false);
  if (changes.empty()) return;
  MakeRoom(&changes);
  TryAgainOrRefuse(std::move(changes));
}

void DurableStore::TryAgainOrRefuse(std::vector<Change> changes) {
  std::vector<Change> lost = TakeOut(&changes, 0, [](Change& change) { return ++change.attempts >= kMaxAttempts; });
  for (Change& change : lost) change.status = StoreUnavailableError("other servers change this session all the time");
  AnswerAll(std::move(lost));
  TryAgain(std::move(changes));
}

void DurableStore::TryAgain(std::vector<Change> changes) {
  int attempts = 0;
  MutexLock lock(mu_);
  const bool alone = changes_.empty();
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
    attempts = std::max(attempts, change->attempts);
    cache_.Erase(change->id);  // the session is read anew
    changes_.emplace_front(std::move(*change), 0);
  }
  // A random pause, because replicas that lose against each other at the same pace would do so again.
  if (alone && shared_ && !stopping_ && attempts > 1) {
    const int64_t most_micros = int64_t{200} << std::min(attempts, 6);
    changes_ready_.WaitFor(mu_, absl::Microseconds(std::uniform_int_distribution<int64_t>(0, most_micros)(random_)));
  }
}

std::vector<Change> DurableStore::TryChanges(std::vector<Change> changes, bool fresh) {
  auto group = std::make_unique<Group>(
      limits(), [this](std::string_view tenant) { return totals_.For(tenant); }, clock_->Now());
  group->changes = std::move(changes);
  if (const absl::Status status = ApplyAll(fresh, group.get()); !status.ok()) {
    GiveBack(&group->copies);
    if (options_.observer.on_error != nullptr) options_.observer.on_error(status);
    for (Change& change : group->changes) change.status = status;
    AnswerAll(std::move(group->changes));
    return {};
  }
  std::vector<RowChange>* const rest = NewPart(group.get());
  group->copies.Rows(rest);
  if (!write_thread_->open()) {
    if (rest->empty()) return Finish(SessionTable::Versions(), false, std::move(group));
    BeginWrite(group.get());
    if (under_way_ == nullptr) {
      const absl::StatusOr<SessionTable::Versions> versions = write_table_->Write(*rest);
      return Finish(versions, write_table_->failed(), std::move(group));
    }
  }
  write_thread_->Close(*rest);
  FinishUnderWay();  // only now, so that this group is written while callers of the one before are answered
  if (!fresh && CommitsBehind(*group)) {
    under_way_ = std::move(group);
    return {};
  }
  return TakeResult(std::move(group));
}

// Where a commit is flushed, callers who wait for their answers would fall into two halves that take turns, each with a
// flush of its own. Where steps fold, the next group has the same sessions and would have to wait in any case.
bool DurableStore::CommitsBehind(const Group& group) const {
  return options_.durability != Durability::kPower && !folds_ &&
         std::all_of(group.changes.begin(), group.changes.end(), IsStep);
}

std::vector<Change> DurableStore::TakeResult(std::unique_ptr<Group> group) {
  const WriteThread::Result result = write_thread_->Take();
  group->write_begun = result.begun;
  return Finish(result.versions, result.table_failed, std::move(group));
}

void DurableStore::FinishUnderWay() {
  if (under_way_ != nullptr) TryAgainOrRefuse(TakeResult(std::move(under_way_)));
}

std::vector<Change> DurableStore::Finish(const absl::StatusOr<SessionTable::Versions>& versions, bool table_failed,
                                         std::unique_ptr<Group> group) {
  std::vector<Change>& changes = group->changes;
  if (!versions.ok()) {
    FailGroup(versions.status(), table_failed, group.get());
    AnswerAll(std::move(changes));
    return {};
  }
  Publish(*versions, group.get());
  if (!versions->empty() && options_.observer.on_group != nullptr) {
    options_.observer.on_group(static_cast<int64_t>(changes.size()), absl::Now() - group->write_begun);
  }
  if (changes.size() >= kMinTellingChanges) folds_ = 4 * changes.size() >= 5 * versions->size();
  // A change that an old row refused may succeed with the current one.
  std::vector<Change> again = TakeOut(&changes, 0, [&group, shared = shared_](const Change& change) {
    const WorkingSession& session = group->copies.Find(change.id);
    return session.conflict || (shared && session.cached && !change.status.ok()) || WantsRoom(change);
  });
  // Replaced snapshots are freed on a callback thread that is awake for this group anyway, and not on this thread, for
  // which everybody waits.
  const size_t awake = changes.empty() ? 0 : callbacks_->ThreadOf(changes.front().id);
  AnswerAll(std::move(changes));
  callbacks_->Post(awake, [replaced = std::move(group->copies.sessions())] {});
  // The first part of the next group takes what the first one of this group had.
  for (auto part = group->parts.rbegin(); part != group->parts.rend(); ++part) spare_parts_.push_back(std::move(*part));
  return again;
}

absl::Status DurableStore::ApplyAll(bool fresh, Group* group) {
  std::vector<Change>& changes = group->changes;
  size_t applied = 0;
  while (applied < changes.size()) {
    NORMD_RETURN_IF_ERROR(LoadInto(absl::MakeConstSpan(changes).subspan(applied), fresh, &group->copies));
    const bool postponed = Postpone(applied, group->copies, &changes);
    while (applied < changes.size()) {
      group->copies.Apply(&changes[applied++]);
      WriteEarly(changes.size() - applied, group);
    }
    // When the group before has ended, this one is what the thread that writes has to do next.
    if (fresh || postponed || (under_way_ != nullptr && write_thread_->ended())) break;
    // Callers that the last group has answered come back while this group is worked on, and share its flush. Without
    // this, two groups of callers would take turns for ever, each with a flush of its own.
    TakeQueued(&changes);
    if (applied < changes.size() || under_way_ == nullptr) continue;
    AddEarly(group);  // there is nothing else to do
    if (AwaitChanges()) TakeQueued(&changes);
  }
  return absl::OkStatus();
}

// Not where steps fold, because early rows would be written again.
void DurableStore::WriteEarly(size_t left, Group* group) {
  if (shared_ || folds_) return;
  if (write_thread_->open() ? !write_thread_->wants_rows() : left < kMinEarlyRows) return;
  AddEarly(group);
}

void DurableStore::AddEarly(Group* group) {
  if (group->copies.early_rows() < kMinEarlyRows) return;
  std::vector<RowChange>* const part = NewPart(group);
  group->copies.EarlyRows(part);
  if (part->empty()) return;
  if (!write_thread_->open()) BeginWrite(group);
  write_thread_->Add(*part);
}

std::vector<RowChange>* DurableStore::NewPart(Group* group) {
  std::vector<RowChange>& part = group->parts.emplace_back();
  if (!spare_parts_.empty()) {
    part = std::move(spare_parts_.back());
    spare_parts_.pop_back();
  }
  return &part;
}

void DurableStore::BeginWrite(Group* group) {
  group->write_begun = absl::Now();
  totals_.BeginWrite();
}

absl::StatusOr<bool> DurableStore::Reconnect(SessionTable* table, int64_t* connection) {
  NORMD_ASSIGN_OR_RETURN(const int64_t current, table->Connect());
  if (current == *connection) return false;
  *connection = current;
  MutexLock lock(mu_);
  cache_.Clear();
  return true;
}

absl::Status DurableStore::LoadInto(absl::Span<const Change> changes, bool fresh, ChangeGroup* group) {
  if (write_thread_->busy()) {
    TakeResidents(changes, fresh, group);
    return absl::OkStatus();
  }
  NORMD_ASSIGN_OR_RETURN(const bool reconnected, Reconnect(write_table_.get(), &write_connection_));
  // The connection that is gone has read what the group holds.
  if (reconnected && !group->sessions().empty()) return StoreUnavailableError("the connection was lost");
  const std::vector<RowRequest> requests = TakeResidents(changes, fresh, group);
  if (requests.empty()) return absl::OkStatus();
  NORMD_ASSIGN_OR_RETURN(const std::vector<SessionRow> rows, write_table_->Load(requests, kMaxLoadBytes));
  std::unordered_set<std::string_view> left_out;
  for (const SessionRow& row : rows) {
    if (row.left_out) left_out.insert(row.id);
  }
  const absl::Status missing = file_check_.MissingRow();
  for (const RowRequest& request : requests) {
    if (left_out.count(request.id) == 0) group->Add(request.id, {.damage = missing});
  }
  for (const SessionRow& row : rows) {
    if (row.left_out) continue;
    WorkingSession session = {.row = row.version};
    absl::StatusOr<StoredSession> stored = decoder_.Decode(row);
    session.damage = stored.status();
    if (stored.ok()) {
      session.columns_fit = decoder_.ColumnsFit(row, *stored->published);
      session.stored = *std::move(stored);
    }
    group->Add(row.id, std::move(session));
  }
  return absl::OkStatus();
}

bool DurableStore::Postpone(size_t begin, const ChangeGroup& group, std::vector<Change>* changes) {
  std::vector<Change> later = TakeOut(changes, begin, [&group](const Change& change) { return !group.Has(change.id); });
  if (later.empty()) return false;
  MutexLock lock(mu_);
  for (auto change = later.rbegin(); change != later.rend(); ++change) changes_.emplace_front(std::move(*change), 0);
  return true;
}

std::vector<RowRequest> DurableStore::TakeResidents(absl::Span<const Change> changes, bool fresh, ChangeGroup* group) {
  const absl::Time now = clock_->Now();
  std::vector<RowRequest> missing;
  group->Reserve(changes.size());
  std::unordered_set<std::string_view> asked;
  MutexLock lock(mu_);
  for (const Change& change : changes) {
    if (group->Has(change.id) || asked.count(change.id) > 0) continue;
    ResidentSession* const resident = fresh ? nullptr : cache_.Find(change.id, now);
    if (resident == nullptr) {
      asked.insert(change.id);
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

std::vector<StoreTotals::Growth> DurableStore::GrowthsOf(ChangeGroup* group) {
  std::vector<StoreTotals::Growth> growths;
  for (const auto& [id, session] : group->sessions()) {
    if (session.conflict || !(session.removed || session.head_changed)) continue;  // otherwise the totals stay
    const bool exists = session.stored.published != nullptr;
    const SessionTotals more = {.sessions = (exists ? 1 : 0) - (session.row.key != 0 ? 1 : 0),
                                .bytes = (exists ? QuotaBytes(*session.stored.published) : 0) - session.bytes_before};
    growths.push_back({std::string(TenantOf(id)), more});
  }
  return growths;
}

void DurableStore::Publish(const SessionTable::Versions& versions, Group* group) {
  auto version = versions.begin();
  for (const std::vector<RowChange>& part : group->parts) {
    for (const RowChange& row : part) {
      WorkingSession& session = group->copies.Find(row.id);
      // The last row of a session decides: somebody else may have deleted an expired one before the insert.
      session.conflict = !version->has_value();
      if (version->has_value()) session.new_row = **version;
      ++version;
    }
  }
  if (group->write_begun != absl::InfiniteFuture()) totals_.EndWrite(GrowthsOf(&group->copies));
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  for (auto& [id, session] : group->copies.sessions()) PublishOne(id, &session, now);
  if (!versions.empty()) ++stats_.groups;
  stats_.rows += static_cast<int64_t>(versions.size());
}

void DurableStore::PublishOne(const std::string& id, WorkingSession* session, absl::Time now) {
  if (!session->Dirty()) return PutBack(id, session, now);
  if (session->conflict) {
    ++stats_.conflicts;
    return Forget(id);
  }
  if (const auto loading = loading_.find(id); loading != loading_.end()) loading->second = true;
  session->stored.draft = nullptr;
  const bool exists = session->stored.published != nullptr;
  if (session->expired) ++stats_.expired;
  if (!exists) return cache_.Erase(id);
  // Another server may have written a newer version already, and the reader seen it.
  const ResidentSession* const there = cache_.Find(id, now);
  if (there != nullptr && there->version.key == session->new_row.key &&
      there->version.revision > session->new_row.revision) {
    return;
  }
  ResidentSession resident = {std::move(session->stored), session->new_row, now};
  cache_.Put(id, &resident, now);
  session->stored = std::move(resident.stored);  // freed with the group
}

void DurableStore::PutBack(const std::string& id, WorkingSession* session, absl::Time now) {
  // Does not replace what the reader has put there since.
  ResidentSession* const resident = session->cached ? cache_.Find(id, now) : nullptr;
  if (resident != nullptr && resident->version == session->row) resident->stored = std::move(session->stored);
}

void DurableStore::Forget(const std::string& id) {
  if (const auto loading = loading_.find(id); loading != loading_.end()) loading->second = true;
  cache_.Erase(id);
}

void DurableStore::GiveBack(ChangeGroup* group) {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  for (auto& [id, session] : group->sessions()) {
    if (session.Dirty()) {
      Forget(id);
    } else {
      PutBack(id, &session, now);
    }
  }
}

void DurableStore::FailGroup(const absl::Status& status, bool table_failed, Group* group) {
  for (Change& change : group->changes) {
    if (group->copies.Find(change.id).Dirty()) change.status = status;
  }
  GiveBack(&group->copies);
  totals_.EndWrite({});
  {
    MutexLock lock(mu_);
    ++stats_.failed_groups;
  }
  if (options_.observer.on_error != nullptr) options_.observer.on_error(status);
  if (table_failed) NoteFailure();
}

void DurableStore::NoteFailure() {
  {
    MutexLock lock(mu_);
    if (failed_) return;
    failed_ = true;
  }
  if (options_.observer.on_failed != nullptr) options_.observer.on_failed(write_table_->failure());
}

void DurableStore::Sweep() {
  last_sweep_ = std::chrono::steady_clock::now();
  if (write_table_->failed()) NoteFailure();  // a checkpoint's flush can also fail while nobody writes
  int64_t evicted = 0;
  {
    MutexLock lock(mu_);
    evicted = cache_.EvictIdle(clock_->Now() - idle_timeout_);
  }
  if (evicted > 0 && options_.observer.on_evicted != nullptr) options_.observer.on_evicted(evicted);
  DropExpired();
}

// Reads rows anew, whatever memory has, because a session is deleted by what its row says. The deletions have a
// transaction of their own, so that a creation which waits for the room does not end up in it.
void DurableStore::DropExpired() {
  more_expired_ = false;
  const absl::StatusOr<std::vector<std::string>> expired =
      write_table_->Expired(clock_->Now(), static_cast<int64_t>(kMaxGroupChanges));
  if (!expired.ok()) {
    if (options_.observer.on_error != nullptr) options_.observer.on_error(expired.status());
    return;
  }
  std::set<std::string> ids(expired->begin(), expired->end());
  ids.merge(decoder_.TakeMisfits());
  if (ids.empty() || write_table_->failed()) return;
  std::vector<Change> changes;
  changes.reserve(ids.size());
  for (const std::string& id : ids) changes.push_back({.id = id, .what = ExpireChange{}});
  const int64_t before = stats().expired;
  TryChanges(std::move(changes), /*fresh=*/true);
  // If nothing was deleted, damaged rows are in the way: they wait for the next sweep like everything behind them.
  more_expired_ = expired->size() == kMaxGroupChanges && stats().expired > before;
}

void DurableStore::MakeRoom(std::vector<Change>* changes) {
  if (std::none_of(changes->begin(), changes->end(), WantsRoom)) return;
  DropExpired();
  for (Change& change : *changes) change.room_made = true;
}

void DurableStore::AnswerAll(std::vector<Change> changes) {
  if (changes.empty()) return;
  for (Change& change : changes) change.result.durability = options_.durability;
  std::vector<std::vector<Change>> by_thread(callbacks_->size());
  if (changes.size() == 1) {
    by_thread[callbacks_->ThreadOf(changes.front().id)] = std::move(changes);
  } else {
    for (Change& change : changes) by_thread[callbacks_->ThreadOf(change.id)].push_back(std::move(change));
  }
  for (size_t thread = 0; thread < by_thread.size(); ++thread) {
    if (by_thread[thread].empty()) continue;
    callbacks_->Post(thread, [changes = std::move(by_thread[thread])]() mutable {
      for (Change& change : changes) change.Answer();
    });
  }
}

}  // namespace normd
