// Owns the completion queues and their threads: every RPC arrives here at its headers and is routed to its method by
// name.
// In the path: the first of our code that a request meets.
// Threads: one for each queue. Start and Stop are called once each, from one thread: Start when the grpc::Server runs,
// Stop after its shutdown.
#ifndef NORMD_SERVER_RPC_TRANSPORT_DISPATCHER_H_
#define NORMD_SERVER_RPC_TRANSPORT_DISPATCHER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/rpc/transport/queue_stats.h"
#include "server/rpc/transport/route.h"
#include "server/rpc/transport/stream.h"

namespace normd::rpc {

struct DispatchLimits {
  int max_calls_per_connection = 0;
  int max_calls = 0;  // of all connections
};

class Dispatcher {
 public:
  // `context` and `connections` must outlive the dispatcher.
  Dispatcher(const RouteContext* context, const DispatchLimits& limits, ConnectionTable* connections)
      : context_(context), limits_(limits), host_{&live_, connections} {}
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // REQUIRES: before Start.
  void Add(std::vector<Route> routes);
  // Adds `queues` completion queues and the generic service to the server that `builder` will build.
  void AddTo(grpc::ServerBuilder& builder, int queues);

  // REQUIRES: the server was built and runs.
  void Start();
  // From now on refuses new calls with UNAVAILABLE, and ends each stream when it has answered what it had read. Returns
  // true as soon as no call is left, or false after `grace`.
  bool Drain(absl::Duration grace);
  // Waits until every handler has released its stream, then ends the threads. REQUIRES: the grpc::Server has shut down
  // or was never built.
  void Stop();

  LiveStreams& live() { return live_; }
  // The stats of the queues. `longest_callback` is the longest since the last call of this method.
  QueueStats TakeStats();

 private:
  struct Served {
    Route route;
    size_t access_index = 0;  // of AccessControl::MethodIndex
  };

  void Accept(grpc::ServerCompletionQueue* queue);
  void Dispatch(std::shared_ptr<Stream> stream);
  // OK if the call may begin; otherwise the error for its caller.
  absl::Status Judge(const Stream& stream, const Route& route) const;
  // Whether the caller may call; otherwise the call has been ended. `served` is null for a method that does not exist.
  bool LetIn(const std::shared_ptr<Stream>& stream, const Served* served);

  // What the thread of one queue has done, in a cache line of its own.
  struct alignas(64) Load {
    std::atomic<int64_t> busy_ns{0};
    std::atomic<int64_t> longest_callback_ns{0};  // since the last TakeStats
    std::atomic<int64_t> slow_callbacks{0};

    void Note(absl::Duration callback);
  };

  void Serve(grpc::ServerCompletionQueue* queue, Load* load);

  const RouteContext* const context_;
  const DispatchLimits limits_;
  LiveStreams live_;
  const StreamHost host_;
  std::atomic<bool> draining_{false};
  grpc::AsyncGenericService service_;
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues_;
  std::deque<Load> loads_;  // of the queues, in their order
  std::unordered_map<std::string, Served> routes_;
  std::vector<std::string> services_;  // of the routes, each once
  std::vector<std::thread> threads_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_DISPATCHER_H_
