// Sockets that listen on TCP, for the callers of gRPC and of the admin listener alike.
// In the path: before whoever accepts from them. Threads: pure functions.
#ifndef NORMD_SERVER_NET_LISTEN_TCP_H_
#define NORMD_SERVER_NET_LISTEN_TCP_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/unique_fd.h"

namespace normd::net {

// Non-blocking sockets that listen on every address of `host`, a name or an address without brackets, all on one port;
// port 0 is any free one. "::" means IPv4, too, and IPv4 alone where the system has no IPv6. An address that this
// machine does not have is passed over while there is another; one whose port is in use never is, because callers of a
// name would reach two servers. UNAVAILABLE with the system's reason.
absl::StatusOr<std::vector<UniqueFd>> ListenTcp(const std::string& host, int port);

// The port of an address; 0 if it is none of TCP.
uint16_t PortOf(const sockaddr_storage& address);

// The port of a TCP socket; 0 if it has none.
int BoundPort(int fd);

}  // namespace normd::net

#endif  // NORMD_SERVER_NET_LISTEN_TCP_H_
