// The gRPC side of normd: listeners, services, queues and their lifetime. server.cc starts one, tests start many.
// In the path: first and last; everything between wire and Engine is in this folder.
// Ownership: borrows the engine and the resources, which must outlive the server. Threads: every method is safe from
// any thread.
#ifndef NORMD_SERVER_RPC_GRPC_SERVER_H_
#define NORMD_SERVER_RPC_GRPC_SERVER_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/resources.h"
#include "server/engine/engine.h"
#include "server/rpc/transport/connection_stats.h"
#include "server/rpc/transport/queue_stats.h"
#include "server/rpc/transport/server_options.h"

namespace normd {

class GrpcServer {
 public:
  // Listens and serves; health says SERVING. INVALID_ARGUMENT for an option out of range, UNAVAILABLE naming the
  // listener that cannot be bound.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(GrpcServerOptions options, Engine* engine,
                                                           Resources* resources);

  // Shutdown(no time) if it was not called.
  ~GrpcServer();

  // For each listener the port that was bound; 1 for a Unix socket.
  const std::vector<int>& ports() const;

  // Whether a connection to each listener is taken in and served at the moment: asked of the listeners themselves.
  bool Answers() const;
  ConnectionStats connections() const;
  // The longest callback is that since the last call.
  QueueStats TakeQueueStats();

  // What health answers and tells its watchers, for "" and for both services. Requests are served either way.
  void SetServing(bool serving);

  // Takes no more connections and refuses new calls with UNAVAILABLE, ends streams when what they have read is
  // answered, lets calls in flight finish for as long as `grace`, closes the connections, and returns when no handler
  // runs any more. A second call waits for the first.
  void Shutdown(absl::Duration grace);

 private:
  class State;
  explicit GrpcServer(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_GRPC_SERVER_H_
