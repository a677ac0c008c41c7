#include "server/obs/metrics.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "prometheus/text_serializer.h"
#include "server/obs/process.h"

namespace normd {
namespace {

enum Id {
  kRequests,
  kDuration,
  kRequestBytes,
  kResponseBytes,
  kRows,
  kBatchItems,
  kDeviceJobs,
  kDeviceFallbacks,
  kBatchSize,
  kBatchDropped,
  kFirstStoreMetric,
  kStoreGroupChanges = kFirstStoreMetric + kStoreMetrics,
  kStoreGroupSeconds,
  kInFlightBytes,
  kConnections,
  kConnectionsAccepted,
  kConnectionsClosed,
  kLongestCallback,
  kSlowCallbacks,
  kRegions,
  kRegionBytes,
  kBuildInfo,
  kResidentBytes,
  kOpenFds,
  kMaxFds,
  kThreads,
  kCpuSeconds,
  kStartTime,
};

constexpr MetricInfo kMetrics[] = {
    {"normd_requests_total", MetricType::kCounter, "method, norm, code",
     "Requests finished; every item of a stream is one, a batch is one."},
    {"normd_request_duration_seconds", MetricType::kHistogram, "method, phase",
     "Time of requests by phase: decode, compute, commit, encode (not of replies whose beginning is known), total, and "
     "queue, what is left of total."},
    {"normd_request_bytes_total", MetricType::kCounter, "", "Bytes of request messages received."},
    {"normd_response_bytes_total", MetricType::kCounter, "", "Bytes of response messages sent."},
    {"normd_rows_total", MetricType::kCounter, "norm",
     "Statistic sets normalised: rows, channels, groups or instances."},
    {"normd_batch_items", MetricType::kHistogram, "", "Items in one BatchNormalize request."},
    {"normd_device_jobs_total", MetricType::kCounter, "device",
     "Computations given to a device; two for a PowerNorm training step."},
    {"normd_device_fallbacks_total", MetricType::kCounter, "reason",
     "Lists of computations that the CPU ran because the chosen device was lost or full."},
    {"normd_batch_size", MetricType::kHistogram, "", "Lists of computations in one launch on a device."},
    {"normd_batch_dropped_total", MetricType::kCounter, "reason",
     "Lists not launched: their callers had cancelled, or their deadlines had passed (expired)."},
    // In the order of StoreMetric.
    {"normd_sessions", MetricType::kGauge, "", "Sessions in the store."},
    {"normd_session_bytes", MetricType::kGauge, "", "What all sessions count against max_total_bytes."},
    {"normd_resident_sessions", MetricType::kGauge, "", "Sessions in memory; the others are read when they are used."},
    {"normd_resident_session_bytes", MetricType::kGauge, "", "Memory of those, estimated."},
    {"normd_store_queued_changes", MetricType::kGauge, "", "Changes waiting for their transaction."},
    {"normd_session_loads_total", MetricType::kCounter, "", "Sessions read into memory."},
    {"normd_session_evictions_total", MetricType::kCounter, "", "Sessions that left memory, idle or for want of room."},
    {"normd_session_expiries_total", MetricType::kCounter, "", "Sessions deleted because their ttl had ended."},
    {"normd_store_rows_total", MetricType::kCounter, "",
     "Rows written; changes of one session in a group are one row."},
    {"normd_store_conflicts_total", MetricType::kCounter, "",
     "Rows not written because another server was first; their changes were tried again."},
    {"normd_store_damaged_total", MetricType::kCounter, "", "Damaged records that were read (DATA_LOSS)."},
    {"normd_store_failed_groups_total", MetricType::kCounter, "",
     "Transactions that failed; nothing of them was kept."},
    {"normd_store_queued_reads", MetricType::kGauge, "", "Sessions and lists waiting to be read."},
    {"normd_store_file_damaged", MetricType::kGauge, "",
     "1: the check at the start found the store's file damaged; restore a backup."},
    {"normd_store_group_changes", MetricType::kHistogram, "", "Changes in one transaction."},
    {"normd_store_group_seconds", MetricType::kHistogram, "", "Time of one transaction, flush included."},
    {"normd_in_flight_bytes", MetricType::kGauge, "", "Bytes of requests admitted and not yet answered."},
    {"normd_connections", MetricType::kGauge, "", "Open connections."},
    {"normd_connections_accepted_total", MetricType::kCounter, "", "Connections that finished their set-up."},
    {"normd_connections_closed_total", MetricType::kCounter, "reason",
     "Connections that the server closed: too many in all (total) or of one peer (peer), no descriptors left, set-up "
     "not finished in time (setup), not HTTP/2 (foreign), calls opened or taken back in a flood (flood)."},
    {"normd_queue_callback_longest_seconds", MetricType::kGauge, "",
     "The longest that a queue's thread was busy with one event since the last scrape."},
    {"normd_queue_callbacks_slow_total", MetricType::kCounter, "", "Events that kept a queue's thread over 5 ms."},
    {"normd_shared_memory_regions", MetricType::kGauge, "", "Shared-memory regions that are mapped."},
    {"normd_shared_memory_bytes", MetricType::kGauge, "", "Bytes of those, mapped and not copied."},
    {"normd_build_info", MetricType::kGauge, "version, numerics, isa", "Always 1; the labels say what runs."},
    {"process_resident_memory_bytes", MetricType::kGauge, "", "Resident memory of the process."},
    {"process_open_fds", MetricType::kGauge, "", "Open file descriptors."},
    {"process_max_fds", MetricType::kGauge, "", "The limit of open file descriptors."},
    {"process_threads", MetricType::kGauge, "", "Threads of the process."},
    {"process_cpu_seconds_total", MetricType::kCounter, "", "User and system CPU time spent."},
    {"process_start_time_seconds", MetricType::kGauge, "", "Start of the process, seconds since the Unix epoch."},
};

constexpr std::string_view kPhaseNames[kPhases] = {"decode", "queue", "compute", "commit", "encode", "total"};

// 10 us to 10 s: a small call takes tens of microseconds, a 256 MiB one about a second.
prometheus::Histogram::BucketBoundaries DurationBuckets() {
  return {1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
}

prometheus::Histogram::BucketBoundaries ItemBuckets() { return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096}; }

prometheus::Family<prometheus::Counter>& CounterFamily(prometheus::Registry& registry, Id id) {
  return prometheus::BuildCounter()
      .Name(std::string(kMetrics[id].name))
      .Help(std::string(kMetrics[id].help))
      .Register(registry);
}

prometheus::Family<prometheus::Gauge>& GaugeFamily(prometheus::Registry& registry, Id id) {
  return prometheus::BuildGauge()
      .Name(std::string(kMetrics[id].name))
      .Help(std::string(kMetrics[id].help))
      .Register(registry);
}

prometheus::Family<prometheus::Histogram>& HistogramFamily(prometheus::Registry& registry, Id id) {
  return prometheus::BuildHistogram()
      .Name(std::string(kMetrics[id].name))
      .Help(std::string(kMetrics[id].help))
      .Register(registry);
}

void GrowTo(int64_t value, prometheus::Counter& counter) {
  const double growth = static_cast<double>(value) - counter.Value();
  if (growth > 0) counter.Increment(growth);
}

// One counter for each of the two values of a label.
std::array<prometheus::Counter*, 2> CounterPair(prometheus::Registry& registry, Id id, const char* first,
                                                const char* second) {
  prometheus::Family<prometheus::Counter>& family = CounterFamily(registry, id);
  const std::string label(kMetrics[id].labels);
  return {&family.Add({{label, first}}), &family.Add({{label, second}})};
}

std::vector<std::string> WithLast(std::vector<std::string> list, std::string last) {
  list.push_back(std::move(last));
  return list;
}

int IndexIn(const std::vector<std::string>& list, std::string_view value) {
  const auto it = std::find(list.begin(), list.end() - 1, value);
  return static_cast<int>(it - list.begin());
}

std::string_view TypeName(MetricType type) {
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

}  // namespace

absl::Span<const MetricInfo> AllMetrics() { return kMetrics; }

std::string MetricsMarkdown() {
  std::ostringstream out;
  out << "| metric | type | labels | meaning |\n|---|---|---|---|\n";
  for (const MetricInfo& info : kMetrics) {
    out << "| `" << info.name << "` | " << TypeName(info.type) << " | " << info.labels << " | " << info.help << " |\n";
  }
  return out.str();
}

Metrics::Metrics(const MetricsOptions& options)
    : methods_(WithLast(options.methods, "other")),
      norms_(WithLast(options.norms, "none")),
      requests_(&CounterFamily(registry_, kRequests)),
      durations_(&HistogramFamily(registry_, kDuration)),
      request_bytes_(&CounterFamily(registry_, kRequestBytes).Add({})),
      response_bytes_(&CounterFamily(registry_, kResponseBytes).Add({})),
      batch_items_(&HistogramFamily(registry_, kBatchItems).Add({}, ItemBuckets())),
      device_jobs_(CounterPair(registry_, kDeviceJobs, "cpu", "cuda")),
      device_fallbacks_(CounterPair(registry_, kDeviceFallbacks, "lost", "full")),
      batch_size_(&HistogramFamily(registry_, kBatchSize).Add({}, ItemBuckets())),
      batch_dropped_(CounterPair(registry_, kBatchDropped, "cancelled", "expired")),
      group_changes_(&HistogramFamily(registry_, kStoreGroupChanges).Add({}, ItemBuckets())),
      group_seconds_(&HistogramFamily(registry_, kStoreGroupSeconds).Add({}, DurationBuckets())),
      in_flight_bytes_(&GaugeFamily(registry_, kInFlightBytes).Add({})),
      connections_(&GaugeFamily(registry_, kConnections).Add({})),
      connections_accepted_(&CounterFamily(registry_, kConnectionsAccepted).Add({})),
      longest_callback_(&GaugeFamily(registry_, kLongestCallback).Add({})),
      slow_callbacks_(&CounterFamily(registry_, kSlowCallbacks).Add({})),
      regions_(&GaugeFamily(registry_, kRegions).Add({})),
      region_bytes_(&GaugeFamily(registry_, kRegionBytes).Add({})),
      resident_bytes_(&GaugeFamily(registry_, kResidentBytes).Add({})),
      open_fds_(&GaugeFamily(registry_, kOpenFds).Add({})),
      max_fds_(&GaugeFamily(registry_, kMaxFds).Add({})),
      threads_(&GaugeFamily(registry_, kThreads).Add({})),
      start_time_(&GaugeFamily(registry_, kStartTime).Add({})),
      cpu_seconds_(&CounterFamily(registry_, kCpuSeconds).Add({})),
      request_table_(methods_.size() * norms_.size() * kCodes),
      duration_table_(methods_.size() * kPhases) {
  for (int i = 0; i < kStoreMetrics; ++i) {
    const auto id = static_cast<Id>(kFirstStoreMetric + i);
    if (kMetrics[id].type == MetricType::kGauge) {
      store_gauges_[i] = &GaugeFamily(registry_, id).Add({});
    } else {
      store_counters_[i] = &CounterFamily(registry_, id).Add({});
    }
  }
  GaugeFamily(registry_, kBuildInfo).Add(options.build_labels).Set(1);
  prometheus::Family<prometheus::Counter>& rows = CounterFamily(registry_, kRows);
  for (const std::string& norm : norms_) rows_.push_back(&rows.Add({{"norm", norm}}));
  prometheus::Family<prometheus::Counter>& closed = CounterFamily(registry_, kConnectionsClosed);
  for (const std::string& reason : options.close_reasons)
    connections_closed_.push_back(&closed.Add({{"reason", reason}}));
  // One line a method from the start, so that rates over a fresh server are 0 and not absent; a histogram has 20 lines
  // and starts for one method only.
  const int no_norm = static_cast<int>(norms_.size()) - 1;
  for (size_t method = 0; method < methods_.size(); ++method) RequestCounter(static_cast<int>(method), no_norm, 0);
  PhaseHistogram(0, Phase::kTotal);
}

Metrics::~Metrics() = default;

int Metrics::MethodIndex(std::string_view method) const { return IndexIn(methods_, method); }
int Metrics::NormIndex(std::string_view norm) const { return IndexIn(norms_, norm); }

void Metrics::CountRequest(int method, int norm, absl::StatusCode code) {
  const int number = static_cast<int>(code);
  RequestCounter(method, norm, number < kCodes ? number : static_cast<int>(absl::StatusCode::kUnknown)).Increment();
}

void Metrics::ObservePhase(int method, Phase phase, absl::Duration duration) {
  PhaseHistogram(method, phase).Observe(absl::ToDoubleSeconds(duration));
}

// Two threads may meet at an empty slot: Family::Add gives both the same series.
prometheus::Counter& Metrics::RequestCounter(int method, int norm, int code) {
  std::atomic<prometheus::Counter*>& slot = request_table_[(method * norms_.size() + norm) * kCodes + code];
  prometheus::Counter* counter = slot.load(std::memory_order_acquire);
  if (counter == nullptr) {
    counter = &requests_->Add({{"method", methods_[method]},
                               {"norm", norms_[norm]},
                               {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}});
    slot.store(counter, std::memory_order_release);
  }
  return *counter;
}

prometheus::Histogram& Metrics::PhaseHistogram(int method, Phase phase) {
  const size_t phase_index = static_cast<size_t>(phase);
  std::atomic<prometheus::Histogram*>& slot = duration_table_[method * kPhases + phase_index];
  prometheus::Histogram* histogram = slot.load(std::memory_order_acquire);
  if (histogram == nullptr) {
    histogram = &durations_->Add({{"method", methods_[method]}, {"phase", std::string(kPhaseNames[phase_index])}},
                                 DurationBuckets());
    slot.store(histogram, std::memory_order_release);
  }
  return *histogram;
}

std::vector<std::pair<std::string, uint64_t>> Metrics::RequestsByMethod() const {
  std::vector<std::pair<std::string, uint64_t>> result;
  const size_t per_method = norms_.size() * kCodes;
  for (size_t method = 0; method < methods_.size(); ++method) {
    double sum = 0;
    for (size_t i = 0; i < per_method; ++i) {
      const prometheus::Counter* counter = request_table_[method * per_method + i].load(std::memory_order_acquire);
      if (counter != nullptr) sum += counter->Value();
    }
    if (sum > 0) result.emplace_back(methods_[method], static_cast<uint64_t>(sum));
  }
  return result;
}

void Metrics::SetStoreMetric(StoreMetric metric, int64_t value) {
  const auto index = static_cast<size_t>(metric);
  if (store_gauges_[index] != nullptr) return store_gauges_[index]->Set(static_cast<double>(value));
  // One reader at a time, so that growth is added once.
  MutexLock lock(process_mu_);
  GrowTo(value, *store_counters_[index]);
}

void Metrics::SetTransport(const TransportValues& values) {
  connections_->Set(static_cast<double>(values.connections));
  longest_callback_->Set(absl::ToDoubleSeconds(values.longest_callback));
  MutexLock lock(process_mu_);
  GrowTo(values.accepted, *connections_accepted_);
  GrowTo(values.slow_callbacks, *slow_callbacks_);
  for (size_t i = 0; i < connections_closed_.size() && i < values.closed.size(); ++i) {
    GrowTo(values.closed[i], *connections_closed_[i]);
  }
}

void Metrics::SetRegions(int64_t regions, int64_t bytes) {
  regions_->Set(static_cast<double>(regions));
  region_bytes_->Set(static_cast<double>(bytes));
}

void Metrics::ObserveStoreGroup(int64_t changes, absl::Duration duration) {
  group_changes_->Observe(static_cast<double>(changes));
  group_seconds_->Observe(absl::ToDoubleSeconds(duration));
}

void Metrics::UpdateProcess() {
  const ProcessFigures figures = ReadProcessFigures();
  resident_bytes_->Set(static_cast<double>(figures.resident_bytes));
  open_fds_->Set(static_cast<double>(figures.open_fds));
  max_fds_->Set(static_cast<double>(figures.max_fds));
  threads_->Set(static_cast<double>(figures.threads));
  start_time_->Set(figures.start_time_seconds);
  cpu_seconds_->Increment(figures.cpu_seconds - cpu_seconds_->Value());
}

std::string Metrics::Text() {
  {
    MutexLock lock(process_mu_);
    UpdateProcess();
  }
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

}  // namespace normd
