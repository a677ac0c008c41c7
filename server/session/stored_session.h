// A session as a store holds it: the published snapshot, the step ids that make training exactly-once, and what replays
// need.
// What happens to a step, the same in every store, is decided in these places:
// - session_checks.h: which step ids are valid;
// - step_log.h: whether a step is new, a replay or too old;
// - stored_session.h (this file), CommitStep: the order of the checks, and the new snapshot;
// - running_state.h, ApplyStep: the arithmetic on running statistics;
// - durable/change_group.h: how the steps of one transaction become rows.
// session_changes.h holds the rules of all other changes. A store adds locking, durability and publication.
// Threads: plain values, thread-compatible; a store guards them.
#ifndef NORMD_SERVER_SESSION_STORED_SESSION_H_
#define NORMD_SERVER_SESSION_STORED_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/session/session_store.h"
#include "server/session/step_log.h"

namespace normd {

// PowerNorm: phi before the last step, for the replay of that step and no other.
struct PhiBefore {
  std::vector<double> phi;  // empty: unknown
  // The outcome that `phi` belongs to. Steps that were not applied share their version, and therefore phi.
  uint64_t version = 0;
  bool applied = false;
};

struct StoredSession {
  SessionPtr published;  // never null
  StepLog steps;
  PhiBefore phi_before;
  // The same object as `published` as long as only the store's writer has it, so that several steps make one snapshot;
  // otherwise null. A store must reset `draft` before it lets others see `published` or share it.
  std::shared_ptr<Session> draft;
};

// Applies `update` exactly once. On success the result is either the outcome of an earlier step with the same id
// (`replayed`) or a new one; if a new step was applied, `published` is a new snapshot, or the draft with new content.
// On an error nothing has changed; the errors are those of SessionStore::Commit that need no table. Leaves
// result.durability alone.
absl::StatusOr<CommitResult> CommitStep(const StateUpdate& update, const SessionLimits& limits, absl::Time now,
                                        StoredSession* stored);

// Publishes a snapshot with the initial state and version + 1; step ids stay, phi_before is forgotten.
void ResetState(absl::Time now, StoredSession* stored);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_STORED_SESSION_H_
