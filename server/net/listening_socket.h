// Listening sockets, on TCP and Unix addresses.
// In the path: before an Acceptor, which accepts from them.
// Ownership: a ListeningSocket owns and closes its descriptor. Threads: thread-compatible.
#ifndef NORMD_SERVER_NET_LISTENING_SOCKET_H_
#define NORMD_SERVER_NET_LISTENING_SOCKET_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace normd::net {

// The prefix of a Unix socket's address; the path follows.
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

// The file by which clients find a Unix socket that listens. Immutable.
class SocketFile {
 public:
  // REQUIRES: a socket is bound to `path`.
  explicit SocketFile(std::string path);

  // Whether clients still find the socket: somebody may have removed the file, or have put another in its place.
  bool IsThere() const;

 private:
  std::string path_;
  uint64_t device_ = 0;
  uint64_t inode_ = 0;
};

// Listens on an address such as "127.0.0.1:8001", "[::1]:0", "localhost:8001" or "unix:/run/normd.sock". The sockets
// are non-blocking. A host name with several addresses gets a socket for each, as ListenTcp says. Returns UNAVAILABLE
// naming the address and the system's reason.
absl::StatusOr<std::vector<ListeningSocket>> Listen(const std::string& address);

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_LISTENING_SOCKET_H_
