#include "server/engine/step_report.h"

#include <algorithm>

#include "server/session/running_state.h"

namespace normd {

namespace {

double LargestCount(const Moments& moments) {
  double largest = 0;
  for (const Moment& moment : moments) largest = std::max(largest, moment.count);
  return largest;
}

}  // namespace

void ReportStep(const EngineObserver& observer, const Session& before, const Moments& moments,
                const CommitResult& result) {
  if (observer.on_step == nullptr) return;
  StepReport report = {
      .session = before.id, .replayed = result.replayed, .reason = result.reason, .drift = {}, .samples = {}};
  if (result.applied && !result.replayed) {
    report.drift = DriftOf(before, moments);
    if (before.spec.running().CountsSamples()) report.samples = LargestCount(moments);
  }
  observer.on_step(report);
}

}  // namespace normd
