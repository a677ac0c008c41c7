// A session as a store holds it: the published snapshot, the step ids that make training exactly-once, and what replays
// need. CommitStep is the rule of Commit, the same for every store; the store adds locking, durability and publication.
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

// PowerNorm: phi as it was before the last step, for the replay of that step and no other.
struct PhiBefore {
  std::vector<double> phi;  // empty: unknown
  // The outcome it belongs to. Steps that were not applied share the version, and then phi, too.
  uint64_t version = 0;
  bool applied = false;
};

struct StoredSession {
  SessionPtr published;  // never null
  StepLog steps;
  PhiBefore phi_before;
  // `published` itself, as long as nobody but a store's writer has it: several steps make one snapshot. A store that
  // lets others see `published`, or have it, lets go of this first.
  std::shared_ptr<Session> draft;
};

// Applies `update` exactly once: on success either the outcome of before (replayed) or a new one, with `published`
// replaced by a new snapshot if the step was applied, or changed where it is the draft. On an error nothing has
// changed. Leaves result.durability alone.
absl::StatusOr<CommitResult> CommitStep(const StateUpdate& update, const SessionLimits& limits, absl::Time now,
                                        StoredSession* stored);

// A snapshot with the initial state and version + 1; step ids stay, phi before the last step is forgotten.
void ResetState(absl::Time now, StoredSession* stored);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_STORED_SESSION_H_
