// Addresses to listen on, and the file of a Unix socket: made private, freed of a dead server's leftovers, removed.
// In the path: config checks addresses, server.cc prepares them before rpc binds. Safe from any thread.
#ifndef NORMD_SERVER_LISTEN_H_
#define NORMD_SERVER_LISTEN_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace normd {

struct ListenAddress {
  std::string text;       // as it was given
  std::string unix_path;  // of "unix:PATH"; empty: TCP
  std::string host;       // without brackets
  int port = 0;           // 0: any free one

  // A Unix socket, localhost or a loopback address: cannot be reached from another machine.
  bool IsLocal() const;
};

// "host:port", "[v6]:port" or "unix:/absolute/path". Errors name `option`.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view option, std::string_view text);

// Makes the socket's folder (mode 0700) where it is missing and removes a socket file that nobody listens on.
// UNAVAILABLE when a live server holds it, FAILED_PRECONDITION when the folder belongs to somebody else or the path is
// not a socket.
absl::Status PrepareUnixSocket(const std::string& path);

// After the bind: mode 0600.
absl::Status RestrictUnixSocket(const std::string& path);

// At the end; a missing file is fine (gRPC may have removed it).
void RemoveUnixSocket(const std::string& path);

}  // namespace normd

#endif  // NORMD_SERVER_LISTEN_H_
