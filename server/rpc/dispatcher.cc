#include "server/rpc/dispatcher.h"

#include <utility>

#include "server/base/errors.h"

namespace normd::rpc {
namespace {

// RPCs that one queue is ready to take before its thread comes round; one that finds none waits in gRPC.
constexpr int kAcceptsPerQueue = 64;

void Serve(grpc::ServerCompletionQueue* queue) {
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) static_cast<Tag*>(tag)->Run(ok);
}

}  // namespace

void Dispatcher::Add(std::vector<Route> routes) {
  for (Route& route : routes) {
    std::string path = route.path;
    routes_.insert_or_assign(std::move(path), std::move(route));
  }
}

void Dispatcher::AddTo(grpc::ServerBuilder& builder, int queues) {
  builder.RegisterAsyncGenericService(&service_);
  for (int i = 0; i < queues; ++i) queues_.push_back(builder.AddCompletionQueue());
}

void Dispatcher::Start() {
  for (auto& queue : queues_) {
    for (int i = 0; i < kAcceptsPerQueue; ++i) Accept(queue.get());
    threads_.emplace_back(Serve, queue.get());
  }
}

void Dispatcher::Stop() {
  // No operation may start on a queue that was shut down, and any handler that still has its stream may start one.
  live_.WaitForNone();
  for (auto& queue : queues_) queue->Shutdown();
  for (std::thread& thread : threads_) thread.join();
  if (threads_.empty()) {
    for (auto& queue : queues_) Serve(queue.get());
  }
  threads_.clear();
  queues_.clear();
}

void Dispatcher::Accept(grpc::ServerCompletionQueue* queue) {
  Stream::Accept(&service_, queue, &live_, [this, queue](std::shared_ptr<Stream> stream) {
    if (stream == nullptr) return;
    Accept(queue);
    Dispatch(std::move(stream));
  });
}

void Dispatcher::Dispatch(std::shared_ptr<Stream> stream) {
  const auto route = routes_.find(stream->method());
  if (route == routes_.end()) {
    const absl::Status unknown = UnimplementedError("method", stream->method());
    Reply(std::move(stream), Observation(observer_, "unknown"))(unknown);
    return;
  }
  route->second.start(std::move(stream));
}

}  // namespace normd::rpc
