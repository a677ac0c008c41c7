// Parses the addresses to listen on, and looks after the file of a Unix socket: removes the leftover of a dead server,
// makes the file private, and deletes it at the end.
// In the path: config.cc checks addresses, and server.cc prepares them before rpc binds.
// Threads: every function is safe from any thread.
#ifndef NORMD_SERVER_OPTIONS_LISTEN_H_
#define NORMD_SERVER_OPTIONS_LISTEN_H_

#include <sys/types.h>

#include <optional>
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

// Who may connect to a Unix socket.
struct UnixSocketAccess {
  mode_t mode = 0600;
  std::optional<gid_t> group;  // nullopt: as the system makes it
};

// The access that --unix_socket_mode and --unix_socket_group name. FAILED_PRECONDITION: there is no such group.
absl::StatusOr<UnixSocketAccess> ParseUnixSocketAccess(const std::string& mode, const std::string& group);

// Makes the folder of the socket if it is missing, which then can be entered by those who may connect and by nobody
// else, and removes a socket file on which nobody listens. Returns UNAVAILABLE when a live server listens on `path`,
// and FAILED_PRECONDITION when the folder belongs to another user or can be written by others than may connect, or when
// `path` is not a socket.
absl::Status PrepareUnixSocket(const std::string& path, const UnixSocketAccess& access = {});

// Gives the socket its mode and group. Call this after the bind, which creates the file.
absl::Status RestrictUnixSocket(const std::string& path, const UnixSocketAccess& access = {});

// Removes the socket file. A missing file is fine, because gRPC's library may have removed it.
void RemoveUnixSocket(const std::string& path);

}  // namespace normd

#endif  // NORMD_SERVER_OPTIONS_LISTEN_H_
