#include "server/wiring/tracing.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "kernels/cpu/targets.h"
#include "kernels/plan.h"
#include "server/base/random_hex.h"
#include "server/base/random_number.h"
#include "server/base/version.h"
#include "server/wiring/metrics.h"
#include "server/wiring/security_files.h"

namespace normd {
namespace {

constexpr size_t kMaxLoggedMessage = 512;  // bytes; bounded because messages hold text from callers

// The phases whose sum is the total, which is the last.
constexpr size_t kParts = kPhaseDurations.size() - 1;
static_assert(static_cast<size_t>(Phase::kTotal) == kParts);

// The log's key and the explanation's of a phase: "receive_us".
std::string Microseconds(std::string_view phase) { return Concat(phase, "_us"); }

// Whether the server is at fault, as OpenTelemetry's conventions for gRPC servers have it.
bool IsServerFault(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "unknown";
}

// The service whose method the record is of; none of a method that does not exist. Not all are of normd.v1: a Watch of
// health is reported where it is refused.
std::string_view ServiceOf(const RequestRecord& record) {
  const std::string_view path = record.origin.path;
  if (record.rpc.find('/') == std::string_view::npos || path.empty()) return "";
  return path.substr(1, path.rfind('/') - 1);
}

FinishedSpan SpanOf(const RequestRecord& record, absl::Time end) {
  const CallTrace& trace = *record.origin.trace;
  const size_t slash = record.rpc.find('/');
  FinishedSpan span;
  span.trace_id = trace.span.trace_id;
  // Each answer of a stream is a span, so the call's id serves only where there is one answer.
  span.span_id = record.is_stream_item ? MakeSpanId() : trace.span.span_id;
  if (trace.parent.has_value()) span.parent_id = trace.parent->span_id;
  const std::string_view service = ServiceOf(record);
  const std::string method(record.rpc.substr(slash == std::string_view::npos ? 0 : slash + 1));
  span.name = service.empty() ? method : Concat(service, "/", method);
  span.start = end - record.total;
  span.end = end;
  span.failed = IsServerFault(record.code);
  if (span.failed) span.error = record.message.substr(0, kMaxLoggedMessage);
  const auto add = [&span](std::string_view key, auto value) {
    if constexpr (std::is_integral_v<decltype(value)>) {
      span.attributes.emplace_back(key, static_cast<int64_t>(value));
    } else {
      span.attributes.emplace_back(key, std::string(value));
    }
  };
  add("rpc.system", std::string_view("grpc"));
  if (!service.empty()) add("rpc.service", service);
  add("rpc.method", std::string_view(method));
  add("rpc.grpc.status_code", static_cast<int>(record.code));
  add("network.transport", kTransportNames[static_cast<size_t>(record.origin.transport)]);
  add("normd.request_id", trace.RequestId());
  if (!record.norm_method.empty()) add("normd.norm", record.norm_method);
  if (!record.device.empty()) add("normd.device", record.device);
  if (!record.kernel.empty()) add("normd.kernel", std::string_view(record.kernel));
  if (!record.reason.empty()) add("normd.reason", std::string_view(record.reason));
  if (record.rows > 0) add("normd.rows", record.rows);
  if (record.batch_items > 0) add("normd.batch_items", record.batch_items);
  add("normd.request_bytes", record.request_bytes);
  add("normd.response_bytes", record.response_bytes);
  for (size_t i = 0; i < kParts; ++i) span.parts.push_back({kPhaseNames[i], record.*kPhaseDurations[i]});
  return span;
}

}  // namespace

LogFields FieldsOfRequest(const RequestRecord& record) {
  LogFields fields = {{"rpc", record.rpc}};
  if (const CallTrace* trace = record.origin.trace; trace != nullptr) {
    fields.emplace_back("request_id", trace->RequestId());
    if (trace->has_trace()) fields.emplace_back("trace_id", TraceIdText(trace->span.trace_id));
  }
  fields.insert(fields.end(), {{"code", absl::StatusCodeToString(record.code)},
                               {"total_us", absl::ToInt64Microseconds(record.total)},
                               {"request_bytes", record.request_bytes},
                               {"response_bytes", record.response_bytes}});
  if (!record.norm_method.empty()) fields.emplace_back("norm", record.norm_method);
  if (record.batch_items > 0) fields.emplace_back("batch_items", record.batch_items);
  if (!record.message.empty()) fields.emplace_back("error", record.message.substr(0, kMaxLoggedMessage));
  return fields;
}

std::string ExplainRequest(const RequestRecord& record) {
  // All texts are names of ours, which need no escapes.
  std::string json = absl::StrFormat(R"({"version":"%s","numerics":"%s","isa":"%s")", std::string(Version()),
                                     std::string(kNumerics), std::string(ActiveCpuTargetName()));
  const auto add = [&json](std::string_view key, std::string_view value) {
    if (!value.empty()) absl::StrAppendFormat(&json, R"(,"%s":"%s")", std::string(key), std::string(value));
  };
  add("rpc", record.rpc);
  add("norm", record.norm_method);
  add("device", record.device);
  add("kernel", record.kernel);
  add("reason", record.reason);
  absl::StrAppendFormat(&json, R"(,"rows":%d,"request_bytes":%d,"response_bytes":%d)", record.rows,
                        record.request_bytes, record.response_bytes);
  for (size_t i = 0; i < kPhaseDurations.size(); ++i) {
    if (static_cast<Phase>(i) == Phase::kWrite) continue;  // not over yet
    absl::StrAppendFormat(&json, R"(,"%s":%.3f)", Microseconds(kPhaseNames[i]),
                          absl::ToDoubleMicroseconds(record.*kPhaseDurations[i]));
  }
  return json + "}";
}

absl::StatusOr<std::unique_ptr<Tracing>> Tracing::Open(const Config& config, Log* log, Clock* clock) {
  std::unique_ptr<Tracing> tracing(new Tracing(config, log, clock));
  if (config.trace_endpoint.empty()) return tracing;
  SpanExporterOptions options;
  NORMD_ASSIGN_OR_RETURN(options.collector, ParseCollectorAddress("--trace_endpoint", config.trace_endpoint));
  NORMD_ASSIGN_OR_RETURN(options.roots, ReadTraceCa(config));
  options.resource = {{"service.name", "normd"},
                      {"service.version", std::string(Version())},
                      {"service.instance.id", RandomHex(4)},
                      {"host.name", HostName()}};
  options.on_lost = [log](const absl::Status& why, int64_t spans) {
    log->Warn("the collector did not take spans", {{"spans", spans}, {"error", std::string(why.message())}});
  };
  tracing->exporter_ = std::make_unique<SpanExporter>(std::move(options));
  return tracing;
}

Tracing::Tracing(const Config& config, Log* log, Clock* clock)
    : clock_(clock), slow_log_({.level = LogLevel::kInfo, .format = log->format()}, clock) {
  Reload(config);
}

void Tracing::Reload(const Config& config) {
  constexpr double kAll = 18446744073709551616.0;  // 2^64
  const double below = config.trace_sample * kAll;
  sample_below_ = below >= kAll ? UINT64_MAX : static_cast<uint64_t>(below);
  slow_ns_ = config.slow_request > absl::ZeroDuration() ? absl::ToInt64Nanoseconds(config.slow_request) : INT64_MAX;
  slow_log_.SetStyle(LogLevel::kInfo, config.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
}

bool Tracing::Sample() const {
  const uint64_t below = sample_below_.load(std::memory_order_relaxed);
  return below == UINT64_MAX || RandomNumber() < below;
}

void Tracing::Written(const RequestRecord& record) {
  if (absl::ToInt64Nanoseconds(record.total) > slow_ns_.load(std::memory_order_relaxed)) {
    LogFields fields = FieldsOfRequest(record);
    std::vector<std::string> keys;
    keys.reserve(kParts);  // the fields point into it
    for (size_t i = 0; i < kParts; ++i) {
      fields.emplace_back(keys.emplace_back(Microseconds(kPhaseNames[i])),
                          absl::ToInt64Microseconds(record.*kPhaseDurations[i]));
    }
    slow_log_.Warn("slow request", fields);
  }
  if (exporter_ == nullptr || record.origin.trace == nullptr || !record.origin.trace->span.sampled) return;
  exporter_->Add(SpanOf(record, clock_->Now()));
}

}  // namespace normd
