// The building blocks of metrics: a set that lists, owns and prints metrics, and a table of each metric's series by the
// values of its labels. The metrics of normd are not here but in the rows of server/metrics.h and server/stats.cc.
// In the path: below those two. Labels have closed lists of values, so the number of series is bounded.
// Threads: tables are made on one thread, before anything is counted; after that everything except MirrorTable::Set is
// safe from any thread. Counting costs an array look-up and an atomic add, no strings.
#ifndef NORMD_SERVER_OBS_METRIC_SET_H_
#define NORMD_SERVER_OBS_METRIC_SET_H_

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace normd {

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };

struct MetricInfo {
  std::string name;
  MetricType type;
  std::string labels;  // "method, norm, code"
  std::string help;
};

std::string MarkdownTable(absl::Span<const MetricInfo> metrics);

// A label and the closed list of its values.
struct Label {
  template <typename Values>
  Label(std::string_view name_of_all, const Values& all_values)
      : name(name_of_all), values(all_values.begin(), all_values.end()) {}

  std::string name;
  std::vector<std::string> values;
};

class MetricSet {
 public:
  // The metrics, in the order in which their tables were made.
  const std::vector<MetricInfo>& metrics() const { return metrics_; }

  // Prometheus exposition text, version 0.0.4.
  std::string Text() const;

 private:
  template <typename Series>
  friend class SeriesTable;

  template <typename Series>
  prometheus::Family<Series>* Add(std::string_view name, absl::Span<const Label> labels, std::string_view help);

  prometheus::Registry registry_;
  std::vector<MetricInfo> metrics_;
};

// One metric of a MetricSet, which owns the series and must outlive the table. A metric without labels has one series.
// With at most one label, all series exist from the start. With several labels, each series is made at its first use,
// because all combinations at once would be thousands of lines of zeros.
template <typename Series>
class SeriesTable {
 public:
  // `buckets` are a histogram's upper bounds.
  SeriesTable(MetricSet* set, std::string_view name, std::vector<Label> labels, std::string_view help,
              std::vector<double> buckets = {});
  SeriesTable(SeriesTable&&) noexcept = default;

  size_t size() const { return series_.size(); }

  // The series of the given values: for each label, in order, an index (or enumerator) into its list of values.
  template <typename... Indices>
  Series& At(Indices... values) {
    return AtPosition(Position(values...));
  }

  // Like At, but returns null if the series was not made yet.
  template <typename... Indices>
  const Series* Find(Indices... values) const {
    return series_[Position(values...)].load(std::memory_order_acquire);
  }

 private:
  template <typename... Indices>
  size_t Position(Indices... values) const {
    assert(sizeof...(values) == labels_.size());
    size_t position = 0;
    [[maybe_unused]] const Label* label = labels_.data();
    ((position = position * (label++)->values.size() + static_cast<size_t>(values)), ...);
    return position;
  }

  Series& AtPosition(size_t position) {
    Series* series = series_[position].load(std::memory_order_acquire);
    return series != nullptr ? *series : Make(position);
  }

  Series& Make(size_t position);

  // Constant after construction.
  prometheus::Family<Series>* family_;
  std::vector<Label> labels_;
  std::vector<double> buckets_;

  std::vector<std::atomic<Series*>> series_;  // in row-major order: the last label varies fastest
};

using Counters = SeriesTable<prometheus::Counter>;
using Gauges = SeriesTable<prometheus::Gauge>;
using Histograms = SeriesTable<prometheus::Histogram>;

extern template class SeriesTable<prometheus::Counter>;
extern template class SeriesTable<prometheus::Gauge>;
extern template class SeriesTable<prometheus::Histogram>;

// A gauge or a counter, with at most one label, that mirrors a value kept elsewhere.
class MirrorTable {
 public:
  // REQUIRES: `type` is no histogram, and there is at most one label.
  MirrorTable(MetricSet* set, std::string_view name, MetricType type, const std::vector<Label>& labels,
              std::string_view help);

  size_t size() const;

  // Sets the series of the label's value number `index` (0 without a label): a gauge becomes `value`, and a counter
  // grows to `value` but never falls. Call Set from one thread at a time, so that growth is added only once.
  void Set(size_t index, double value);

 private:
  std::variant<Gauges, Counters> table_;
  bool has_label_;
};

}  // namespace normd

#endif  // NORMD_SERVER_OBS_METRIC_SET_H_
