// The accept loop: it accepts connections from the listening sockets, applies the limits, and hands the connections to
// the transport. gRPC's own listener stops for good when descriptors run out, and limits nothing.
// In the path: before the transport.
// Ownership: owns the listeners, and the connections that it refuses, for the moment in which their peers read why;
// borrows the table and the transport, which must outlive it.
// Threads: has one of its own. Start and Stop are called once each, from one thread; serves is safe from any thread.
#ifndef NORMD_SERVER_RPC_EDGE_ACCEPT_LOOP_H_
#define NORMD_SERVER_RPC_EDGE_ACCEPT_LOOP_H_

#include <sys/socket.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/unique_fd.h"
#include "server/net/acceptor.h"
#include "server/net/event_loop.h"
#include "server/net/listening_socket.h"
#include "server/net/timer_heap.h"
#include "server/rpc/edge/connection.h"
#include "server/rpc/edge/transport.h"

namespace normd::rpc {

class AcceptLoop : private net::Acceptor::Owner {
 public:
  struct Options {
    bool tls = false;  // whether TLS is spoken over TCP; it never is over a Unix socket
    // A connection that is refused stays open no longer than this, and no longer than a second.
    absl::Duration setup_timeout = absl::Seconds(10);
    // A connection was closed because of a limit: the limit in words, and the peer's address. At most once a minute for
    // each limit. May be null.
    std::function<void(std::string_view limit, const std::string& address)> on_full = {};
  };

  AcceptLoop(const Options& options, ConnectionTable* table, RpcTransport* transport);
  AcceptLoop(const AcceptLoop&) = delete;
  AcceptLoop& operator=(const AcceptLoop&) = delete;
  ~AcceptLoop() override { Stop(); }

  // Starts accepting. Returns UNAVAILABLE when no descriptors are left for the loop.
  absl::Status Start(std::vector<net::ListeningSocket> listeners);
  // Stops accepting: closes the listeners, and the connections that were refused.
  void Stop();

  // Whether a new connection would be accepted now: the loop turns, and the process has descriptors.
  bool serves() const;

 private:
  class RefusedConnection;

  void OnAccepted(UniqueFd fd, const sockaddr_storage& peer, const net::ListeningSocket& listener) override;
  void OnRefused() override;
  // Refuses a connection because `limit` is full, and says so.
  void RefuseForLimit(UniqueFd fd, Refusal limit, const std::string& address, bool tls);
  // Closes the oldest refused connections until `most` are left.
  void CloseRefused(size_t most);
  void Forget(RefusedConnection* connection);
  // Removes connections that have ended from the table, once a second.
  void Sweep();

  // Constant after construction.
  const Options options_;
  ConnectionTable* const table_;
  RpcTransport* const transport_;

  net::EventLoop loop_;
  net::Acceptor acceptor_;
  // Used by the loop's thread only.
  std::deque<std::shared_ptr<RefusedConnection>> refused_;  // the oldest first
  std::array<absl::Time, kRefusalCount> next_warning_{};    // by Refusal
  net::Timer sweep_timer_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_ACCEPT_LOOP_H_
