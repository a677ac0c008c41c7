// What Describe answers: the table of methods, limits, devices. Pure function.
#ifndef NORMD_SERVER_RPC_DESCRIBE_H_
#define NORMD_SERVER_RPC_DESCRIBE_H_

#include "normd/v1/normalizer.pb.h"
#include "server/rpc/grpc_server.h"
#include "server/session/session_store.h"

namespace normd::rpc {

// Data of one Chunk, of an import and of a tensor.
inline constexpr int64_t kMaxChunkBytes = int64_t{1} << 20;

v1::DescribeResponse Describe(const GrpcServerOptions& options, const SessionStore& sessions);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_DESCRIBE_H_
