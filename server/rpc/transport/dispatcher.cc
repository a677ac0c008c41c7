#include "server/rpc/transport/dispatcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "server/base/errors.h"
#include "server/base/steady_time.h"

namespace normd::rpc {
namespace {

// The number of RPCs that one queue can take before its thread asks for more; further RPCs wait in gRPC.
constexpr int kAcceptsPerQueue = 64;

// A queue hands out its events before it polls its sockets, so a stream that always has an event would keep every other
// connection unread. The sockets are therefore polled at this interval whatever events are ready, and several times,
// because one poll serves one socket.
constexpr absl::Duration kPollInterval = absl::Milliseconds(1);
constexpr int kPollsAtOnce = 8;
constexpr size_t kMaxReadyEvents = 1024;
constexpr absl::Duration kSlowCallback = absl::Milliseconds(5);

// For its caller, a call is over a moment before its end has passed through the queue here, and the caller may have
// opened the next call by then. So a caller that keeps to the limit may be counted with twice as many calls.
constexpr int kCallsCountedPerAllowed = 2;

// A call beyond the limit weighs this much as a reset. Clients open up to a hundred calls before they have read the
// limit; after that they know it.
constexpr double kWeightOfExcess = 5;

struct Event {
  void* tag = nullptr;
  bool ok = false;
};

// Takes the ready events off the queue, which then polls its sockets.
std::vector<Event> TakeReady(grpc::ServerCompletionQueue& queue) {
  std::vector<Event> ready;
  Event event;
  for (int polls = 0; polls < kPollsAtOnce && ready.size() < kMaxReadyEvents;) {
    const auto status = queue.AsyncNext(&event.tag, &event.ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
    if (status == grpc::CompletionQueue::SHUTDOWN) break;
    if (status == grpc::CompletionQueue::GOT_EVENT) ready.push_back(event);
    if (status == grpc::CompletionQueue::TIMEOUT) ++polls;
  }
  return ready;
}

}  // namespace

void Dispatcher::Add(std::vector<Route> routes) {
  for (Route& route : routes) {
    std::string path = route.path;
    const std::string service = path.substr(1, path.rfind('/') - 1);  // "/normd.v1.Normalizer/Describe"
    if (std::find(services_.begin(), services_.end(), service) == services_.end()) services_.push_back(service);
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
    threads_.emplace_back([this, queue = queue.get()] { Serve(queue); });
  }
}

void Dispatcher::Serve(grpc::ServerCompletionQueue* queue) {
  Event event;
  // Runs the event's callback, records its duration, and returns the time of its end.
  const auto run = [this](const Event& one) {
    const absl::Time began = SteadyNow();
    static_cast<Tag*>(one.tag)->Run(one.ok);
    const absl::Time ended = SteadyNow();
    NoteCallback(ended - began);
    return ended;
  };
  absl::Time polled = SteadyNow();
  while (queue->Next(&event.tag, &event.ok)) {
    const absl::Time ended = run(event);
    if (ended - polled < kPollInterval) continue;
    polled = ended;
    for (const Event& ready : TakeReady(*queue)) run(ready);
  }
}

void Dispatcher::NoteCallback(absl::Duration duration) {
  const int64_t ns = absl::ToInt64Nanoseconds(duration);
  if (duration >= kSlowCallback) slow_callbacks_.fetch_add(1, std::memory_order_relaxed);
  int64_t longest = longest_callback_ns_.load(std::memory_order_relaxed);
  while (ns > longest && !longest_callback_ns_.compare_exchange_weak(longest, ns, std::memory_order_relaxed)) {
  }
}

QueueStats Dispatcher::TakeStats() {
  QueueStats stats;
  stats.longest_callback = absl::Nanoseconds(longest_callback_ns_.exchange(0, std::memory_order_relaxed));
  stats.slow_callbacks = slow_callbacks_.load(std::memory_order_relaxed);
  return stats;
}

bool Dispatcher::Drain(absl::Duration grace) {
  draining_ = true;
  // Reading must be ended, because a stream may wait for its next message for ever. A message on its way may still
  // come.
  for (const std::shared_ptr<Stream>& stream : live_.Collect([](const Stream& one) { return one.arrived(); })) {
    stream->EndReading(DrainingError(), /*keep_current=*/true);
  }
  return live_.WaitForNoCalls(grace);
}

void Dispatcher::Stop() {
  // No operation may start on a queue that was shut down, and a handler that still has its stream may start one.
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
  Stream::Accept(&service_, queue, host_, [this, queue](std::shared_ptr<Stream> stream) {
    if (stream == nullptr) return;
    Accept(queue);
    Dispatch(std::move(stream));
  });
}

absl::Status Dispatcher::Judge(const Stream& stream, const Route& route) const {
  if (draining_ && !route.while_draining) return DrainingError();
  const int own = stream.connection()->live_calls();
  // The server counts calls itself, because gRPC enforces its limit only on peers that have acknowledged the settings.
  const int most = limits_.max_calls_per_connection * kCallsCountedPerAllowed;
  if (own > most) return NoRoomError("calls_of_connection", own, most);
  const int all = live_.calls();
  return all > limits_.max_calls ? NoRoomError("calls", all, limits_.max_calls) : absl::OkStatus();
}

void Dispatcher::Dispatch(std::shared_ptr<Stream> stream) {
  const auto route = routes_.find(stream->method());
  if (route == routes_.end()) {
    const absl::Status unknown = UnknownMethodError(stream->method(), absl::StrJoin(services_, ", "));
    Reply(std::move(stream), Observation(context_->observer, "unknown"))(unknown);
    return;
  }
  if (absl::Status status = Judge(*stream, route->second); !status.ok()) {
    if (!draining_) stream->CountReset(kWeightOfExcess);
    return Refuse(*context_, std::move(stream), status);
  }
  route->second.start(std::move(stream));
}

}  // namespace normd::rpc
