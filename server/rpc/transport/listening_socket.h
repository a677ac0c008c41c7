// Sockets that listen: bound by us, so that we accept from them, and not by gRPC.
// In the path: before the accept loop. Errors say which address could not be had and what the system said.
// Threads: thread-compatible. Ownership: a ListeningSocket closes its descriptor.
#ifndef NORMD_SERVER_RPC_TRANSPORT_LISTENING_SOCKET_H_
#define NORMD_SERVER_RPC_TRANSPORT_LISTENING_SOCKET_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace normd::rpc {

// How the address of a Unix socket begins; a path follows.
inline constexpr std::string_view kUnixPrefix = "unix:";

class ListeningSocket {
 public:
  ListeningSocket(int fd, bool is_unix) : fd_(fd), is_unix_(is_unix) {}
  ListeningSocket(ListeningSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), is_unix_(other.is_unix_) {}
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  int fd() const { return fd_; }
  bool is_unix() const { return is_unix_; }
  int port() const;  // 1 for a Unix socket

 private:
  int fd_;
  bool is_unix_;
};

// Listens on "127.0.0.1:8001", "[::1]:0", "localhost:8001" or "unix:/run/normd.sock", non-blocking. A name with several
// addresses gets a socket for each, all on one port. UNAVAILABLE naming the address and the reason.
absl::StatusOr<std::vector<ListeningSocket>> Listen(const std::string& address);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_LISTENING_SOCKET_H_
