// What changes do to a session, the same for every store: creating, importing, patching, expiring. CommitStep and
// ResetState are beside them in stored_session.h. The store adds locking, durability and publication.
// Pure but for the random ids of new sessions; safe from any thread.
#ifndef NORMD_SERVER_SESSION_SESSION_CHANGES_H_
#define NORMD_SERVER_SESSION_SESSION_CHANGES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/session/session_store.h"
#include "server/session/stored_session.h"

namespace normd {

// `session` as it will be published: defaults filled, a new epoch, an id if it has none. Fails as Create does, but for
// what only the store knows: taken ids and totals.
absl::StatusOr<StoredSession> NewSession(Session session, const SessionLimits& limits, absl::Time now);

// The same for a session out of an exported record; an empty `id` means the record's. Step ids and versions are the
// record's.
absl::StatusOr<StoredSession> ImportedSession(std::string id, StoredSession exported, const SessionLimits& limits,
                                              absl::Time now);

// ABORTED when a version is expected and it is not the session's.
absl::Status CheckVersion(const Session& session, std::optional<uint64_t> expected_version);

// On an error nothing has changed. `total_bytes` is the QuotaBytes of all sessions before.
absl::Status PatchSession(SessionPatch patch, const SessionLimits& limits, int64_t total_bytes, absl::Time now,
                          StoredSession* stored);

// A session ends its ttl after its last update.
std::optional<absl::Time> ExpireTime(const Session& session);
inline bool IsExpired(const Session& session, absl::Time now) {
  const std::optional<absl::Time> expires = ExpireTime(session);
  return expires.has_value() && *expires <= now;
}

// What a session counts against max_total_bytes: parameters, state, and a constant for the rest. Steps do not change
// it, so that a quota never stops training.
int64_t QuotaBytes(const Session& session);

// RESOURCE_EXHAUSTED when `sessions` or `bytes`, after what is wanted, are over the limits.
absl::Status CheckTotals(int64_t sessions, int64_t bytes, const SessionLimits& limits);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SESSION_CHANGES_H_
