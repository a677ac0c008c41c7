// The accept loop: it accepts connections from the listening sockets, applies the limits, and hands a connection to the
// transport once the peer has finished its half of HTTP/2's set-up or, where TLS is spoken, has sent its ClientHello.
// gRPC's own listener stops for good when descriptors run out, and limits nothing.
// In the path: before the transport.
// Ownership: owns the listeners and the connections that are not handed over; borrows the table and the transport,
// which must outlive it.
// Threads: has one of its own. Start and Stop are called once each, from one thread; ExemptPort is safe from any
// thread.
#ifndef NORMD_SERVER_RPC_TRANSPORT_ACCEPT_LOOP_H_
#define NORMD_SERVER_RPC_TRANSPORT_ACCEPT_LOOP_H_

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/rpc/transport/connection.h"
#include "server/rpc/transport/listening_socket.h"
#include "server/rpc/transport/preface.h"
#include "server/rpc/transport/transport.h"

namespace normd::rpc {

class AcceptLoop {
 public:
  struct Options {
    absl::Duration setup_timeout;  // from accept to the hand-over
    bool tls = false;              // whether TLS is spoken over TCP; it never is over a Unix socket
    // A connection was closed because of a limit: the limit in words, and the peer's address. At most once a minute for
    // each limit. May be null.
    std::function<void(std::string_view limit, const std::string& address)> on_full = {};
  };

  AcceptLoop(const Options& options, ConnectionTable* table, RpcTransport* transport)
      : options_(options), table_(table), transport_(transport) {}
  AcceptLoop(const AcceptLoop&) = delete;
  AcceptLoop& operator=(const AcceptLoop&) = delete;
  ~AcceptLoop() { Stop(); }

  // Starts accepting. Returns UNAVAILABLE when no descriptors are left for the loop.
  absl::Status Start(std::vector<ListeningSocket> listeners);
  // Stops accepting: closes the listeners and the connections that have not been handed over.
  void Stop();

  // Exempts connections whose source port is `port` from all limits, because ListenerProbe uses the port; 0 exempts
  // none. Only the port is compared, not the host.
  void ExemptPort(uint16_t port) { exempt_port_.store(port, std::memory_order_relaxed); }

 private:
  // A connection whose set-up is not finished.
  struct Pending {
    int listener_fd = -1;
    bool is_unix = false;
    absl::Time deadline;
    ConnectionPtr connection;  // null: an exempt connection
  };

  // A connection that is not served.
  struct Parting {
    absl::Time end;
    int fd = -1;
    std::string why;  // what its first call is answered with; empty: nothing more is sent
  };

  void Run();
  void AcceptFrom(const ListeningSocket& listener);
  void TakeIn(int fd, const sockaddr_storage& address, const ListeningSocket& listener);
  // Closes the spare descriptor to accept and close one connection, so that the peer learns of the refusal instead of
  // waiting.
  void RefuseForWantOfDescriptors(int listener_fd);
  // Judges the bytes received on a pending connection: waits for more, drops the connection, or hands it over.
  // `ended` says that the peer sends no more.
  void LookAt(int fd, bool ended);
  // Drops a pending connection that speaks something else than is spoken here.
  void TurnAway(int fd, Preface spoken, bool tls);
  void Drop(int fd, RefusedFor reason);
  // Counts the end of a pending connection, whose descriptor stays open.
  void Forget(int fd, RefusedFor reason);
  // Closes a connection of which `limit` is full, and says so.
  void RefuseForLimit(int fd, Refusal limit, const std::string& address, bool tls);
  // Keeps a connection that is not served for a moment, so that its peer reads the answer: bytes of the peer that
  // nobody has read turn a close into a reset, which could destroy it. With `why`, its first call is answered with
  // that.
  void Part(int fd, std::string_view answer, std::string why);
  // Answers the first call of such a connection, if it has come.
  void AnswerParting(int fd);
  void EndParting(absl::Time until, size_t most);
  void DropOverdue();

  // Constant after Start.
  const Options options_;
  ConnectionTable* const table_;
  RpcTransport* const transport_;
  std::vector<ListeningSocket> listeners_;
  int epoll_fd_ = -1;
  int stop_fd_ = -1;

  // Used by the loop's thread only.
  int spare_fd_ = -1;
  std::deque<Parting> parting_;                           // the oldest first
  std::array<absl::Time, kRefusalCount> next_warning_{};  // by Refusal
  std::unordered_map<int, Pending> pending_;
  std::deque<std::pair<absl::Time, int>> deadlines_;  // in order of time, because every set-up has the same timeout

  std::atomic<uint16_t> exempt_port_{0};
  std::thread thread_;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_ACCEPT_LOOP_H_
