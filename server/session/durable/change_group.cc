#include "server/session/durable/change_group.h"

#include <type_traits>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/session/record/record.h"
#include "server/session/session_changes.h"
#include "server/session/session_checks.h"
#include "server/session/session_key.h"

namespace normd {

namespace {

// OK if there is a session to change.
absl::Status CheckExists(const WorkingSession& session, const std::string& id) {
  NORMD_RETURN_IF_ERROR(session.damage);
  return session.stored.published == nullptr ? SessionNotFoundError(IdOf(id)) : absl::OkStatus();
}

void SetRow(RowChange::Kind kind, const std::string& id, RowVersion expected, RowChange* row) {
  row->kind = kind;
  row->id = id;
  row->expected = expected;
  row->head = {};  // may have been large
  row->labels.clear();
  row->bytes = 0;
  row->expires_at.reset();
  row->clients.clear();
}

void SetState(StoredSession* stored, RowChange* row) {
  row->clients = TakeClientRows(stored);
  SerializeState(*stored, &row->state);
  row->expires_at = ExpireTime(*stored->published);
}

// Replaces the content of a list of rows, and reuses the memory of those that are there.
class RowWriter {
 public:
  explicit RowWriter(std::vector<RowChange>* rows) : rows_(*rows) {}
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;
  ~RowWriter() { rows_.resize(used_); }

  RowChange* Next() {
    if (used_ == rows_.size()) rows_.emplace_back();
    return &rows_[used_++];
  }

 private:
  std::vector<RowChange>& rows_;
  size_t used_ = 0;
};

void SetHead(const Session& session, RowChange* row) {
  row->head = SerializeHead(session);
  row->labels = LabelText(session.labels);
  row->bytes = QuotaBytes(session);
}

}  // namespace

bool Change::WantsRoom() const {
  return std::holds_alternative<StoredSession>(what) && absl::IsResourceExhausted(status) && !room_made;
}

bool Change::Cancelled() const {
  const auto* update = std::get_if<StateUpdate>(&what);
  return update != nullptr && update->cancelled != nullptr && update->cancelled();
}

void Change::Answer() {
  if (commit_done != nullptr) {
    if (status.ok()) return commit_done(std::move(result));
    return commit_done(status);
  }
  if (session_done == nullptr) return;
  if (status.ok()) return session_done(std::move(session));
  session_done(status);
}

SessionTotals WorkingSession::Growth() const {
  if (!removed && !head_changed) return {};
  const bool exists = stored.published != nullptr;
  return {.sessions = (exists ? 1 : 0) - (row.key != 0 ? 1 : 0),
          .bytes = (exists ? QuotaBytes(*stored.published) : 0) - bytes_before};
}

void ChangeGroup::Add(const std::string& id, WorkingSession session) {
  if (session.stored.published != nullptr) {
    session.bytes_before = QuotaBytes(*session.stored.published);
    session.expired = IsExpired(*session.stored.published, now_);
    if (session.expired) Remove(&session);
  }
  sessions_.insert_or_assign(id, std::move(session));
}

void ChangeGroup::Apply(Change* change) {
  Entry* const entry = &*sessions_.find(change->id);
  WorkingSession* const session = &entry->second;
  if (const auto* update = std::get_if<StateUpdate>(&change->what)) {
    const bool first = !session->Dirty();
    change->status = CheckExists(*session, change->id);
    if (change->status.ok()) change->status = Step(session, *update, &change->result);
    if (first && session->OnlyStateChanged()) stepped_.push_back(entry);
    return;
  }
  const absl::StatusOr<SessionPtr> result = std::visit(
      [&](auto& what) -> absl::StatusOr<SessionPtr> {
        using Kind = std::decay_t<decltype(what)>;
        if constexpr (std::is_same_v<Kind, StateUpdate>) {
          return absl::InternalError("a step is applied by Step");
        } else {
          // Creating needs no session, and a damaged session can be deleted.
          constexpr bool kNeedsSession = !std::is_same_v<Kind, StoredSession> && !std::is_same_v<Kind, DeleteChange>;
          if constexpr (kNeedsSession) NORMD_RETURN_IF_ERROR(CheckExists(*session, change->id));
          return ApplyTo(session, what);
        }
      },
      change->what);
  change->status = result.status();
  if (result.ok()) change->session = *result;
  if (change->status.code() == absl::StatusCode::kNotFound) change->status = SessionNotFoundError(IdOf(change->id));
}

absl::StatusOr<SessionPtr> ChangeGroup::ApplyTo(WorkingSession* session, StoredSession& created) {
  if (session->row.key == 0) NORMD_RETURN_IF_ERROR(session->damage);  // the id may be that of a lost session
  if (session->stored.published != nullptr || !session->damage.ok())
    return SessionExistsError(IdOf(created.published->id));
  const std::string& id = created.published->id;
  const SessionTotals more = {.sessions = 1, .bytes = QuotaBytes(*created.published)};
  NORMD_RETURN_IF_ERROR(CheckTotals(id, TotalsFor(id), more, limits_));
  Grow(id, more);
  session->stored = created;  // a copy: the change may be tried again
  session->head_changed = true;
  session->state_changed = true;
  return session->stored.published;
}

absl::StatusOr<SessionPtr> ChangeGroup::ApplyTo(WorkingSession* session, SessionPatch& patch) {
  const int64_t before = QuotaBytes(*session->stored.published);
  const std::string& id = session->stored.published->id;
  NORMD_RETURN_IF_ERROR(PatchSession(patch, limits_, TotalsFor(id), now_, &session->stored));
  Grow(session->stored.published->id, {.sessions = 0, .bytes = QuotaBytes(*session->stored.published) - before});
  session->head_changed = true;
  session->state_changed = true;
  return session->stored.published;
}

absl::StatusOr<SessionPtr> ChangeGroup::ApplyTo(WorkingSession* session, ResetChange& reset) {
  NORMD_RETURN_IF_ERROR(CheckVersion(*session->stored.published, reset.expected_version));
  NORMD_RETURN_IF_ERROR(CheckNotFrozen(*session->stored.published));
  ResetState(now_, &session->stored);
  session->state_changed = true;
  return session->stored.published;
}

absl::StatusOr<SessionPtr> ChangeGroup::ApplyTo(WorkingSession* session, DeleteChange& remove) {
  SessionPtr before = session->stored.published;
  if (before == nullptr && session->row.key == 0 && !session->removed) NORMD_RETURN_IF_ERROR(session->damage);
  if (before == nullptr && session->damage.ok()) return absl::NotFoundError("");
  // The version of a damaged session is not known.
  if (before == nullptr && remove.expected_version.has_value()) return session->damage;
  if (before != nullptr) NORMD_RETURN_IF_ERROR(CheckVersion(*before, remove.expected_version));
  Remove(session);
  return before;
}

absl::StatusOr<SessionPtr> ChangeGroup::ApplyTo(WorkingSession* session, ExpireChange& /*expire*/) {
  // Add has removed an expired session already. If the record says that the session has not expired, the column was
  // wrong.
  if (session->stored.published != nullptr && !session->columns_fit)
    session->head_changed = session->state_changed = true;
  return session->stored.published;
}

absl::Status ChangeGroup::Step(WorkingSession* session, const StateUpdate& update, CommitResult* result) {
  NORMD_ASSIGN_OR_RETURN(*result, CommitStep(update, limits_, now_, &session->stored));
  if (!result->replayed && (result->applied || update.step.has_value())) session->state_changed = true;
  return absl::OkStatus();
}

void ChangeGroup::Remove(WorkingSession* session) {
  if (const SessionPtr& gone = session->stored.published; gone != nullptr) {
    Grow(gone->id, {.sessions = -1, .bytes = -QuotaBytes(*gone)});
  }
  session->stored = {};
  session->damage = absl::OkStatus();
  session->removed = true;
  session->head_changed = false;
  session->state_changed = false;
}

Totals ChangeGroup::TotalsFor(std::string_view id) const {
  Totals totals = totals_before_(TenantOf(id));
  const SessionTotals of_tenant = TotalsOf(growth_by_tenant_, TenantOf(id));
  totals.all.sessions += growth_.sessions;
  totals.all.bytes += growth_.bytes;
  totals.tenant.sessions += of_tenant.sessions;
  totals.tenant.bytes += of_tenant.bytes;
  return totals;
}

void ChangeGroup::Grow(std::string_view id, const SessionTotals& growth) {
  growth_.sessions += growth.sessions;
  growth_.bytes += growth.bytes;
  SessionTotals& of_tenant = growth_by_tenant_[std::string(TenantOf(id))];
  of_tenant.sessions += growth.sessions;
  of_tenant.bytes += growth.bytes;
}

void ChangeGroup::EarlyRows(std::vector<RowChange>* rows) {
  RowWriter writer(rows);
  for (Entry* const entry : stepped_) {
    auto& [id, working] = *entry;
    if (!working.OnlyStateChanged()) continue;
    RowChange* const row = writer.Next();
    SetRow(RowChange::Kind::kState, id, working.row, row);
    SetState(&working.stored, row);
    ++working.row.revision;
    working.state_changed = false;
    working.early_row = true;
  }
  stepped_.clear();
}

void ChangeGroup::Rows(std::vector<RowChange>* rows) {
  RowWriter writer(rows);
  for (auto& [id, working] : sessions_) {
    const bool has_row = working.row.key != 0;
    if (working.removed && has_row) SetRow(RowChange::Kind::kDelete, id, working.row, writer.Next());
    if (working.stored.published == nullptr || !(working.head_changed || working.state_changed)) continue;
    const bool is_new = !has_row || working.removed;
    const bool all = is_new || working.head_changed || !working.columns_fit;
    const auto kind = is_new ? RowChange::Kind::kInsert : all ? RowChange::Kind::kAll : RowChange::Kind::kState;
    RowChange* const row = writer.Next();
    SetRow(kind, id, is_new ? RowVersion() : working.row, row);
    SetState(&working.stored, row);
    if (all) SetHead(*working.stored.published, row);
  }
}

void ChangeGroup::SetVersions(const RowParts& parts, const SessionTable::Versions& versions) {
  auto version = versions.begin();
  for (const std::vector<RowChange>& part : parts) {
    for (const RowChange& row : part) {
      WorkingSession& working = sessions_.at(row.id);
      // The last row of a session decides: somebody else may have deleted an expired one before the insert.
      working.conflict = !version->has_value();
      if (version->has_value()) working.new_row = **version;
      ++version;
    }
  }
}

}  // namespace normd
