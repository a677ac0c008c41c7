#include "server/telemetry.h"

#include <string>

#include "absl/time/time.h"
#include "kernels/cpu/targets.h"
#include "kernels/methods.h"
#include "kernels/plan.h"
#include "server/base/version.h"
#include "server/rpc/services/method_names.h"

namespace normd {
namespace {

constexpr size_t kMaxLoggedMessage = 512;  // bytes; bounded because messages hold text from callers

// Whether the server or its environment is at fault, so that the error is logged. Errors of callers and of capacity are
// reported to the callers and counted.
bool IsOurTrouble(absl::StatusCode code) {
  return code == absl::StatusCode::kInternal || code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kDataLoss;
}

void CountPhases(Metrics& metrics, int method, const RequestRecord& record) {
  const absl::Duration known = record.decode + record.compute + record.commit + record.encode;
  const std::pair<Phase, absl::Duration> phases[] = {{Phase::kDecode, record.decode},
                                                     {Phase::kCompute, record.compute},
                                                     {Phase::kCommit, record.commit},
                                                     {Phase::kEncode, record.encode},
                                                     {Phase::kQueue, record.total - known}};
  for (const auto& [phase, duration] : phases) {
    // A phase that the request skipped is left out instead of being recorded with length 0.
    if (duration > absl::ZeroDuration() && known > absl::ZeroDuration()) metrics.ObservePhase(method, phase, duration);
  }
  metrics.ObservePhase(method, Phase::kTotal, record.total);
}

void CountRecord(Metrics& metrics, const RequestRecord& record) {
  const int method = metrics.MethodIndex(record.rpc);
  const int norm = metrics.NormIndex(record.norm_method);
  metrics.CountRequest(method, norm, record.code);
  CountPhases(metrics, method, record);
  if (record.request_bytes > 0) metrics.CountRequestBytes(record.request_bytes);
  if (record.response_bytes > 0) metrics.CountResponseBytes(record.response_bytes);
  if (record.rows > 0) metrics.CountRows(norm, record.rows);
  if (record.batch_items > 0) metrics.ObserveBatchItems(record.batch_items);
}

LogFields Fields(const RequestRecord& record) {
  LogFields fields = {{"rpc", record.rpc},
                      {"code", absl::StatusCodeToString(record.code)},
                      {"total_us", absl::ToInt64Microseconds(record.total)},
                      {"request_bytes", record.request_bytes},
                      {"response_bytes", record.response_bytes}};
  if (!record.norm_method.empty()) fields.emplace_back("norm", record.norm_method);
  if (record.batch_items > 0) fields.emplace_back("batch_items", record.batch_items);
  if (!record.message.empty()) fields.emplace_back("error", record.message.substr(0, kMaxLoggedMessage));
  return fields;
}

}  // namespace

MetricsOptions DefaultMetricsOptions() {
  MetricsOptions options;
  options.methods = rpc::CountedMethods();
  for (const MethodDefinition* method : AllMethods()) options.norms.emplace_back(method->info.name);
  options.norms.emplace_back("mixed");  // a batch of several norms
  options.version = std::string(Version());
  options.numerics = std::string(kNumerics);
  options.isa = std::string(ActiveCpuTargetName());
  return options;
}

RpcObserver MakeObserver(Metrics* metrics, Log* log) {
  RpcObserver observer;
  observer.on_request_done = [metrics, log](const RequestRecord& record) {
    CountRecord(*metrics, record);
    if (IsOurTrouble(record.code)) {
      log->Error("request failed", Fields(record));
    } else if (log->Enabled(LogLevel::kDebug)) {
      log->Debug("request", Fields(record));
    }
  };
  observer.on_bytes_in_flight = [metrics](int64_t bytes) { metrics->SetInFlightBytes(bytes); };
  return observer;
}

SchedulerObserver MakeSchedulerObserver(Metrics* metrics, Log* log) {
  SchedulerObserver observer;
  observer.on_jobs = [metrics](Device device, int64_t jobs) {
    metrics->CountDeviceJobs(device == Device::kCuda ? DeviceLabel::kCuda : DeviceLabel::kCpu, jobs);
  };
  observer.on_fallback = [metrics](FallbackReason reason) {
    metrics->CountDeviceFallback(reason == FallbackReason::kLost ? FallbackLabel::kLost : FallbackLabel::kFull);
  };
  observer.on_lost = [log](const std::string& device, const absl::Status& why) {
    log->Error("a device is lost: what AUTO sent there runs elsewhere",
               {{"device", device}, {"error", std::string(why.message())}});
  };
  observer.queues.on_launch = [metrics](int64_t submissions) { metrics->ObserveBatchSize(submissions); };
  observer.queues.on_dropped = [metrics](absl::StatusCode why) {
    metrics->CountBatchDropped(why == absl::StatusCode::kCancelled ? DropLabel::kCancelled : DropLabel::kExpired);
  };
  return observer;
}

StoreObserver MakeStoreObserver(Metrics* metrics, Log* log) {
  StoreObserver observer;
  observer.on_group = [metrics](int64_t changes, absl::Duration duration) {
    metrics->ObserveStoreGroup(changes, duration);
  };
  observer.on_evicted = [log](int64_t sessions) { log->Info("idle sessions left memory", {{"sessions", sessions}}); };
  observer.on_loaded = [log](const std::string& id) { log->Debug("session came into memory", {{"id", id}}); };
  observer.on_damaged = [log](const std::string& id, const absl::Status& damage) {
    log->Error("damaged session record", {{"id", id}, {"error", std::string(damage.message())}});
  };
  observer.on_file_damaged = [log](const absl::Status& damage) {
    log->Error(
        "the session store's file is damaged: restore a backup; until then sessions that are not found are DATA_LOSS",
        {{"error", std::string(damage.message())}});
  };
  observer.on_error = [log](const absl::Status& status) {
    log->Error("session store", {{"error", std::string(status.message())}});
  };
  observer.on_warning = [log](std::string_view text) { log->Warn("session store", {{"warning", std::string(text)}}); };
  observer.on_message = [log](std::string_view text) { log->Info("session store", {{"database", std::string(text)}}); };
  return observer;
}

}  // namespace normd
