// Translates the options into the limits of each part of the transport: connections, calls and transfers.
// In the path: used once, when a server is made. Threads: pure functions.
#ifndef NORMD_SERVER_RPC_EDGE_TRANSPORT_OPTIONS_H_
#define NORMD_SERVER_RPC_EDGE_TRANSPORT_OPTIONS_H_

#include "server/rpc/edge/connection.h"
#include "server/rpc/edge/dispatcher.h"
#include "server/rpc/edge/rpc_options.h"
#include "server/rpc/edge/transfer_watch.h"

namespace normd::rpc {

ConnectionLimits LimitsOfConnections(const RpcOptions& options);
DispatchLimits LimitsOfCalls(const RpcOptions& options);
TransferLimits LimitsOfTransfers(const RpcOptions& options);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_EDGE_TRANSPORT_OPTIONS_H_
