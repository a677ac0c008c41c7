// Lines that gRPC and protobuf write on their own account go through the server's log: its format, its levels and its
// bound on the rate, instead of stderr as each library likes it.
// In the path: beside it; main makes one before gRPC starts. One at a time: both libraries have one place for it.
// Threads: lines come from any thread of theirs, also while this is destroyed.
#ifndef NORMD_SERVER_RPC_TRANSPORT_GRPC_LOG_H_
#define NORMD_SERVER_RPC_TRANSPORT_GRPC_LOG_H_

#include "server/obs/log.h"

namespace normd {

class GrpcLog {
 public:
  // Borrows `log`. One of its own is best: what peers make gRPC say then takes no room from what the server says.
  explicit GrpcLog(Log* log);
  // Later lines are dropped.
  ~GrpcLog();

  GrpcLog(const GrpcLog&) = delete;
  GrpcLog& operator=(const GrpcLog&) = delete;
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_TRANSPORT_GRPC_LOG_H_
