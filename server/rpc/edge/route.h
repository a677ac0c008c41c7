// How a method is found and answered: the Route for the dispatcher, the reading of a unary call's one message when
// there is room for it, and the Reply. The codec knows what the bytes mean; services/handlers.h makes Routes whose
// handlers get parsed requests.
// In the path: between the call and the services.
// Threads: a handler runs on a queue's thread, or on the work pool for a large message; a Reply may be used from any
// thread.
#ifndef NORMD_SERVER_RPC_EDGE_ROUTE_H_
#define NORMD_SERVER_RPC_EDGE_ROUTE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "server/base/work_pool.h"
#include "server/rpc/edge/admission.h"
#include "server/rpc/edge/observation.h"
#include "server/rpc/edge/read_limiter.h"
#include "server/rpc/edge/rpc_call.h"

namespace normd {
class AccessControl;
class BufferPool;
class RegionTable;
}  // namespace normd

namespace normd::rpc {

// One RPC method of a service and the code that answers it. (In normd, `Method` means a normalisation method.)
struct Route {
  std::string path;  // "/normd.v1.Normalizer/Normalize"
  // Called at the call's headers on a queue's thread, before anything of the request is read.
  std::function<void(std::shared_ptr<RpcCall>)> start;
  // True for health: answered even while the server drains, and however many calls there are.
  bool always_served = false;
  bool audited = false;  // true: the audit log has a line for every call
};

// What every method needs. Must outlive all calls.
struct RouteContext {
  Admission* admission = nullptr;
  ReadLimiter* read_limiter = nullptr;    // null: every message is read at once
  const RpcObserver* observer = nullptr;  // null: nothing is reported
  int64_t max_message_bytes = int64_t{1} << 31;
  BufferPool* buffers = nullptr;         // null: malloc
  const RegionTable* regions = nullptr;  // null: no shared memory
  bool shared_memory_anywhere = false;   // true: over loopback, too; false: over Unix sockets only
  WorkPool* work_pool = nullptr;         // does large work; null: the queue's thread does
  AccessControl* access = nullptr;       // null: everybody may call everything
};

// True if a call's peer uses a loopback address, and so is a process of this host.
bool IsLoopback(std::string_view peer);

// The route, whose calls the audit log is told of.
inline Route Audited(Route route) {
  route.audited = true;
  return route;
}
// What the budgets of bytes count a call by.
CallerName NameOf(const RpcCall& call);

// Memory whose size is known only after the request has been read. The work calls `reserve` before it allocates; the
// reservation lasts as long as a copy of `held`. The context must outlive both.
struct LateReservation {
  std::shared_ptr<Reservation> held;
  std::function<absl::Status(int64_t bytes)> reserve;
};
LateReservation ReserveLater(const RouteContext* context, std::shared_ptr<RpcCall> call);

// Begins the observation of a call whose request has come, or never will. The time since the headers is the time of
// receiving. `rpc` is the name in records, and must live as long as the call.
Observation ObserveRequest(const RouteContext& context, const RpcCall& call, std::string_view rpc);

// Ends a call, of which no message has been read, with the error `why`. Records call it `rpc`, or by its method's name
// if that is empty.
void Refuse(const RouteContext& context, std::shared_ptr<RpcCall> call, const absl::Status& why,
            std::string_view rpc = {});

// Runs `work`, which concerns `bytes` of a message or reply, on the work pool if it is large, so that the queue's
// thread stays free for other callers; otherwise runs it before returning.
void RunIfLarge(const RouteContext& context, int64_t bytes, absl::AnyInvocable<void()> work);

// The name of a method in records: "/normd.v1.Normalizer/Normalize" -> "Normalizer/Normalize".
std::string_view ShortName(std::string_view path);

// Answers one unary call, once. A Reply that is destroyed unanswered answers INTERNAL, because that is a bug of normd.
class Reply {
 public:
  Reply(std::shared_ptr<RpcCall> call, Observation observation)
      : call_(std::move(call)), observation_(std::move(observation)) {}
  Reply(Reply&&) = default;
  Reply& operator=(Reply&&) = default;
  ~Reply();

  // Sends the message, or ends the call with the error. `written` runs, or is destroyed, when the transport has taken
  // the message, so everything that `written` owns lives until then.
  void operator()(absl::StatusOr<MessageBytes> message, RpcCall::Callback written = nullptr);

  Observation& observation() { return observation_; }

  // Returns a function that tells whether the caller is gone. The function keeps the call alive.
  std::function<bool()> Cancelled() const {
    return [call = call_] { return call->cancelled(); };
  }
  const std::shared_ptr<RpcCall>& call() const { return call_; }

 private:
  std::shared_ptr<RpcCall> call_;
  Observation observation_;
};

// The bytes before a message, with its size.
inline constexpr int64_t kMessagePrefixBytes = 5;

// Runs `start` when there is room for a message of `message_bytes`, for which `bytes` must be reserved, as
// ReadLimiter::EnterAnnounced does: `start` must make the reservation.
void WaitForRoom(const RouteContext& context, int64_t bytes, int64_t message_bytes, absl::AnyInvocable<void()> start);

// Gets the message as received; runs on the work pool if the message is large.
using BytesHandler = std::function<void(const MessageBytes& message, Reservation reservation, Reply reply)>;
// Reads the one request message of `call`, for which `factor` times its size is reserved, and runs `then` with it. A
// call whose size its headers or the transport tell makes the reservation before it reads, waits for room as
// ReadLimiter allows, and is refused if there is none. Other calls wait until there is room for the predicted size, and
// make the reservation when the message has arrived. Ends the call with an error when there is no message, when it does
// not fit, or when it is larger than its headers announce.
void ReadRequest(const RouteContext* context, std::shared_ptr<RpcCall> call, int64_t factor,
                 absl::AnyInvocable<void(MessageBytes, Reservation, Observation)> then);

// Makes the route of a unary method whose messages carry tensors. `handler` gets the message unparsed.
Route UnaryBytes(const RouteContext* context, std::string path, BytesHandler handler);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_ROUTE_H_
