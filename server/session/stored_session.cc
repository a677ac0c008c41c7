#include "server/session/stored_session.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "server/base/errors.h"
#include "server/base/status_macros.h"
#include "server/session/running_state.h"
#include "server/session/session_checks.h"

namespace normd {

namespace {

// What the replayed step divided by, empty if that is no longer known.
std::vector<double> ReplayDivisor(const StoredSession& stored, const StepOutcome& outcome, const Moments& moments) {
  const NormSpec& spec = stored.published->spec;
  const uint64_t iters = outcome.num_batches + (outcome.applied ? 0 : 1);
  const PhiBefore& before = stored.phi_before;
  const bool known = before.version == outcome.version && before.applied == outcome.applied;
  return PowerNormDivisor(spec, iters, moments, known ? before.phi : std::vector<double>());
}

CommitResult Replay(const StoredSession& stored, const StepOutcome& outcome, const Moments& moments) {
  CommitResult result = {.version = outcome.version,
                         .epoch = stored.published->epoch,
                         .applied = outcome.applied,
                         .reason = outcome.reason,
                         .replayed = true,
                         .num_batches = outcome.num_batches,
                         .divisor = {}};
  if (stored.published->spec.method == Method::kPowerNorm) result.divisor = ReplayDivisor(stored, outcome, moments);
  return result;
}

void Publish(std::shared_ptr<Session> next, absl::Time now, StoredSession* stored) {
  ++next->version;
  next->update_time = now;
  stored->published = std::move(next);
}

}  // namespace

absl::StatusOr<const StepOutcome*> StepLog::Find(const StepId& step, uint64_t moments_hash,
                                                 const SessionLimits& limits) const {
  const auto client = clients.find(step.client_id);
  if (client == clients.end()) {
    const auto count = static_cast<int64_t>(clients.size());
    if (count >= limits.max_clients) return TooManyError("step.client_id", count + 1, limits.max_clients);
    return nullptr;
  }
  const ClientSteps& steps = client->second;
  if (step.sequence > steps.last_sequence) return nullptr;
  const auto outcome = std::find_if(steps.outcomes.begin(), steps.outcomes.end(),
                                    [&step](const StepOutcome& o) { return o.sequence == step.sequence; });
  if (outcome == steps.outcomes.end()) return StepTooOldError(step.client_id, step.sequence, steps.last_sequence);
  if (outcome->moments_hash != moments_hash) return StepReusedError(step.client_id, step.sequence);
  return &*outcome;
}

void StepLog::Add(const StepId& step, const StepOutcome& outcome, const SessionLimits& limits) {
  ClientSteps& steps = clients[step.client_id];
  steps.last_sequence = step.sequence;
  steps.outcomes.push_back(outcome);
  while (static_cast<int64_t>(steps.outcomes.size()) > limits.replay_window) steps.outcomes.pop_front();
}

absl::StatusOr<CommitResult> CommitStep(const StateUpdate& update, const SessionLimits& limits, absl::Time now,
                                        StoredSession* stored) {
  const Session& session = *stored->published;
  if (!update.epoch.empty() && update.epoch != session.epoch) return SessionNotFoundError(update.id);
  // A replay comes first: the version that its caller expected is long gone.
  uint64_t hash = 0;
  if (update.step.has_value()) {
    NORMD_RETURN_IF_ERROR(ValidateStepId(*update.step));
    hash = update.moments_hash.has_value() ? *update.moments_hash : HashMoments(update.moments);
    NORMD_ASSIGN_OR_RETURN(const StepOutcome* taken, stored->steps.Find(*update.step, hash, limits));
    if (taken != nullptr) return Replay(*stored, *taken, update.moments);
  }
  if (update.expected_version.has_value() && *update.expected_version != session.version) {
    return VersionMismatchError(*update.expected_version, session.version);
  }
  // PowerNorm keeps phi as it was.
  const bool in_place = stored->draft != nullptr && session.spec.method != Method::kPowerNorm;
  std::shared_ptr<Session> next = in_place ? stored->draft : std::make_shared<Session>(session);
  NORMD_ASSIGN_OR_RETURN(const Reason reason,
                         ApplyStep(session.spec, session.num_channels, update.moments, &next->state));
  const bool applied = reason == Reason::kApplied;
  CommitResult result = {.version = session.version + (applied ? 1 : 0),
                         .epoch = session.epoch,
                         .applied = applied,
                         .reason = reason,
                         .num_batches = next->state.num_batches,
                         .divisor = {}};
  if (session.spec.method == Method::kPowerNorm) {
    const RunningState& before = session.state;
    result.divisor = PowerNormDivisor(session.spec, before.num_batches + 1, update.moments, before.phi);
    // Only a step with an id can be replayed.
    stored->phi_before = {};
    if (update.step.has_value()) stored->phi_before = {before.phi, result.version, applied};
  }
  if (update.step.has_value()) {
    stored->steps.Add(*update.step,
                      {.sequence = update.step->sequence,
                       .moments_hash = hash,
                       .version = result.version,
                       .applied = result.applied,
                       .reason = result.reason,
                       .num_batches = result.num_batches},
                      limits);
  }
  if (applied) {
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
