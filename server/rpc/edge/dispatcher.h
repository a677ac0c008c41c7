// Every RPC arrives here at its headers, whichever transport brought it: it is counted, judged, let in, and routed to
// its method by name.
// In the path: between a transport and the routes.
// Threads: a call is dispatched on its transport's thread. Start is called once.
#ifndef NORMD_SERVER_RPC_EDGE_DISPATCHER_H_
#define NORMD_SERVER_RPC_EDGE_DISPATCHER_H_

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/rpc/edge/call_places.h"
#include "server/rpc/edge/route.h"
#include "server/rpc/edge/rpc_call.h"
#include "server/rpc/edge/transport.h"

namespace normd::rpc {

struct DispatchLimits {
  int max_calls_per_connection = 0;
  CallPlaces::Limits calls;
};

class Dispatcher {
 public:
  // `context` and `connections` must outlive the dispatcher.
  Dispatcher(const RouteContext* context, const DispatchLimits& limits, ConnectionTable* connections)
      : context_(context),
        max_calls_per_connection_(limits.max_calls_per_connection),
        places_(limits.calls),
        host_{&live_, connections} {}
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // REQUIRES: before Start.
  void Add(std::vector<Route> routes);
  // Takes the calls of `transport`, which this starts.
  absl::Status Start(RpcTransport* transport);
  // From now on refuses new calls with UNAVAILABLE, and ends each stream when all messages that it has read are
  // answered. Returns true as soon as no call is left, or false after `grace`.
  bool Drain(absl::Duration grace);
  LiveCalls& live() { return live_; }
  CallPlaces& places() { return places_; }

 private:
  struct Served {
    Route route;
    size_t access_index = 0;  // of AccessControl::MethodIndex
  };

  void Dispatch(std::shared_ptr<RpcCall> call);
  // OK if the call may begin, with its place; otherwise the error for its caller.
  absl::Status Admit(RpcCall* call, const Route& route);
  // Whether the caller may call; otherwise the call has been ended. `served` is null for a method that does not exist.
  bool LetIn(const std::shared_ptr<RpcCall>& call, const Served* served);

  const RouteContext* const context_;
  const int max_calls_per_connection_;
  CallPlaces places_;
  LiveCalls live_;
  const CallHost host_;
  std::atomic<bool> draining_{false};
  std::unordered_map<std::string, Served> routes_;
  std::vector<std::string> services_;  // of the routes, each once
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_DISPATCHER_H_
