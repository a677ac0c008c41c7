// Every metric of normd. A metric that is counted as events happen is a row (a member) of class Metrics: it names the
// metric, makes its series, and is counted by one of the public methods. A metric that is read at a scrape is a row of
// stats.cc.
// In the path: beside it; telemetry.cc connects the observers of rpc, the scheduler and the store to this class, and
// admin reads Text. Labels have closed lists of values, so the number of series is bounded whatever callers send.
// Threads: every method is safe from any thread. Recording a request costs array look-ups and atomic adds to the
// processor's own copy of each counter (obs/sharded_cells.h): no locks, no strings.
#ifndef NORMD_SERVER_WIRING_METRICS_H_
#define NORMD_SERVER_WIRING_METRICS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/steady_time.h"
#include "server/obs/metric_set.h"
#include "server/obs/session_drifts.h"
#include "server/obs/tenant_labels.h"
#include "server/obs/tenant_metrics.h"
#include "server/rpc/edge/observer.h"
#include "server/wiring/stats.h"

namespace normd {

// The metrics that a server shows. A test checks the table in server/README.md against them, row by row.
std::vector<MetricInfo> AllMetrics();

// The same list as a Markdown table.
std::string MetricsMarkdown();

// Label values, each enum followed by the names of its values.
enum class Phase : uint8_t { kReceive, kDecode, kQueue, kCompute, kCommit, kEncode, kWrite, kTotal };
inline constexpr int kPhases = 8;
inline constexpr std::array<std::string_view, kPhases> kPhaseNames = {"receive", "decode", "queue", "compute",
                                                                      "commit",  "encode", "write", "total"};
// Where a record has each of them.
inline constexpr std::array<absl::Duration RequestRecord::*, kPhases> kPhaseDurations = {
    &RequestRecord::receive, &RequestRecord::decode, &RequestRecord::queue, &RequestRecord::compute,
    &RequestRecord::commit,  &RequestRecord::encode, &RequestRecord::write, &RequestRecord::total};
enum class DeviceLabel : uint8_t { kCpu, kCuda };
inline constexpr std::array<std::string_view, 2> kDeviceLabelNames = {"cpu", "cuda"};
enum class FallbackLabel : uint8_t { kLost, kFull };
inline constexpr std::array<std::string_view, 2> kFallbackLabelNames = {"lost", "full"};
enum class DropLabel : uint8_t { kCancelled, kExpired };
inline constexpr std::array<std::string_view, 2> kDropLabelNames = {"cancelled", "expired"};

enum class StepLabel : uint8_t { kApplied, kNotFinite, kReplayed };
inline constexpr std::array<std::string_view, 3> kStepLabelNames = {"applied", "not_finite", "replayed"};

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

  // The index of a tenant for CountOrigin, to be resolved once for each call.
  int TenantIndex(std::string_view tenant) const { return tenants_.Index(tenant); }
  // Makes tenants known, which would be counted as "other".
  void KnowTenants(const std::vector<std::string>& tenants) { tenants_.Know(tenants); }

  void CountRequest(int method, int norm, absl::StatusCode code);
  void CountOrigin(const RequestOrigin& origin) {
    transport_requests_.Add(1, origin.transport, origin.protocol);
    tenant_requests_.Add(1, origin.tenant == kNoTenant ? TenantLabels::kOther : origin.tenant);
  }
  // `reason` is empty for an error without a reason of its own.
  void CountRefusal(std::string_view reason);
  void ObservePhase(int method, Phase phase, absl::Duration duration) {
    durations_.Observe(absl::ToInt64Nanoseconds(duration), method, phase);
  }
  void CountRequestBytes(int64_t bytes) { request_bytes_.Add(bytes); }
  void CountResponseBytes(int64_t bytes) { response_bytes_.Add(bytes); }
  void CountRows(int norm, int64_t rows) { rows_.Add(rows, norm); }
  void CountBatch(int64_t items, int64_t failed) {
    batch_items_.Observe(items);
    if (failed > 0) batch_items_failed_.Add(failed);
  }

  void CountDeviceJobs(DeviceLabel device, int64_t jobs) { device_jobs_.Add(jobs, device); }
  void CountDeviceFallback(FallbackLabel reason) { device_fallbacks_.Add(1, reason); }
  void ObserveBatchSize(int64_t submissions) { batch_size_.Observe(submissions); }
  void CountBatchDropped(DropLabel reason) { batch_dropped_.Add(1, reason); }

  void CountStep(StepLabel outcome) { steps_.Add(1, outcome); }
  void CountNotFinite() { not_finite_.Add(1); }
  void CountContribution(double samples);
  void ObserveWatchLag(absl::Duration lag) { watch_lag_.Observe(absl::ToInt64Nanoseconds(lag)); }
  // `session` is the store's key of a session.
  void NoteDrift(std::string_view session, double drift) { drifts_.Note(session, drift, SteadyNow()); }

  // Counts one transaction of the session store.
  void ObserveStoreGroup(int64_t changes, absl::Duration duration) {
    group_changes_.Observe(changes);
    group_seconds_.Observe(absl::ToInt64Nanoseconds(duration));
  }
  void ObserveStoreRead(absl::Duration duration) { read_seconds_.Observe(absl::ToInt64Nanoseconds(duration)); }
  void ObserveStoreCheckpoint(absl::Duration duration) {
    checkpoint_seconds_.Observe(absl::ToInt64Nanoseconds(duration));
  }

  // Values that are read when somebody looks, not counted as they change. Counters never fall.
  void SetStats(const Stats& stats);

  // The sum of all request and response bytes counted so far.
  int64_t moved_bytes() const { return request_bytes_.Total() + response_bytes_.Total(); }

  // Every metric, in the order of the rows.
  const std::vector<MetricInfo>& list() const { return set_.metrics(); }

  // The present values, with the stats that SetStats was last given; as Prometheus exposition text, version 0.0.4.
  std::vector<prometheus::MetricFamily> Collect() const { return set_.Collect(); }
  std::string Text() const { return set_.Text(); }

 private:
  // Of the session that the store calls `key`.
  static SessionDrifts::Labels LabelsOfSession(std::string_view key);
  static Buckets DurationBuckets();
  static Buckets ItemBuckets();

  MetricSet set_;

  // Labels that several metrics share or whose values come from the options. The last values of `method_`, `norm_`
  // and `reason_` stand for everything unknown.
  const Label method_, norm_, code_, reason_;
  const std::vector<Label> build_;
  TenantLabels tenants_;

  // The rows, in the order of list().
  Counters requests_{&set_,
                     "normd_requests_total",
                     {method_, norm_, code_},
                     "Requests finished; every item of a stream is one, a batch is one."};
  Counters transport_requests_{&set_,
                               "normd_transport_requests_total",
                               {{"transport", kTransportNames}, {"protocol", kProtocolNames}},
                               "The same requests by how they came."};
  TenantCounters tenant_requests_{
      &set_, &tenants_, "normd_tenant_requests_total",
      "The same requests by tenant; `default` has no name, `other` are all that the policy "
      "does not name, or names beyond 64, and calls refused before their caller was known."};
  Counters refusals_{&set_, "normd_refusals_total", {reason_}, "Requests that ended with an error, by its reason."};
  Histograms durations_{
      &set_,
      "normd_request_duration_seconds",
      {method_, {"phase", kPhaseNames}},
      "Time of requests that were answered with OK, by phase: receive (from the headers until the message is complete; "
      "not of a stream's "
      "messages), decode, queue (waits for a CUDA event, a thread, a session's record and a turn to compute), compute, "
      "commit, encode (not of replies whose beginning is known), write (until the last byte is written), and total, "
      "from the headers or a stream's message to the last byte written. A phase that a request does not have is left "
      "out.",
      DurationBuckets()};
  Counters request_bytes_{&set_, "normd_request_bytes_total", {}, "Bytes of request messages received."};
  Counters response_bytes_{&set_, "normd_response_bytes_total", {}, "Bytes of response messages sent."};
  Counters rows_{
      &set_, "normd_rows_total", {norm_}, "Statistics groups normalised: rows, channels, groups or instances."};
  Histograms batch_items_{&set_, "normd_batch_items", {}, "Items in one BatchNormalize request.", ItemBuckets()};
  Counters batch_items_failed_{
      &set_, "normd_batch_items_failed_total", {}, "Items of batches that ended with an error of their own."};
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
  StatMetrics backend_stats_{&set_, BackendStatRows()};
  Counters steps_{&set_,
                  "normd_steps_total",
                  {{"outcome", kStepLabelNames}},
                  "Training steps of sessions that ended without an error: applied, left out because their statistics "
                  "were not finite, or answered from memory because their StepId had been applied before (replayed). "
                  "Steps older than that memory are normd_refusals_total of STEP_TOO_OLD."};
  Counters not_finite_{&set_,
                       "normd_not_finite_total",
                       {},
                       "Calls with a NaN or Inf among their statistics, of those that compute moments: training steps "
                       "of sessions, ComputeMoments, CommitMoments, and calls that ask for moments."};
  Counters contributions_{
      &set_, "normd_contributions_total", {}, "Steps applied to sessions that count samples (WEIGHTING_SAMPLES)."};
  Counters samples_{
      &set_,
      "normd_samples_total",
      {},
      "Samples that these steps brought: of each step those of the channel that has most, rounded. Stops at 2^53."};
  Histograms watch_lag_{&set_,
                        "normd_watch_lag_seconds",
                        {},
                        "Time from the change of a session until its new version was written to a stream of "
                        "WatchSession; with a change of another server, by both servers' clocks.",
                        DurationBuckets()};
  SessionDrifts drifts_{&set_, "normd_session_drift",
                        "How far the newest batch of a session was from its running statistics: the largest over the "
                        "channels of |batch mean - running mean| / sqrt(running variance + eps). The 20 largest of "
                        "sessions that were trained in the last 10 minutes.",
                        &LabelsOfSession};
  StatMetrics store_stats_{&set_, StoreStatRows()};
  Histograms group_changes_{&set_, "normd_store_group_changes", {}, "Changes in one transaction.", ItemBuckets()};
  Histograms group_seconds_{
      &set_, "normd_store_group_seconds", {}, "Time of one transaction, flush included.", DurationBuckets()};
  Histograms read_seconds_{&set_,
                           "normd_store_read_seconds",
                           {},
                           "Time of one load of sessions that were not in memory, or whose version was checked.",
                           DurationBuckets()};
  Histograms checkpoint_seconds_{&set_,
                                 "normd_store_checkpoint_seconds",
                                 {},
                                 "Time in which SQLite's log was moved into the database file.",
                                 DurationBuckets()};
  StatMetrics listener_stats_{&set_, ListenerStatRows()};
  TenantMirror tenant_sessions_{&set_, &tenants_, "normd_tenant_sessions", MetricType::kGauge,
                                "Sessions of each tenant."};
  TenantMirror tenant_session_bytes_{&set_, &tenants_, "normd_tenant_session_bytes", MetricType::kGauge,
                                     "What the sessions of each tenant count against max_session_bytes."};
  TenantMirror tenant_in_flight_bytes_{
      &set_, &tenants_, "normd_tenant_in_flight_bytes", MetricType::kGauge,
      "Bytes in flight of each tenant's calls of 256 KiB or more, which count against max_in_flight_bytes."};
  TenantMirror tenant_refusals_{&set_, &tenants_, "normd_tenant_refusals_total", MetricType::kCounter,
                                "What was refused because of a tenant's own quota."};
  MirrorTable build_info_{&set_, "normd_build_info", MetricType::kGauge, build_, "Always 1; the labels say what runs."};
  StatMetrics process_stats_{&set_, ProcessStatRows()};
};

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_METRICS_H_
