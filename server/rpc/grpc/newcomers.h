// Connections that gRPC does not have yet: each is looked at until its client has finished its half of HTTP/2's set-up
// or, where TLS is spoken, has sent its ClientHello. gRPC allocates for every connection that it gets, and waits two
// minutes for its first bytes.
// In the path: between the accept loop and gRPC.
// Ownership: owns the connections until they are handed over; borrows the table, which must outlive it.
// Threads: a loop of its own, on which connections are handed over. Start and Stop are called by one thread; the rest
// is safe from any thread.
#ifndef NORMD_SERVER_RPC_GRPC_NEWCOMERS_H_
#define NORMD_SERVER_RPC_GRPC_NEWCOMERS_H_

#include <functional>
#include <memory>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/unique_fd.h"
#include "server/net/event_loop.h"
#include "server/net/listening_socket.h"
#include "server/rpc/edge/connection.h"

namespace normd::rpc {

class Newcomers {
 public:
  struct Options {
    absl::Duration setup_timeout;  // from accept to the hand-over
    bool tls = false;              // whether TLS is spoken over TCP
  };
  using HandOver = std::function<void(UniqueFd fd, int listener_fd, bool is_unix)>;

  Newcomers(const Options& options, ConnectionTable* table, HandOver hand_over)
      : options_(options), table_(table), hand_over_(std::move(hand_over)) {}
  ~Newcomers() { Stop(); }
  Newcomers(const Newcomers&) = delete;
  Newcomers& operator=(const Newcomers&) = delete;

  // Returns UNAVAILABLE when no descriptors are left for the loop.
  absl::Status Start();
  // Closes the connections that are left. Idempotent.
  void Stop();

  void Add(UniqueFd fd, const net::ListeningSocket& listener, ConnectionPtr connection);
  bool serves() const { return loop_.load().serves(); }

 private:
  class Newcomer;

  const Options options_;
  ConnectionTable* const table_;
  const HandOver hand_over_;
  net::EventLoop loop_;
  // Used by the loop's thread only.
  std::unordered_map<Newcomer*, std::shared_ptr<Newcomer>> newcomers_;
  bool stopped_ = false;
};

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_GRPC_NEWCOMERS_H_
