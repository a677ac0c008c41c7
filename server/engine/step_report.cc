#include "server/engine/step_report.h"

#include <algorithm>
#include <cstddef>

#include "server/session/running_state.h"
#include "server/session/sample_statistics.h"

namespace normd {

namespace {

double MostSamples(const Moments& moments, const std::vector<double>& samples) {
  double most = 0;
  for (size_t c = 0; c < moments.size(); ++c) most = std::max(most, SamplesOf(moments, samples, c));
  return most;
}

}  // namespace

void ReportStep(const EngineObserver& observer, const Session& before, const Moments& moments,
                const std::vector<double>& samples, const CommitResult& result) {
  if (observer.on_step == nullptr) return;
  StepReport report = {
      .session = before.id, .replayed = result.replayed, .reason = result.reason, .drift = {}, .samples = {}};
  if (result.applied && !result.replayed) {
    report.drift = DriftOf(before, moments);
    if (before.spec.running().CountsSamples()) report.samples = MostSamples(moments, samples);
  }
  observer.on_step(report);
}

}  // namespace normd
