#include "server/session/stored_session.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/methods.h"
#include "server/base/errors.h"
#include "server/session/running_state.h"
#include "server/session/sample_statistics.h"
#include "server/session/session_checks.h"
#include "server/session/session_key.h"

namespace normd {

namespace {

// The divisor of the replayed step; empty if it is no longer known.
std::vector<double> ReplayDivisor(const StoredSession& stored, const StepOutcome& outcome, std::vector<double> v) {
  const NormSpec& spec = stored.published->spec;
  const uint64_t iters = outcome.applied ? outcome.num_batches : NextBatch(outcome.num_batches);
  const PhiBefore& before = stored.phi_before;
  const bool known = before.version == outcome.version && before.applied == outcome.applied;
  return PowerNormDivisor(spec, iters, std::move(v), known ? before.phi : std::vector<double>());
}

std::vector<int64_t> SkippedBy(const Session& session, const Moments& moments) {
  return session.spec.running().CountsSamples() ? SkippedChannels(moments) : std::vector<int64_t>();
}

// The running statistics, where the output of a training step uses them.
void TakeRunning(const Session& session, CommitResult* result) {
  if (session.spec.running().normalize_with != NormalizeWith::kRunning) return;
  result->mean = session.state.mean;
  result->divisor = session.state.var;
}

CommitResult Replay(const StoredSession& stored, const StepOutcome& outcome, const StateUpdate& update) {
  CommitResult result = {.version = outcome.version,
                         .uid = stored.published->uid,
                         .applied = outcome.applied,
                         .reason = outcome.reason,
                         .replayed = true,
                         .num_batches = outcome.num_batches,
                         .mean = {},
                         .divisor = {},
                         .skipped_channels = SkippedBy(*stored.published, update.moments)};
  if (TraitsOf(stored.published->spec.method()).commit_gives_divisor)
    result.divisor = ReplayDivisor(stored, outcome, MeanSquaresOf(update.moments, update.mean_squares));
  // The statistics after the step are known as long as nothing has changed them.
  if (stored.published->version == outcome.version) TakeRunning(*stored.published, &result);
  return result;
}

// The result of a new step of `session`, which has counted `num_batches` with it.
CommitResult ResultOf(const Session& session, Reason reason, uint64_t num_batches) {
  const bool applied = reason == Reason::kApplied;
  return {.version = session.version + (applied ? 1 : 0),
          .uid = session.uid,
          .applied = applied,
          .reason = reason,
          .num_batches = num_batches,
          .mean = {},
          .divisor = {},
          .skipped_channels = {}};
}

// What replays of a step need to know of its result.
StepOutcome OutcomeOf(const StepId& step, uint64_t moments_hash, const CommitResult& result) {
  return {.sequence = step.sequence,
          .moments_hash = moments_hash,
          .version = result.version,
          .applied = result.applied,
          .reason = result.reason,
          .num_batches = result.num_batches};
}

void Publish(std::shared_ptr<Session> next, absl::Time now, StoredSession* stored) {
  ++next->version;
  next->update_time = std::max(now, next->update_time);  // the clock may have been set back
  stored->published = std::move(next);
}

}  // namespace

absl::StatusOr<CommitResult> CommitStep(const StateUpdate& update, const SessionLimits& limits, absl::Time now,
                                        StoredSession* stored) {
  const Session& session = *stored->published;
  if (!update.uid.empty() && update.uid != session.uid) return SessionNotFoundError(IdOf(update.id));
  // Replays come first, because the version that a replay's caller expected is long gone.
  uint64_t hash = 0;
  if (update.step.has_value()) {
    NORMD_RETURN_IF_ERROR(ValidateStepId(*update.step));
    hash = update.moments_hash.has_value() ? *update.moments_hash : HashMoments(update.moments, update.details);
    NORMD_ASSIGN_OR_RETURN(const StepOutcome* taken, stored->steps.Find(*update.step, hash));
    if (taken != nullptr) return Replay(*stored, *taken, update);
  }
  if (update.expected_version.has_value() && *update.expected_version != session.version) {
    return VersionMismatchError(*update.expected_version, session.version);
  }
  NORMD_RETURN_IF_ERROR(CheckNotFrozen(session));
  // PowerNorm needs phi as it was before the step, so a PowerNorm draft is not changed in place.
  const bool in_place = stored->draft != nullptr && !TraitsOf(session.spec.method()).commit_gives_divisor;
  std::shared_ptr<Session> next = in_place ? stored->draft : std::make_shared<Session>(session);
  NORMD_ASSIGN_OR_RETURN(const Reason reason,
                         ApplyStep(session.spec, session.num_channels, update.moments, &next->state, update.details));
  CommitResult result = ResultOf(session, reason, next->state.num_batches);
  result.skipped_channels = SkippedBy(session, update.moments);
  TakeRunning(*next, &result);
  if (TraitsOf(session.spec.method()).commit_gives_divisor) {
    const RunningState& before = session.state;
    result.divisor = PowerNormDivisor(session.spec, NextBatch(before.num_batches),
                                      MeanSquaresOf(update.moments, update.mean_squares), before.phi);
    // Only a step with an id can be replayed.
    stored->phi_before = {};
    if (update.step.has_value()) stored->phi_before = {before.phi, result.version, result.applied};
  }
  if (update.step.has_value()) stored->steps.Add(*update.step, OutcomeOf(*update.step, hash, result), limits);
  if (result.applied) {
    stored->draft = next;
    Publish(std::move(next), now, stored);
  }
  return result;
}

void ResetState(absl::Time now, StoredSession* stored) {
  auto next = std::make_shared<Session>(*stored->published);
  next->state = InitialState(next->spec, next->num_channels);
  Publish(std::move(next), now, stored);
  stored->draft = nullptr;
  stored->phi_before = {};
}

}  // namespace normd
