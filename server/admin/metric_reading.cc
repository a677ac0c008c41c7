#include "server/admin/metric_reading.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace normd {
namespace {

bool Meets(const MetricSeries& series, const std::vector<LabelIs>& conditions) {
  return std::all_of(conditions.begin(), conditions.end(),
                     [&series](const LabelIs& is) { return LabelOf(series, is.first) == is.second; });
}

void Subtract(const MetricSeries& before, MetricSeries& series) {
  series.counter.value -= before.counter.value;
  for (size_t i = 0; i < std::min(series.histogram.bucket.size(), before.histogram.bucket.size()); ++i) {
    series.histogram.bucket[i].cumulative_count -= before.histogram.bucket[i].cumulative_count;
  }
}

}  // namespace

std::string_view LabelOf(const MetricSeries& series, std::string_view label) {
  for (const MetricSeries::Label& candidate : series.label) {
    if (candidate.name == label) return candidate.value;
  }
  return "";
}

MetricReading MetricReading::Since(const MetricReading& before) const {
  MetricReading difference = *this;
  for (prometheus::MetricFamily& family : difference.families_) {
    std::map<std::vector<MetricSeries::Label>, const MetricSeries*> earlier;
    for (const MetricSeries* series : before.Find(family.name)) earlier[series->label] = series;
    for (MetricSeries& series : family.metric) {
      if (const auto found = earlier.find(series.label); found != earlier.end()) Subtract(*found->second, series);
    }
  }
  return difference;
}

std::vector<const MetricSeries*> MetricReading::Find(std::string_view name,
                                                     const std::vector<LabelIs>& conditions) const {
  std::vector<const MetricSeries*> found;
  for (const prometheus::MetricFamily& family : families_) {
    if (family.name != name) continue;
    for (const MetricSeries& series : family.metric) {
      if (Meets(series, conditions)) found.push_back(&series);
    }
  }
  return found;
}

std::optional<double> MetricReading::Sum(std::string_view name, const std::vector<LabelIs>& conditions) const {
  const std::vector<const MetricSeries*> found = Find(name, conditions);
  if (found.empty()) return std::nullopt;
  double sum = 0;
  for (const MetricSeries* series : found) sum += series->counter.value + series->gauge.value;  // the other one is 0
  return sum;
}

std::vector<std::string> MetricReading::LabelValues(std::string_view name, std::string_view label) const {
  std::vector<std::string> values;
  for (const MetricSeries* series : Find(name)) {
    std::string value(LabelOf(*series, label));
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(std::move(value));
  }
  return values;
}

std::optional<double> MetricReading::Quantile(std::string_view name, double q,
                                              const std::vector<LabelIs>& conditions) const {
  std::map<double, double> buckets;  // by their upper bounds; counts are cumulative
  for (const MetricSeries* series : Find(name, conditions)) {
    for (const MetricSeries::Bucket& bucket : series->histogram.bucket) {
      buckets[bucket.upper_bound] += static_cast<double>(bucket.cumulative_count);
    }
  }
  if (buckets.empty() || buckets.rbegin()->second <= 0) return std::nullopt;
  const double rank = q * buckets.rbegin()->second;
  double low = 0, below = 0;
  for (const auto& [bound, count] : buckets) {
    if (std::isinf(bound)) break;
    if (count >= rank && count > below) return low + (bound - low) * (rank - below) / (count - below);
    low = bound;
    below = count;
  }
  return low;
}

RecentCounts RecentReadings::Add(const MetricReading& reading, absl::Time now) {
  while (readings_.size() > 1 && readings_[1].first <= now - kWindow) readings_.pop_front();
  const auto& [time, before] = readings_.front();
  RecentCounts recent = {now - time, reading.Since(before)};
  if (now - readings_.back().first >= absl::Seconds(1)) readings_.emplace_back(now, reading);
  return recent;
}

}  // namespace normd
