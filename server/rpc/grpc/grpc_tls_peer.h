// Reads from gRPC what TLS says of the peer of a call.
// In the path: once for each call, at its arrival. Threads: safe from any thread.
#ifndef NORMD_SERVER_RPC_GRPC_GRPC_TLS_PEER_H_
#define NORMD_SERVER_RPC_GRPC_GRPC_TLS_PEER_H_

#include "server/net/tls_peer.h"

struct grpc_call;

namespace normd::rpc {

// The peer of `call`, remembered in the `memory` of its connection; never null.
net::TlsPeerPtr FindTlsPeer(grpc_call* call, net::TlsPeerMemory& memory);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_GRPC_GRPC_TLS_PEER_H_
