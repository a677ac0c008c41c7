#include "server/obs/metric_set.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "prometheus/metric_type.h"
#include "prometheus/text_serializer.h"

namespace normd {
namespace {

const char* TypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";
}

prometheus::MetricType ExpositionType(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

std::string LabelNames(const std::vector<Label>& labels) {
  return absl::StrJoin(labels, ", ", [](std::string* out, const Label& label) { absl::StrAppend(out, label.name); });
}

MetricInfo Info(std::string_view name, MetricType type, const std::vector<Label>& labels, std::string_view help) {
  return {.name = std::string(name), .type = type, .labels = LabelNames(labels), .help = std::string(help)};
}

size_t Combinations(const std::vector<Label>& labels) {
  size_t product = 1;
  for (const Label& label : labels) product *= label.values.size();
  return product;
}

// The width of a value's binary form; 0 for values that are not positive.
size_t BitWidth(int64_t value) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(0, value))));
}

}  // namespace

std::string MarkdownTable(absl::Span<const MetricInfo> metrics) {
  std::string out = "| metric | type | labels | meaning |\n|---|---|---|---|\n";
  for (const MetricInfo& info : metrics) {
    absl::StrAppend(&out, "| `", info.name, "` | ", TypeName(info.type), " | ", info.labels, " | ", info.help, " |\n");
  }
  return out;
}

std::vector<prometheus::MetricFamily> MetricSet::Collect() const {
  std::vector<prometheus::MetricFamily> families;
  families.reserve(metrics_.size());
  for (size_t i = 0; i < metrics_.size(); ++i) {
    families.push_back(
        {.name = infos_[i].name, .help = infos_[i].help, .type = ExpositionType(infos_[i].type), .metric = {}});
    metrics_[i]->Collect(&families.back().metric);
  }
  return families;
}

std::string MetricSet::Text() const { return prometheus::TextSerializer().Serialize(Collect()); }

Metric::Metric(MetricSet* set, MetricInfo info, std::vector<Label> labels)
    : labels_(std::move(labels)), size_(Combinations(labels_)) {
  set->metrics_.push_back(this);
  set->infos_.push_back(std::move(info));
}

prometheus::ClientMetric Metric::SeriesAt(size_t position) const {
  prometheus::ClientMetric series;
  for (auto label = labels_.rbegin(); label != labels_.rend(); ++label) {
    series.label.push_back({.name = label->name, .value = label->values[position % label->values.size()]});
    position /= label->values.size();
  }
  std::sort(series.label.begin(), series.label.end());
  return series;
}

CountedMetric::CountedMetric(MetricSet* set, MetricInfo info, std::vector<Label> labels, size_t cells_per_series)
    : Metric(set, std::move(info), labels), shown_(size(), labels.size() <= 1), cells_(size() * cells_per_series) {}

Counters::Counters(MetricSet* set, std::string_view name, std::vector<Label> labels, std::string_view help)
    : CountedMetric(set, Info(name, MetricType::kCounter, labels, help), labels, 1) {}

void Counters::Collect(std::vector<prometheus::ClientMetric>* series) const {
  for (size_t position = 0; position < size(); ++position) {
    const int64_t value = cells().Sum(position);
    if (value == 0 && !shown(position)) continue;
    series->push_back(SeriesAt(position));
    series->back().counter.value = static_cast<double>(value);
  }
}

Histograms::Histograms(MetricSet* set, std::string_view name, std::vector<Label> labels, std::string_view help,
                       Buckets buckets)
    : CountedMetric(set, Info(name, MetricType::kHistogram, labels, help), labels, buckets.bounds.size() + 2),
      buckets_(std::move(buckets)),
      cells_per_series_(buckets_.bounds.size() + 2) {
  assert(std::is_sorted(buckets_.bounds.begin(), buckets_.bounds.end()) && buckets_.bounds.size() < 256);
  for (size_t width = 0; width < first_bucket_.size(); ++width) {
    const int64_t least = width == 0 ? 0 : static_cast<int64_t>(uint64_t{1} << (width - 1));
    const auto bound = std::lower_bound(buckets_.bounds.begin(), buckets_.bounds.end(), least);
    first_bucket_[width] = static_cast<uint8_t>(bound - buckets_.bounds.begin());
  }
}

size_t Histograms::BucketOf(int64_t value) const {
  size_t bucket = first_bucket_[BitWidth(value)];
  while (bucket < buckets_.bounds.size() && buckets_.bounds[bucket] < value) ++bucket;
  return bucket;
}

int64_t Histograms::CountAt(size_t position) const {
  int64_t count = 0;
  for (size_t bucket = 0; bucket <= buckets_.bounds.size(); ++bucket) {
    count += cells().Sum(position * cells_per_series_ + bucket);
  }
  return count;
}

void Histograms::Collect(std::vector<prometheus::ClientMetric>* series) const {
  for (size_t position = 0; position < size(); ++position) {
    if (!shown(position) && CountAt(position) == 0) continue;
    series->push_back(SeriesAt(position));
    prometheus::ClientMetric::Histogram& histogram = series->back().histogram;
    const size_t first = position * cells_per_series_;
    // The count is that of the buckets, which are read while others count, so that it never contradicts them.
    for (size_t bucket = 0; bucket <= buckets_.bounds.size(); ++bucket) {
      histogram.sample_count += static_cast<uint64_t>(cells().Sum(first + bucket));
      const bool last = bucket == buckets_.bounds.size();
      histogram.bucket.push_back({.cumulative_count = histogram.sample_count,
                                  .upper_bound = last ? std::numeric_limits<double>::infinity()
                                                      : static_cast<double>(buckets_.bounds[bucket]) / buckets_.units});
    }
    histogram.sample_sum = static_cast<double>(cells().Sum(first + cells_per_series_ - 1)) / buckets_.units;
  }
}

MirrorTable::MirrorTable(MetricSet* set, std::string_view name, MetricType type, std::vector<Label> labels,
                         std::string_view help)
    : Metric(set, Info(name, type, labels, help), labels), type_(type), values_(size()) {
  assert(type != MetricType::kHistogram);
}

void MirrorTable::Set(size_t position, double value) {
  std::atomic<double>& shown = values_[position];
  if (type_ == MetricType::kGauge) return shown.store(value, std::memory_order_relaxed);
  double before = shown.load(std::memory_order_relaxed);
  while (before < value && !shown.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

void MirrorTable::Collect(std::vector<prometheus::ClientMetric>* series) const {
  for (size_t position = 0; position < size(); ++position) {
    series->push_back(SeriesAt(position));
    if (type_ == MetricType::kGauge) {
      series->back().gauge.value = Value(position);
    } else {
      series->back().counter.value = Value(position);
    }
  }
}

}  // namespace normd
