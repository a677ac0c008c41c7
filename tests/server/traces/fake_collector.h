// An OpenTelemetry collector in this process: takes what is exported, and answers as it is told. It serves one call at
// a time on a thread of its own, because ThreadSanitizer does not see how gRPC's threads hand a call to one another.
#ifndef NORMD_TESTS_SERVER_TRACES_FAKE_COLLECTOR_H_
#define NORMD_TESTS_SERVER_TRACES_FAKE_COLLECTOR_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "opentelemetry/trace_service.pb.h"
#include "server/base/mutex.h"
#include "server/base/steady_time.h"

namespace normd {

class FakeCollector {
 public:
  explicit FakeCollector(
      const std::shared_ptr<grpc::ServerCredentials>& credentials = grpc::InsecureServerCredentials()) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeCollector() {
    server_->Shutdown(std::chrono::system_clock::now());
    thread_.join();
  }

  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  // What later exports get.
  void Answer(const grpc::Status& status, int64_t rejected_spans = 0) {
    MutexLock lock(mu_);
    status_ = status;
    rejected_ = rejected_spans;
  }

  // Waits until `count` spans have come, for 20 s at most, and returns all that came.
  std::vector<opentelemetry::Span> WaitForSpans(size_t count) {
    MutexLock lock(mu_);
    const absl::Time end = SteadyNow() + absl::Seconds(20);
    while (spans_.size() < count && SteadyNow() < end) changed_.WaitFor(mu_, end - SteadyNow());
    return spans_;
  }
  int exports() {
    MutexLock lock(mu_);
    return exports_;
  }
  // Of the last export.
  std::map<std::string, std::string> resource() {
    MutexLock lock(mu_);
    return resource_;
  }
  std::string method() {
    MutexLock lock(mu_);
    return method_;
  }

 private:
  // Waits for the one operation that is under way; returns whether it succeeded.
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_->Next(&tag, &ok) && ok;
  }

  void Serve() {
    for (;;) {
      grpc::GenericServerContext context;
      grpc::GenericServerAsyncReaderWriter call(&context);
      service_.RequestCall(&context, &call, queue_.get(), queue_.get(), nullptr);
      if (!Wait()) break;  // the server has ended
      grpc::ByteBuffer message;
      call.Read(&message, nullptr);
      const bool received = Wait();
      opentelemetry::ExportTraceServiceResponse response;
      const grpc::Status status = received ? Take(context.method(), message, &response)
                                           : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no message");
      if (status.ok()) {
        const grpc::Slice slice(response.SerializeAsString());
        call.WriteAndFinish(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), status, nullptr);
      } else {
        call.Finish(status, nullptr);
      }
      Wait();
    }
    queue_->Shutdown();
    Wait();  // for its end
  }

  grpc::Status Take(const std::string& method, const grpc::ByteBuffer& message,
                    opentelemetry::ExportTraceServiceResponse* response) {
    grpc::Slice bytes;
    opentelemetry::ExportTraceServiceRequest request;
    const bool parsed =
        message.DumpToSingleSlice(&bytes).ok() && request.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size()));
    MutexLock lock(mu_);
    ++exports_;
    method_ = method;
    changed_.SignalAll();
    if (!parsed) return {grpc::StatusCode::INVALID_ARGUMENT, "not an export"};
    if (!status_.ok()) return status_;
    for (const opentelemetry::ResourceSpans& resource : request.resource_spans()) {
      for (const auto& attribute : resource.resource().attributes()) {
        resource_[attribute.key()] = attribute.value().string_value();
      }
      for (const opentelemetry::ScopeSpans& scope : resource.scope_spans()) {
        spans_.insert(spans_.end(), scope.spans().begin(), scope.spans().end());
      }
    }
    if (rejected_ > 0) response->mutable_partial_success()->set_rejected_spans(rejected_);
    return grpc::Status::OK;
  }

  int port_ = 0;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  Mutex mu_;
  CondVar changed_;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
  int64_t rejected_ ABSL_GUARDED_BY(mu_) = 0;
  int exports_ ABSL_GUARDED_BY(mu_) = 0;
  std::string method_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> resource_ ABSL_GUARDED_BY(mu_);
  std::vector<opentelemetry::Span> spans_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

// The value of a span's attribute as text; empty if there is none.
inline std::string AttributeOf(const opentelemetry::Span& span, const std::string& key) {
  for (const opentelemetry::KeyValue& attribute : span.attributes()) {
    if (attribute.key() != key) continue;
    const opentelemetry::AnyValue& value = attribute.value();
    return value.has_int_value() ? std::to_string(value.int_value()) : value.string_value();
  }
  return "";
}

}  // namespace normd

#endif  // NORMD_TESTS_SERVER_TRACES_FAKE_COLLECTOR_H_
