#include "server/obs/metric_set.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "prometheus/labels.h"
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

// The metric type and the builder of each kind of series.
template <typename Series>
struct Kind;

template <>
struct Kind<prometheus::Counter> {
  static constexpr MetricType kType = MetricType::kCounter;
  static auto Build() { return prometheus::BuildCounter(); }
};

template <>
struct Kind<prometheus::Gauge> {
  static constexpr MetricType kType = MetricType::kGauge;
  static auto Build() { return prometheus::BuildGauge(); }
};

template <>
struct Kind<prometheus::Histogram> {
  static constexpr MetricType kType = MetricType::kHistogram;
  static auto Build() { return prometheus::BuildHistogram(); }
};

size_t Combinations(const std::vector<Label>& labels) {
  size_t product = 1;
  for (const Label& label : labels) product *= label.values.size();
  return product;
}

}  // namespace

std::string MarkdownTable(absl::Span<const MetricInfo> metrics) {
  std::string out = "| metric | type | labels | meaning |\n|---|---|---|---|\n";
  for (const MetricInfo& info : metrics) {
    absl::StrAppend(&out, "| `", info.name, "` | ", TypeName(info.type), " | ", info.labels, " | ", info.help, " |\n");
  }
  return out;
}

std::string MetricSet::Text() const { return prometheus::TextSerializer().Serialize(registry_.Collect()); }

template <typename Series>
prometheus::Family<Series>* MetricSet::Add(std::string_view name, absl::Span<const Label> labels,
                                           std::string_view help) {
  const auto append_name = [](std::string* out, const Label& label) { absl::StrAppend(out, label.name); };
  metrics_.push_back({.name = std::string(name),
                      .type = Kind<Series>::kType,
                      .labels = absl::StrJoin(labels, ", ", append_name),
                      .help = std::string(help)});
  return &Kind<Series>::Build().Name(metrics_.back().name).Help(metrics_.back().help).Register(registry_);
}

template <typename Series>
SeriesTable<Series>::SeriesTable(MetricSet* set, std::string_view name, std::vector<Label> labels,
                                 std::string_view help, std::vector<double> buckets)
    : family_(set->Add<Series>(name, labels, help)),
      labels_(std::move(labels)),
      buckets_(std::move(buckets)),
      series_(Combinations(labels_)) {
  if (labels_.size() > 1) return;
  for (size_t position = 0; position < series_.size(); ++position) Make(position);
}

// Two threads may find the same slot empty at once; Family::Add then gives both the same series.
template <typename Series>
Series& SeriesTable<Series>::Make(size_t position) {
  prometheus::Labels labels;
  size_t rest = position;
  for (auto label = labels_.rbegin(); label != labels_.rend(); ++label) {
    labels[label->name] = label->values[rest % label->values.size()];
    rest /= label->values.size();
  }
  Series* series = nullptr;
  if constexpr (std::is_same_v<Series, prometheus::Histogram>) {
    series = &family_->Add(labels, buckets_);
  } else {
    series = &family_->Add(labels);
  }
  series_[position].store(series, std::memory_order_release);
  return *series;
}

template class SeriesTable<prometheus::Counter>;
template class SeriesTable<prometheus::Gauge>;
template class SeriesTable<prometheus::Histogram>;

MirrorTable::MirrorTable(MetricSet* set, std::string_view name, MetricType type, const std::vector<Label>& labels,
                         std::string_view help)
    : table_(type == MetricType::kGauge
                 ? std::variant<Gauges, Counters>(std::in_place_type<Gauges>, set, name, labels, help)
                 : std::variant<Gauges, Counters>(std::in_place_type<Counters>, set, name, labels, help)),
      has_label_(!labels.empty()) {
  assert(type != MetricType::kHistogram && labels.size() <= 1);
}

size_t MirrorTable::size() const {
  return std::visit([](const auto& table) { return table.size(); }, table_);
}

void MirrorTable::Set(size_t index, double value) {
  if (Gauges* gauges = std::get_if<Gauges>(&table_); gauges != nullptr) {
    (has_label_ ? gauges->At(index) : gauges->At()).Set(value);
    return;
  }
  Counters& counters = std::get<Counters>(table_);
  prometheus::Counter& counter = has_label_ ? counters.At(index) : counters.At();
  const double growth = value - counter.Value();
  if (growth > 0) counter.Increment(growth);
}

}  // namespace normd
