// One training step whose moments several callers computed, each on its part of the data.
// In the path: the codec makes a PooledStep of a CommitMoments request, Engine::CommitMoments reads the session and
// makes the update of it that the store commits.
// Pure functions on plain values, safe from any thread.
#ifndef NORMD_SERVER_ENGINE_POOLED_STEP_H_
#define NORMD_SERVER_ENGINE_POOLED_STEP_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/moments.h"
#include "server/session/session_store.h"

namespace normd {

struct MomentsPart {
  Moments moments;
  SampleDetails details;
};

struct PooledStep {
  std::string session;  // its key (server/session/session_key.h)
  std::vector<MomentsPart> parts;
  std::vector<std::string> channel_names;  // the channels that the moments are of, in this order; empty: the session's
  std::optional<StepId> step;
  std::optional<uint64_t> expected_version;
  bool want_state = false;
  std::function<bool()> cancelled;  // null: never; see StateUpdate
};

struct PooledReply {
  CommitResult result;
  SessionPtr session;  // the newest version, where the state was wanted and the session is still there; else null
};

// The work of UpdateOf, in bytes of moments.
int64_t WorkOf(const std::vector<MomentsPart>& parts);

// The update of `session` that `step` asks for: its parts merged per statistics group and in the order given (those of
// methods that step by sample are concatenated), in the session's order of channels. If every part has exact sums,
// those are merged, the moments are the nearest to them, and no order is in the state after the update.
// INVALID_ARGUMENT naming "session" if the session has no running state, "moments[i]" if a part's length differs from
// the first one's, "moments[i].count" for a count that is not whole where the session does not count samples,
// "moments[i].exact" where the method has no exact sums or they are of other groups or of too many elements, a value of
// moments[i] that its exact sums contradict, and "channel_names" unless they are the session's, each once.
absl::StatusOr<StateUpdate> UpdateOf(const Session& session, PooledStep step);

}  // namespace normd

#endif  // NORMD_SERVER_ENGINE_POOLED_STEP_H_
