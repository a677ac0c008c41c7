#include "server/traces/span_exporter.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/errors.h"
#include "opentelemetry/trace_service.pb.h"
#include "server/base/error_reasons.h"
#include "server/base/steady_time.h"

namespace normd {
namespace {

constexpr char kExportMethod[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr std::string_view kPlainScheme = "http://", kTlsScheme = "https://";
// How often an export that is under way looks whether the exporter ends.
constexpr std::chrono::milliseconds kLookForEnd(50);
constexpr std::string_view kDefaultPort = "4317";  // of OTLP over gRPC

void SetAttribute(std::string_view key, const std::string& value, opentelemetry::KeyValue* attribute) {
  attribute->set_key(std::string(key));
  attribute->mutable_value()->set_string_value(value);
}

void SetAttribute(std::string_view key, int64_t value, opentelemetry::KeyValue* attribute) {
  attribute->set_key(std::string(key));
  attribute->mutable_value()->set_int_value(value);
}

template <size_t kSize>
std::string Bytes(const std::array<uint8_t, kSize>& id) {
  return std::string(reinterpret_cast<const char*>(id.data()), id.size());
}

void SetTimes(absl::Time start, absl::Time end, opentelemetry::Span* span) {
  span->set_start_time_unix_nano(static_cast<uint64_t>(absl::ToUnixNanos(start)));
  span->set_end_time_unix_nano(static_cast<uint64_t>(absl::ToUnixNanos(end)));
}

void Append(const FinishedSpan& finished, opentelemetry::ScopeSpans* spans) {
  opentelemetry::Span* const span = spans->add_spans();
  span->set_trace_id(Bytes(finished.trace_id));
  span->set_span_id(Bytes(finished.span_id));
  if (finished.parent_id != SpanId()) span->set_parent_span_id(Bytes(finished.parent_id));
  span->set_name(finished.name);
  span->set_kind(opentelemetry::Span::SPAN_KIND_SERVER);
  SetTimes(finished.start, finished.end, span);
  for (const auto& [key, value] : finished.attributes) {
    std::visit([key = key, span](const auto& one) { SetAttribute(key, one, span->add_attributes()); }, value);
  }
  if (finished.failed) {
    span->mutable_status()->set_code(opentelemetry::Status::STATUS_CODE_ERROR);
    span->mutable_status()->set_message(finished.error);
  }
  absl::Time start = finished.start;
  for (const SpanPart& part : finished.parts) {
    if (part.duration <= absl::ZeroDuration()) continue;
    opentelemetry::Span* const child = spans->add_spans();
    child->set_trace_id(Bytes(finished.trace_id));
    child->set_span_id(Bytes(MakeSpanId()));
    child->set_parent_span_id(Bytes(finished.span_id));
    child->set_name(std::string(part.name));
    child->set_kind(opentelemetry::Span::SPAN_KIND_INTERNAL);
    SetTimes(start, start + part.duration, child);
    start += part.duration;
  }
}

// Whether another attempt may succeed, as the OTLP specification has it.
bool MayPass(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

std::shared_ptr<grpc::Channel> OpenChannel(const SpanExporterOptions& options,
                                           const std::optional<wire::HttpProxy>& proxy) {
  grpc::ChannelArguments arguments;
  if (!proxy.has_value()) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options.collector.tls) {
    grpc::SslCredentialsOptions tls;
    tls.pem_root_certs = options.roots;
    credentials = grpc::SslCredentials(tls);
  }
  return grpc::CreateCustomChannel(options.collector.target, credentials, arguments);
}

// The status of an export that failed, with the proxy that it went through.
absl::Status ExportError(const grpc::Status& status, const SpanExporterOptions& options,
                         const std::optional<wire::HttpProxy>& proxy) {
  std::string message = status.error_message();
  if (proxy.has_value()) {
    absl::StrAppend(&message, "; ", proxy->variable, " sends calls to ", options.collector.target, " through ",
                    proxy->address, ": unset it, or add ", proxy->host, " to no_proxy, to call it directly");
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

}  // namespace

absl::StatusOr<CollectorAddress> ParseCollectorAddress(std::string_view option, const std::string& url) {
  const bool tls = url.starts_with(kTlsScheme);
  const absl::Status error =
      FormError(option, url, "http://host:port (plain text) or https://host:port (TLS)", ServerReason("BAD_OPTION"));
  if (!tls && !url.starts_with(kPlainScheme)) return error;
  std::string host = url.substr(tls ? kTlsScheme.size() : kPlainScheme.size());
  if (host.ends_with('/')) host.pop_back();
  // A colon inside brackets belongs to an IPv6 address.
  const size_t colon = host.find(':', host.starts_with('[') ? std::min(host.find(']'), host.size()) : 0);
  std::string port(kDefaultPort);
  if (colon != std::string::npos) {
    port = host.substr(colon + 1);
    host.resize(colon);
  }
  int number = 0;
  const bool is_host =
      !host.empty() && host.find_first_of("/?#@ ") == std::string::npos && host.starts_with('[') == host.ends_with(']');
  if (!is_host || !absl::SimpleAtoi(port, &number) || number < 1 || number > 65535) return error;
  return CollectorAddress{.target = host + ":" + port, .tls = tls};
}

SpanExporter::SpanExporter(SpanExporterOptions options)
    : options_(std::move(options)),
      proxy_(wire::HttpProxyOf(options_.collector.target)),
      channel_(OpenChannel(options_, proxy_)),
      thread_([this] { Run(); }) {}

SpanExporter::~SpanExporter() {
  {
    MutexLock lock(mu_);
    end_by_ = SteadyNow() + options_.flush_timeout;
    changed_.SignalAll();
  }
  thread_.join();
}

void SpanExporter::Add(FinishedSpan span) {
  MutexLock lock(mu_);
  if (waiting_.size() >= options_.max_queue) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  waiting_.push_back(std::move(span));
  // The first starts the wait for more, and a full batch ends it.
  if (waiting_.size() == 1 || waiting_.size() == options_.max_batch) changed_.SignalAll();
}

std::vector<FinishedSpan> SpanExporter::TakeBatch() {
  MutexLock lock(mu_);
  while (waiting_.empty() && end_by_ == absl::InfiniteFuture()) changed_.Wait(mu_);
  const absl::Time full_by = SteadyNow() + options_.interval;
  while (waiting_.size() < options_.max_batch && end_by_ == absl::InfiniteFuture() && SteadyNow() < full_by) {
    changed_.WaitFor(mu_, full_by - SteadyNow());
  }
  const size_t count = std::min(waiting_.size(), options_.max_batch);
  const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<FinishedSpan> batch(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  return batch;
}

bool SpanExporter::Pause(absl::Duration pause) {
  const absl::Time until = SteadyNow() + pause;
  MutexLock lock(mu_);
  while (SteadyNow() < until && end_by_ == absl::InfiniteFuture()) changed_.WaitFor(mu_, until - SteadyNow());
  return end_by_ == absl::InfiniteFuture();
}

absl::Time SpanExporter::EndBy() {
  MutexLock lock(mu_);
  return end_by_;
}

void SpanExporter::Run() {
  for (std::vector<FinishedSpan> batch = TakeBatch(); !batch.empty(); batch = TakeBatch()) Export(std::move(batch));
}

void SpanExporter::Export(std::vector<FinishedSpan> batch) {
  const auto spans = static_cast<int64_t>(batch.size());
  opentelemetry::ExportTraceServiceRequest request;
  opentelemetry::ResourceSpans* const resource = request.add_resource_spans();
  for (const auto& [key, value] : options_.resource) {
    SetAttribute(key, value, resource->mutable_resource()->add_attributes());
  }
  opentelemetry::ScopeSpans* const scope = resource->add_scope_spans();
  scope->mutable_scope()->set_name("normd");
  for (const FinishedSpan& span : batch) Append(span, scope);
  const std::string message = request.SerializeAsString();

  absl::Status sent;
  int64_t rejected = 0;
  for (int attempt = 0; attempt < options_.attempts; ++attempt) {
    if (attempt > 0 && !Pause(options_.interval)) break;
    sent = Send(message, std::min(options_.timeout, EndBy() - SteadyNow()), &rejected);
    if (sent.ok() || !MayPass(sent.code())) break;
  }
  const int64_t lost = sent.ok() ? std::min(rejected, spans) : spans;
  exported_.fetch_add(spans - lost, std::memory_order_relaxed);
  dropped_.fetch_add(lost, std::memory_order_relaxed);
  if (sent.ok() && lost > 0) sent = absl::InvalidArgumentError("the collector has refused them");
  if (lost > 0 && !losing_ && options_.on_lost != nullptr) options_.on_lost(sent, lost);
  losing_ = lost > 0;
}

absl::Status SpanExporter::Send(const std::string& message, absl::Duration timeout, int64_t* rejected) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoNanoseconds(std::max(timeout, absl::ZeroDuration())));
  const grpc::Slice slice(message);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel_);
  const auto call = stub.PrepareUnaryCall(&context, kExportMethod, request, &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  // The exporter may end while it waits here, and then the call ends before its own deadline.
  while (queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kLookForEnd) == grpc::CompletionQueue::TIMEOUT) {
    if (SteadyNow() >= EndBy()) context.TryCancel();
  }
  queue.Shutdown();
  if (!status.ok()) return ExportError(status, options_, proxy_);
  grpc::Slice bytes;
  opentelemetry::ExportTraceServiceResponse response;
  const bool readable =
      reply.DumpToSingleSlice(&bytes).ok() && response.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()));
  *rejected = readable ? std::max<int64_t>(response.partial_success().rejected_spans(), 0) : 0;
  return absl::OkStatus();
}

}  // namespace normd
