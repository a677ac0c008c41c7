// Makes the reply of Describe: the table of methods, the limits and the devices.
// In the path: beside it; called by normalizer_service.cc. Threads: pure function.
#ifndef NORMD_SERVER_RPC_SERVICES_DESCRIBE_H_
#define NORMD_SERVER_RPC_SERVICES_DESCRIBE_H_

#include "normd/v1/normalizer.pb.h"
#include "server/engine/engine.h"
#include "server/rpc/edge/rpc_options.h"

namespace normd::rpc {

v1::DescribeResponse Describe(const RpcOptions& options, const Engine& engine);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_DESCRIBE_H_
