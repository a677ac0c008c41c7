// What Describe answers: the table of methods, limits, devices. Pure function.
#ifndef NORMD_SERVER_RPC_SERVICES_DESCRIBE_H_
#define NORMD_SERVER_RPC_SERVICES_DESCRIBE_H_

#include "normd/v1/normalizer.pb.h"
#include "server/engine/engine.h"
#include "server/rpc/transport/server_options.h"

namespace normd::rpc {

v1::DescribeResponse Describe(const GrpcServerOptions& options, const Engine& engine);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_SERVICES_DESCRIBE_H_
