#include "server/rpc/transport/dispatcher.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_join.h"
#include "server/base/errors.h"
#include "server/base/steady_time.h"
#include "server/rpc/transport/access_check.h"

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

// How records name a method that does not exist, and its key for the access check.
constexpr std::string_view kUnknownMethod = "unknown";
constexpr size_t kNoMethod = std::numeric_limits<size_t>::max();

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

// A call that was denied may have no identity, and its tenant stays unknown.
void NoteTenant(const RpcObserver* observer, Stream* stream) {
  const IdentityPtr& identity = stream->identity();
  if (identity == nullptr) return;
  const bool has_index = observer != nullptr && observer->tenant_index != nullptr;
  stream->SetTenantIndex(has_index ? observer->tenant_index(identity->tenant) : 0);
}

}  // namespace

void Dispatcher::Add(std::vector<Route> routes) {
  for (Route& route : routes) {
    std::string path = route.path;
    const std::string service = path.substr(1, path.rfind('/') - 1);  // "/normd.v1.Normalizer/Describe"
    if (std::find(services_.begin(), services_.end(), service) == services_.end()) services_.push_back(service);
    const size_t access_index = context_->access == nullptr ? 0 : context_->access->MethodIndex(path);
    routes_.insert_or_assign(std::move(path), Served{std::move(route), access_index});
  }
}

void Dispatcher::AddTo(grpc::ServerBuilder& builder, int queues) {
  builder.RegisterAsyncGenericService(&service_);
  for (int i = 0; i < queues; ++i) {
    queues_.push_back(builder.AddCompletionQueue());
    loads_.emplace_back();
  }
}

void Dispatcher::Start() {
  for (size_t i = 0; i < queues_.size(); ++i) {
    grpc::ServerCompletionQueue* const queue = queues_[i].get();
    for (int call = 0; call < kAcceptsPerQueue; ++call) Accept(queue);
    threads_.emplace_back([this, queue, load = &loads_[i]] { Serve(queue, load); });
  }
}

void Dispatcher::Serve(grpc::ServerCompletionQueue* queue, Load* load) {
  Event event;
  // Runs the event's callback, records its duration, and returns the time of its end.
  const auto run = [load](const Event& one) {
    const absl::Time began = SteadyNow();
    static_cast<Tag*>(one.tag)->Run(one.ok);
    const absl::Time ended = SteadyNow();
    load->Note(ended - began);
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

void Dispatcher::Load::Note(absl::Duration callback) {
  const int64_t ns = absl::ToInt64Nanoseconds(callback);
  busy_ns.fetch_add(ns, std::memory_order_relaxed);
  if (callback >= kSlowCallback) slow_callbacks.fetch_add(1, std::memory_order_relaxed);
  int64_t longest = longest_callback_ns.load(std::memory_order_relaxed);
  while (ns > longest && !longest_callback_ns.compare_exchange_weak(longest, ns, std::memory_order_relaxed)) {
  }
}

QueueStats Dispatcher::TakeStats() {
  QueueStats stats;
  stats.queues = static_cast<int64_t>(loads_.size());
  stats.calls = live_.calls();
  for (Load& load : loads_) {
    const int64_t longest_ns = load.longest_callback_ns.exchange(0, std::memory_order_relaxed);
    stats.longest_callback = std::max(stats.longest_callback, absl::Nanoseconds(longest_ns));
    stats.slow_callbacks += load.slow_callbacks.load(std::memory_order_relaxed);
    stats.busy += absl::Nanoseconds(load.busy_ns.load(std::memory_order_relaxed));
  }
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
    for (size_t i = 0; i < queues_.size(); ++i) Serve(queues_[i].get(), &loads_[i]);
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

bool Dispatcher::LetIn(const std::shared_ptr<Stream>& stream, const Served* served) {
  const AuditSink* const sink = context_->observer == nullptr ? nullptr : &context_->observer->on_audit;
  const size_t index = served != nullptr ? served->access_index : kNoMethod;
  const std::optional<AccessDenial> denial = CheckAccess(context_->access, index, stream.get());
  NoteTenant(context_->observer, stream.get());
  if (!denial.has_value()) {
    if (served != nullptr && served->route.audited) stream->BeginAudit(sink);
    return true;
  }
  stream->ForgetTrace();  // strangers must not fill the collector
  stream->BeginAudit(sink, kDenialNames[static_cast<size_t>(denial->denial)]);
  Refuse(*context_, stream, denial->error, served != nullptr ? std::string_view() : kUnknownMethod);
  return false;
}

void Dispatcher::Dispatch(std::shared_ptr<Stream> stream) {
  stream->ReadTrace(context_->observer);
  const auto found = routes_.find(stream->method());
  const Served* const served = found == routes_.end() ? nullptr : &found->second;
  if (served != nullptr) {
    if (absl::Status status = Judge(*stream, served->route); !status.ok()) {
      if (!draining_) stream->CountReset(kWeightOfExcess);
      return Refuse(*context_, std::move(stream), status);
    }
  }
  if (!LetIn(stream, served)) return;
  if (served == nullptr) {
    const absl::Status unknown = UnknownMethodError(stream->method(), absl::StrJoin(services_, ", "));
    return Refuse(*context_, std::move(stream), unknown, kUnknownMethod);
  }
  served->route.start(std::move(stream));
}

}  // namespace normd::rpc
