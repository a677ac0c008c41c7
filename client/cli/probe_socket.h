// The connections with which the programs find out why gRPC's failed. Safe from any thread.
#ifndef NORMD_CLIENT_CLI_PROBE_SOCKET_H_
#define NORMD_CLIENT_CLI_PROBE_SOCKET_H_

#include <signal.h>

#include <string>

#include "absl/strings/string_view.h"

namespace normd::client {

struct HostPort {
  std::string host, port;
};

// The first address of a target of TCP.
HostPort SplitTarget(absl::string_view target);

// A connection to the first address of a target, or to its Unix socket, of which each connect, read and write takes two
// seconds at most. Closed by its destructor.
class ProbeSocket {
 public:
  explicit ProbeSocket(const std::string& target);
  ~ProbeSocket();
  ProbeSocket(const ProbeSocket&) = delete;
  ProbeSocket& operator=(const ProbeSocket&) = delete;

  int fd() const { return fd_; }  // -1: nobody listens

 private:
  const int fd_;
};

// Keeps SIGPIPE from ending the process: OpenSSL writes to sockets without asking for an error instead.
class NoSigpipe {
 public:
  NoSigpipe();
  ~NoSigpipe();
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_{}, before_{};
};

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_PROBE_SOCKET_H_
