// The completion queues and who answers what: every RPC arrives here at its headers and goes to its method by name.
// In the path: the first of our code that a request meets. Threads: one for each queue; Start and Stop are called once
// each, from one thread, around the life of the grpc::Server.
#ifndef NORMD_SERVER_RPC_DISPATCHER_H_
#define NORMD_SERVER_RPC_DISPATCHER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/rpc/route.h"
#include "server/rpc/stream.h"

namespace normd::rpc {

class Dispatcher {
 public:
  // `observer` hears of calls of unknown methods; it must outlive the dispatcher.
  explicit Dispatcher(const RpcObserver* observer) : observer_(observer) {}
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // REQUIRES: before Start.
  void Add(std::vector<Route> routes);
  // Adds the queues to a server to be built.
  void AddTo(grpc::ServerBuilder& builder, int queues);

  // REQUIRES: the server was built and runs.
  void Start();
  // Waits until every handler has let go of its stream, then ends the threads. REQUIRES: the server has shut down (or
  // was never built).
  void Stop();

 private:
  void Accept(grpc::ServerCompletionQueue* queue);
  void Dispatch(std::shared_ptr<Stream> stream);

  const RpcObserver* const observer_;
  grpc::AsyncGenericService service_;
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues_;
  std::unordered_map<std::string, Route> routes_;
  LiveCount live_;
  std::vector<std::thread> threads_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_DISPATCHER_H_
