// What the options mean for each part of the transport: gRPC's own limits, connections, calls and transfers.
// In the path: when a server is made. Pure functions, but for SetTransportLimits.
#ifndef NORMD_SERVER_RPC_TRANSPORT_TRANSPORT_OPTIONS_H_
#define NORMD_SERVER_RPC_TRANSPORT_TRANSPORT_OPTIONS_H_

#include <grpcpp/server_builder.h>

#include "server/rpc/transport/connection.h"
#include "server/rpc/transport/dispatcher.h"
#include "server/rpc/transport/server_options.h"
#include "server/rpc/transport/transfer_watch.h"

namespace normd::rpc {

ConnectionLimits LimitsOfConnections(const GrpcServerOptions& options);
DispatchLimits LimitsOfCalls(const GrpcServerOptions& options);
TransferWatch::Options TransferOptions(const GrpcServerOptions& options);

// Memory, message, metadata and stream limits, keepalive, age, no compression.
void SetTransportLimits(const GrpcServerOptions& options, grpc::ServerBuilder& builder);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_TRANSPORT_TRANSPORT_OPTIONS_H_
