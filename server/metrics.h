// Every metric of normd. A metric that is counted as events happen is a row (a member) of class Metrics: it names the
// metric, makes its series, and is counted by one of the public methods. A metric that is read at a scrape is a row of
// stats.cc.
// In the path: beside it; telemetry.cc connects the observers of rpc, the scheduler and the store to this class, and
// admin reads Text. Labels have closed lists of values, so the number of series is bounded whatever callers send.
// Threads: every method is safe from any thread. Recording a request costs array look-ups and atomic adds, no strings.
#ifndef NORMD_SERVER_METRICS_H_
#define NORMD_SERVER_METRICS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/obs/metric_set.h"
#include "server/stats.h"

namespace normd {

// The metrics that a server shows. A test checks the table in server/README.md against them, row by row.
std::vector<MetricInfo> AllMetrics();

// The same list as a Markdown table.
std::string MetricsMarkdown();

// Label values, each enum followed by the names of its values.
enum class Phase : uint8_t { kDecode, kQueue, kCompute, kCommit, kEncode, kTotal };
inline constexpr int kPhases = 6;
inline constexpr std::array<std::string_view, kPhases> kPhaseNames = {"decode", "queue",  "compute",
                                                                      "commit", "encode", "total"};
enum class DeviceLabel : uint8_t { kCpu, kCuda };
inline constexpr std::array<std::string_view, 2> kDeviceLabelNames = {"cpu", "cuda"};
enum class FallbackLabel : uint8_t { kLost, kFull };
inline constexpr std::array<std::string_view, 2> kFallbackLabelNames = {"lost", "full"};
enum class DropLabel : uint8_t { kCancelled, kExpired };
inline constexpr std::array<std::string_view, 2> kDropLabelNames = {"cancelled", "expired"};

struct MetricsOptions {
  std::vector<std::string> methods;  // values of label `method`; all others are counted as "other"
  std::vector<std::string> norms;    // values of label `norm`; all others are counted as "none"
  // Labels of normd_build_info.
  std::string version;
  std::string numerics;
  std::string isa;
};

class Metrics {
 public:
  explicit Metrics(const MetricsOptions& options);

  // Indices for the methods below. Each is a linear search of a short list, so resolve an index once where possible.
  int MethodIndex(std::string_view method) const;
  int NormIndex(std::string_view norm) const;

  void CountRequest(int method, int norm, absl::StatusCode code);
  void ObservePhase(int method, Phase phase, absl::Duration duration) {
    durations_.At(method, phase).Observe(absl::ToDoubleSeconds(duration));
  }
  void CountRequestBytes(int64_t bytes) { request_bytes_.At().Increment(static_cast<double>(bytes)); }
  void CountResponseBytes(int64_t bytes) { response_bytes_.At().Increment(static_cast<double>(bytes)); }
  void CountRows(int norm, int64_t rows) { rows_.At(norm).Increment(static_cast<double>(rows)); }
  void ObserveBatchItems(int64_t items) { batch_items_.At().Observe(static_cast<double>(items)); }

  void CountDeviceJobs(DeviceLabel device, int64_t jobs) {
    device_jobs_.At(device).Increment(static_cast<double>(jobs));
  }
  void CountDeviceFallback(FallbackLabel reason) { device_fallbacks_.At(reason).Increment(); }
  void ObserveBatchSize(int64_t submissions) { batch_size_.At().Observe(static_cast<double>(submissions)); }
  void CountBatchDropped(DropLabel reason) { batch_dropped_.At(reason).Increment(); }

  // Counts one transaction of the session store.
  void ObserveStoreGroup(int64_t changes, absl::Duration duration) {
    group_changes_.At().Observe(static_cast<double>(changes));
    group_seconds_.At().Observe(absl::ToDoubleSeconds(duration));
  }

  void SetInFlightBytes(int64_t bytes) { in_flight_bytes_.At().Set(static_cast<double>(bytes)); }

  // Values that are read when somebody looks, not counted as they change. Counters never fall.
  void SetStats(const Stats& stats);

  // The current value of normd_in_flight_bytes, and the sum of all request and response bytes counted so far.
  double in_flight_bytes() const { return in_flight_bytes_.Find()->Value(); }
  double moved_bytes() const { return request_bytes_.Find()->Value() + response_bytes_.Find()->Value(); }

  // Requests finished so far by method, for the status page. Methods that were never called are left out.
  std::vector<std::pair<std::string, uint64_t>> RequestsByMethod() const;

  // Every metric, in the order of the rows.
  const std::vector<MetricInfo>& list() const { return set_.metrics(); }

  // Prometheus exposition text, version 0.0.4, with the stats that SetStats was last given.
  std::string Text() const { return set_.Text(); }

 private:
  static std::vector<double> DurationBuckets();
  static std::vector<double> ItemBuckets();

  MetricSet set_;

  // Labels that several metrics share or whose values come from the options. The last value of `method_` and of `norm_`
  // stands for everything unknown.
  const Label method_, norm_, code_;
  const std::vector<Label> build_;

  // The rows, in the order of list().
  Counters requests_{&set_,
                     "normd_requests_total",
                     {method_, norm_, code_},
                     "Requests finished; every item of a stream is one, a batch is one."};
  Histograms durations_{&set_,
                        "normd_request_duration_seconds",
                        {method_, {"phase", kPhaseNames}},
                        "Time of requests by phase: decode, compute, commit, encode (not of replies whose beginning is "
                        "known), total, and queue, what is left of total.",
                        DurationBuckets()};
  Counters request_bytes_{&set_, "normd_request_bytes_total", {}, "Bytes of request messages received."};
  Counters response_bytes_{&set_, "normd_response_bytes_total", {}, "Bytes of response messages sent."};
  Counters rows_{
      &set_, "normd_rows_total", {norm_}, "Statistics groups normalised: rows, channels, groups or instances."};
  Histograms batch_items_{&set_, "normd_batch_items", {}, "Items in one BatchNormalize request.", ItemBuckets()};
  Counters device_jobs_{&set_,
                        "normd_device_jobs_total",
                        {{"device", kDeviceLabelNames}},
                        "Computations given to a device; two for a PowerNorm training step."};
  Counters device_fallbacks_{&set_,
                             "normd_device_fallbacks_total",
                             {{"reason", kFallbackLabelNames}},
                             "Lists of computations that the CPU ran because the chosen device was lost or full."};
  Histograms batch_size_{
      &set_, "normd_batch_size", {}, "Lists of computations in one launch on a device.", ItemBuckets()};
  Counters batch_dropped_{&set_,
                          "normd_batch_dropped_total",
                          {{"reason", kDropLabelNames}},
                          "Lists not launched: their callers had cancelled, or their deadlines had passed (expired)."};
  StatMetrics store_stats_ ABSL_GUARDED_BY(stats_mu_){&set_, StoreStatRows()};
  Histograms group_changes_{&set_, "normd_store_group_changes", {}, "Changes in one transaction.", ItemBuckets()};
  Histograms group_seconds_{
      &set_, "normd_store_group_seconds", {}, "Time of one transaction, flush included.", DurationBuckets()};
  Gauges in_flight_bytes_{&set_, "normd_in_flight_bytes", {}, "Bytes of requests admitted and not yet answered."};
  StatMetrics listener_stats_ ABSL_GUARDED_BY(stats_mu_){&set_, ListenerStatRows()};
  Gauges build_info_{&set_, "normd_build_info", build_, "Always 1; the labels say what runs."};
  StatMetrics process_stats_ ABSL_GUARDED_BY(stats_mu_){&set_, ProcessStatRows()};

  Mutex stats_mu_;  // held by SetStats: one caller at a time, so that a counter's growth is added once
};

}  // namespace normd

#endif  // NORMD_SERVER_METRICS_H_
