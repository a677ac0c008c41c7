// What turns connections into calls and back: gRPC's completion queues (grpc/) or our own HTTP/2 (http2/).
// In the path: between the accept loop, which makes connections, and the dispatcher, which gets their calls.
// Threads: Start, Shutdown and Stop are called once each, from one thread; everything else is safe from any thread. A
// transport has threads of its own, its queues; each connection belongs to one of them.
#ifndef NORMD_SERVER_RPC_EDGE_TRANSPORT_H_
#define NORMD_SERVER_RPC_EDGE_TRANSPORT_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "server/base/unique_fd.h"
#include "server/net/listening_socket.h"
#include "server/rpc/edge/connection.h"
#include "server/rpc/edge/queue_stats.h"
#include "server/rpc/edge/rpc_call.h"

namespace normd::rpc {

class RpcTransport {
 public:
  // Gets each call at its headers, on its queue's thread.
  using OnCall = std::function<void(std::shared_ptr<RpcCall>)>;

  virtual ~RpcTransport() = default;

  // `calls` is for the calls that it makes.
  virtual absl::Status Start(const CallHost& calls, OnCall on_call) = 0;
  // Makes the object of a new connection.
  virtual ConnectionPtr MakeConnection(Connection::Facts facts, std::shared_ptr<PeerCalls> peer_calls) = 0;
  // Takes a connection from which nothing has been read, and which `listener` has accepted; `connection` is the object
  // that the transport has made for it. The transport counts it as accepted when the first bytes are right: see
  // ConnectionTable::CountAccepted.
  virtual void Adopt(UniqueFd fd, const net::ListeningSocket& listener, ConnectionPtr connection) = 0;
  // Asks all peers to open no more calls here (GOAWAY). Calls in progress go on.
  virtual void Drain() = 0;
  // Closes the remaining connections and ends their calls. REQUIRES: no Adopt is called any more.
  virtual void Shutdown() = 0;
  // Checks all calls whose messages are arriving, on TransferWatch's thread: for limits that a transport cannot enforce
  // as the bytes arrive.
  virtual void LookAt(const std::vector<std::shared_ptr<RpcCall>>& /*in_progress*/) {}
  // Whether no queue is held up: see net::LoopLoad::serves.
  virtual bool serves() const = 0;
  // Ends the threads. REQUIRES: Shutdown was called, and no call exists.
  virtual void Stop() = 0;

  // The stats of the queues, but for the number of calls. `longest_callback` is the longest since the last call of this
  // method.
  virtual QueueStats TakeStats() = 0;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_TRANSPORT_H_
