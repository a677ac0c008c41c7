#include "server/engine/step_report.h"

#include "server/session/running_state.h"

namespace normd {

void ReportStep(const EngineObserver& observer, const Session& before, const Moments& moments,
                const CommitResult& result) {
  if (observer.on_step == nullptr) return;
  StepReport report = {.session = before.id, .replayed = result.replayed, .reason = result.reason, .drift = {}};
  if (result.applied && !result.replayed) report.drift = DriftOf(before, moments);
  observer.on_step(report);
}

}  // namespace normd
