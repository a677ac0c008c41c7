// What the options mean for each part of the transport: gRPC's own limits, connections, calls and transfers.
// In the path: when a server is made. Pure functions, but for SetTransportLimits.
#ifndef NORMD_SERVER_RPC_TRANSPORT_OPTIONS_H_
#define NORMD_SERVER_RPC_TRANSPORT_OPTIONS_H_

#include <grpcpp/server_builder.h>

#include "server/rpc/connection.h"
#include "server/rpc/dispatcher.h"
#include "server/rpc/grpc_server.h"
#include "server/rpc/transfer_watch.h"

namespace normd::rpc {

ConnectionLimits LimitsOfConnections(const GrpcServerOptions& options);
DispatchLimits LimitsOfCalls(const GrpcServerOptions& options);
TransferWatch::Options TransferOptions(const GrpcServerOptions& options);

// Memory, message, metadata and stream limits, keepalive, age, no compression.
void SetTransportLimits(const GrpcServerOptions& options, grpc::ServerBuilder& builder);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_OPTIONS_H_
