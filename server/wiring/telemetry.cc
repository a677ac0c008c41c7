#include "server/wiring/telemetry.h"

#include <string>

#include "absl/time/time.h"
#include "kernels/cpu/targets.h"
#include "kernels/methods.h"
#include "kernels/plan.h"
#include "server/base/version.h"
#include "server/rpc/services/method_names.h"

namespace normd {
namespace {

// Whether the server or its environment is at fault, so that the error is logged. Errors of callers and of capacity are
// reported to the callers and counted.
bool IsOurTrouble(absl::StatusCode code) {
  return code == absl::StatusCode::kInternal || code == absl::StatusCode::kUnknown ||
         code == absl::StatusCode::kDataLoss;
}

void CountAnswer(Metrics& metrics, const RequestRecord& record) {
  const int method = metrics.MethodIndex(record.rpc);
  const int norm = metrics.NormIndex(record.norm_method);
  metrics.CountRequest(method, norm, record.code);
  metrics.CountOrigin(record.origin);
  if (record.code != absl::StatusCode::kOk) metrics.CountRefusal(record.reason);
  if (record.request_bytes > 0) metrics.CountRequestBytes(record.request_bytes);
  if (record.response_bytes > 0) metrics.CountResponseBytes(record.response_bytes);
  if (record.rows > 0) metrics.CountRows(norm, record.rows);
  if (record.batch_items > 0) metrics.CountBatch(record.batch_items, record.batch_items_failed);
}

void CountPhases(Metrics& metrics, const RequestRecord& record) {
  const int method = metrics.MethodIndex(record.rpc);
  for (size_t i = 0; i < kPhaseDurations.size(); ++i) {
    const auto phase = static_cast<Phase>(i);
    const absl::Duration duration = record.*kPhaseDurations[i];
    // A phase that the request did not have is left out instead of being recorded with length 0.
    const bool is_in_all = phase == Phase::kWrite || phase == Phase::kTotal;
    if (is_in_all || duration > absl::ZeroDuration()) metrics.ObservePhase(method, phase, duration);
  }
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

RpcObserver MakeObserver(Metrics* metrics, Log* log, AuditLog* audit, Tracing* tracing) {
  RpcObserver observer;
  observer.on_request_done = [metrics, log](const RequestRecord& record) {
    CountAnswer(*metrics, record);
    if (IsOurTrouble(record.code)) {
      log->Error("request failed", FieldsOfRequest(record));
    } else if (log->Enabled(LogLevel::kDebug)) {
      log->Debug("request", FieldsOfRequest(record));
    }
  };
  observer.on_version_sent = [metrics](absl::Duration lag) { metrics->ObserveWatchLag(lag); };
  observer.on_handshake_failed = [log](const std::string& peer, const std::string& why) {
    log->Warn("TLS handshake failed", {{"peer", peer}, {"why", why}});
  };
  observer.on_connection_limit = [log](std::string_view limit, const std::string& peer) {
    log->Warn("connections are closed, because there are as many as a limit allows",
              {{"limit", std::string(limit)}, {"peer", peer}});
  };
  // At debug, because any stranger can have it written.
  observer.on_protocol_error = [log](const std::string& peer, const std::string& why) {
    log->Debug("HTTP/2 rules were broken", {{"peer", peer}, {"why", why}});
  };
  if (audit != nullptr) observer.on_audit = [audit](const AuditRecord& record) { audit->Write(record); };
  observer.tenant_index = [metrics](const std::string& tenant) { return metrics->TenantIndex(tenant); };
  if (tracing != nullptr && tracing->exports()) observer.sample_trace = [tracing] { return tracing->Sample(); };
  observer.explain = ExplainRequest;
  observer.on_request_written = [metrics, tracing](const RequestRecord& record) {
    // A call that is refused at once would make the server look the faster the more it refuses.
    if (record.code == absl::StatusCode::kOk) CountPhases(*metrics, record);
    if (tracing != nullptr) tracing->Written(record);
  };
  return observer;
}

EngineObserver MakeEngineObserver(Metrics* metrics) {
  EngineObserver observer;
  observer.on_step = [metrics](const StepReport& step) {
    const StepLabel applied = step.reason == Reason::kApplied ? StepLabel::kApplied : StepLabel::kNotFinite;
    metrics->CountStep(step.replayed ? StepLabel::kReplayed : applied);
    if (step.drift.has_value()) metrics->NoteDrift(step.session, *step.drift);
    if (step.samples.has_value()) metrics->CountContribution(*step.samples);
  };
  observer.on_not_finite = [metrics] { metrics->CountNotFinite(); };
  return observer;
}

std::function<void(RulesFile file, const absl::Status& status)> MakeRulesObserver(Log* log) {
  return [log](RulesFile file, const absl::Status& status) {
    const std::string_view name = kRulesFileNames[static_cast<size_t>(file)];
    if (status.ok()) return log->Info("rules taken", {{"file", name}});
    log->Warn("the file of rules cannot be used; the last good one stays in force",
              {{"file", name}, {"error", std::string(status.message())}});
  };
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

ServerCertificates::Observer MakeCertificateObserver(Log* log) {
  const auto fields = [](const Certificates& certificates) -> LogFields {
    return {{"subject", certificates.subject},
            {"expires", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", certificates.expiry, absl::UTCTimeZone())}};
  };
  ServerCertificates::Observer observer;
  observer.on_loaded = [log, fields](const Certificates& loaded) { log->Info("certificate", fields(loaded)); };
  observer.on_expiring = [log, fields](const Certificates& expiring) {
    log->Warn("the certificate expires soon: renew it", fields(expiring));
  };
  observer.on_expired = [log, fields](const Certificates& expired) {
    log->Error("the certificate has expired: clients refuse it until it is renewed", fields(expired));
  };
  observer.on_failed = [log](const absl::Status& why) {
    log->Warn("new certificates cannot be used: those before stay", {{"error", std::string(why.message())}});
  };
  return observer;
}

StoreObserver MakeStoreObserver(Metrics* metrics, Log* log) {
  StoreObserver observer;
  observer.on_group = [metrics](int64_t changes, absl::Duration duration) {
    metrics->ObserveStoreGroup(changes, duration);
  };
  observer.on_read = [metrics](absl::Duration duration) { metrics->ObserveStoreRead(duration); };
  observer.on_checkpoint = [metrics](absl::Duration duration) { metrics->ObserveStoreCheckpoint(duration); };
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
