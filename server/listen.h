// Parses the addresses to listen on, and looks after the file of a Unix socket: removes the leftover of a dead server,
// makes the file private, and deletes it at the end.
// In the path: config.cc checks addresses, and server.cc prepares them before rpc binds.
// Threads: every function is safe from any thread.
#ifndef NORMD_SERVER_LISTEN_H_
#define NORMD_SERVER_LISTEN_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace normd {

struct ListenAddress {
  std::string text;       // as given
  std::string unix_path;  // PATH of "unix:PATH"; empty: TCP
  std::string host;       // without brackets
  int port = 0;           // 0: any free port

  // True for a Unix socket, localhost or a loopback address, which other machines cannot reach.
  bool IsLocal() const;
};

// Parses "host:port", "[v6]:port" or "unix:/absolute/path". Errors are INVALID_ARGUMENT and name `option`.
absl::StatusOr<ListenAddress> ParseListenAddress(std::string_view option, std::string_view text);

// Makes the folder of the socket (mode 0700) if it is missing, and removes a socket file on which nobody listens.
// Returns UNAVAILABLE when a live server listens on `path`, and FAILED_PRECONDITION when the folder belongs to another
// user or others can write to it, or when `path` is not a socket.
absl::Status PrepareUnixSocket(const std::string& path);

// Sets the socket's mode to 0600. Call this after the bind, which creates the file.
absl::Status RestrictUnixSocket(const std::string& path);

// Removes the socket file. A missing file is fine, because gRPC may have removed it.
void RemoveUnixSocket(const std::string& path);

}  // namespace normd

#endif  // NORMD_SERVER_LISTEN_H_
