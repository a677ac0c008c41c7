#include "server/obs/session_drifts.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace normd {
namespace {

// A drift that is NaN comes before all others.
bool IsLarger(double a, double b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

}  // namespace

SessionDrifts::SessionDrifts(MetricSet* set, std::string_view name, std::string_view help, LabelsOf labels_of,
                             std::function<absl::Time()> now)
    : Metric(set, {std::string(name), MetricType::kGauge, "tenant, session", std::string(help)}, {}),
      labels_of_(labels_of),
      now_(std::move(now)) {}

void SessionDrifts::Note(std::string_view session, double drift, absl::Time now) {
  Part& part = parts_[std::hash<std::string_view>()(session) % kParts];
  Drift noted = {.value = drift, .time = now};
  MutexLock lock(part.mu);
  if (Drift* const known = part.sessions.Find(session); known != nullptr) {
    *known = noted;
  } else {
    // What leaves is small, so it may be destroyed under the lock.
    part.sessions.Insert(std::string(session), &noted, 1).clear();
  }
}

void SessionDrifts::Collect(std::vector<prometheus::ClientMetric>* series) const {
  const absl::Time oldest = now_() - kShownFor;
  std::vector<std::pair<std::string, double>> largest;
  for (const Part& part : parts_) {
    MutexLock lock(part.mu);
    for (const auto& entry : part.sessions) {
      if (entry.value.time >= oldest) largest.emplace_back(entry.key, entry.value.value);
    }
  }
  const size_t shown = std::min(kShown, largest.size());
  std::partial_sort(largest.begin(), largest.begin() + static_cast<std::ptrdiff_t>(shown), largest.end(),
                    [](const auto& a, const auto& b) { return IsLarger(a.second, b.second); });
  for (size_t i = 0; i < shown; ++i) {
    const Labels labels = labels_of_(largest[i].first);
    series->emplace_back();
    series->back().label = {{.name = "session", .value = std::string(labels.session)},
                            {.name = "tenant", .value = std::string(labels.tenant)}};
    series->back().gauge.value = largest[i].second;
  }
}

}  // namespace normd
