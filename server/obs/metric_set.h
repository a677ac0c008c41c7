// The building blocks of metrics: a set that lists and prints metrics, and metrics whose series differ in the values of
// labels. The metrics of normd are not here but in the rows of server/wiring/metrics.h and server/wiring/stats.cc. In
// the path: below those two. Labels have closed lists of values, so the number of series is bounded. Ownership: a
// metric registers itself with its set, and both live as long as anybody counts or prints.
// Threads: metrics are made on one thread, before anything is counted; after that everything is safe from any thread.
// Counting costs an array look-up and an atomic add to the processor's own copy (sharded_cells.h): no lock, no strings.
#ifndef NORMD_SERVER_OBS_METRIC_SET_H_
#define NORMD_SERVER_OBS_METRIC_SET_H_

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "prometheus/client_metric.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "server/obs/sharded_cells.h"

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

class Metric;

class MetricSet : public prometheus::Collectable {
 public:
  // The metrics, in the order in which they were made.
  const std::vector<MetricInfo>& metrics() const { return infos_; }

  // The present values, for prometheus-cpp.
  std::vector<prometheus::MetricFamily> Collect() const override;

  // Prometheus exposition text, version 0.0.4.
  std::string Text() const;

 private:
  friend class Metric;

  std::vector<const Metric*> metrics_;
  std::vector<MetricInfo> infos_;
};

// One metric of a set: a name, labels, and a series for each combination of the labels' values. A position is the
// number of a combination, in row-major order: the last label varies fastest.
class Metric {
 public:
  Metric(const Metric&) = delete;
  Metric& operator=(const Metric&) = delete;

  // The number of combinations; 1 without labels.
  size_t size() const { return size_; }

  // Appends the series that are to be shown.
  virtual void Collect(std::vector<prometheus::ClientMetric>* series) const = 0;

 protected:
  Metric(MetricSet* set, MetricInfo info, std::vector<Label> labels);
  virtual ~Metric() = default;

  // The position of the given values: for each label, in order, an index (or enumerator) into its list of values.
  template <typename... Indices>
  size_t Position(Indices... values) const {
    assert(sizeof...(values) == labels_.size());
    size_t position = 0;
    [[maybe_unused]] const Label* label = labels_.data();
    ((position = position * (label++)->values.size() + static_cast<size_t>(values)), ...);
    return position;
  }

  // A series of the position's labels, without a value.
  prometheus::ClientMetric SeriesAt(size_t position) const;

 private:
  const std::vector<Label> labels_;
  const size_t size_;
};

// A metric that is counted as events happen. With at most one label, all series are shown from the start. With several,
// those are shown that were counted, because all combinations at once would be thousands of lines of zeros.
class CountedMetric : public Metric {
 public:
  // Shows a series from the start. REQUIRES: nothing is printed or counted yet.
  template <typename... Indices>
  void Show(Indices... values) {
    shown_[Position(values...)] = true;
  }

 protected:
  // Each series has `cells_per_series` cells.
  CountedMetric(MetricSet* set, MetricInfo info, std::vector<Label> labels, size_t cells_per_series);

  bool shown(size_t position) const { return shown_[position]; }
  ShardedCells& cells() { return cells_; }
  const ShardedCells& cells() const { return cells_; }

 private:
  std::vector<bool> shown_;
  ShardedCells cells_;
};

class Counters : public CountedMetric {
 public:
  Counters(MetricSet* set, std::string_view name, std::vector<Label> labels, std::string_view help);

  template <typename... Indices>
  void Add(int64_t amount, Indices... values) {
    cells().Add(cells().Shard(), Position(values...), amount);
  }
  template <typename... Indices>
  int64_t Total(Indices... values) const {
    return cells().Sum(Position(values...));
  }

  void Collect(std::vector<prometheus::ClientMetric>* series) const override;
};

// The buckets of a histogram: upper bounds, inclusive and rising, in the whole units in which values are counted.
// `units` of them are one unit of the exposition: 1e9 for values in nanoseconds that are shown in seconds.
struct Buckets {
  std::vector<int64_t> bounds;
  double units = 1;
};

class Histograms : public CountedMetric {
 public:
  Histograms(MetricSet* set, std::string_view name, std::vector<Label> labels, std::string_view help, Buckets buckets);

  template <typename... Indices>
  void Observe(int64_t value, Indices... values) {
    const size_t shard = cells().Shard();
    const size_t first = Position(values...) * cells_per_series_;
    cells().Add(shard, first + BucketOf(value), 1);
    cells().Add(shard, first + cells_per_series_ - 1, value);
  }
  // How many values were observed.
  template <typename... Indices>
  int64_t Count(Indices... values) const {
    return CountAt(Position(values...));
  }

  void Collect(std::vector<prometheus::ClientMetric>* series) const override;

 private:
  // The first bucket whose bound is not below `value`; the one after the last bound has all larger values.
  size_t BucketOf(int64_t value) const;
  int64_t CountAt(size_t position) const;

  const Buckets buckets_;
  const size_t cells_per_series_;           // a bucket for each bound, one for larger values, and the sum of the values
  std::array<uint8_t, 65> first_bucket_{};  // by the bit width of a value
};

// A gauge or a counter that mirrors values kept elsewhere. All series are shown.
class MirrorTable : public Metric {
 public:
  // REQUIRES: `type` is no histogram.
  MirrorTable(MetricSet* set, std::string_view name, MetricType type, std::vector<Label> labels, std::string_view help);

  // Sets the series of a position (without a label 0, with one the index of its value): a gauge becomes `value`, and a
  // counter grows to `value` but never falls.
  void Set(size_t position, double value);
  double Value(size_t position) const { return values_[position].load(std::memory_order_relaxed); }

  void Collect(std::vector<prometheus::ClientMetric>* series) const override;

 private:
  const MetricType type_;
  std::vector<std::atomic<double>> values_;
};

}  // namespace normd

#endif  // NORMD_SERVER_OBS_METRIC_SET_H_
