// Series as prometheus-cpp has them, for tests of what reads them.
#ifndef NORMD_TESTS_SERVER_ADMIN_METRIC_SERIES_H_
#define NORMD_TESTS_SERVER_ADMIN_METRIC_SERIES_H_

#include <utility>
#include <vector>

#include "prometheus/client_metric.h"

namespace normd {

using SeriesLabels = std::vector<prometheus::ClientMetric::Label>;

inline prometheus::ClientMetric CounterSeries(SeriesLabels labels, double value) {
  return {.label = std::move(labels), .counter = {.value = value}};
}

inline prometheus::ClientMetric GaugeSeries(SeriesLabels labels, double value) {
  return {.label = std::move(labels), .gauge = {.value = value}};
}

// The counts of the buckets are cumulative.
inline prometheus::ClientMetric HistogramSeries(SeriesLabels labels,
                                                std::vector<prometheus::ClientMetric::Bucket> buckets) {
  return {.label = std::move(labels), .histogram = {.bucket = std::move(buckets)}};
}

}  // namespace normd

#endif  // NORMD_TESTS_SERVER_ADMIN_METRIC_SERIES_H_
