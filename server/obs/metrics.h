// Every metric of normd, declared once in AllMetrics, kept in a prometheus-cpp registry and written as exposition text.
// In the path: rpc reports finished requests through its observer, the wiring connects that to this class, admin reads
// Text. Labels come from closed lists, so the number of series is bounded whatever callers send.
// Threads: every method is safe from any thread; recording a request is array look-ups and atomic adds, no strings.
#ifndef NORMD_SERVER_OBS_METRICS_H_
#define NORMD_SERVER_OBS_METRICS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/base/mutex.h"

namespace normd {

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };

struct MetricInfo {
  std::string_view name;
  MetricType type;
  std::string_view labels;  // "method, norm, code"
  std::string_view help;
};

// The one list of metrics: the registry, the README's table and the dashboards are checked against it.
absl::Span<const MetricInfo> AllMetrics();

// The same list as a Markdown table.
std::string MetricsMarkdown();

enum class Phase : uint8_t { kDecode, kQueue, kCompute, kCommit, kEncode, kTotal };
inline constexpr int kPhases = 6;

// What the session store says of itself, in the order of AllMetrics.
enum class StoreMetric : uint8_t {
  kSessions,
  kBytes,
  kResidentSessions,
  kResidentBytes,
  kQueued,
  kLoads,
  kEvictions,
  kExpiries,
  kRows,
  kConflicts,
  kDamaged,
  kFailedGroups,
  kQueuedReads,
  kFileDamaged,
};
inline constexpr int kStoreMetrics = 14;

// Values of labels, in the order of their names in metrics.cc.
enum class DeviceLabel : uint8_t { kCpu, kCuda };
enum class FallbackLabel : uint8_t { kLost, kFull };
enum class DropLabel : uint8_t { kCancelled, kExpired };

struct MetricsOptions {
  std::vector<std::string> methods;                 // values of `method`; everything else is "other"
  std::vector<std::string> norms;                   // values of `norm`; everything else is "none"
  std::vector<std::string> close_reasons;           // values of `reason` of closed connections
  std::map<std::string, std::string> build_labels;  // of normd_build_info
};

// Of connections and queues, as they are when somebody looks; counts are since the start.
struct TransportValues {
  int64_t connections = 0;
  int64_t accepted = 0;
  std::vector<int64_t> closed;  // as MetricsOptions::close_reasons
  absl::Duration longest_callback;
  int64_t slow_callbacks = 0;
};

class Metrics {
 public:
  explicit Metrics(const MetricsOptions& options);
  ~Metrics();

  // Indices for the calls below, to be resolved once where possible: a linear search over a short list.
  int MethodIndex(std::string_view method) const;
  int NormIndex(std::string_view norm) const;

  void CountRequest(int method, int norm, absl::StatusCode code);
  void ObservePhase(int method, Phase phase, absl::Duration duration);
  void CountRequestBytes(int64_t bytes) { request_bytes_->Increment(static_cast<double>(bytes)); }
  void CountResponseBytes(int64_t bytes) { response_bytes_->Increment(static_cast<double>(bytes)); }
  void CountRows(int norm, int64_t rows) { rows_[norm]->Increment(static_cast<double>(rows)); }
  void ObserveBatchItems(int64_t items) { batch_items_->Observe(static_cast<double>(items)); }

  void CountDeviceJobs(DeviceLabel device, int64_t jobs) {
    device_jobs_[static_cast<size_t>(device)]->Increment(static_cast<double>(jobs));
  }
  void CountDeviceFallback(FallbackLabel reason) { device_fallbacks_[static_cast<size_t>(reason)]->Increment(); }
  void ObserveBatchSize(int64_t submissions) { batch_size_->Observe(static_cast<double>(submissions)); }
  void CountBatchDropped(DropLabel reason) { batch_dropped_[static_cast<size_t>(reason)]->Increment(); }

  // One transaction of the session store.
  void ObserveStoreGroup(int64_t changes, absl::Duration duration);

  // Values that are read when somebody looks, not counted as they change.
  void SetStoreMetric(StoreMetric metric, int64_t value);
  void SetRegions(int64_t regions, int64_t bytes);  // of shared memory
  void SetTransport(const TransportValues& values);
  void SetInFlightBytes(int64_t bytes) { in_flight_bytes_->Set(static_cast<double>(bytes)); }

  // What was counted and set so far.
  double in_flight_bytes() const { return in_flight_bytes_->Value(); }
  double moved_bytes() const { return request_bytes_->Value() + response_bytes_->Value(); }

  // Requests finished so far, by method, for the status page; only methods that were called.
  std::vector<std::pair<std::string, uint64_t>> RequestsByMethod() const;

  // Prometheus exposition text, version 0.0.4, with the process's own figures brought up to date.
  std::string Text();

 private:
  static constexpr int kCodes = 17;

  prometheus::Counter& RequestCounter(int method, int norm, int code);
  prometheus::Histogram& PhaseHistogram(int method, Phase phase);
  void UpdateProcess() ABSL_EXCLUSIVE_LOCKS_REQUIRED(process_mu_);

  // Constant after construction. Families and series live in the registry.
  const std::vector<std::string> methods_, norms_;  // the last entry takes everything unknown
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>* requests_;
  prometheus::Family<prometheus::Histogram>* durations_;
  prometheus::Counter* request_bytes_;
  prometheus::Counter* response_bytes_;
  std::vector<prometheus::Counter*> rows_;
  prometheus::Histogram* batch_items_;
  std::array<prometheus::Counter*, 2> device_jobs_ = {};
  std::array<prometheus::Counter*, 2> device_fallbacks_ = {};
  prometheus::Histogram* batch_size_;
  std::array<prometheus::Counter*, 2> batch_dropped_ = {};
  // One of the two for each StoreMetric.
  std::array<prometheus::Gauge*, kStoreMetrics> store_gauges_ = {};
  std::array<prometheus::Counter*, kStoreMetrics> store_counters_ = {};
  prometheus::Histogram* group_changes_;
  prometheus::Histogram* group_seconds_;
  prometheus::Gauge* in_flight_bytes_;
  prometheus::Gauge* connections_;
  prometheus::Counter* connections_accepted_;
  prometheus::Gauge* longest_callback_;
  prometheus::Counter* slow_callbacks_;
  std::vector<prometheus::Counter*> connections_closed_;
  prometheus::Gauge* regions_;
  prometheus::Gauge* region_bytes_;
  prometheus::Gauge* resident_bytes_;
  prometheus::Gauge* open_fds_;
  prometheus::Gauge* max_fds_;
  prometheus::Gauge* threads_;
  prometheus::Gauge* start_time_;
  prometheus::Counter* cpu_seconds_;

  // Series made at their first use: all combinations at once would be thousands of lines of zeros.
  std::vector<std::atomic<prometheus::Counter*>> request_table_;     // [method][norm][code]
  std::vector<std::atomic<prometheus::Histogram*>> duration_table_;  // [method][phase]

  Mutex process_mu_;  // one reader of /proc at a time, so that CPU seconds are added once
};

}  // namespace normd

#endif  // NORMD_SERVER_OBS_METRICS_H_
