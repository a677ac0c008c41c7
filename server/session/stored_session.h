// A session as a store holds it: the published snapshot, the step ids that make training exactly-once, and what replays
// need. CommitStep is the rule of Commit, the same for every store; the store adds locking, durability and publication.
// Threads: plain values, thread-compatible; a store guards them.
#ifndef NORMD_SERVER_SESSION_STORED_SESSION_H_
#define NORMD_SERVER_SESSION_STORED_SESSION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/session/session_store.h"

namespace normd {

// What one step did, kept for its replay.
struct StepOutcome {
  uint64_t sequence = 0;
  uint64_t moments_hash = 0;  // HashMoments
  uint64_t version = 0;
  bool applied = false;
  Reason reason = Reason::kApplied;
  uint64_t num_batches = 0;
};

struct ClientSteps {
  uint64_t last_sequence = 0;
  std::deque<StepOutcome> outcomes;  // the last K, oldest first
};

// The step ids of one session. Clients are bounded and never evicted: over the bound a new client is refused, so that
// no step of a known one can be applied twice.
struct StepLog {
  std::map<std::string, ClientSteps> clients;

  // The outcome of a step that was taken before, null for a new one. FAILED_PRECONDITION: at or below the client's last
  // sequence, but not among its last K. INVALID_ARGUMENT: taken with other moments. RESOURCE_EXHAUSTED: one client too
  // many. The pointer is valid until Add.
  absl::StatusOr<const StepOutcome*> Find(const StepId& step, uint64_t moments_hash, const SessionLimits& limits) const;

  // REQUIRES: Find said that `step` is new.
  void Add(const StepId& step, const StepOutcome& outcome, const SessionLimits& limits);
};

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
