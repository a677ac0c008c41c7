// The rules of all changes to a session but steps, the same for every store: creating, importing, patching, expiring,
// and the quota. The rules of a step, and ResetState, are in stored_session.h. A store adds locking, durability and
// publication.
// Pure but for the random ids of new sessions; safe from any thread.
#ifndef NORMD_SERVER_SESSION_SESSION_CHANGES_H_
#define NORMD_SERVER_SESSION_SESSION_CHANGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/session/session_store.h"
#include "server/session/stored_session.h"

namespace normd {

// `session` as it will be published: with defaults, a new uid, and an id if it has none. Errors are those of
// SessionStore::Create, except the ones that only the store can find: taken ids and totals.
absl::StatusOr<StoredSession> NewSession(Session session, const SessionLimits& limits, absl::Time now);

// The same for a session from an exported record; an `id` that is a SessionKey without an id means the record's id for
// the same tenant. Versions and step ids are the
// record's, the latter cut to `limits`.
absl::StatusOr<StoredSession> ImportedSession(std::string id, StoredSession exported, const SessionLimits& limits,
                                              absl::Time now);

// Completes the state: the initial one if no vector of it is given, and what a given one may leave out.
void FillState(Session* session);

// ABORTED if a version is expected and the session has another one.
absl::Status CheckVersion(const Session& session, std::optional<uint64_t> expected_version);

// The sessions of a store, and those of the tenant whose session is changed.
struct Totals {
  SessionTotals all, tenant;
};

// The totals of `tenant`, zeros if it has none; and their change. Tenants without sessions are left out.
SessionTotals TotalsOf(const TotalsByTenant& totals, std::string_view tenant);
void AddTo(TotalsByTenant* totals, std::string_view tenant, const SessionTotals& growth);

// Applies `patch`, as SessionStore::Update says: ABORTED or RESOURCE_EXHAUSTED. On an error nothing has changed.
// `totals` are those before the patch.
absl::Status PatchSession(SessionPatch patch, const SessionLimits& limits, const Totals& totals, absl::Time now,
                          StoredSession* stored);

// The end of a session: its ttl after its last update; nothing without a ttl.
std::optional<absl::Time> ExpireTime(const Session& session);
inline bool IsExpired(const Session& session, absl::Time now) {
  const std::optional<absl::Time> expires = ExpireTime(session);
  return expires.has_value() && *expires <= now;
}

// Bytes that a session counts against max_total_bytes: parameters, state, names of channels, and a constant for the
// rest. Steps do not change this number, so a quota never stops training.
int64_t QuotaBytes(const Session& session);
int64_t ParameterBytes(const OwnedParameters& parameters);
int64_t ChannelNameBytes(const Session& session);

// RESOURCE_EXHAUSTED if `totals` and `more` together are over the limits, or over the quotas of the tenant of session
// `key`.
absl::Status CheckTotals(std::string_view key, const Totals& totals, const SessionTotals& more,
                         const SessionLimits& limits);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SESSION_CHANGES_H_
