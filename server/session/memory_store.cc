#include "server/session/memory_store.h"

#include <algorithm>
#include <memory>
#include <random>

#include "absl/strings/str_format.h"
#include "server/base/errors.h"
#include "server/base/status_macros.h"
#include "server/session/record.h"
#include "server/session/session_checks.h"

namespace normd {

namespace {

// `words` times 32 random bits in hex. From the system: an epoch must never come back after a restart.
std::string RandomHex(int words) {
  std::random_device random;
  std::string hex;
  for (int i = 0; i < words; ++i) hex += absl::StrFormat("%08x", random());
  return hex;
}

bool Matches(const Session& session, const std::map<std::string, std::string>& labels) {
  return std::all_of(labels.begin(), labels.end(), [&session](const auto& wanted) {
    const auto label = session.labels.find(wanted.first);
    return label != session.labels.end() && label->second == wanted.second;
  });
}

// A session ends its ttl after its last update.
std::optional<absl::Time> ExpireTime(const Session& session) {
  if (!session.ttl.has_value()) return std::nullopt;
  return session.update_time + *session.ttl;
}

void FillDefaults(Session* session) {
  if (session->parameters == nullptr) session->parameters = std::make_shared<const OwnedParameters>();
  if (session->numerics.empty()) session->numerics = std::string(kNumerics);
  const RunningState& state = session->state;
  if (state.mean.empty() && state.var.empty() && state.phi.empty()) {
    const uint64_t num_batches = state.num_batches;
    session->state = InitialState(session->spec, session->num_channels);
    session->state.num_batches = num_batches;
  }
}

OwnedParameters Patched(const OwnedParameters& before, SessionPatch* patch) {
  OwnedParameters after = before;
  if (patch->weight.has_value()) after.weight = std::move(*patch->weight);
  if (patch->bias.has_value()) after.bias = std::move(*patch->bias);
  return after;
}

}  // namespace

MemoryStore::MemoryStore(const SessionLimits& limits, Clock* clock) : limits_(limits), clock_(clock) {}
MemoryStore::~MemoryStore() = default;

int64_t MemoryStore::size() const {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  const auto alive = std::find_if(expiries_.begin(), expiries_.end(), [now](const Expiry& e) { return e.first > now; });
  return static_cast<int64_t>(sessions_.size()) - std::distance(expiries_.begin(), alive);
}

absl::StatusOr<SessionPtr> MemoryStore::Get(std::string_view id) {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  DropExpired(now);
  NORMD_ASSIGN_OR_RETURN(const StoredSession* stored, Find(id, std::nullopt));
  return stored->published;
}

std::vector<SessionPtr> MemoryStore::List(const ListQuery& query) {
  const absl::Time now = clock_->Now();
  std::vector<SessionPtr> page;
  MutexLock lock(mu_);
  DropExpired(now);
  for (auto it = sessions_.upper_bound(query.after_id); it != sessions_.end(); ++it) {
    if (static_cast<int64_t>(page.size()) >= query.page_size) break;
    if (Matches(*it->second.published, query.labels)) page.push_back(it->second.published);
  }
  return page;
}

void MemoryStore::Create(Session session, Done<SessionPtr> done) { done(Insert({}, std::move(session))); }

void MemoryStore::Update(std::string id, SessionPatch patch, Done<SessionPtr> done) {
  done(Patch(id, std::move(patch)));
}

void MemoryStore::Reset(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) {
  done(ResetNow(id, expected_version));
}

void MemoryStore::Delete(std::string id, std::optional<uint64_t> expected_version, Done<SessionPtr> done) {
  done(Remove(id, expected_version));
}

void MemoryStore::Commit(StateUpdate update, Done<CommitResult> done) { done(CommitNow(update)); }

absl::StatusOr<std::string> MemoryStore::Export(std::string_view id) {
  const absl::Time now = clock_->Now();
  StoredSession copy;  // serialised without the lock
  {
    MutexLock lock(mu_);
    DropExpired(now);
    NORMD_ASSIGN_OR_RETURN(const StoredSession* stored, Find(id, std::nullopt));
    copy = *stored;
  }
  return SerializeRecord(copy);
}

void MemoryStore::Import(std::string id, std::string record, Done<SessionPtr> done) {
  absl::StatusOr<StoredSession> stored = ParseRecord(record);
  if (!stored.ok()) return done(stored.status());
  const auto clients = static_cast<int64_t>(stored->steps.clients.size());
  if (clients > limits_.max_clients) return done(TooManyError("clients", clients, limits_.max_clients));
  Session session = *stored->published;
  if (!id.empty()) session.id = std::move(id);
  done(Insert(*std::move(stored), std::move(session)));
}

absl::StatusOr<StoredSession*> MemoryStore::Find(std::string_view id, std::optional<uint64_t> expected_version) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return SessionNotFoundError(id);
  const uint64_t version = found->second.published->version;
  if (expected_version.has_value() && *expected_version != version) {
    return VersionMismatchError(*expected_version, version);
  }
  return &found->second;
}

void MemoryStore::DropExpired(absl::Time now) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    sessions_.erase(expiries_.begin()->second);
    expiries_.erase(expiries_.begin());
  }
}

void MemoryStore::MoveExpiry(const Session* before, const Session* after) {
  if (before != nullptr && before->ttl.has_value()) expiries_.erase({*ExpireTime(*before), before->id});
  if (after != nullptr && after->ttl.has_value()) expiries_.insert({*ExpireTime(*after), after->id});
}

absl::StatusOr<SessionPtr> MemoryStore::Insert(StoredSession stored, Session session) {
  const absl::Time now = clock_->Now();
  const bool chosen = session.id.empty();
  if (chosen) {
    session.id = "s-" + RandomHex(3);
  } else {
    NORMD_RETURN_IF_ERROR(ValidateSessionId(session.id));
  }
  if (session.parameters != nullptr || session.num_channels != 0) {
    const OwnedParameters none;
    const OwnedParameters& parameters = session.parameters == nullptr ? none : *session.parameters;
    NORMD_RETURN_IF_ERROR(CheckSessionSize(parameters, session.num_channels, limits_));
  }
  FillDefaults(&session);
  NORMD_RETURN_IF_ERROR(ValidateState(session.spec, session.num_channels, session.state));
  session.epoch = RandomHex(4);
  session.create_time = session.update_time = now;
  stored.published = std::make_shared<const Session>(std::move(session));
  const SessionPtr published = stored.published;

  MutexLock lock(mu_);
  DropExpired(now);
  if (sessions_.find(published->id) != sessions_.end()) return SessionExistsError(published->id);
  const auto count = static_cast<int64_t>(sessions_.size());
  if (count >= limits_.max_sessions) return TooManyError("sessions", count + 1, limits_.max_sessions);
  sessions_.emplace(published->id, std::move(stored));
  MoveExpiry(nullptr, published.get());
  return published;
}

absl::StatusOr<SessionPtr> MemoryStore::Patch(std::string_view id, SessionPatch patch) {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  DropExpired(now);
  NORMD_ASSIGN_OR_RETURN(StoredSession * stored, Find(id, patch.expected_version));
  const SessionPtr before = stored->published;
  auto after = std::make_shared<Session>(*before);
  if (patch.weight.has_value() || patch.bias.has_value()) {
    auto parameters = std::make_shared<const OwnedParameters>(Patched(*before->parameters, &patch));
    NORMD_RETURN_IF_ERROR(CheckSessionSize(*parameters, before->num_channels, limits_));
    after->parameters = std::move(parameters);
    ++after->parameters_version;
  }
  if (patch.labels.has_value()) after->labels = *std::move(patch.labels);
  if (patch.ttl.has_value()) after->ttl = *patch.ttl;
  ++after->version;
  after->update_time = now;
  stored->published = std::move(after);
  MoveExpiry(before.get(), stored->published.get());
  return stored->published;
}

absl::StatusOr<SessionPtr> MemoryStore::ResetNow(std::string_view id, std::optional<uint64_t> expected_version) {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  DropExpired(now);
  NORMD_ASSIGN_OR_RETURN(StoredSession * stored, Find(id, expected_version));
  const SessionPtr before = stored->published;
  ResetState(now, stored);
  MoveExpiry(before.get(), stored->published.get());
  return stored->published;
}

absl::StatusOr<SessionPtr> MemoryStore::Remove(std::string_view id, std::optional<uint64_t> expected_version) {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  DropExpired(now);
  NORMD_ASSIGN_OR_RETURN(const StoredSession* stored, Find(id, expected_version));
  SessionPtr removed = stored->published;
  MoveExpiry(removed.get(), nullptr);
  sessions_.erase(sessions_.find(id));
  return removed;
}

absl::StatusOr<CommitResult> MemoryStore::CommitNow(const StateUpdate& update) {
  const absl::Time now = clock_->Now();
  MutexLock lock(mu_);
  DropExpired(now);
  NORMD_ASSIGN_OR_RETURN(StoredSession * stored, Find(update.id, std::nullopt));
  const SessionPtr before = stored->published;
  NORMD_ASSIGN_OR_RETURN(CommitResult result, CommitStep(update, limits_, now, stored));
  result.durability = durability();
  MoveExpiry(before.get(), stored->published.get());
  return result;
}

}  // namespace normd
