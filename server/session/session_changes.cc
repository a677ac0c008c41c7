#include "server/session/session_changes.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "kernels/base/status_macros.h"
#include "server/base/error_reasons.h"
#include "server/base/errors.h"
#include "server/base/random_hex.h"
#include "server/session/sample_statistics.h"
#include "server/session/session_checks.h"
#include "server/session/session_key.h"

namespace normd {

namespace {

constexpr int64_t kQuotaBytesPerSession = 1024;

// The error for a patch that was validated against a session whose id another session has taken since.
absl::Status SessionReplacedError(const std::string& id) {
  return MakeError(ServerReason("SESSION_REPLACED"),
                   {.field = "session", .value = id, .limit = "the session that was read"},
                   absl::StrCat(id, " is not the one that was read: it was deleted and created again; read it again"));
}

void FillDefaults(Session* session) {
  if (session->parameters == nullptr) session->parameters = std::make_shared<const OwnedParameters>();
  if (session->numerics.empty()) session->numerics = std::string(kNumerics);
  FillState(session);
}

// Checks and completes `session` and makes it the snapshot of `stored`, whose step ids are there already.
absl::StatusOr<StoredSession> Complete(Session session, StoredSession stored, const SessionLimits& limits,
                                       absl::Time now) {
  if (IdOf(session.id).empty()) session.id += "s-" + RandomHex(3);
  NORMD_RETURN_IF_ERROR(ValidateSessionKey(session.id));
  NORMD_RETURN_IF_ERROR(ValidateLabels(session.labels));
  const OwnedParameters none;
  const OwnedParameters& parameters = session.parameters == nullptr ? none : *session.parameters;
  NORMD_RETURN_IF_ERROR(CheckSessionSize(session, parameters, limits));
  FillDefaults(&session);
  NORMD_RETURN_IF_ERROR(ValidateState(session.spec, session.num_channels, session.state));
  session.uid = RandomHex(4);
  session.create_time = session.update_time = now;
  stored.published = std::make_shared<const Session>(std::move(session));
  return stored;
}

OwnedParameters Patched(const OwnedParameters& before, SessionPatch* patch) {
  OwnedParameters after = before;
  if (patch->weight.has_value()) after.weight = std::move(*patch->weight);
  if (patch->bias.has_value()) after.bias = std::move(*patch->bias);
  return after;
}

}  // namespace

absl::StatusOr<StoredSession> NewSession(Session session, const SessionLimits& limits, absl::Time now) {
  return Complete(std::move(session), {}, limits, now);
}

absl::StatusOr<StoredSession> ImportedSession(std::string id, StoredSession exported, const SessionLimits& limits,
                                              absl::Time now) {
  exported.steps.Trim(limits);
  Session session = *exported.published;
  session.id = IdOf(id).empty() ? SessionKey(TenantOf(id), IdOf(session.id)) : std::move(id);
  return Complete(std::move(session), std::move(exported), limits, now);
}

void FillState(Session* session) {
  RunningState& state = session->state;
  if (ValuesOf(state) == 0) {
    const uint64_t num_batches = state.num_batches;
    state = InitialState(session->spec, session->num_channels);
    state.num_batches = num_batches;
  }
  if (!session->spec.running().CountsSamples()) return;
  // Extremes that are not given are not known.
  if (state.min.empty()) state.min.assign(state.count.size(), std::numeric_limits<double>::quiet_NaN());
  if (state.max.empty()) state.max.assign(state.count.size(), std::numeric_limits<double>::quiet_NaN());
  if (state.m2.size() == state.count.size()) DeriveVariance(session->spec.running(), &state);
}

absl::Status CheckVersion(const Session& session, std::optional<uint64_t> expected_version) {
  if (!expected_version.has_value() || *expected_version == session.version) return absl::OkStatus();
  return VersionMismatchError(*expected_version, session.version);
}

SessionTotals TotalsOf(const TotalsByTenant& totals, std::string_view tenant) {
  const auto found = totals.find(tenant);
  return found == totals.end() ? SessionTotals() : found->second;
}

void AddTo(TotalsByTenant* totals, std::string_view tenant, const SessionTotals& growth) {
  if (growth.sessions == 0 && growth.bytes == 0) return;  // as of most changes
  const auto found = totals->try_emplace(std::string(tenant)).first;
  found->second.sessions += growth.sessions;
  found->second.bytes += growth.bytes;
  if (found->second.sessions == 0) totals->erase(found);
}

absl::Status PatchSession(SessionPatch patch, const SessionLimits& limits, const Totals& totals, absl::Time now,
                          StoredSession* stored) {
  const Session& before = *stored->published;
  if (!patch.uid.empty() && patch.uid != before.uid) return SessionReplacedError(std::string(IdOf(before.id)));
  NORMD_RETURN_IF_ERROR(CheckVersion(before, patch.expected_version));
  NORMD_RETURN_IF_ERROR(CheckNotFrozen(before));
  auto after = std::make_shared<Session>(before);
  if (patch.weight.has_value() || patch.bias.has_value()) {
    auto parameters = std::make_shared<const OwnedParameters>(Patched(*before.parameters, &patch));
    NORMD_RETURN_IF_ERROR(CheckSessionSize(before, *parameters, limits));
    after->parameters = std::move(parameters);
    ++after->parameters_version;
    const int64_t growth = QuotaBytes(*after) - QuotaBytes(before);
    if (growth > 0) NORMD_RETURN_IF_ERROR(CheckTotals(before.id, totals, {.sessions = 0, .bytes = growth}, limits));
  }
  if (patch.labels.has_value()) after->labels = *std::move(patch.labels);
  if (patch.ttl.has_value()) after->ttl = *patch.ttl;
  after->frozen = patch.freeze;
  ++after->version;
  after->update_time = std::max(now, before.update_time);  // the clock may have been set back
  stored->published = std::move(after);
  stored->draft = nullptr;
  return absl::OkStatus();
}

std::optional<absl::Time> ExpireTime(const Session& session) {
  if (!session.ttl.has_value()) return std::nullopt;
  return session.update_time + *session.ttl;
}

int64_t ParameterBytes(const OwnedParameters& parameters) {
  int64_t bytes = 0;
  for (const std::optional<OwnedTensor>* tensor : {&parameters.weight, &parameters.bias}) {
    if (tensor->has_value()) bytes += static_cast<int64_t>((*tensor)->bytes.size());
  }
  return bytes;
}

int64_t ChannelNameBytes(const Session& session) {
  if (session.channel_names == nullptr) return 0;
  int64_t bytes = 0;
  for (const std::string& name : *session.channel_names)
    bytes += static_cast<int64_t>(sizeof(std::string) + name.size());
  return bytes;
}

int64_t QuotaBytes(const Session& session) {
  const int64_t state = ValuesOf(session.state) * SizeOf(DType::kF64);
  return kQuotaBytesPerSession + state + ParameterBytes(*session.parameters) + ChannelNameBytes(session);
}

absl::Status CheckTotals(std::string_view key, const Totals& totals, const SessionTotals& more,
                         const SessionLimits& limits) {
  const int64_t sessions = totals.all.sessions + more.sessions;
  const int64_t bytes = totals.all.bytes + more.bytes;
  if (more.sessions > 0 && sessions > limits.max_sessions)
    return LimitExceededError("sessions", sessions, limits.max_sessions, {.option = "--max_sessions"});
  if (bytes > limits.max_total_bytes)
    return LimitExceededError("bytes of all sessions", bytes, limits.max_total_bytes,
                              {.option = limits.total_bytes_option});
  if (limits.quotas == nullptr) return absl::OkStatus();
  const std::string_view tenant = TenantOf(key);
  if (more.sessions > 0) {
    NORMD_RETURN_IF_ERROR(
        limits.quotas->Check(tenant, TenantQuota::kSessions, totals.tenant.sessions + more.sessions, more.sessions));
  }
  return limits.quotas->Check(tenant, TenantQuota::kSessionBytes, totals.tenant.bytes + more.bytes, more.bytes);
}

}  // namespace normd
