// What the metrics say at one time: their series by name and label, and quantiles of histograms. The status page shows
// the metrics that it finds, so it needs no list of its own of all metrics.
// In the path: beside it; status_report.cc makes tables of readings.
// Threads: a MetricReading is immutable; RecentReadings belongs to one thread.
#ifndef NORMD_SERVER_ADMIN_METRIC_READING_H_
#define NORMD_SERVER_ADMIN_METRIC_READING_H_

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "prometheus/metric_family.h"

namespace normd {

using MetricSeries = prometheus::ClientMetric;

// The value of a label of the series, or "".
std::string_view LabelOf(const MetricSeries& series, std::string_view label);

// A condition on series: the label has this value.
using LabelIs = std::pair<std::string_view, std::string_view>;

class MetricReading {
 public:
  explicit MetricReading(std::vector<prometheus::MetricFamily> families = {}) : families_(std::move(families)) {}

  // What was counted since `before`: counters and histograms less their values then, and gauges as they are.
  MetricReading Since(const MetricReading& before) const;

  // All series of a metric, in their order.
  std::vector<const MetricSeries*> Find(std::string_view name, const std::vector<LabelIs>& conditions = {}) const;
  // The sum of the values of those series, of a counter or gauge; nullopt where there are none.
  std::optional<double> Sum(std::string_view name, const std::vector<LabelIs>& conditions = {}) const;
  // The values that a label of the metric has, each once, in the order of the series.
  std::vector<std::string> LabelValues(std::string_view name, std::string_view label) const;
  // The quantile `q` (0 to 1) of the histogram `name`, over all of its series that meet the conditions: interpolated
  // within its bucket, and the last finite bound beyond that. nullopt where nothing was observed.
  std::optional<double> Quantile(std::string_view name, double q, const std::vector<LabelIs>& conditions = {}) const;

 private:
  std::vector<prometheus::MetricFamily> families_;
};

// What was counted in a time that ends now.
struct RecentCounts {
  absl::Duration duration;
  MetricReading counts;
};

// The readings of the last looks at the page, so that it can say what happens now.
class RecentReadings {
 public:
  static constexpr absl::Duration kWindow = absl::Seconds(10);

  // Everything is counted from 0 at `start`.
  explicit RecentReadings(absl::Time start) : readings_{{start, MetricReading()}} {}

  // Returns the counts between `reading`, which it keeps, and the newest earlier reading that is at least kWindow old,
  // or else the oldest one.
  RecentCounts Add(const MetricReading& reading, absl::Time now);

 private:
  std::deque<std::pair<absl::Time, MetricReading>> readings_;  // a second apart or more; the oldest first; never empty
};

}  // namespace normd

#endif  // NORMD_SERVER_ADMIN_METRIC_READING_H_
