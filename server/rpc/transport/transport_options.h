// Translates the options into the limits of each part of the transport: connections, calls and transfers.
// In the path: used once, when a server is made. Threads: pure functions.
#ifndef NORMD_SERVER_RPC_TRANSPORT_TRANSPORT_OPTIONS_H_
#define NORMD_SERVER_RPC_TRANSPORT_TRANSPORT_OPTIONS_H_

#include "server/rpc/transport/connection.h"
#include "server/rpc/transport/dispatcher.h"
#include "server/rpc/transport/server_options.h"
#include "server/rpc/transport/transfer_watch.h"

namespace normd::rpc {

ConnectionLimits LimitsOfConnections(const GrpcServerOptions& options);
DispatchLimits LimitsOfCalls(const GrpcServerOptions& options);
// The time from accept to the hand-over to gRPC. With TLS gRPC needs time for the handshake after that: half for each,
// so that the two together take setup_timeout.
absl::Duration HandOverTimeout(const GrpcServerOptions& options);
// How long a reply, or what else waits for a peer's socket, may be unread.
absl::Duration UnreadTimeout(const GrpcServerOptions& options);
// The most that metadata, and messages which came before they were asked for, may take; beside the budget.
int64_t MaxWaitingBytes(const GrpcServerOptions& options);
TransferWatch::Options TransferOptions(const GrpcServerOptions& options);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_TRANSPORT_OPTIONS_H_
