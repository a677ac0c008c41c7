// Our own accept loop: it takes connections from the listening sockets, counts and judges them, and hands those that
// have finished their half of HTTP/2's set-up to gRPC. gRPC's own listener stops for good when descriptors run out, and
// bounds nothing.
// In the path: before gRPC. Threads: one of its own; Start and Stop are called once each, from one thread, the rest is
// safe from any thread. The table must outlive it.
#ifndef NORMD_SERVER_RPC_TRANSPORT_ACCEPT_LOOP_H_
#define NORMD_SERVER_RPC_TRANSPORT_ACCEPT_LOOP_H_

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/rpc/transport/connection.h"
#include "server/rpc/transport/listening_socket.h"

namespace normd::rpc {

class AcceptLoop {
 public:
  // Gives a connection to gRPC, which owns the descriptor from then on.
  using HandOver = std::function<void(int fd, int listener_fd, bool is_unix)>;

  struct Options {
    absl::Duration setup_timeout;  // from the accept to the end of the peer's half of HTTP/2's set-up
  };

  AcceptLoop(const Options& options, ConnectionTable* table, HandOver hand_over)
      : options_(options), table_(table), hand_over_(std::move(hand_over)) {}
  AcceptLoop(const AcceptLoop&) = delete;
  AcceptLoop& operator=(const AcceptLoop&) = delete;
  ~AcceptLoop() { Stop(); }

  absl::Status Start(std::vector<ListeningSocket> listeners);
  // Nothing is accepted any more: the listeners are closed, and so are connections that have not been handed over.
  void Stop();

  // Connections from this port of the same host are the server's own: no limit refuses them. 0: there are none.
  void ExemptPort(uint16_t port) { exempt_port_.store(port, std::memory_order_relaxed); }

 private:
  // A connection whose set-up is not finished.
  struct Pending {
    int listener_fd = -1;
    bool is_unix = false;
    absl::Time deadline;
    ConnectionPtr connection;  // null: exempt
  };

  void Run();
  void AcceptFrom(const ListeningSocket& listener);
  void TakeIn(int fd, const sockaddr_storage& address, const ListeningSocket& listener);
  // Makes room for one accept by giving up the descriptor that is kept for it, so that the peer is told instead of kept
  // waiting.
  void RefuseForWantOfDescriptors(int listener_fd);
  void LookAt(int fd);
  void Drop(int fd, RefusedFor reason);
  void DropOverdue();

  // Constant after Start.
  const Options options_;
  ConnectionTable* const table_;
  const HandOver hand_over_;
  std::vector<ListeningSocket> listeners_;
  int epoll_fd_ = -1;
  int stop_fd_ = -1;

  // Of the loop's thread alone.
  int spare_fd_ = -1;
  std::unordered_map<int, Pending> pending_;
  std::deque<std::pair<absl::Time, int>> deadlines_;  // in order: every set-up has the same time

  std::atomic<uint16_t> exempt_port_{0};
  std::thread thread_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_ACCEPT_LOOP_H_
