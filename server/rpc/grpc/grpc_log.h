// Sends the lines that gRPC and protobuf log through the server's log, with its format, levels and rate limit, instead
// of to stderr in each library's own format.
// In the path: beside it; main makes one before gRPC starts. Only one may exist at a time, because each library has a
// single global handler.
// Threads: lines come from any thread of the libraries, even while the GrpcLog is being destroyed.
#ifndef NORMD_SERVER_RPC_GRPC_GRPC_LOG_H_
#define NORMD_SERVER_RPC_GRPC_GRPC_LOG_H_

#include "server/obs/log.h"

namespace normd {

class GrpcLog {
 public:
  // Borrows `log`. It is best to pass a Log of its own: messages that peers provoke from gRPC then do not use up the
  // rate limit of the server's log.
  explicit GrpcLog(Log* log);
  // Waits for lines that are being written, and drops later ones.
  ~GrpcLog();

  GrpcLog(const GrpcLog&) = delete;
  GrpcLog& operator=(const GrpcLog&) = delete;
};

}  // namespace normd

#endif  // NORMD_SERVER_RPC_GRPC_GRPC_LOG_H_
