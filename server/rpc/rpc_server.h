// The gRPC side of normd: owns the listeners, services and queues. server.cc starts one RpcServer, tests start many.
// In the path: first and last; everything between the wire and the Engine is in this folder.
// Ownership: borrows the engine and the resources, which must outlive the server.
// Threads: every method is safe from any thread.
#ifndef NORMD_SERVER_RPC_RPC_SERVER_H_
#define NORMD_SERVER_RPC_RPC_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/resources.h"
#include "server/base/wait_stats.h"
#include "server/engine/engine.h"
#include "server/rpc/edge/connection_stats.h"
#include "server/rpc/edge/queue_stats.h"
#include "server/rpc/edge/rpc_options.h"

namespace normd {

class RpcServer {
 public:
  // Returns a server that listens and serves, with health SERVING. Returns INVALID_ARGUMENT for an option out of range,
  // and UNAVAILABLE naming the listener that cannot be bound.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(RpcOptions options, Engine* engine, Resources* resources);

  // Calls Shutdown without grace if it was not called before.
  ~RpcServer();

  // The bound port of each listener; 1 for a Unix socket.
  const std::vector<int>& ports() const;

  // Whether new connections are served: no thread that accepts or serves them is held up for a second or more, and none
  // was refused for want of descriptors in the last two.
  bool Serves() const;
  ConnectionStats connections() const;
  // The bytes in flight of large calls, by tenant.
  std::map<std::string, int64_t> bytes_by_tenant() const;
  // Bytes of requests admitted and not yet answered.
  int64_t in_flight_bytes() const;
  // The calls whose messages wait for room.
  WaitStats waiting_reads() const;
  // The stats of the queues. `longest_callback` is the longest since the last call of this method.
  QueueStats TakeQueueStats();

  // Sets the answer of health and notifies its watchers (see HealthService). Requests are served either way.
  void SetServing(bool serving);

  // Takes no more connections, refuses new calls with UNAVAILABLE, ends each stream when all messages that it has read
  // are answered, gives calls in flight up to `grace` to finish, closes the connections, and returns when no handler
  // runs. A second call waits for the first.
  void Shutdown(absl::Duration grace);

 private:
  class State;
  explicit RpcServer(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_RPC_SERVER_H_
