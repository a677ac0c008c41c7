// Which HTTP proxy of the environment gRPC sends a channel's calls through, and whether it should. gRPC takes the first
// of grpc_proxy, https_proxy and http_proxy for every target but unix:, even for a server on the same machine, and its
// no_proxy knows plain suffixes alone. Here loopback is never sent through a proxy, and no_proxy is read as curl and
// Python read it. Clients and the server's exporter of traces switch gRPC's proxy off where this says that there is
// none. Reads the environment; safe from any thread while no thread changes it.
#ifndef NORMD_PROTO_WIRE_HTTP_PROXY_H_
#define NORMD_PROTO_WIRE_HTTP_PROXY_H_

#include <optional>
#include <string>
#include <string_view>

namespace normd::wire {

// True for a host that only this machine answers: localhost and names that end in .localhost (RFC 6761), 127.0.0.0/8,
// ::1, the same mapped into IPv6, and the unspecified addresses, which lead to this machine as well. Takes an IPv6
// address with or without brackets and zone.
bool IsLoopbackHost(std::string_view host);

// True if all addresses of a gRPC target are of this machine: "unix:/path", "127.0.0.1:8001", "dns:///localhost:8001",
// "ipv4:127.0.0.1:1,127.0.0.1:2", "[::1]:8001".
bool IsLoopbackTarget(std::string_view target);

struct HttpProxy {
  std::string variable;  // "http_proxy"
  std::string address;   // "proxy.example:3128", without the credentials that the variable may hold
  std::string host;      // of the target, as no_proxy would name it
};

// The proxy through which gRPC sends the calls of `target`; nullopt if they must go directly. A list of addresses goes
// directly, because a proxy is asked for one.
std::optional<HttpProxy> HttpProxyOf(std::string_view target);

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_HTTP_PROXY_H_
